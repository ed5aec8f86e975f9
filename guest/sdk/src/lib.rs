//! The SDK for guests: a guest is a component that answers one of the agent's questions as a pure function.
//! It gives a guest no clock, no file and no network; a guest has only its arguments.
//!
//! A guest is a type with a self-description ([`Guest`]) and one of [`Trigger`], [`Kubeconfig`], [`Taints`] or
//! [`Objects`], registered by [`register!`]. `guest/README.md` builds one in ten minutes.
//!
//! ```
//! use transom_guest::taints::{Answer, Decision, ManagedCluster};
//! use transom_guest::{About, Context, Failure, Guest, NoSettings, Taints};
//!
//! /// Wants no taint, whatever the cluster looks like.
//! pub struct Calm;
//!
//! impl Guest for Calm {
//!     type Settings = NoSettings;
//!     const ABOUT: About = About { name: "calm", version: "0.1.0", ..About::EMPTY };
//! }
//!
//! impl Taints for Calm {
//!     fn compute(_: &Context<NoSettings>, _: &ManagedCluster) -> Result<Answer, Failure> {
//!         Ok(Answer { decision: Decision::Own(Vec::new()), ask_again_at: None })
//!     }
//! }
//!
//! transom_guest::register!(taints: Calm);
//! # fn main() {}
//! ```

// The generated macros name this crate by its name, also from inside it.
extern crate self as transom_guest;

mod about;
#[cfg(any(target_arch = "wasm32", test))]
mod arena;
#[doc(hidden)]
pub mod bindings;
mod context;
#[cfg(feature = "facts")]
pub mod facts;
mod grant;
pub mod kinds;
pub mod kubeconfig;
pub mod log;
pub mod make;
pub mod naming;
pub mod objects;
pub mod settings;
pub mod taints;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
pub mod trigger;

pub use about::{About, Guest, Read, Reason};
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub use arena::Arena;
pub use bindings::guest::transom::policy::types::{
    Agent, Failure, ObjectRef, Primary, Problem, Waiting,
};
pub use context::Context;
pub use grant::{
    AskGrant, Grant, HoleGrant, LabelGrant, ObjectPattern, ReadGrant, Verb, WriteGrant,
};
pub use kubeconfig::Kubeconfig;
pub use objects::Objects;
pub use settings::NoSettings;
pub use taints::Taints;
pub use trigger::Trigger;
#[doc(hidden)]
pub use wit_bindgen;
