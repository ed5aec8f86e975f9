//! Grants of Secrets whose data no guest sees. The grant, not the guest, says which bytes go where. Every field of the
//! data is such a hole, and no other object has one.

use super::Checked;
use crate::pattern::template::TemplateNames;
use crate::policy::HoleRule;
use crate::policy::check::{self, data_key, unique, within, wrong};
use crate::policy::rbac;
use crate::policy::values::ValueRule;
use crate::projection::path::Path;
use crate::reference::{LOCAL, is_secret};
use crate::world::{Granted, kubeconfig};
use serde_json::Value;
use std::collections::BTreeMap;
use transom_api::policy::bounds::{FEW, MANY};
use transom_api::policy::{HoleGrantSpec, ManifestKind, WriteGrantSpec};

/// The types of Secrets that give rights to whoever knows or names such a Secret: data and annotations would be rights.
pub(super) const OF_RIGHTS: [&str; 2] = [
    "kubernetes.io/service-account-token",
    "bootstrap.kubernetes.io/token",
];

/// The granted holes: keys of a Secret's data, each with what may go there.
pub(super) fn granted(granted: &Granted<'_>) -> Checked<BTreeMap<String, HoleRule>> {
    let Granted { field, grant, .. } = *granted;
    let at = format!("{field}.holes");
    within(&at, grant.holes.len(), FEW)?;
    let secret = is_secret(
        &grant.api_version,
        grant.kind.as_deref().unwrap_or_default(),
    );
    if !(secret && grant.target.is_none() || grant.holes.is_empty()) {
        let why = "is only for Secrets that the policy makes: elsewhere a credential would be seen";
        return wrong(at, why);
    }
    let mut holes = BTreeMap::new();
    for (text, one) in &grant.holes {
        let at = format!("{at}[\"{text}\"]");
        let Some(key) = key_of(text) else {
            let why = r#"is not one field below `data`: `data.kubeconfig`, `data["tls.crt"]`"#;
            return wrong(at, why);
        };
        data_key(&at, &key)?;
        if holes.insert(key, hole(&at, one, granted)?).is_some() {
            return wrong(at, "is there twice");
        }
    }
    let at = format!("{field}.kubeconfig");
    let gets_one = holes.values().any(|hole| !hole.kubeconfigs.is_empty());
    match (&grant.kubeconfig, gets_one) {
        (Some(kubeconfig), true) => kubeconfig::destinations(&at, kubeconfig, granted.reads)?,
        (None, true) => return wrong(at, "is missing: one of the holes gets a kubeconfig"),
        (Some(_), false) => return wrong(at, "is there, but none of the holes gets a kubeconfig"),
        (None, false) => {}
    }
    Ok(holes)
}

/// Checks what may go into one hole.
fn hole(at: &str, grant: &HoleGrantSpec, granted: &Granted<'_>) -> Checked<HoleRule> {
    let is_role = |role: &String| {
        let mut reads = granted.reads.iter();
        reads.any(|rule| rule.role == *role && is_secret(&rule.api_version, &rule.kind))
    };
    for (name, roles) in [("bytes", &grant.bytes), ("kubeconfig", &grant.kubeconfig)] {
        let at = format!("{at}.{name}");
        within(&at, roles.len(), FEW)?;
        unique(&at, roles.iter())?;
        if let Some(index) = roles.iter().position(|role| !is_role(role)) {
            return wrong(format!("{at}[{index}]"), "is not the role of a Secret");
        }
    }
    within(&format!("{at}.manifests"), grant.manifests.len(), MANY)?;
    let mut manifests = BTreeMap::new();
    for (index, kind) in grant.manifests.iter().enumerate() {
        let at = format!("{at}.manifests[{index}]");
        let values = values(&at, kind, granted.names)?;
        let kind = (kind.api_version.clone(), kind.kind.clone());
        if manifests.insert(kind, values).is_some() {
            return wrong(at, "is there twice");
        }
    }
    if *grant == HoleGrantSpec::default() {
        return wrong(at, "has none of `bytes`, `kubeconfig` and `manifests`");
    }
    Ok(HoleRule {
        bytes: grant.bytes.iter().cloned().collect(),
        kubeconfigs: grant.kubeconfig.iter().cloned().collect(),
        manifests,
    })
}

/// What objects of a kind may say in a text: what is listed where they give rights, anything elsewhere.
fn values(at: &str, kind: &ManifestKind, names: &TemplateNames) -> Checked<Vec<ValueRule>> {
    check::object(at, LOCAL, &kind.api_version, &kind.kind)?;
    if let Some(why) = unwritable(&kind.api_version, &kind.kind) {
        return wrong(at, why);
    }
    if rbac::gives_rights(&kind.api_version) {
        let fields = rbac::check_text(at, kind)?;
        return ValueRule::parse(at, &kind.values, &fields, names);
    }
    match kind.values.is_empty() {
        true => Ok(Vec::new()),
        false => wrong(
            format!("{at}.values"),
            "is only for kinds that give rights: of others the kind is the whole grant",
        ),
    }
}

/// Why no text of a guest may have objects of a kind, if so: whoever applies it would do what nobody granted.
fn unwritable(api_version: &str, kind: &str) -> Option<&'static str> {
    if kind.ends_with("List") {
        return Some("is a list, which holds objects of any kind");
    }
    let group = api_version.strip_prefix(transom_api::GROUP);
    group
        .filter(|rest| rest.starts_with('/'))
        .map(|_| "is of policies: a guest would grant what it likes, wherever its text is applied")
}

/// Checks the fields of Secrets that are no holes: labels, annotations, and a type that the grant lists.
pub(super) fn check_fields(field: &str, grant: &WriteGrantSpec, fields: &[Path]) -> Checked<()> {
    for (index, path) in fields.iter().enumerate() {
        let keys = path.keys().unwrap_or_default();
        if !matches!(keys.as_slice(), ["type"] | ["metadata", ..]) {
            let why = "is neither `type` nor a label or an annotation: data of a Secret is granted under `holes`";
            return wrong(format!("{field}.fields[{index}]"), why);
        }
    }
    let has_type = grant.fields.iter().any(|field| field == "type");
    let types = grant.values.get("type").filter(|types| !types.is_empty());
    let Some(types) = types.filter(|_| has_type) else {
        return match has_type {
            true => wrong(
                format!("{field}.values"),
                "does not list the values of `type`",
            ),
            false => Ok(()),
        };
    };
    let harmless = |one: &Value| {
        let text = one.as_str().unwrap_or_default();
        !text.is_empty() && !text.contains(['*', '{']) && !OF_RIGHTS.contains(&text)
    };
    match types.iter().position(|one| !harmless(one)) {
        None => Ok(()),
        Some(index) => {
            let why = "is not one exact type, or a type that gives rights";
            wrong(format!("{field}.values[\"type\"][{index}]"), why)
        }
    }
}

/// The key of a Secret's data that a path names.
pub(super) fn key_of(path: &str) -> Option<String> {
    let path = Path::parse(path).ok()?;
    match path.keys()?.as_slice() {
        ["data", key] => Some((*key).to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Primary;
    use crate::contract::objects::{
        Apply, CredentialRef, Filled, Hole, ObjectOwnership, ObjectsAnswer,
    };
    use crate::failure::Failure;
    use crate::inputs::kubeconfigs::Kubeconfigs;
    use crate::inputs::secrets::Secrets;
    use crate::kubeconfig::KubeconfigLimits;
    use crate::pattern::TemplateData;
    use crate::plan::desired::{Desired, KeyContent, Whole};
    use crate::policy::manifest;
    use crate::reference::ObjectRef;
    use crate::sample::{agent, guest, hosted, object, objects_manifest, policy, with};
    use crate::world::{Answer as _, Lowering};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    const VERBS: [&str; 3] = ["create", "update", "delete"];

    /// The manifest of a policy that copies two Secrets of each HostedCluster into one, and makes a ConfigMap.
    fn copies() -> Value {
        let read = |role: &str, key: &str| json!({"role": role, "kind": "Secret", "namespace": "{primary.namespace}", "name": role, "keys": [key]});
        let secret = json!({"kind": "Secret", "cluster": "hub", "namespace": "copies", "name": "{primary.name}", "verbs": VERBS,
            "fields": ["type", "metadata.labels.x", "metadata.annotations.x"], "values": {"type": ["example.com/x"]},
            "holes": {"data.kubeconfig": {"bytes": ["admin", "other"]}, r#"data["tls.key"]"#: {"bytes": ["key"]}}});
        let map = json!({"kind": "ConfigMap", "namespace": "copies", "name": "{primary.name}", "verbs": VERBS,
            "fields": ["data", "metadata.annotations.x"]});
        let primary =
            json!({"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedCluster"});
        let grant = json!({"read": [read("admin", "kubeconfig"), read("other", "x"), read("key", "tls.key"),
            {"role": "home", "kind": "Namespace", "name": "home"}], "write": [secret, map]});
        with(
            objects_manifest(),
            &[("/spec/primary", primary), ("/spec/grant", grant)],
        )
    }

    /// Bytes of the three Secrets: 0 is of `admin`, 1 of `other`, 2 of `key`.
    fn secrets() -> Secrets {
        let mut secrets = Secrets::default();
        for (role, key) in [("admin", "kubeconfig"), ("other", "x"), ("key", "tls.key")] {
            let reference = ObjectRef::local("v1", "Secret", Some("clusters"), role);
            let bytes = STANDARD.encode(format!("canary of {role}"));
            let secret = object(reference, json!({"data": {key: bytes}}));
            secrets.hold(role, &secret, &[key.to_owned()]).unwrap();
        }
        secrets
    }

    fn apply(kind: &str, content: &Value, holes: &[(&str, u32)]) -> Apply {
        let hole = |(path, reference): &(&str, u32)| Filled {
            path: (*path).to_owned(),
            hole: Hole::Credential(CredentialRef::Bytes(*reference)),
        };
        let cluster = if kind == "Secret" { "hub" } else { "local" };
        Apply {
            object: ObjectRef {
                cluster: cluster.to_owned(),
                ..ObjectRef::local("v1", kind, Some("copies"), "demo")
            },
            ownership: ObjectOwnership::Whole,
            content: content.to_string(),
            holes: holes.iter().map(hole).collect(),
        }
    }

    /// What becomes of an answer, as `look` sees it, or the reason and the message of its refusal.
    fn lowered<T>(apply: Apply, look: impl Fn(&Whole<'_>) -> T) -> Result<T, (String, String)> {
        let (policy, secrets) = (policy(&copies()), secrets());
        let primary = object(hosted("demo"), json!({}));
        let (agent, guest) = (agent("hub", true), guest(&[], &[]));
        let view = Primary {
            reference: primary.reference.clone(),
            ..Primary::default()
        };
        let objects = ObjectsAnswer {
            apply: vec![apply],
            ..ObjectsAnswer::default()
        };
        let given = Lowering {
            policy: &policy,
            guest: &guest,
            data: TemplateData {
                object: &primary,
                agent: &agent,
            },
            primary: &view,
            target: &primary.reference,
            inputs: &[],
            kubeconfigs: &Kubeconfigs::new(KubeconfigLimits::default()),
            secrets: &secrets,
            now_seconds: 0,
        };
        let shown = format!("{:?} {:?}", objects.shown(), secrets);
        assert!(!shown.contains("canary"), "{shown}");
        let told = |failure: Failure| (failure.reason.to_string(), failure.message);
        let desired = objects.lower(&given).map_err(told)?;
        let debug = format!("{desired:?}");
        assert!(
            !debug.contains("canary") && !debug.contains("Y2FuYXJ5"),
            "{debug}"
        );
        match desired.as_slice() {
            [Desired::Whole(whole)] => Ok(look(whole)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn fills_granted_keys_with_the_bytes_of_granted_roles() {
        let labels = json!({"metadata": {"labels": {"x": "y"}}, "type": "example.com/x"});
        let holes = [("data.kubeconfig", 0), (r#"data["tls.key"]"#, 2)];
        let filled = |whole: &Whole<'_>| {
            let bytes = whole.data.iter().map(|(key, content)| match content {
                KeyContent::Hole(hole) => {
                    let text = String::from_utf8(hole.bytes().to_vec()).unwrap();
                    assert!(hole.equals(text.as_bytes()) && !hole.equals(b"canary"));
                    assert!(!hole.shares_credential(b"canary"));
                    format!("{key}: {text}")
                }
                KeyContent::Text(text) => panic!("{text}"),
            });
            let kind = whole.fixed["type"].as_str().unwrap().to_owned();
            assert!(!whole.content.contains_key("type"));
            (kind, bytes.collect::<Vec<_>>().join(", "))
        };
        let (kind, bytes) = lowered(apply("Secret", &labels, &holes), filled).unwrap();
        assert_eq!(kind, "example.com/x");
        assert_eq!(bytes, "kubeconfig: canary of admin, tls.key: canary of key");
        let other = apply("Secret", &json!({}), &[(r#"data["kubeconfig"]"#, 1)]);
        let (kind, bytes) = lowered(other, filled).unwrap();
        assert_eq!(
            (kind.as_str(), bytes.as_str()),
            ("Opaque", "kubeconfig: canary of other")
        );
    }

    #[test]
    fn refuses_bytes_that_go_where_they_may_not() {
        let none = json!({});
        let annotated = r#"metadata.annotations["x"]"#;
        let mut of_primary = apply("Secret", &none, &[("data.kubeconfig", 0)]);
        of_primary.ownership = ObjectOwnership::Fields;
        for (name, apply, reason) in [
            (
                "forged",
                apply("Secret", &none, &[("data.kubeconfig", 3)]),
                "UnknownReference",
            ),
            (
                "far",
                apply("Secret", &none, &[("data.kubeconfig", u32::MAX)]),
                "UnknownReference",
            ),
            (
                "other role",
                apply("Secret", &none, &[("data.kubeconfig", 2)]),
                "CredentialNotGranted",
            ),
            (
                "other key",
                apply("Secret", &none, &[("data.password", 0)]),
                "CredentialNotGranted",
            ),
            (
                "all data",
                apply("Secret", &none, &[("data", 0)]),
                "CredentialNotGranted",
            ),
            (
                "below",
                apply("Secret", &none, &[("data.kubeconfig.x", 0)]),
                "CredentialNotGranted",
            ),
            (
                "no path",
                apply("Secret", &none, &[("data..", 0)]),
                "CredentialNotGranted",
            ),
            (
                "text",
                apply("Secret", &none, &[("stringData.kubeconfig", 0)]),
                "CredentialNotGranted",
            ),
            (
                "annotation",
                apply("Secret", &none, &[(annotated, 0)]),
                "CredentialNotGranted",
            ),
            (
                "map",
                apply("ConfigMap", &none, &[("data.kubeconfig", 0)]),
                "CredentialNotGranted",
            ),
            (
                "map's annotation",
                apply("ConfigMap", &none, &[(annotated, 0)]),
                "CredentialNotGranted",
            ),
            ("fields", of_primary, "CredentialNotGranted"),
            (
                "twice",
                apply(
                    "Secret",
                    &none,
                    &[("data.kubeconfig", 0), (r#"data["kubeconfig"]"#, 1)],
                ),
                "ContractBroken",
            ),
        ] {
            let (found, message) = lowered(apply, |_| ()).unwrap_err();
            assert_eq!(found, reason, "{name}: {message}");
            assert!(message.contains("copies/demo"), "{name}: {message}");
        }
    }

    #[test]
    fn refuses_secrets_with_other_data_or_fields() {
        let none = json!({});
        for (name, apply, reason) in [
            ("no hole", apply("Secret", &none, &[]), "ContractBroken"),
            (
                "data",
                apply(
                    "Secret",
                    &json!({"data": {"a": "YQ=="}}),
                    &[("data.kubeconfig", 0)],
                ),
                "WriteNotGranted",
            ),
            (
                "data instead",
                apply(
                    "Secret",
                    &json!({"data": {"kubeconfig": "YQ=="}}),
                    &[("data.kubeconfig", 0)],
                ),
                "WriteNotGranted",
            ),
            (
                "text beside",
                apply(
                    "Secret",
                    &json!({"stringData": {"a": "a"}}),
                    &[("data.kubeconfig", 0)],
                ),
                "WriteNotGranted",
            ),
            (
                "type",
                apply(
                    "Secret",
                    &json!({"type": "kubernetes.io/service-account-token"}),
                    &[("data.kubeconfig", 0)],
                ),
                "ValueNotGranted",
            ),
            (
                "immutable",
                apply(
                    "Secret",
                    &json!({"immutable": true}),
                    &[("data.kubeconfig", 0)],
                ),
                "WriteNotGranted",
            ),
        ] {
            let (found, message) = lowered(apply, |_| ()).unwrap_err();
            assert_eq!(found, reason, "{name}: {message}");
            assert!(message.contains("copies/demo"), "{name}: {message}");
        }
    }

    #[test]
    fn refuses_grants_by_which_bytes_could_be_seen() {
        let refused = |changes: &[(&str, Value)]| {
            let manifest = changes.iter().fold(copies(), |manifest, (pointer, value)| {
                with(
                    manifest,
                    &[(&format!("/spec/grant/write/{pointer}"), value.clone())],
                )
            });
            let checked = check::policy(manifest::parse(&manifest).unwrap());
            let field = checked.err().map(|error| error.field);
            field.map(|field| field.replace("spec.grant.write", ""))
        };
        assert_eq!(refused(&[]), None);
        let no_fields = [("0/fields", json!([])), ("0/values", json!({}))];
        assert_eq!(refused(&no_fields), None);
        let hole = |path: &str, roles: Value| ("0/holes", json!({path: {"bytes": roles}}));
        for (change, field) in [
            (
                ("1/holes", json!({"data.a": {"bytes": ["admin"]}})),
                "[1].holes",
            ),
            (("0/kind", json!("ConfigMap")), "[0].holes"),
            (("0/apiVersion", json!("v2")), "[0].holes"),
            (("0/holes", json!({})), "[0].kind"),
            (hole("data", json!(["admin"])), r#"[0].holes["data"]"#),
            (
                hole("data.tls.key", json!(["admin"])),
                r#"[0].holes["data.tls.key"]"#,
            ),
            (
                hole("stringData.a", json!(["admin"])),
                r#"[0].holes["stringData.a"]"#,
            ),
            (
                hole("status.a", json!(["admin"])),
                r#"[0].holes["status.a"]"#,
            ),
            (
                hole("metadata.annotations.a", json!(["admin"])),
                r#"[0].holes["metadata.annotations.a"]"#,
            ),
            (
                hole(r#"data["a b"]"#, json!(["admin"])),
                r#"[0].holes["data["a b"]"]"#,
            ),
            (hole("data.a", json!([])), r#"[0].holes["data.a"]"#),
            (
                hole("data.a", json!(["admin", "admin"])),
                r#"[0].holes["data.a"].bytes"#,
            ),
            (
                hole("data.a", json!(["admin", "home"])),
                r#"[0].holes["data.a"].bytes[1]"#,
            ),
            (
                hole("data.a", json!(["nobody"])),
                r#"[0].holes["data.a"].bytes[0]"#,
            ),
            (
                (
                    "0/holes",
                    json!({"data.a": {"bytes": ["admin"]}, r#"data["a"]"#: {"bytes": ["admin"]}}),
                ),
                r#"[0].holes["data["a"]"]"#,
            ),
            (("0/fields", json!(["type", "data.x"])), "[0].fields[1]"),
            (("0/fields", json!(["type", "immutable"])), "[0].fields[1]"),
            (("0/values", json!({})), "[0].values"),
            (
                ("0/values", json!({"type": ["*"]})),
                r#"[0].values["type"][0]"#,
            ),
            (
                (
                    "0/values",
                    json!({"type": ["Opaque", "bootstrap.kubernetes.io/token"]}),
                ),
                r#"[0].values["type"][1]"#,
            ),
        ] {
            let shown = format!("{change:?}");
            assert_eq!(refused(&[change]).as_deref(), Some(field), "{shown}");
        }
    }
}
