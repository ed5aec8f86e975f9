//! Times as Kubernetes writes them. A guest has no clock; its context says what time it is.

/// Seconds since 1970 of `2026-11-21T08:15:30Z`, with or without a fraction or an offset. Rounded up, so that what
/// lasts until a time is over only after it; `None` when the text is not a time.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
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

/// Seconds since 1970 as RFC 3339 in UTC: `2026-03-02T09:10:00Z`.
pub fn format_rfc3339(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years begin in March here, so that a leap day is the last day of its year; an era has 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
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
            assert_eq!(parse_rfc3339(text), Some(seconds), "{text}");
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
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn writes_leap_days_and_turns_of_the_year() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_772_442_600, "2026-03-02T09:10:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(format_rfc3339(seconds), text);
        }
    }
}
