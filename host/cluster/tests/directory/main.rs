//! A directory of manifests on real folders, through its public API only. Tests never sleep.

#[cfg(test)]
mod changed_back;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod own;
#[cfg(test)]
mod root;
mod state;
#[cfg(test)]
mod support;
#[cfg(test)]
mod watch;
#[cfg(test)]
mod writes;
