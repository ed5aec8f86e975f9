//! Writes on a real API server: every step, every refusal, webhooks that behave as measured, Events and status.
//! Never a server of our own in its place: a webhook is the only thing that is played.

#[cfg(test)]
mod beside;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod creates;
#[cfg(test)]
mod pace;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod support;
#[cfg(test)]
mod taints;
#[cfg(test)]
mod webhooks;
