//! The binary on real folders. Each module covers one question; long tests use a small number here and a large one in
//! `cargo xtask soak`.

#![expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]

mod admin;
mod asked;
mod authoring;
mod availability;
mod canaries;
mod careful;
mod cases;
mod connections;
mod crash;
mod destination;
mod diverged;
mod edited;
mod escapes;
mod exhaust;
mod failing;
mod forgeries;
mod fuzz;
mod gates;
mod generations;
mod given;
mod inputs;
mod kept;
mod limits;
mod made;
mod memory;
mod mirrors;
mod once;
mod own_writes;
mod owners;
mod plan;
mod policies;
mod pulls;
mod reconsidered;
mod registries;
mod requests;
mod rollout;
mod selected;
mod service_level;
mod settled;
mod shadow;
mod shared;
mod signatures;
mod slow_writers;
mod swap;
mod taken_back;
mod tutorial;
mod watching;
