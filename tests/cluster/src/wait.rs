//! Waits for a state, with a deadline, without blocking the runtime. Not for waiting a fixed time.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};
use transom_support::wait::pause;

/// Looks until it gets a value; after `deadline` an error names what did not appear. An error of a look ends the wait.
pub async fn until<T>(
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let before = start.elapsed();
        if let Some(seen) = look().await? {
            return Ok(seen);
        }
        let now = start.elapsed();
        if now > deadline {
            bail!("{what} did not come within {} s", deadline.as_secs_f64());
        }
        tokio::time::sleep(pause(now - before)).await;
    }
}
