//! The engine against components that mean no good, through its public API only. Never sleeps, never reads a clock.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod canaries;
#[cfg(test)]
mod costs;
#[cfg(test)]
mod declared;
#[cfg(test)]
mod engines;
#[cfg(test)]
mod kept;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod loading;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod support;
#[cfg(test)]
mod time;
