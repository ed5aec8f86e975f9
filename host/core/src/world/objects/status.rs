//! Conditions in a status, of the primary or of an object that others made: which of them a policy grants, and whose
//! requests they may approve.

use super::{Checked, Lowering};
use crate::failure::Failure;
use crate::inputs::request::is_request;
use crate::plan::conditions::Conditions;
use crate::policy::WriteRule;
use crate::policy::check::{at_most, unique, wrong};
use crate::projection::path::Path;
use crate::reference::ObjectRef;
use serde_json::Value;
use transom_api::KnownReason;
use transom_api::policy::WriteGrantSpec;
use transom_api::policy::bounds::MANY;

/// The conditions that the subresource `approval` of a request takes.
const VERDICTS: [&str; 2] = ["Approved", "Denied"];

/// Checks the conditions and the signers of a grant.
pub(super) fn check(
    field: &str,
    grant: &WriteGrantSpec,
    (api_version, kind): (&str, &str),
    fields: &[Path],
) -> Checked<()> {
    let at = |name: &str| format!("{field}.{name}");
    for (name, texts) in [
        ("conditions", &grant.conditions),
        ("signers", &grant.signers),
    ] {
        at_most(&at(name), texts, MANY)?;
        unique(&at(name), texts.iter())?;
        if texts.iter().any(String::is_empty) {
            return wrong(at(name), "has an empty text");
        }
    }
    let has_conditions = fields.iter().any(Path::is_conditions);
    if has_conditions == grant.conditions.is_empty() {
        let why = "must name types exactly where `status.conditions` is one of `fields`";
        return wrong(at("conditions"), why);
    }
    if !is_request(api_version, kind) {
        return match grant.signers.is_empty() {
            true => Ok(()),
            false => wrong(at("signers"), "is for CertificateSigningRequests only"),
        };
    }
    let other = fields
        .iter()
        .position(|path| path.is_of_status() && !path.is_conditions());
    if let Some(index) = other {
        let why = "is written by the signer of a request only";
        return wrong(format!("{field}.fields[{index}]"), why);
    }
    if !grant
        .conditions
        .iter()
        .all(|kind| VERDICTS.contains(&&**kind))
    {
        return wrong(at("conditions"), "may name Approved and Denied only");
    }
    if has_conditions == grant.signers.is_empty() {
        return wrong(
            at("signers"),
            "must name signers exactly where `conditions` are granted",
        );
    }
    Ok(())
}

/// The conditions that a guest wants, each granted.
pub(super) fn conditions(
    object: &ObjectRef,
    rule: &WriteRule,
    value: Value,
    given: &Lowering<'_>,
) -> Result<Conditions, Failure> {
    let conditions = Conditions::parse(value).map_err(|why| {
        let message = format!("`status.conditions` in the content for {object} {why}");
        Failure::known(KnownReason::ContractBroken, message)
    })?;
    let refused = |what: String, granted: Vec<&str>| {
        let granted = granted.join(", ");
        let message = format!("the policy does not grant {what}; granted: {granted}");
        Failure::known(KnownReason::ValueNotGranted, message)
    };
    if let Some(kind) = conditions
        .types()
        .find(|kind| !rule.conditions.contains(*kind))
    {
        let granted = rule.conditions.iter().map(String::as_str);
        let what = format!("the condition `{kind}` of {object}");
        return Err(refused(what, granted.collect()));
    }
    if is_request(&object.api_version, &object.kind) {
        let signer = given.data.object.body.pointer("/spec/signerName");
        let signer = signer.and_then(Value::as_str).unwrap_or_default();
        if !rule.signers.contains(signer) {
            let granted = rule.signers.iter().map(String::as_str);
            let what = format!("a verdict on {object}, whose signer is `{signer}`");
            return Err(refused(what, granted.collect()));
        }
    }
    Ok(conditions)
}

#[cfg(test)]
mod tests {
    use crate::contract::objects::{Apply, ObjectOwnership, ObjectsAnswer};
    use crate::plan::desired::Field;
    use crate::policy::{check, manifest};
    use crate::reference::ObjectRef;
    use crate::sample::{object, objects_manifest, policy, with};
    use crate::world::objects::tests::lowered_for;
    use serde_json::{Value, json};

    const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

    /// A policy that may set these conditions of clusters, or of requests for a signer.
    fn granting(types: &[&str], signers: &[&str]) -> Value {
        let requests = !signers.is_empty();
        let primary = match requests {
            true => {
                json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"})
            }
            false => {
                json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster"})
            }
        };
        let grant = json!([{"target": "primary", "verbs": ["patch"], "fields": ["status.conditions"],
            "conditions": types, "signers": signers}]);
        with(
            objects_manifest(),
            &[("/spec/primary", primary), ("/spec/grant/write", grant)],
        )
    }

    /// The types that an answer sets, or the reason and the message of its refusal.
    fn set(manifest: &Value, conditions: &Value) -> Result<Vec<String>, (String, String)> {
        let policy = policy(manifest);
        let primary = &policy.primary;
        let reference = ObjectRef::local(&primary.api_version, &primary.kind, None, "one");
        let apply = Apply {
            object: reference.clone(),
            ownership: ObjectOwnership::Fields,
            content: json!({"status": {"conditions": conditions}}).to_string(),
            holes: Vec::new(),
        };
        let objects = ObjectsAnswer {
            apply: vec![apply],
            ..ObjectsAnswer::default()
        };
        let primary = object(reference, json!({"spec": {"signerName": SIGNER}}));
        let fields = lowered_for(&primary, &policy, &objects)?;
        let types =
            fields
                .iter()
                .flat_map(|fields| &fields.fields)
                .filter_map(|field| match &field.1 {
                    Field::Conditions(conditions) => Some(conditions.types().map(str::to_owned)),
                    _ => None,
                });
        Ok(types.flatten().collect())
    }

    fn condition(kind: &str) -> Value {
        json!([{"type": kind, "status": "True", "reason": "R"}])
    }

    #[test]
    fn sets_granted_conditions_only() {
        let manifest = granting(&["Ours"], &[]);
        assert_eq!(set(&manifest, &condition("Ours")).unwrap(), ["Ours"]);
        let (reason, message) = set(&manifest, &condition("Theirs")).unwrap_err();
        assert_eq!(reason, "ValueNotGranted");
        assert!(
            message.contains("`Theirs`") && message.ends_with("granted: Ours"),
            "{message}"
        );
        let removed = json!([{"type": "Theirs", "status": null}]);
        assert_eq!(set(&manifest, &removed).unwrap_err().0, "ValueNotGranted");
        for broken in [json!(null), json!("x"), json!([{"type": "Ours"}])] {
            assert_eq!(
                set(&manifest, &broken).unwrap_err().0,
                "ContractBroken",
                "{broken}"
            );
        }
    }

    #[test]
    fn approves_requests_for_granted_signers_only() {
        let approved = condition("Approved");
        assert!(set(&granting(&["Approved"], &[SIGNER]), &approved).is_ok());
        let (reason, message) = set(&granting(&["Approved"], &["a/b"]), &approved).unwrap_err();
        assert_eq!(reason, "ValueNotGranted");
        assert!(
            message.contains(SIGNER) && message.ends_with("granted: a/b"),
            "{message}"
        );
        let denied = set(&granting(&["Approved"], &[SIGNER]), &condition("Denied"));
        assert_eq!(denied.unwrap_err().0, "ValueNotGranted");
    }

    #[test]
    fn refuses_grants_of_a_status_that_no_policy_may_have() {
        let write = "/spec/grant/write/0";
        let refused = |manifest: Value, change: (&str, Value)| {
            let pointer = format!("{write}{}", change.0);
            let manifest = with(manifest, &[(&pointer, change.1)]);
            let checked = check::policy(manifest::parse(&manifest).unwrap());
            checked
                .err()
                .map(|error| error.field.replace("spec.grant.write[0]", ""))
        };
        let (conditions, verdicts) = (granting(&["Ours"], &[]), granting(&["Approved"], &[SIGNER]));
        for (manifest, change, field) in [
            (&conditions, ("/conditions", json!([])), ".conditions"),
            (
                &conditions,
                ("/conditions", json!(["a", "a"])),
                ".conditions",
            ),
            (&conditions, ("/conditions", json!([""])), ".conditions"),
            (&conditions, ("/signers", json!([SIGNER])), ".signers"),
            (&conditions, ("/fields", json!(["spec.x"])), ".conditions"),
            (&verdicts, ("/conditions", json!(["Failed"])), ".conditions"),
            (&verdicts, ("/signers", json!([])), ".signers"),
            (
                &verdicts,
                (
                    "/fields",
                    json!(["status.conditions", "status.certificate"]),
                ),
                ".fields[1]",
            ),
        ] {
            assert_eq!(refused(manifest.clone(), change).as_deref(), Some(field));
        }
    }
}
