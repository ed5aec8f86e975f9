//! Log lines as text: the message, then the fields in logfmt, one event on one line, with hidden characters escaped.

use std::fmt;
use std::io::{self, Write};
use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;
use transom_core::redact::visible::visible;

/// Fields as `name=value`; a value with a space, a quote or an equals sign is quoted, as in JSON.
pub(super) struct Logfmt;

impl<'w> FormatFields<'w> for Logfmt {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut line = Line {
            writer,
            is_empty: true,
            written: Ok(()),
        };
        fields.record(&mut line);
        line.written
    }
}

struct Line<'w> {
    writer: Writer<'w>,
    is_empty: bool,
    written: fmt::Result,
}

impl Line<'_> {
    fn put(&mut self, field: &Field, value: &str) {
        let space = if std::mem::take(&mut self.is_empty) {
            ""
        } else {
            " "
        };
        let written = match field.name() {
            "message" => write!(self.writer, "{space}{}", visible(value)),
            name => write!(
                self.writer,
                "{space}{}={}",
                name.trim_start_matches("r#"),
                logfmt(value)
            ),
        };
        self.written = self.written.and(written);
    }
}

impl Visit for Line<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, &format!("{value:?}"));
    }
}

/// A value of one field.
fn logfmt(value: &str) -> String {
    let is_plain = |letter: char| !letter.is_whitespace() && !matches!(letter, '"' | '=' | '\\');
    let shown = visible(value);
    if !shown.is_empty() && shown.chars().all(is_plain) {
        return shown.into_owned();
    }
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", visible(&escaped))
}

/// Standard error, where each write is one line. JSON stays valid: characters that are hidden occur only in its
/// strings.
pub(super) struct LineWriter;

impl Write for LineWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = visible(text.strip_suffix('\n').unwrap_or(&text));
        writeln!(io::stderr().lock(), "{line}")?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_token_of_logfmt() {
        for (value, expected) in [
            ("Applied", "Applied"),
            ("klusterlet-a/x", "klusterlet-a/x"),
            (
                "ManagedCluster hosted-00000",
                r#""ManagedCluster hosted-00000""#,
            ),
            ("", r#""""#),
            ("a=b", r#""a=b""#),
            (r#"a"b\c"#, r#""a\"b\\c""#),
            (
                "a\n2026 INFO forged\u{1b}[31m",
                r#""a\n2026 INFO forged\u001b[31m""#,
            ),
            ("a\u{202e}b", r#""a\u202eb""#),
        ] {
            assert_eq!(logfmt(value), expected, "{value:?}");
        }
    }
}
