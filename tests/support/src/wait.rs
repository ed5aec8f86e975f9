//! Waits for a state, with a deadline. Not for waiting a fixed time: a test that needs that is wrong.

use std::time::{Duration, Instant};

/// The shortest and the longest pause between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// The pause after a look that took this long: four times as long, so that waiting leaves the machine to others.
pub fn pause(took: Duration) -> Duration {
    (took * 4).clamp(PAUSES.0, PAUSES.1)
}

/// Looks until it gets a value; after `deadline` an error names what did not appear.
pub fn until<T>(
    what: &str,
    deadline: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Result<T, TooLate> {
    let start = Instant::now();
    loop {
        let before = start.elapsed();
        if let Some(seen) = look() {
            return Ok(seen);
        }
        let now = start.elapsed();
        if now > deadline {
            return Err(TooLate {
                what: what.to_owned(),
                deadline,
            });
        }
        std::thread::sleep(pause(now - before));
    }
}

/// What did not appear.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLate {
    what: String,
    deadline: Duration,
}

impl std::fmt::Display for TooLate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "{} did not come within {} s",
            self.what,
            self.deadline.as_secs_f64()
        )
    }
}

impl std::error::Error for TooLate {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_what_appears_and_names_what_does_not() {
        let mut looks = 0;
        let seen = until("three looks", Duration::from_secs(60), || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(seen, Ok(3));
        let late = until("the end", Duration::ZERO, || None::<()>).unwrap_err();
        assert_eq!(late.to_string(), "the end did not come within 0 s");
    }
}
