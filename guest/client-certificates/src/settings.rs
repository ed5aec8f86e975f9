//! The settings of the guest `client-certificates`: whose first requests are approved.

use serde::Deserialize;
use transom_guest::Problem;

/// Users and groups that everybody is, or belongs to.
const EVERYBODY: [&str; 3] = [
    "system:anonymous",
    "system:authenticated",
    "system:unauthenticated",
];

/// The settings. By default only renewals are approved.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Who may ask for the first certificate of a cluster.
    pub bootstrap: Bootstrap,
}

/// Who may ask for the first certificate of a cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bootstrap {
    /// These users, for every cluster.
    pub users: Vec<String>,
    /// Users of these groups, for every cluster.
    pub groups: Vec<String>,
    /// The service account that an import makes for a cluster, for this cluster only, while its ManagedCluster is
    /// there.
    pub imported: bool,
}

impl Settings {
    /// Refuses texts that name nobody or everybody.
    pub(crate) fn check(&self) -> Vec<Problem> {
        let lists = [
            ("users", &self.bootstrap.users),
            ("groups", &self.bootstrap.groups),
        ];
        let mut problems = Vec::new();
        for (list, texts) in lists {
            for (index, text) in texts.iter().enumerate() {
                let why = match &**text {
                    "" => "is empty",
                    text if EVERYBODY.contains(&text) => "is everybody",
                    _ => continue,
                };
                let field = ["bootstrap.", list, "[", &index.to_string(), "]"].concat();
                problems.push(Problem::in_settings(&field, why));
            }
        }
        problems
    }
}
