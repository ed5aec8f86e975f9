//! What the command line prints, and how it ends. All commands but `compile` write to standard output here. A
//! credential is printed only when it was asked for.

use crate::controller::Clock;
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use transom_core::redact::visible::{visible, visible_lines};
use transom_core::time::format_rfc3339;

/// How a command ends, worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Everything is right: 0.
    Right,
    /// `--exit-code`: something would change: 3.
    WouldChange,
    /// Some object, case or policy failed: 1.
    Failed,
    /// Another code: that of a program that could not be run.
    Code(u8),
}

impl Ending {
    /// How a command ends that found something wrong, or did not.
    pub(crate) fn failed_if(wrong: bool) -> Self {
        if wrong { Self::Failed } else { Self::Right }
    }
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Right => Self::SUCCESS,
            Ending::Failed => Self::FAILURE,
            Ending::WouldChange => Self::from(3),
            Ending::Code(code) => Self::from(code),
        }
    }
}

/// Standard output and standard error of a command.
#[derive(Debug)]
pub(crate) struct Screen {
    /// Whether to print colours: only on a terminal.
    colours: bool,
    /// Whether to print a progress line: only on a terminal.
    progress: bool,
    /// Whether notes are JSON, as log lines are.
    json: AtomicBool,
    /// The first error of writing to standard output.
    lost: Mutex<Option<io::Error>>,
}

impl Screen {
    /// The screen of this process.
    pub(crate) fn new() -> Self {
        Self {
            colours: io::stdout().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()),
            progress: io::stderr().is_terminal(),
            json: AtomicBool::default(),
            lost: Mutex::default(),
        }
    }

    /// Prints notes as JSON objects from now on.
    pub(crate) fn notes_as_json(&self) {
        self.json.store(true, Ordering::Relaxed);
    }

    /// The first error of writing to standard output, if there was one. A closed pipe is no error: its reader has read
    /// enough.
    pub(crate) fn lost(&self) -> Option<io::Error> {
        self.lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn keep(&self, written: io::Result<()>) {
        if let Err(error) = written
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            self.lost
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(error);
        }
    }

    /// Prints one line on standard output, with hidden characters escaped. A closed pipe ends the printing, not the
    /// program.
    pub(crate) fn line(&self, line: fmt::Arguments<'_>) {
        let mut line = coloured(&visible(&line.to_string()));
        line.push('\n');
        self.script(line.as_bytes());
    }

    /// Prints a document on standard output.
    pub(crate) fn json(&self, document: &impl Serialize) {
        match serde_json::to_string_pretty(document) {
            Ok(text) => self.text(&format!("{text}\n")),
            Err(error) => self.keep(Err(error.into())),
        }
    }

    /// Prints lines on standard output, with hidden characters escaped.
    pub(crate) fn text(&self, text: &str) {
        self.script(visible_lines(text).as_bytes());
    }

    /// Prints the agent's own text for another program, unchanged.
    pub(crate) fn script(&self, text: &[u8]) {
        let mut out = io::stdout().lock();
        self.keep(out.write_all(text).and_then(|()| out.flush()));
    }

    /// Prints such text in pieces.
    pub(crate) fn scripts<'t>(&self, pieces: impl Iterator<Item = &'t str>) {
        let mut out = BufWriter::with_capacity(PIECES, io::stdout().lock());
        let mut pieces = pieces.map(str::as_bytes);
        let written = pieces.try_for_each(|piece| out.write_all(piece));
        self.keep(written.and_then(|()| out.flush()));
    }

    /// Prints rows on standard output, in columns under their heading.
    pub(crate) fn table<const N: usize>(
        &self,
        heading: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) {
        let heading = heading.map(str::to_owned);
        let rows: Vec<_> = [heading].into_iter().chain(rows).collect();
        for line in columns(&rows) {
            self.line(format_args!("{line}"));
        }
    }

    /// Prints one line on standard error, with hidden characters escaped.
    pub(crate) fn note(&self, line: fmt::Arguments<'_>) {
        self.tell(line, []);
    }

    /// Prints one line on standard error; when notes are JSON, with these fields.
    pub(crate) fn tell<const N: usize>(
        &self,
        line: fmt::Arguments<'_>,
        fields: [(&str, Value); N],
    ) {
        let line = line.to_string();
        let line = match self.json.load(Ordering::Relaxed) {
            true => {
                let said = [
                    ("timestamp", json!(now())),
                    ("level", json!("INFO")),
                    ("message", json!(line.trim())),
                ];
                let all = said
                    .into_iter()
                    .chain(fields)
                    .map(|(key, value)| (key.to_owned(), value));
                Value::Object(all.collect()).to_string()
            }
            false => line,
        };
        let _ = writeln!(io::stderr().lock(), "{}", coloured(&visible(&line)));
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
        if self.colours {
            format!("{}{word:<width$}{PLAIN}", tint.mark())
        } else {
            format!("{word:<width$}")
        }
    }
}

/// Lines with their hidden characters escaped, for [`Screen::scripts`].
pub(crate) fn printable(text: String) -> String {
    match visible_lines(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(shown) => shown,
    }
}

/// Bytes of small pieces of text that are printed together.
const PIECES: usize = 64 << 10;

/// The mark that ends a colour.
const PLAIN: char = '\u{fdd0}';

/// Replaces the marks of colours in a line by terminal codes. The marks are noncharacters of Unicode, which no text
/// contains.
fn coloured(line: &str) -> String {
    let marked = [Tint::Red, Tint::Green, Tint::Yellow];
    let coded =
        |line: String, tint: &Tint| line.replace(tint.mark(), &format!("\x1b[{}m", *tint as u8));
    marked.iter().fold(line.replace(PLAIN, "\x1b[0m"), coded)
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

impl Tint {
    /// The mark that stands for the code until a line is printed.
    fn mark(self) -> char {
        match self {
            Self::Red => '\u{fdd1}',
            Self::Green => '\u{fdd2}',
            Self::Yellow => '\u{fdd3}',
        }
    }
}

/// The time of a note.
fn now() -> String {
    format_rfc3339(Clock::new(None).now_seconds())
}

/// Rows as lines: every column as wide as its widest cell, the last one as it is.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    });
    let line = |row: &[String; N]| {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            line.push_str(cell);
            // Not by a format's width, which panics above 65,535: a cell may hold a long message.
            let room = width - cell.chars().count() + 2;
            line.extend(std::iter::repeat_n(
                ' ',
                if column + 1 < N { room } else { 0 },
            ));
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
