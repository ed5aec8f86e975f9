//! A real etcd and kube-apiserver for tests and experiments: RBAC on, every request in an audit log, no controllers;
//! and real and hostile registries. Not part of the shipped agent; uses only what it started itself.

mod audit;
mod certificates;
mod clock;
mod cluster;
mod crds;
mod flags;
mod fleet;
mod hostile;
mod metrics;
mod objects;
mod process;
mod proxy;
mod registry;
mod servers;
mod signing;
pub mod wait;
mod webhook;
mod wire;

pub use audit::{Audit, Line, Mark, Target};
pub use certificates::{Pair, User};
pub use clock::Clock;
pub use cluster::{Cluster, Options, Shared};
pub use crds::{LOOSE, available_crds};
pub use fleet::{Installed, SET_BY_SERVER};
pub use hostile::{Answer, Hostile};
pub use metrics::{Metrics, Requests};
pub use objects::Objects;
pub use process::Process;
pub use proxy::{Fault, Proxy};
pub use registry::{Access, COMPONENT, LOGIN, Registry, WASM};
pub use servers::{controller_manager, helm, kubectl, registration, registration_operator};
pub use signing::{Form, Keys};
pub use webhook::{Asks, Say, TAINTED_AT, Webhook, set_taint_times};
pub use wire::{Carries, Tunnels, Wire};
