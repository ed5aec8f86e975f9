//! Decides whether a HostedCluster is ready, and whether a change of one calls for a reconcile. Pure functions.
//! The values of annotations are not passed to the guest, only that they changed.

use crate::pause::Pause;
use crate::reasons;
use crate::settings::Settings;
use serde::Deserialize;
use transom_guest::trigger::{Change, ReadyAnswer, Verdict};
use transom_guest::{Context, Primary, Problem, Reason};

const ANNOTATIONS: &str = "metadata.annotations";
const LABELS: &str = "metadata.labels";
const KUBECONFIG: &str = "status.kubeconfig";
const KUBEADMIN_PASSWORD: &str = "status.kubeadminPassword";
const VERSION_HISTORY: &str = "status.version.history";

/// Paths of which the guest only needs to know that they changed.
pub(crate) const CHANGES: [&str; 5] = [
    ANNOTATIONS,
    LABELS,
    KUBECONFIG,
    KUBEADMIN_PASSWORD,
    VERSION_HISTORY,
];

/// Whether the primary may be reconciled.
pub(crate) fn ready(context: &Context<Settings>, primary: &Primary) -> ReadyAnswer {
    let settings = &context.settings;
    if primary.deleting {
        return ReadyAnswer::not_ready(
            reasons::PRIMARY_DELETING.problem("the hosted cluster is being deleted"),
        );
    }
    if settings.honour_paused_until {
        match paused_until(primary).map(|text| Pause::read(&text, context.now_seconds)) {
            Ok(Pause::None) => {}
            Ok(pause) => return pause.not_ready(),
            Err(problem) => return ReadyAnswer::not_ready(problem),
        }
    }
    match Available::of(primary) {
        Ok(available) if available.satisfies(settings) => ReadyAnswer::ready(),
        Ok(available) => {
            ReadyAnswer::not_ready(reasons::NOT_AVAILABLE.problem(available.shortfall(settings)))
        }
        Err(problem) => ReadyAnswer::not_ready(problem),
    }
}

/// Whether a change calls for a reconcile.
pub(crate) fn evaluate(settings: &Settings, change: &Change) -> Verdict {
    let on = &settings.on;
    let mut found: Vec<&str> = Vec::new();
    if on.deletion && change.after.deleting && !change.before.deleting {
        found.push(reasons::DELETION_STARTED.name);
    }
    // Equal fields have equal availability; comparing texts is cheaper than parsing them.
    if on.availability && change.before.fields != change.after.fields {
        found.extend(availability(settings, change).map(|reason| reason.name));
    }
    if settings.honour_paused_until && change.before.fields != change.after.fields {
        // An unreadable value differs from every readable one; `ready` reports what is wrong with it.
        let [before, after] =
            [&change.before, &change.after].map(|primary| paused_until(primary).ok());
        found.extend((before != after).then_some(reasons::PAUSED_UNTIL_CHANGED.name));
    }
    let watched = [
        (on.annotations, ANNOTATIONS, &reasons::ANNOTATIONS_CHANGED),
        (on.labels, LABELS, &reasons::LABELS_CHANGED),
        (on.kubeconfig, KUBECONFIG, &reasons::KUBECONFIG_CHANGED),
        (
            on.kubeadmin_password,
            KUBEADMIN_PASSWORD,
            &reasons::KUBEADMIN_PASSWORD_CHANGED,
        ),
        (
            on.version_history,
            VERSION_HISTORY,
            &reasons::VERSION_HISTORY_CHANGED,
        ),
    ];
    for (on, watched, reason) in watched {
        if on && change.changed.iter().any(|path| is_under(path, watched)) {
            found.push(reason.name);
        }
    }
    if found.is_empty() {
        Verdict::Ignore
    } else {
        Verdict::Run(found.into_iter().map(str::to_owned).collect())
    }
}

/// How availability changed. Unreadable fields count as not available: `ready` reports what is wrong with them.
fn availability(settings: &Settings, change: &Change) -> Option<&'static Reason> {
    let is_available =
        |primary| Available::of(primary).is_ok_and(|available| available.satisfies(settings));
    match (is_available(&change.before), is_available(&change.after)) {
        (false, true) => Some(&reasons::BECAME_AVAILABLE),
        (true, false) => Some(&reasons::NO_LONGER_AVAILABLE),
        _ => None,
    }
}

/// Whether `path` is `watched`, or a field, key or element of it.
fn is_under(path: &str, watched: &str) -> bool {
    path.strip_prefix(watched)
        .is_some_and(|rest| matches!(rest.as_bytes().first(), None | Some(b'.' | b'[')))
}

/// The condition Available of a HostedCluster, if it has one.
#[derive(Default)]
struct Available(Option<Condition>);

#[derive(Default, Deserialize)]
#[serde(default)]
struct HostedCluster {
    status: HostedClusterStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pausable {
    spec: PausableSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PausableSpec {
    paused_until: Option<String>,
}

/// `spec.pausedUntil`, or empty text if it is absent.
fn paused_until(primary: &Primary) -> Result<String, Problem> {
    let cluster: Pausable = primary.read()?;
    Ok(cluster.spec.paused_until.unwrap_or_default())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HostedClusterStatus {
    conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: Option<String>,
    reason: Option<String>,
}

impl Available {
    fn of(primary: &Primary) -> Result<Self, Problem> {
        let cluster: HostedCluster = primary.read()?;
        Ok(Self(
            cluster
                .status
                .conditions
                .into_iter()
                .find(|condition| condition.r#type == "Available"),
        ))
    }

    fn satisfies(&self, settings: &Settings) -> bool {
        let wanted = settings.available_reason.as_deref();
        self.0.as_ref().is_some_and(|condition| {
            condition.status() == "True" && wanted.is_none_or(|wanted| wanted == condition.reason())
        })
    }

    /// Why the condition is not as wanted, for people.
    fn shortfall(&self, settings: &Settings) -> String {
        let Some(condition) = &self.0 else {
            return "there is no condition Available".to_owned();
        };
        let (status, reason) = (condition.status(), condition.reason());
        match settings.available_reason.as_deref() {
            Some(wanted) if status == "True" => {
                format!("condition Available is `True` for reason `{reason}`, not `{wanted}`")
            }
            _ => format!("condition Available is `{status}`, reason `{reason}`"),
        }
    }
}

impl Condition {
    fn status(&self) -> &str {
        self.status.as_deref().unwrap_or_default()
    }

    fn reason(&self) -> &str {
        self.reason.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use transom_guest::trigger::Readiness;

    #[test]
    fn a_path_is_under_itself_and_its_fields_only() {
        for path in [
            KUBECONFIG,
            "status.kubeconfig.name",
            "status.kubeconfig[\"name\"]",
            "status.kubeconfig[0]",
        ] {
            assert!(is_under(path, KUBECONFIG), "{path}");
        }
        for path in ["status.kubeconfigs", "status", "spec.status.kubeconfig", ""] {
            assert!(!is_under(path, KUBECONFIG), "{path}");
        }
    }

    fn primary() -> impl Strategy<Value = Primary> {
        let fields = prop_oneof![
            Just("{}"),
            Just(
                r#"{"status":{"conditions":[{"type":"Available","status":"True","reason":"AsExpected"}]}}"#
            ),
            Just(
                r#"{"status":{"conditions":[{"type":"Available","status":"True","reason":"Other"}]}}"#
            ),
            Just(
                r#"{"status":{"conditions":[{"type":"Available","status":"False","reason":"AsExpected"}]}}"#
            ),
            Just(r#"{"status":{"conditions":[{"type":"Available"}]}}"#),
            Just(r#"{"status":{"conditions":7}}"#),
            Just(
                r#"{"spec":{"pausedUntil":"true"},"status":{"conditions":[{"type":"Available","status":"True"}]}}"#
            ),
            Just(
                r#"{"spec":{"pausedUntil":"2026-11-21T09:00:00Z"},"status":{"conditions":[{"type":"Available","status":"True"}]}}"#
            ),
            Just(
                r#"{"spec":{"pausedUntil":7},"status":{"conditions":[{"type":"Available","status":"True"}]}}"#
            ),
        ];
        (any::<bool>(), fields).prop_map(|(deleting, fields)| Primary {
            deleting,
            fields: fields.into(),
            ..Primary::default()
        })
    }

    fn changed() -> impl Strategy<Value = Vec<String>> {
        let path = prop::sample::select(vec![
            LABELS,
            "status.conditions[Available].reason",
            ANNOTATIONS,
        ]);
        prop::collection::vec(path.prop_map(Into::into), 0..3)
    }

    proptest! {
        /// The property that every trigger guest must have: if it ignores a change, the result is the same before and
        /// after. A deletion cannot be undone, so the host never reports a change that ends one.
        #[test]
        fn ignored_changes_change_nothing(
            before in primary(), after in primary(), changed in changed(), reason in prop::option::of(Just("AsExpected")),
            honour_paused_until in any::<bool>(),
        ) {
            prop_assume!(after.deleting || !before.deleting);
            let settings =
                Settings { available_reason: reason.map(Into::into), honour_paused_until, ..Settings::default() };
            let context = Context { now_seconds: 1_795_248_000, settings: settings.clone(), ..Context::default() };
            let is_ready = |primary: &Primary| ready(&context, primary).readiness == Readiness::Ready;
            let (was, is) = (is_ready(&before), is_ready(&after));
            let annotated = changed.iter().any(|path| path == ANNOTATIONS);
            if evaluate(&settings, &Change { before, after, changed }) == Verdict::Ignore {
                prop_assert_eq!(was, is);
                prop_assert!(!annotated);
            }
        }

        /// With every change switched off, no change causes a reconcile.
        #[test]
        fn disabled_rules_do_not_count(before in primary(), after in primary(), changed in changed()) {
            let on = crate::settings::Changes {
                availability: false,
                annotations: false,
                labels: false,
                kubeconfig: false,
                kubeadmin_password: false,
                version_history: false,
                deletion: false,
            };
            let settings = Settings { on, ..Settings::default() };
            prop_assert_eq!(evaluate(&settings, &Change { before, after, changed }), Verdict::Ignore);
        }
    }
}
