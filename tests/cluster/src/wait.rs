//! Waits for a state, with a deadline, without holding up the runtime. Never for time to pass.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks until something is seen; after `deadline` an error that names what never came. An error of a look ends it.
pub async fn until<T>(what: &str, deadline: Duration, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(seen) = look().await? {
            return Ok(seen);
        }
        if start.elapsed() > deadline {
            bail!("{what} did not come within {} s", deadline.as_secs_f64());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
