//! Waits for a state, with a deadline. Never for time to pass: a test that needs that is wrong.

use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks until something is seen; after `deadline` an error that names what never came.
pub fn until<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Option<T>) -> Result<T, TooLate> {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return Ok(seen);
        }
        if start.elapsed() > deadline {
            return Err(TooLate { what: what.to_owned(), deadline });
        }
        std::thread::sleep(PAUSE);
    }
}

/// What never came.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLate {
    what: String,
    deadline: Duration,
}

impl std::fmt::Display for TooLate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} did not come within {} s", self.what, self.deadline.as_secs_f64())
    }
}

impl std::error::Error for TooLate {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_is_given_and_what_is_not_is_named() {
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
