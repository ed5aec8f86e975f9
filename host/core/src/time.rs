//! Times as Kubernetes writes them. Never asks a clock.

/// Seconds since 1970 of `2026-11-21T08:15:30Z`, with or without a fraction or an offset; nothing when it is no such time.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let (year, month, day) = parse_date(date)?;
    let zone = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, offset) = rest.split_at(zone);
    let mut parts = clock.split('.').next()?.split(':').map(|part| digits(part, 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - parse_offset(offset)?)
}

/// `2026-11-21T08:15:30Z` of seconds since 1970.
pub fn format_rfc3339(seconds: i64) -> String {
    let (day, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(day);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

fn digits(text: &str, length: usize) -> Option<i64> {
    (text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

fn parse_date(text: &str) -> Option<(i64, i64, i64)> {
    let mut parts = text.split('-');
    let (year, month, day) = (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let valid = parts.next().is_none()
        && (1..=12).contains(&month)
        && day >= 1
        && civil(days(year, month, day)) == (year, month, day);
    valid.then_some((year, month, day))
}

fn parse_offset(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'Z' | b'z' => return (text.len() == 1).then_some(0),
        b'+' => (1, text.get(1..)?),
        _ => (-1, text.get(1..)?),
    };
    let (hours, minutes) = rest.split_once(':')?;
    Some(sign * (digits(hours, 2)? * 3_600 + digits(minutes, 2)? * 60))
}

/// Days since 1970 of a date of the Gregorian calendar (years counted from March, so that leap days come last).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date of days since 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_and_write() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2022-02-21T08:11:54Z", 1_645_431_114),
            ("2024-02-29T23:59:59Z", 1_709_251_199),
            ("1969-12-31T23:59:59Z", -1),
        ] {
            assert_eq!(parse_rfc3339(text), Some(seconds), "{text}");
            assert_eq!(format_rfc3339(seconds), text);
        }
        assert_eq!(parse_rfc3339("2022-02-21T10:11:54.123456+02:00"), Some(1_645_431_114));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2022-02-21",
            "2023-02-29T00:00:00Z",
            "2022-13-01T00:00:00Z",
            "2022-02-21T24:00:00Z",
            "2022-02-21T08:11:54",
            "2022-02-21T08:11:54Zx",
            "x",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }
}
