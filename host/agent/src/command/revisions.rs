//! `transom history` and `transom rollback`: the kept revisions of a policy, and going back to one of them.

mod approve;

use crate::args::run::{HistoryArgs, NamedDir, RollbackArgs, WhereArgs};
use crate::command::{block_on, connect};
use crate::output::{CommandEnd, Screen};
use crate::policies::objects::status;
use crate::{args::OutputFormat, controller::connections::Connections};
use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use std::sync::Arc;
use transom_api::labels::{MANAGED_BY, MANAGER};
use transom_api::{API_VERSION, KIND, KnownReason};
use transom_artifacts::builtin_digest;
use transom_cluster::Cluster;
use transom_core::document::emit::to_yaml;
use transom_core::object::Object;
use transom_core::plan::Step;
use transom_core::plan::fleet::FleetPlan;
use transom_core::reference::{LOCAL, ObjectRef};
use transom_core::rollout::history::{
    History, OBJECT_API_VERSION, OBJECT_KIND, RevisionRecord, merge_patch,
};
use transom_core::rollout::{NOT_IDENTIFYING, short};

pub(crate) use approve::approve;

/// How a digest begins.
const DIGEST: &str = "sha256:";
/// The name that is part of the field manager of these writes.
const FIELD_MANAGER: &str = "cli";
/// How often a policy is read and patched when it changes meanwhile.
const MAX_TRIES: u32 = 5;

/// Prints the kept revisions of a policy, the latest first.
///
/// # Errors
/// When they cannot be read, or there are none.
pub(crate) fn history(args: &HistoryArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    block_on(async {
        let opened = Opened::new(&args.at).await?;
        let history = opened.history(&args.policy, &args.at.namespace).await?;
        let active = history.active().map(|active| active.id);
        match args.output {
            OutputFormat::Table => {
                screen.line(format_args!(
                    "{:>6}  {:<10}  {:<10}  {:<20}  {:<19}  {:<13}  WHY",
                    "NUMBER", "REVISION", "STATE", "KEPT SINCE", "DECIDE", "CHANGED"
                ));
                for record in history.records() {
                    screen.line(format_args!(
                        "{:>6}  {:<10}  {:<10}  {:<20}  {:<19}  {:<13}  {}",
                        record.number,
                        short(&record.id),
                        state(record, active == Some(record.id)),
                        record.created.as_deref().unwrap_or("-"),
                        record.decide.get(..19).unwrap_or(&record.decide),
                        record
                            .plan()
                            .map_or_else(|| "-".to_owned(), |plan| changed(&plan)),
                        record.barred.as_deref().unwrap_or(""),
                    ));
                }
            }
            form => {
                let shown = |record: &RevisionRecord| {
                    json!({
                        "number": record.number, "revision": short(&record.id),
                        "digest": record.id.to_string(),
                        "state": state(record, active == Some(record.id)),
                        "keptSince": record.created, "decide": record.decide,
                        "trigger": record.trigger, "why": record.barred, "spec": &*record.spec,
                        "plan": record.plan(),
                    })
                };
                let all: Vec<Value> = history.records().iter().map(shown).collect();
                match form {
                    OutputFormat::Json => screen.json(&all),
                    _ => screen.text(&to_yaml(&Value::from(all))),
                }
            }
        }
        Ok(CommandEnd::Right)
    })?
}

/// For how many of its primaries a revision changed something when it became active.
fn changed(plan: &FleetPlan) -> String {
    format!(
        "{} of {}",
        plan.primaries.would_change, plan.primaries.total
    )
}

fn state(record: &RevisionRecord, active: bool) -> &'static str {
    match (active, &record.barred, record.number) {
        (true, ..) => "active",
        (_, Some(_), _) => "barred",
        (_, _, 0) => "candidate",
        _ => "earlier",
    }
}

/// Puts the `spec` of an earlier revision back into the policy, with the digests of its components.
///
/// # Errors
/// When there is no such revision, or the policy cannot be written.
pub(crate) fn rollback(args: &RollbackArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    block_on(async {
        let opened = Opened::new(&args.at).await?;
        let history = opened.history(&args.policy, &args.at.namespace).await?;
        let record = target(&history, args)?;
        if let Some(why) = &record.barred {
            bail!(
                "failed to go back to {}: it is barred: {why}",
                short(&record.id)
            );
        }
        let put_back = |object: &Object| {
            let now = object.body.get("spec").cloned().unwrap_or_default();
            // When the active revision has failed, its manifest may still be the newest.
            let patch = merge_patch(&now, &put_back(record.pinned(), &now));
            Ok(match patch.is_null() {
                true => Vec::new(),
                false => vec![of_spec(patch)],
            })
        };
        let Some(changed) = opened.change(&args.policy, put_back).await? else {
            screen.note(format_args!(
                "failed to change the policy {}: it is not a FleetPolicy object. Put this into its file, and keep of {} what it has:",
                args.policy,
                NOT_IDENTIFYING.join(", ")
            ));
            screen.text(&for_file(record));
            return Ok(CommandEnd::Failed);
        };
        if !changed {
            let of_now = history
                .active()
                .is_some_and(|active| active.id != record.id && record.continues_as(active));
            screen.line(format_args!(
                "{} has the revision {} already{}",
                args.policy,
                short(&record.id),
                match of_now {
                    true => ", with the builtin components of the agent that runs now",
                    false => "",
                }
            ));
            return Ok(CommandEnd::Right);
        }
        screen.line(format_args!(
            "{} goes back to the revision {}",
            args.policy,
            short(&record.id)
        ));
        Ok(CommandEnd::Right)
    })?
}

/// The change of a `spec` as one field of a patch, which an API server merges. Settings may have keys of which no path
/// can be made, at any depth.
fn of_spec(patch: Value) -> (String, Value) {
    ("spec".to_owned(), patch)
}

/// The revision to go back to.
fn target<'a>(history: &'a History, args: &RollbackArgs) -> anyhow::Result<&'a RevisionRecord> {
    let Some(to) = &args.to else {
        let why = "failed to find an earlier revision: `transom history` lists what is kept";
        return history.previous().context(why);
    };
    let wanted = to.strip_prefix(DIGEST).unwrap_or(to);
    let fits = |record: &&RevisionRecord| {
        let id = record.id.to_string();
        !wanted.is_empty() && id.trim_start_matches(DIGEST).starts_with(wanted)
    };
    let fitting: Vec<_> = history.records().iter().filter(fits).collect();
    let policy = &args.policy;
    match fitting.as_slice() {
        [record] => Ok(record),
        [] => bail!(
            "failed to find the revision `{to}` of {policy}: `transom history {policy}` lists what is kept"
        ),
        several => {
            let several: Vec<_> = several.iter().map(|record| short(&record.id)).collect();
            let several = several.join(", ");
            bail!("failed to find one revision of {policy}: several begin with `{to}`: {several}")
        }
    }
}

/// The `spec` of a revision; what is no part of a revision stays as it is now.
fn put_back(mut spec: Value, now: &Value) -> Value {
    if let Some(spec) = spec.as_object_mut() {
        for field in NOT_IDENTIFYING {
            match now.get(field) {
                Some(value) => drop(spec.insert(field.to_owned(), value.clone())),
                None => drop(spec.remove(field)),
            }
        }
    }
    spec
}

/// The `spec` of a revision for the file of its policy, without what is no part of a revision: what that was in those
/// days must not come back with it, such as a lifted limit.
fn for_file(record: &RevisionRecord) -> String {
    to_yaml(&json!({"spec": put_back(record.pinned(), &Value::Null)}))
}

/// The cluster of policies and revisions.
struct Opened {
    cluster: Arc<dyn Cluster>,
    _connections: Connections,
}

impl Opened {
    async fn new(at: &WhereArgs) -> anyhow::Result<Self> {
        // For a question, a file would do as a folder.
        if let Some(NamedDir { dir, .. }) = at.dir.iter().find(|one| one.dir.is_file()) {
            bail!("failed to read `{}`: it is not a folder", dir.display());
        }
        let connections = connect::open(&at.as_run()).await?;
        let cluster = connections
            .local()
            .with_context(|| format!("failed to connect: no connection has the name `{LOCAL}`"))?;
        Ok(Self {
            cluster,
            _connections: connections,
        })
    }

    /// The history of a policy, as the agent goes by it that published its status.
    async fn history(&self, policy: &str, namespace: &str) -> anyhow::Result<History> {
        let like = ObjectRef::local(OBJECT_API_VERSION, OBJECT_KIND, Some(namespace), "");
        let objects = self
            .cluster
            .list_records(&like, (MANAGED_BY, MANAGER))
            .await?;
        let history = History::of(policy, &objects);
        // Without the kind, or without the right to read it, only this version's own components are known.
        let object = self.policy(policy).await.ok().flatten();
        let published = object.as_ref().and_then(status);
        let published = published.and_then(|status| status.revision);
        let theirs = published.map(|revision| history.builtin_of(&revision));
        let theirs = theirs.unwrap_or_default();
        let builtin = |name: &str| {
            let theirs = theirs.get(name).map(String::as_str);
            theirs.or_else(|| builtin_digest(name))
        };
        let history = history.for_agent(object.as_ref().map(Object::uid), builtin);
        if history.records().is_empty() {
            bail!("failed to find a revision of {policy} in the namespace `{namespace}`");
        }
        Ok(history)
    }

    /// The policy, if it is an object.
    async fn policy(&self, name: &str) -> anyhow::Result<Option<Object>> {
        if self.cluster.server().is_none() {
            return Ok(None);
        }
        let reference = ObjectRef::local(API_VERSION, KIND, None, name);
        // Nothing is watched here: the object comes whole, by a GET. Who may approve need not list policies.
        Ok(self.cluster.confirm(&reference).await?)
    }

    /// Patches a policy with the fields that `to` gives for it as it is now; without fields it stays. The agent writes
    /// its status at any time: then it is read again. Returns whether it was patched; `None` when it is no object.
    async fn change(
        &self,
        policy: &str,
        to: impl Fn(&Object) -> anyhow::Result<Vec<(String, Value)>>,
    ) -> anyhow::Result<Option<bool>> {
        let mut tries = 1..=MAX_TRIES;
        loop {
            let is_last = tries.next() == Some(MAX_TRIES);
            let Some(object) = self.policy(policy).await? else {
                return Ok(None);
            };
            let fields = to(&object)?;
            if fields.is_empty() {
                return Ok(Some(false));
            }
            let step = Step::Patch {
                reference: object.reference.clone(),
                version: object.version.clone(),
                fields,
            };
            match self.cluster.perform(FIELD_MANAGER, step).await.result {
                Ok(()) => return Ok(Some(true)),
                Err(failure) if failure.reason == KnownReason::WriteConflict && !is_last => {}
                Err(failure) => bail!("{}: {}", failure.reason.as_str(), failure.message),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_core::plan::form::is_kept;
    use transom_core::projection::path;

    #[test]
    fn a_file_gets_no_field_back_that_is_no_part_of_a_revision() {
        let now = json!({"limits": 1, "suspend": true});
        let then = json!({"limits": 2, "onFailure": 2, "guests": {}});
        let with = |now| put_back(then.clone(), now);
        assert_eq!(with(&Value::Null), json!({"guests": {}}));
        let kept = json!({"guests": {}, "limits": 1, "suspend": true});
        assert_eq!(with(&now), kept);
    }

    /// Merges as RFC 7386 says.
    fn merge(into: &mut Value, patch: &Value) {
        let Some(fields) = patch.as_object() else {
            *into = patch.clone();
            return;
        };
        if !into.is_object() {
            *into = json!({});
        }
        for (key, value) in fields {
            match value {
                Value::Null => drop(into.as_object_mut().unwrap().remove(key)),
                value => merge(&mut into[key], value),
            }
        }
    }

    #[test]
    fn settings_with_any_key_at_any_depth_are_put_back() {
        let spec = |value: i32, [key, other]: [&str; 2]| {
            let bottom = json!({"x": value, other: 1, "y".repeat(600): value});
            let deep = (0..20).fold(bottom, |below, level| json!({format!("a.{level}"): below}));
            json!({"settings": {"a\"b": value, "c\\d": value, key: 1, "": value, "deep": deep}})
        };
        let (now, then) = (spec(1, ["e\"", "\\"]), spec(2, ["f", "g"]));
        let (path, patch) = of_spec(merge_patch(&now, &then));
        let mut body = json!({"spec": now});
        let keys = path::keys(&path);
        merge(keys.iter().fold(&mut body, |at, key| &mut at[key]), &patch);
        assert_eq!(body, json!({"spec": then}));
        // Nor does the answer of the server count as changed by a webhook.
        assert!(is_kept(Some(&then), &patch));
    }
}
