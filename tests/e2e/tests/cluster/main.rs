//! The binary on a real API server: a few servers for all of these tests, one test at a time on each, so that a test
//! may also kill it. Long tests are ignored unless requested.

#![expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
#![expect(
    clippy::print_stdout,
    reason = "how long it took to recover is for people to read"
)]

mod acceptance;
mod access;
mod addons;
mod admin;
mod admitted;
mod agent;
mod apart;
mod asked;
mod availability;
mod beside;
mod beyond;
mod case;
mod certificates;
mod clearing;
mod components;
mod conflicting;
mod connect;
mod contest;
mod copying;
mod crossing;
mod dependents;
mod disturbed;
mod diverged;
mod editors;
mod facts;
mod failing;
mod faults;
mod filling;
mod fleet;
mod generations;
mod history;
mod hostile;
mod hosting_admission;
mod hosting_faults;
mod hub_admission;
mod hub_faults;
mod hub_sets;
mod importing;
mod inputs;
mod joining;
mod late;
mod leases;
mod leaving;
mod leftovers;
mod limits;
mod makes;
mod managed_keys;
mod metrics;
mod narrower;
mod network;
mod normal;
mod objects;
mod operated;
mod others;
mod plan;
mod policies;
mod races;
mod rejoining;
mod replicas;
mod revisions;
mod rights;
mod rollout;
mod rows;
mod selected;
mod server_swap;
mod sets;
mod side_by_side;
mod spoke;
mod stage;
mod status;
mod succession;
mod suspended;
mod taint_times;
mod taints_by_key;
mod taking_over;
mod together;
mod traced;
mod ungranted;
mod unharmed;
mod unruly;
mod wakes;
mod walking;
mod whole;
