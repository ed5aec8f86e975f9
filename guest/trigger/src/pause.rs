//! Reads `spec.pausedUntil` of a HostedCluster as HyperShift reads it.

use crate::reasons;
use transom_guest::trigger::ReadyAnswer;

/// The meaning of `spec.pausedUntil`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Not paused: absent, false, over, or a text that HyperShift does not understand.
    None,
    /// Paused until the field is removed.
    Open,
    /// Paused until a time, in seconds since 1970.
    Until(i64),
}

impl Pause {
    /// Reads a true value of Go's `strconv.ParseBool`, or a time in RFC 3339; any other text is no pause.
    pub(crate) fn read(text: &str, now_seconds: i64) -> Self {
        match text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Self::Open,
            _ => match rfc3339(text) {
                Some(until) if until > now_seconds => Self::Until(until),
                _ => Self::None,
            },
        }
    }

    /// The answer of a paused cluster, with the time at which the pause ends, if it has one.
    pub(crate) fn not_ready(self) -> ReadyAnswer {
        let (message, until) = match self {
            Self::Until(until) => ("spec.pausedUntil is a time to come", Some(until)),
            Self::Open | Self::None => ("spec.pausedUntil is true", None),
        };
        let answer = ReadyAnswer::not_ready(reasons::PRIMARY_PAUSED.problem(message));
        ReadyAnswer {
            ask_again_at: until,
            ..answer
        }
    }
}

/// Seconds since 1970 of `2026-11-21T08:15:30Z`, with or without a fraction or an offset. Rounded up, so that the pause
/// lasts until its whole time is over.
fn rfc3339(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T')?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (clock, offset) = match time.strip_suffix('Z') {
        Some(clock) => (clock, 0),
        None => {
            let at = time.rfind(['+', '-'])?;
            let (clock, offset) = time.split_at_checked(at)?;
            let [hours, minutes] = numbers(offset.get(1..)?, ':', [2, 2])?;
            let seconds = (hours * 60 + minutes) * 60;
            (
                clock,
                if offset.starts_with('-') {
                    -seconds
                } else {
                    seconds
                },
            )
        }
    };
    let (clock, fraction) = clock
        .split_once('.')
        .map_or((clock, None), |(clock, rest)| (clock, Some(rest)));
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let digits =
        fraction.is_none_or(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()));
    let in_calendar = (1..=12).contains(&month) && day >= 1 && day <= days_of(year, month);
    if !digits || !in_calendar || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let up = i64::from(fraction.is_some_and(|it| it.bytes().any(|byte| byte != b'0')));
    Some(((days_before(year, month, day) * 24 + hour) * 60 + minute) * 60 + second + up - offset)
}

/// Numbers with these counts of digits between separators, and nothing else.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| {
            part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit())
        })?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(is_leap(year)),
        _ => 31,
    }
}

/// Days from 1970-01-01 to a day of the calendar.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let past = year - 1;
    let years =
        past * 365 + past.div_euclid(4) - past.div_euclid(100) + past.div_euclid(400) - 719_162;
    years + (1..month).map(|month| days_of(year, month)).sum::<i64>() + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_rfc_3339() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2022-02-21T08:11:54Z", 1_645_431_114),
            ("2022-02-21T10:11:54+02:00", 1_645_431_114),
            ("2022-02-21T03:41:54-04:30", 1_645_431_114),
            ("2022-02-21T08:11:54.000Z", 1_645_431_114),
            ("2022-02-21T08:11:53.001Z", 1_645_431_114),
            ("1969-12-31T23:59:59Z", -1),
            ("2000-02-29T00:00:00Z", 951_782_400),
            ("2026-11-21T08:00:00Z", 1_795_248_000),
            ("0001-01-01T00:00:00Z", -62_135_596_800),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
        ] {
            assert_eq!(rfc3339(text), Some(seconds), "{text}");
        }
        for text in [
            "",
            "T",
            "2022-02-21",
            "2023-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "2022-13-01T00:00:00Z",
            "2022-00-01T00:00:00Z",
            "2022-01-00T00:00:00Z",
            "2022-04-31T00:00:00Z",
            "2022-02-21T08:11:54",
            "2022-02-21t08:11:54z",
            "2022-02-21 08:11:54Z",
            "2022-02-21T24:00:00Z",
            "2022-02-21T08:60:00Z",
            "2022-02-21T08:11:60Z",
            "2022-02-21T08:11Z",
            "2022-02-21T08:11:54.Z",
            "2022-02-21T08:11:54.xZ",
            "2022-02-21T08:11:54+2:00",
            "2022-02-21T08:11:54+0200",
            "22-02-21T08:11:54Z",
            "+022-02-21T08:11:54Z",
            "2022-02-21T08:11:54Z ",
            "2022-02-21T08:11:54ä",
        ] {
            assert_eq!(rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn durations_follow_go() {
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(Pause::read(text, 0), Pause::Open, "{text}");
        }
        for text in [
            "",
            "0",
            "f",
            "false",
            "False",
            "tRUE",
            "yes",
            "on",
            " true",
            "4h",
            "2022-02-21",
        ] {
            assert_eq!(Pause::read(text, 0), Pause::None, "{text}");
        }
        let read = |now| Pause::read("2022-02-21T08:11:54Z", now);
        assert_eq!(read(1_645_431_113), Pause::Until(1_645_431_114));
        assert_eq!(
            read(1_645_431_114),
            Pause::None,
            "a pause is over at its time"
        );
    }
}
