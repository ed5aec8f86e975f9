//! The engine against malicious components, through its public API only. Tests neither sleep nor read a clock.

#![expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]

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
mod holes;
#[cfg(test)]
mod kept;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod loading;
#[cfg(test)]
mod objects;
#[cfg(test)]
#[path = "../../../../host/core/src/sample/planned.rs"]
mod planned;
#[cfg(test)]
mod self_check;
#[cfg(test)]
mod support;
#[cfg(test)]
mod time;
