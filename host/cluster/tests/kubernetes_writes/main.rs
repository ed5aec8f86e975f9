//! Writes on a real API server: every step, every refusal, webhooks that behave as measured, Events and status. Only
//! webhooks are simulated, not the server.

#[cfg(test)]
mod beside;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod creates;
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
mod taints;
#[cfg(test)]
mod webhooks;
