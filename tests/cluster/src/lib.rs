//! A real etcd and kube-apiserver for tests and experiments: RBAC on, every request in an audit log, no controllers.
//! Not part of the shipped agent; uses only clusters that it started itself.

mod audit;
mod certificates;
mod clock;
mod cluster;
mod compaction;
mod crds;
mod flags;
mod fleet;
mod metrics;
mod namespace;
mod objects;
mod ports;
mod process;
mod process_group;
mod proxy;
mod servers;
mod shared;
mod taint_webhook;
mod user;
pub mod wait;
mod webhook;
mod wire;

pub use audit::{Audit, Line, Mark, Target};
pub use certificates::Pair;
pub use clock::Clock;
pub use cluster::{Cluster, Options};
pub use crds::{LOOSE, available_crds};
pub use fleet::Installed;
pub use metrics::{Metrics, Requests};
pub use objects::Objects;
pub use process::Process;
pub use proxy::{Fault, Proxy};
pub use servers::{helm, kubectl, registration};
pub use shared::Shared;
pub use taint_webhook::{TAINTED_AT, set_taint_times};
pub use user::User;
pub use webhook::{Asks, Say, Webhook};
pub use wire::{Carries, Wire};
