//! Times as Kubernetes writes them.

use jiff::Timestamp;
use jiff::fmt::temporal::Pieces;

/// Seconds since 1970 of `2026-11-21T08:15:30Z`, with or without a fraction or an offset; `None` when the text is not
/// a time.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    parse(text).map(Timestamp::as_second)
}

/// A time that may have a fraction, in whole seconds since 1970. What lasts until it is over only from `up` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeSeconds {
    /// The last that is not after it.
    pub down: i64,
    /// The first that is not before it.
    pub up: i64,
}

impl WholeSeconds {
    /// Those of a text as [`parse_rfc3339`] reads it.
    pub fn of(text: &str) -> Option<Self> {
        let time = parse(text)?;
        let (seconds, fraction) = (time.as_second(), time.subsec_nanosecond());
        Some(Self {
            down: seconds - i64::from(fraction < 0),
            up: seconds + i64::from(fraction > 0),
        })
    }
}

/// The last day of the year 9999, which means "never" to many, ends after all that the library has: it is its last
/// time.
fn parse(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    let pieces = Pieces::parse(text).ok()?;
    let is_whole = pieces.time().is_some() && pieces.offset().is_some();
    (is_whole && pieces.date().year() == 9999).then_some(Timestamp::MAX)
}

/// `2026-11-21T08:15:30Z` for seconds since 1970; the epoch when they lie outside the calendar.
pub fn format_rfc3339(seconds: i64) -> String {
    Timestamp::from_second(seconds)
        .unwrap_or_default()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_and_write() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2022-02-21T08:11:54Z", 1_645_431_114),
            ("1969-12-31T23:59:59Z", -1),
        ] {
            assert_eq!(parse_rfc3339(text), Some(seconds), "{text}");
            assert_eq!(format_rfc3339(seconds), text);
        }
        let never = parse_rfc3339("9999-12-31T23:59:59Z");
        assert!(never.is_some() && never > parse_rfc3339("9999-12-01T00:00:00Z"));
        assert_eq!(
            parse_rfc3339("2022-02-21T10:11:54+02:00"),
            Some(1_645_431_114)
        );
    }

    #[test]
    fn a_fraction_lies_between_two_seconds() {
        for (text, down, up) in [
            ("1970-01-01T00:00:07.000000Z", 7, 7),
            ("1970-01-01T00:00:07.000001Z", 7, 8),
            ("1970-01-01T00:00:07.999999Z", 7, 8),
            ("1969-12-31T23:59:58.300000Z", -2, -1),
        ] {
            assert_eq!(
                WholeSeconds::of(text),
                Some(WholeSeconds { down, up }),
                "{text}"
            );
        }
        assert_eq!(WholeSeconds::of("x"), None);
    }

    #[test]
    fn refuses_invalid_times() {
        for text in [
            "",
            "2022-02-21",
            "2023-02-29T00:00:00Z",
            "2022-02-21T08:11:54",
            "9999-12-31",
            "9999-12-31T23:59:59",
            "9999-13-31T23:59:59Z",
            "x",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }
}
