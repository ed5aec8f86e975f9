//! The Kubernetes adapter against real kube-apiservers, through its public API only: reads, writes, the Lease, access.
//! Only webhooks and networks are simulated. Tests never sleep.

#![expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]

#[cfg(test)]
mod access;
#[cfg(test)]
mod beside;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod kinds;
#[cfg(test)]
mod lease;
#[cfg(test)]
mod objects;
#[cfg(test)]
mod pace;
#[cfg(test)]
#[path = "../../../core/src/sample/planned.rs"]
mod planned;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod support;
#[cfg(test)]
mod webhooks;
