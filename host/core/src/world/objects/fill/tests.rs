//! Kubeconfigs and texts of objects in the data of Secrets, and what never gets there.

mod rights;

use super::*;
use crate::contract::Primary;
use crate::contract::credentials::{
    ContextEntry, Proposal, ProposedCluster, ProposedUser, SourceView, Url,
};
use crate::contract::decide::{Absence, Form, Need, Wake};
use crate::contract::objects::{
    Apply, CredentialRef, Filled, FilledWithin, Hole, MadeKubeconfig, ObjectManifest,
    ObjectOwnership, ObjectsAnswer,
};
use crate::inputs::Found;
use crate::inputs::kubeconfigs::Kubeconfigs;
use crate::inputs::secrets::Secrets;
use crate::kubeconfig::KubeconfigLimits;
use crate::object::Object;
use crate::pattern::TemplateData;
use crate::plan::desired::{Desired, KeyContent};
use crate::policy::{check, manifest};
use crate::reference::ObjectRef;
use crate::sample::{agent, guest, hosted, object, objects_manifest, policy, with};
use crate::world::{Answer as _, KUBECONFIG, Lowering, OBJECTS};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const CA: &str = include_str!("../../../../tests/kubeconfig/given/ca.pem");
/// A moment at which the certificates are valid.
const NOW: i64 = 1_780_000_000;
const KUBE: &str = "data.kubeconfig";
const TEXT: &str = r#"data["import.yaml"]"#;

/// A policy whose Secret has a kubeconfig, bytes, and a text of objects with both.
fn makes() -> Value {
    let read = |role: &str| json!({"role": role, "kind": "Secret", "namespace": "{primary.namespace}", "name": role, "keys": ["a"]});
    let kinds = json!([{"kind": "Namespace"}, {"kind": "Secret"}, {"apiVersion": "apps/v1", "kind": "Deployment"},
        {"apiVersion": "apps/v1", "kind": "ControllerRevision"},
        rights::role(), rights::binding()]);
    let secret = json!({"kind": "Secret", "namespace": "made", "name": "{primary.name}", "verbs": ["create", "update", "delete"],
        "holes": {
            KUBE: {"kubeconfig": ["admin", "absent"]},
            "data.copy": {"bytes": ["key"]},
            TEXT: {"bytes": ["key"], "kubeconfig": ["admin"], "manifests": kinds},
        },
        "kubeconfig": {"server": ["source"], "ca": ["admin"]}});
    let grant = json!({"read": [read("admin"), read("other"), read("absent"), read("key")], "write": [secret]});
    let primary = json!({"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedCluster"});
    let of = [("/spec/primary", primary), ("/spec/grant", grant)];
    with(objects_manifest(), &of)
}

fn secret(role: &str, text: &str) -> Object {
    let reference = ObjectRef::local("v1", "Secret", Some("clusters"), role);
    object(reference, json!({"data": {"a": STANDARD.encode(text)}}))
}

/// The kubeconfigs of `admin` and of `other`, with what a guest sees of the first.
fn kubeconfigs() -> (Kubeconfigs, SourceView) {
    let mut all = Kubeconfigs::new(KubeconfigLimits::default());
    let mut view = |role: &str| {
        let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": "https://api.example.com:6443", "certificate-authority-data": STANDARD.encode(CA)}}],
            "users": [{"name": "a", "user": {"token": format!("canary of {role}")}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]});
        let object = secret(role, &text.to_string());
        let need = Need {
            role: role.to_owned(),
            reference: object.reference.clone(),
            form: Form::Kubeconfig("a".to_owned()),
            absence: Absence::Fine,
            wake: Wake::Change,
        };
        all.read(&Found::one(need, None), &object, "a").unwrap()
    };
    let (admin, _) = (view("admin"), view("other"));
    (all, admin)
}

/// The kubeconfig of a role as it is, but for the host of its server.
fn made(source: &str, host: &str) -> CredentialRef {
    let proposal = Proposal {
        clusters: vec![ProposedCluster {
            entry: 0,
            name: "a".to_owned(),
            server: Url {
                scheme: "https".to_owned(),
                host: host.to_owned(),
                port: Some(6443),
                path: String::new(),
            },
            authorities: vec![0],
            insecure: false,
            proxy: None,
            tls_server_name: None,
        }],
        users: vec![ProposedUser {
            entry: 0,
            name: "a".to_owned(),
            credential: 0,
        }],
        contexts: vec![ContextEntry {
            entry: 0,
            name: "a".to_owned(),
            cluster: "a".to_owned(),
            user: "a".to_owned(),
            namespace: None,
        }],
        current_context: "a".to_owned(),
    };
    CredentialRef::Kubeconfig(MadeKubeconfig {
        source: source.to_owned(),
        proposal,
    })
}

fn right() -> CredentialRef {
    made("admin", "api.example.com")
}

fn part(path: &str, hole: CredentialRef) -> FilledWithin {
    let path = path.to_owned();
    FilledWithin { path, hole }
}

fn one(content: &Value, holes: Vec<FilledWithin>) -> ObjectManifest {
    let content = content.to_string();
    ObjectManifest { content, holes }
}

fn named(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})
}

/// Runs something with what an answer is lowered with.
fn given<T>(run: impl FnOnce(&Lowering<'_>) -> T) -> T {
    let policy = policy(&makes());
    let primary = object(hosted("demo"), json!({}));
    let (agent, guest) = (agent("hub", true), guest(&[], &[]));
    let view = Primary {
        reference: primary.reference.clone(),
        ..Primary::default()
    };
    let (mut secrets, (kubeconfigs, _)) = (Secrets::default(), kubeconfigs());
    for role in ["key", "other"] {
        let secret = secret(role, "canary of bytes");
        secrets.hold(role, &secret, &["a".to_owned()]).unwrap();
    }
    run(&Lowering {
        policy: &policy,
        guest: &guest,
        data: TemplateData {
            object: &primary,
            agent: &agent,
        },
        primary: &view,
        target: &primary.reference,
        inputs: &[],
        kubeconfigs: &kubeconfigs,
        secrets: &secrets,
        now_seconds: NOW,
    })
}

/// What a Secret with these holes gets, by key; or the reason of the refusal and its message.
fn filled(holes: Vec<(&str, Hole)>) -> Result<Vec<(String, String)>, (String, String)> {
    let holes = holes.into_iter().map(|(path, hole)| Filled {
        path: path.to_owned(),
        hole,
    });
    let objects = ObjectsAnswer {
        apply: vec![Apply {
            object: ObjectRef::local("v1", "Secret", Some("made"), "demo"),
            ownership: ObjectOwnership::Whole,
            content: "{}".to_owned(),
            holes: holes.collect(),
        }],
        ..ObjectsAnswer::default()
    };
    given(|given| texts(&objects, objects.lower(given)))
}

/// The data of the only Secret that an answer was lowered to.
fn texts(
    objects: &ObjectsAnswer,
    lowered: Result<Vec<Desired<'_>>, Failure>,
) -> Result<Vec<(String, String)>, (String, String)> {
    let shown = format!("{lowered:?} {:?}", objects.shown());
    assert!(
        !shown.contains("canary") && !shown.contains("Y2FuYXJ5"),
        "{shown}"
    );
    let desired = lowered.map_err(|failure| (failure.reason.to_string(), failure.message))?;
    let [Desired::Whole(whole)] = desired.as_slice() else {
        panic!("{desired:?}");
    };
    let data = whole.data.iter().map(|(key, content)| match content {
        KeyContent::Hole(hole) => {
            assert!(hole.equals(hole.bytes()) && hole.shares_credential(hole.bytes()));
            assert!(!hole.equals(b"canary") && !hole.shares_credential(b"canary"));
            (
                key.clone(),
                String::from_utf8(hole.bytes().to_vec()).unwrap(),
            )
        }
        KeyContent::Text(text) => panic!("{text}"),
    });
    Ok(data.collect())
}

#[test]
fn a_kubeconfig_is_made_of_the_one_of_a_granted_role() {
    let (_, view) = kubeconfigs();
    assert_eq!(view.clusters[0].server.host, "api.example.com");
    let holes = vec![
        (KUBE, Hole::Credential(right())),
        ("data.copy", Hole::Credential(CredentialRef::Bytes(0))),
    ];
    let data = filled(holes).unwrap();
    assert_eq!(data[0], ("copy".to_owned(), "canary of bytes".to_owned()));
    assert!(
        data[1].1.contains("token: canary of admin\n"),
        "{}",
        data[1].1
    );
}

#[test]
fn no_other_credential_fills_a_hole() {
    for (path, hole, reason) in [
        (
            KUBE,
            made("other", "api.example.com"),
            "CredentialNotGranted",
        ),
        (
            KUBE,
            made("nobody", "api.example.com"),
            "CredentialNotGranted",
        ),
        (KUBE, made("absent", "api.example.com"), "UnknownReference"),
        (KUBE, made("admin", "evil.example.com"), "ServerNotGranted"),
        (KUBE, CredentialRef::Bytes(0), "CredentialNotGranted"),
        ("data.copy", right(), "CredentialNotGranted"),
        ("data.copy", CredentialRef::Bytes(1), "CredentialNotGranted"),
        ("data.copy", CredentialRef::Bytes(2), "UnknownReference"),
        (TEXT, CredentialRef::Bytes(0), "CredentialNotGranted"),
        (TEXT, right(), "CredentialNotGranted"),
    ] {
        let shown = format!("{path} {hole:?}");
        let refused = filled(vec![(path, Hole::Credential(hole))]).unwrap_err();
        assert_eq!(refused.0, reason, "{shown}: {}", refused.1);
    }
    let objects = Hole::Manifests(vec![one(&named("Namespace", "a"), vec![])]);
    for path in [KUBE, "data.copy"] {
        let refused = filled(vec![(path, objects.clone())]).unwrap_err();
        assert_eq!(refused.0, "CredentialNotGranted");
    }
}

#[test]
fn objects_are_one_text_with_bytes_in_the_data_of_secrets() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}, "data": {"b": "eA=="}});
    let objects = vec![
        one(&named("Namespace", "a"), vec![]),
        one(
            &secret,
            vec![
                part("data.a", CredentialRef::Bytes(0)),
                part(r#"data["k.yaml"]"#, right()),
            ],
        ),
    ];
    let data = filled(vec![(TEXT, Hole::Manifests(objects))]).unwrap();
    let text = &data[0].1;
    let (first, second) = text.split_once("---\n").unwrap();
    assert_eq!(
        first,
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n"
    );
    let read: Value = serde_yaml::from_str(second).unwrap();
    let decoded = |key: &str| {
        let bytes = STANDARD.decode(read["data"][key].as_str().unwrap());
        String::from_utf8(bytes.unwrap()).unwrap()
    };
    assert_eq!(read["data"]["b"], "eA==");
    assert_eq!(decoded("a"), "canary of bytes");
    assert!(decoded("k.yaml").contains("token: canary of admin"));
}

#[test]
fn what_is_made_counts_once_against_the_limit_of_an_answer() {
    let in_text = one(&named("Secret", "s"), vec![part("data.a", right())]);
    for (path, hole) in [
        (KUBE, Hole::Credential(right())),
        (TEXT, Hole::Manifests(vec![in_text])),
    ] {
        let (used, made) = given(|given| {
            let filled = Filled {
                path: path.to_owned(),
                hole,
            };
            let rule = &given.policy.writes[0];
            let key = key_of(path).unwrap();
            let place = HolePlace {
                name: path,
                rule: &rule.holes[&key],
                kubeconfig: rule.kubeconfig.as_ref(),
            };
            let mut filler = Filler::new(given);
            let (content, _) = filler.hole(&filled, place).unwrap();
            let KeyContent::Hole(made) = content else {
                panic!("no hole");
            };
            (MAX_TEXTS - filler.left, made.bytes().len())
        });
        assert_eq!(used, made, "{path}");
    }
}

#[test]
fn no_other_object_gets_into_a_text() {
    let secret = |change: Value| {
        let mut secret = named("Secret", "s");
        for (key, value) in change.as_object().unwrap() {
            secret[key] = value.clone();
        }
        secret
    };
    let bytes = |path: &str| vec![part(path, CredentialRef::Bytes(0))];
    let filled_with = |credential| one(&named("Secret", "s"), vec![part("data.a", credential)]);
    let labelled = |key: &str, field: &str| json!({"metadata": {"name": "s", field: {key: "x"}}});
    let mut deep = json!("x");
    for _ in 0..100 {
        deep = json!([deep, "x".repeat(100), "y"]);
    }
    let wide: Vec<Value> = (0..400).map(|_| deep.clone()).collect();
    let broken = "ContractBroken";
    for (manifest, reason) in [
        (one(&named("ConfigMap", "s"), vec![]), "WriteNotGranted"),
        (
            one(
                &json!({"apiVersion": "v2", "kind": "Secret", "metadata": {"name": "s"}}),
                vec![],
            ),
            "WriteNotGranted",
        ),
        (
            one(&json!({"apiVersion": "v1", "kind": "Secret"}), vec![]),
            broken,
        ),
        (
            one(
                &json!({"apiVersion": "v1", "metadata": {"name": "s"}}),
                vec![],
            ),
            broken,
        ),
        (one(&json!([]), vec![]), broken),
        (
            ObjectManifest {
                content: "{".to_owned(),
                holes: vec![],
            },
            broken,
        ),
        // A record of the agent.
        (
            one(
                &json!({"apiVersion": "apps/v1", "kind": "ControllerRevision",
                    "metadata": {"name": "s", "namespace": "transom"}}),
                vec![],
            ),
            "WriteNotGranted",
        ),
        (one(&named("Secret", "S"), vec![]), "InvalidTargetName"),
        (
            one(&secret(labelled("transom.dev/policy", "labels")), vec![]),
            "WriteNotGranted",
        ),
        (
            one(&secret(labelled("transom.dev/x", "annotations")), vec![]),
            "WriteNotGranted",
        ),
        (
            one(
                &secret(json!({"type": "bootstrap.kubernetes.io/token"})),
                vec![],
            ),
            "WriteNotGranted",
        ),
        (
            one(&named("Namespace", "s"), bytes("data.a")),
            "CredentialNotGranted",
        ),
        (
            one(&named("Secret", "s"), bytes("metadata.annotations.a")),
            "CredentialNotGranted",
        ),
        (
            one(&named("Secret", "s"), bytes("stringData.a")),
            "CredentialNotGranted",
        ),
        (filled_with(CredentialRef::Bytes(1)), "CredentialNotGranted"),
        (filled_with(CredentialRef::Bytes(9)), "UnknownReference"),
        (
            filled_with(made("other", "api.example.com")),
            "CredentialNotGranted",
        ),
        (
            filled_with(made("admin", "evil.example.com")),
            "ServerNotGranted",
        ),
        (
            one(&secret(json!({"data": {"a": "eA=="}})), bytes("data.a")),
            broken,
        ),
        (
            one(&secret(json!({"data": "eA=="})), bytes("data.a")),
            broken,
        ),
        (
            one(&secret(json!({"x": "y".repeat(1 << 20)})), vec![]),
            broken,
        ),
        (one(&secret(json!({"x": wide})), vec![]), broken),
    ] {
        let shown: String = format!("{manifest:?}").chars().take(300).collect();
        let refused = filled(vec![(TEXT, Hole::Manifests(vec![manifest]))]).unwrap_err();
        assert_eq!(refused.0, reason, "{shown}: {}", refused.1);
        assert!(refused.1.len() < 1_000, "{}", refused.1);
    }
}

#[test]
fn a_text_has_up_to_64_objects_each_once() {
    let same = |count: usize| vec![one(&named("Namespace", "a"), vec![]); count];
    for count in [0, 2, 65] {
        let refused = filled(vec![(TEXT, Hole::Manifests(same(count)))]).unwrap_err();
        assert_eq!(refused.0, "ContractBroken", "{count}: {}", refused.1);
    }
}

#[test]
fn the_grant_says_what_a_hole_takes() {
    let of = |changes: &[(&str, Value)]| {
        let manifest = changes.iter().fold(makes(), |all, (pointer, value)| {
            let pointer = format!("/spec/grant/write/0/{pointer}");
            with(all, &[(&pointer, value.clone())])
        });
        let checked = check::policy(manifest::parse(&manifest).unwrap());
        checked.map_err(|error| error.field.replace("spec.grant.write[0].", ""))
    };
    assert_eq!(of(&[]).unwrap().world, OBJECTS);
    // The same grant without holes is one for a guest of the other world.
    let other = [("holes", json!({})), ("fields", json!([KUBE]))];
    assert_eq!(of(&other).unwrap().world, KUBECONFIG);
    let text = |kinds: Value| json!({TEXT: {"kubeconfig": ["admin"], "manifests": kinds}});
    let kind = |version: &str, kind: &str| text(json!([{"apiVersion": version, "kind": kind}]));
    let at = r#"holes["data["import.yaml"]"]"#;
    for (change, field) in [
        (
            ("holes", json!({KUBE: {}})),
            r#"holes["data.kubeconfig"]"#.to_owned(),
        ),
        (
            ("holes", json!({"data.copy": {"bytes": ["key"]}})),
            "kubeconfig".to_owned(),
        ),
        (("kubeconfig", json!(null)), "kubeconfig".to_owned()),
        (
            ("kubeconfig/server", json!(["nobody"])),
            "kubeconfig.server[0]".to_owned(),
        ),
        (("kubeconfig/ca", json!([])), "kubeconfig.ca".to_owned()),
        (
            ("holes", json!({KUBE: {"kubeconfig": ["nobody"]}})),
            r#"holes["data.kubeconfig"].kubeconfig[0]"#.to_owned(),
        ),
        (
            ("holes", kind("transom.dev/v1alpha1", "FleetPolicy")),
            format!("{at}.manifests[0]"),
        ),
        (("holes", kind("v1", "List")), format!("{at}.manifests[0]")),
        (
            ("holes", kind("v1", "SecretList")),
            format!("{at}.manifests[0]"),
        ),
        (
            ("holes", kind("v1", "secret")),
            format!("{at}.manifests[0].kind"),
        ),
        (
            (
                "holes",
                text(json!([{"kind": "Secret"}, {"kind": "Secret"}])),
            ),
            format!("{at}.manifests[1]"),
        ),
    ] {
        let shown = format!("{change:?}");
        assert_eq!(of(&[change]).unwrap_err(), field, "{shown}");
    }
}
