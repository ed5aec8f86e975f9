//! What the command line prints and how it ends. The only place that writes to standard output;
//! never prints a credential that was not asked for.

use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

/// How a command ends, worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Everything is right: 0.
    Right,
    /// `render`: something would change: 3.
    WouldChange,
    /// Some object, case or policy failed: 1.
    Failed,
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Right => Self::SUCCESS,
            Ending::Failed => Self::FAILURE,
            Ending::WouldChange => Self::from(3),
        }
    }
}

/// Standard output and standard error of a command.
#[derive(Debug)]
pub(crate) struct Screen {
    /// Colours only where a person looks.
    colours: bool,
    /// A progress line only where a person looks.
    progress: bool,
}

impl Screen {
    /// The process's own.
    pub(crate) fn new() -> Self {
        Self { colours: io::stdout().is_terminal(), progress: io::stderr().is_terminal() }
    }

    /// One line on standard output; a closed pipe ends the printing, not the program.
    pub(crate) fn line(&self, line: fmt::Arguments<'_>) {
        // Rendered lists are long: their pieces go out together.
        let mut out = io::BufWriter::new(io::stdout().lock());
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }

    /// Text on standard output as it stands.
    pub(crate) fn text(&self, text: &str) {
        let _ = io::stdout().lock().write_all(text.as_bytes());
    }

    /// One line on standard error.
    pub(crate) fn note(&self, line: fmt::Arguments<'_>) {
        let _ = writeln!(io::stderr().lock(), "{line}");
    }

    /// Replaces the progress line, where there is one.
    pub(crate) fn progress(&self, line: fmt::Arguments<'_>) {
        if self.progress {
            let _ = write!(io::stderr().lock(), "\r\x1b[2K{line}");
        }
    }

    /// Removes the progress line.
    pub(crate) fn end_progress(&self) {
        if self.progress {
            let _ = write!(io::stderr().lock(), "\r\x1b[2K");
        }
    }

    /// A word in the colour of its meaning, padded to a width.
    pub(crate) fn tinted(&self, word: &str, tint: Tint, width: usize) -> String {
        if self.colours { format!("\x1b[{}m{word:<width$}\x1b[0m", tint as u8) } else { format!("{word:<width$}") }
    }
}

/// What a colour means, as its terminal code.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Tint {
    /// Wrong.
    Red = 31,
    /// Right.
    Green = 32,
    /// Not yet.
    Yellow = 33,
}
