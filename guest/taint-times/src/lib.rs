//! The guest `taint-times`: gives taints without a time the time at which it first sees them, where no webhook of the
//! hub does it.

mod decide;

use serde::Deserialize;
use transom_guest::kinds::MANAGED_CLUSTER;
use transom_guest::{About, Grant, Guest, Problem, WriteGrant};

/// The settings.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Keys of taints that are left alone: those of other policies, which set their times themselves.
    pub except: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            except: vec![
                "cluster.open-cluster-management.io/unavailable".to_owned(),
                "cluster.open-cluster-management.io/unreachable".to_owned(),
            ],
        }
    }
}

/// The guest `taint-times`.
pub struct TaintTimes;

impl Guest for TaintTimes {
    type Settings = Settings;

    const ABOUT: About = About {
        name: "taint-times",
        version: env!("CARGO_PKG_VERSION"),
        reads: &[MANAGED_CLUSTER.read(&["spec.taints"])],
        settings_schema: include_str!("../settings.schema.json"),
        grant: Grant {
            write: &[WriteGrant::fields(
                &["spec.taints"],
                "The whole list, with the times of taints that have none.",
            )
            .of_values(&[("spec.taints", decide::FORMS)])],
            ..Grant::NONE
        },
        ..About::EMPTY
    };

    fn check(settings: &Settings) -> Vec<Problem> {
        let empty = settings.except.iter().position(String::is_empty);
        let field = |at: usize| ["except[", &at.to_string(), "]"].concat();
        let problem = empty.map(|at| Problem::in_settings(&field(at), "is empty"));
        problem.into_iter().collect()
    }
}

transom_guest::register!(objects: TaintTimes);
transom_guest::test_cases!(objects: TaintTimes);
