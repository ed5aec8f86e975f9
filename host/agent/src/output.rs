//! What the command line prints, and how it ends. All commands but `compile` write to standard output here. A
//! credential is printed only when it was asked for.

use crate::clock::Clock;
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use transom_core::redact::visible::{visible, visible_lines};
use transom_core::share::lock::MutexExt as _;
use transom_core::time::format_rfc3339;

/// How a command ends, worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandEnd {
    /// Everything is right: 0.
    Right,
    /// `--exit-code`: something would change: 3.
    WouldChange,
    /// Some object, case or policy failed: 1.
    Failed,
    /// Another code: that of a program that could not be run.
    Code(u8),
}

impl CommandEnd {
    /// How a command ends that found something wrong, or did not.
    pub(crate) fn failed_if(wrong: bool) -> Self {
        if wrong { Self::Failed } else { Self::Right }
    }
}

impl From<CommandEnd> for ExitCode {
    fn from(ending: CommandEnd) -> Self {
        match ending {
            CommandEnd::Right => Self::SUCCESS,
            CommandEnd::Failed => Self::FAILURE,
            CommandEnd::WouldChange => Self::from(3),
            CommandEnd::Code(code) => Self::from(code),
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
        self.lost.locked().take()
    }

    fn keep(&self, written: io::Result<()>) {
        if let Err(error) = written
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            self.lost.locked().get_or_insert(error);
        }
    }

    /// Prints one line on standard output, with hidden characters escaped. A closed pipe ends the printing, not the
    /// program.
    pub(crate) fn line(&self, line: fmt::Arguments<'_>) {
        self.line_of(&Tinted::NOTHING, line);
    }

    /// The same for a line that begins with a word in a colour.
    pub(crate) fn line_of(&self, word: &Tinted, rest: fmt::Arguments<'_>) {
        self.script(format!("{}\n", self.coloured(word, rest)).as_bytes());
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

    /// Prints a warning on standard error.
    pub(crate) fn warn(&self, line: fmt::Arguments<'_>) {
        let word = Tinted::new("warning", Tint::Yellow, 8);
        self.tell_of(&word, format_args!(" {line}"), []);
    }

    /// Prints one line on standard error; when notes are JSON, with these fields.
    pub(crate) fn tell<const N: usize>(
        &self,
        line: fmt::Arguments<'_>,
        fields: [(&str, Value); N],
    ) {
        self.tell_of(&Tinted::NOTHING, line, fields);
    }

    /// The same for a line that begins with a word in a colour.
    pub(crate) fn tell_of<const N: usize>(
        &self,
        word: &Tinted,
        rest: fmt::Arguments<'_>,
        fields: [(&str, Value); N],
    ) {
        let line = self.told(word, rest, fields);
        let _ = writeln!(io::stderr().lock(), "{line}");
    }

    /// The text of such a line.
    fn told<const N: usize>(
        &self,
        word: &Tinted,
        rest: fmt::Arguments<'_>,
        fields: [(&str, Value); N],
    ) -> String {
        match self.json.load(Ordering::Relaxed) {
            true => {
                let line = format!("{}{rest}", word.text);
                let said = [
                    ("timestamp", json!(now())),
                    ("level", json!("INFO")),
                    ("message", json!(line.trim())),
                ];
                let all = said
                    .into_iter()
                    .chain(fields)
                    .map(|(key, value)| (key.to_owned(), value));
                visible(&Value::Object(all.collect()).to_string()).into_owned()
            }
            false => self.coloured(word, rest),
        }
    }

    /// A line with hidden characters escaped, and its first word in a colour. Nothing but that word is coloured,
    /// because a name in the line may hold any text.
    fn coloured(&self, word: &Tinted, rest: fmt::Arguments<'_>) -> String {
        let (text, rest) = (visible(&word.text), rest.to_string());
        let rest = visible(&rest);
        match word.tint.filter(|_| self.colours) {
            Some(tint) => format!("\x1b[{}m{text}\x1b[0m{rest}", tint as u8),
            None => format!("{text}{rest}"),
        }
    }

    /// Replaces the progress line, where there is one.
    pub(crate) fn progress(&self, line: fmt::Arguments<'_>) {
        if self.progress {
            let _ = write!(io::stderr().lock(), "{}", replacing(&line.to_string()));
        }
    }

    /// Removes the progress line.
    pub(crate) fn end_progress(&self) {
        if self.progress {
            let _ = write!(io::stderr().lock(), "{}", replacing(""));
        }
    }
}

/// What replaces the progress line, with hidden characters escaped: it may name a folder that others made.
fn replacing(line: &str) -> String {
    format!("\r\x1b[2K{}", visible(line))
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

/// The word that a line begins with, in the colour of its meaning.
#[derive(Debug)]
pub(crate) struct Tinted {
    text: String,
    tint: Option<Tint>,
}

impl Tinted {
    /// For a line without such a word.
    pub(crate) const NOTHING: Self = Self {
        text: String::new(),
        tint: None,
    };

    /// A word, padded to a width.
    pub(crate) fn new(word: &str, tint: Tint, width: usize) -> Self {
        Self {
            text: format!("{word:<width$}"),
            tint: Some(tint),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_of_a_line_is_coloured_whatever_text_the_line_has() {
        let mut screen = Screen {
            colours: true,
            progress: false,
            json: AtomicBool::default(),
            lost: Mutex::default(),
        };
        let word = Tinted::new("FAILED", Tint::Red, 7);
        // Private marks, noncharacters and real codes.
        let name: String = ('\u{fdd0}'..='\u{fdef}')
            .chain("\u{1b}[32m".chars())
            .collect();
        let line = screen.coloured(&word, format_args!(" {name}"));
        assert!(line.starts_with("\x1b[31mFAILED \x1b[0m "), "{line:?}");
        assert_eq!(line.matches('\x1b').count(), 2, "{line:?}");
        screen.notes_as_json();
        let note = screen.told(&word, format_args!(" {name}"), [("name", json!(name))]);
        assert!(!note.contains('\x1b'), "{note:?}");
        let note: Value = serde_json::from_str(&note).unwrap();
        assert_eq!(note["name"], name);
        assert_eq!(note["message"], format!("FAILED  {name}"));
        screen.colours = false;
        assert_eq!(screen.coloured(&word, format_args!("a")), "FAILED a");
    }

    #[test]
    fn a_progress_line_does_nothing_to_the_terminal_but_to_replace_itself() {
        let line = replacing("case 1: \x1b]0;title\x07\r\n");
        assert!(line.starts_with("\r\x1b[2Kcase 1: "), "{line:?}");
        let hidden = line.chars().filter(|letter| letter.is_control());
        assert_eq!(hidden.collect::<String>(), "\r\x1b");
    }
}
