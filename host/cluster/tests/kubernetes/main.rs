//! The Kubernetes adapter against a real kube-apiserver, through its public API only. Tests never sleep.

#[cfg(test)]
mod faults;
#[cfg(test)]
mod kinds;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod objects;
#[cfg(test)]
mod support;
