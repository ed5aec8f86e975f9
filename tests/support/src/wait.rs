//! Waits for a state, with a deadline. Not for waiting a fixed time: a test that needs that is wrong.

use std::time::{Duration, Instant};

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks until it gets a value; after `deadline` an error names what did not appear.
pub fn until<T>(
    what: &str,
    deadline: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Result<T, TooLate> {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return Ok(seen);
        }
        if start.elapsed() > deadline {
            return Err(TooLate {
                what: what.to_owned(),
                deadline,
            });
        }
        std::thread::sleep(PAUSE);
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
