//! Writes the manifest of a policy that grants what a guest asks for by its description, and nothing else. The
//! description comes from the guest, so it is a proposal for a person to read: it grants nothing by itself.

mod granted;

use super::check;
use super::manifest::{self, PolicyError};
use crate::contract::decide::LabelTerm;
use crate::contract::description::{Description, Read, Role, WriteGrant, WriteVerb};
use crate::document::{ParseLimits, parse_one};
use crate::world::{self, World};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Limits of a written manifest.
const LIMITS: ParseLimits = ParseLimits {
    bytes: 1 << 20,
    nodes: 100_000,
    depth: 64,
};
/// The most settings that are listed, and the most bytes of a default that is shown.
const MAX_SETTINGS: usize = 64;
const MAX_DEFAULT: usize = 256;
/// The most bytes of the names of all settings that have to be there.
const MAX_REQUIRED: usize = 4096;

/// What happens to the objects of the policy; the more careful way where there is a choice.
const OWN: &str = "  own:
    # An object that is there already and that this policy did not make stays as it is.
    adopt: Never
    # What the policy made is deleted when its primary is gone.
    prune: WhenSourceDeleted
";

/// The manifest of a policy for a guest, with a comment for each part. `component` is where the policy finds it, `role`
/// what the component is for, `capabilities` what it imports.
///
/// # Errors
/// When the guest decides nothing by itself, does not say what it is about or what it writes, or asks for what no
/// policy can grant; the field is that of the policy.
pub fn manifest(
    name: &str,
    component: &str,
    description: &Description,
    (role, capabilities): (Role, &[&str]),
) -> Result<String, PolicyError> {
    let Role::Decide(world) = role else {
        let why = "a trigger guest writes nothing: name it under `spec.guests.trigger` of a policy";
        return Err(PolicyError::new("spec.guests.decide", why));
    };
    let text = write(name, (component, capabilities), description, world)?;
    let read = parse_one(text.as_bytes(), LIMITS);
    let value = read.map_err(|error| PolicyError::new("spec", error.to_string()))?;
    let policy = check::policy(manifest::parse(&value)?)?;
    if policy.world == world {
        return Ok(text);
    }
    let why = format!("asks for what a {} writes", policy.world.name());
    Err(PolicyError::new("spec.grant.write", why))
}

fn write(
    name: &str,
    (component, capabilities): (&str, &[&str]),
    description: &Description,
    world: &'static dyn World,
) -> Result<String, PolicyError> {
    let Description { reads, grant, .. } = description;
    // The kind of the primary stands first.
    let Some(primary) = reads.first() else {
        let why = "the description of the guest names no kind that it reads";
        return Err(PolicyError::new("spec.primary", why));
    };
    if grant.write.is_empty() && world != world::OBSERVING {
        let why = "the description of the guest does not say what it writes";
        return Err(PolicyError::new("spec.grant.write", why));
    }
    let mut text = head((name, component), description, primary, world);
    if !capabilities.is_empty() {
        let _ = writeln!(
            text,
            "      # What it imports; lines of the log are limited in number and size.\n      capabilities: [{}]",
            capabilities.join(", ")
        );
    }
    text.push_str(&settings(&description.settings_schema));
    text.push_str(
        "  # What the guest may read, and the agent may write for it: nothing else.\n  grant:\n",
    );
    granted::write(&mut text, grant);
    let is_made = |one: &WriteGrant| one.verbs.contains(&WriteVerb::Create);
    if grant.write.iter().any(is_made) {
        text.push_str(OWN);
    }
    Ok(text)
}

/// The begin of a manifest, up to the component.
fn head(
    (name, component): (&str, &str),
    description: &Description,
    primary: &Read,
    world: &dyn World,
) -> String {
    format!(
        "\
# Puts the guest `{}` {} to work; its world is `{}`.
# Made by `transom policy init` of what the guest says about itself: read the grant before you apply it.
apiVersion: {}
kind: {}
metadata:
  name: {}
spec:
  # The objects that the policy is about. Each is reconciled on its own.
  primary:
    apiVersion: {}
    kind: {}
    # Patterns of namespaces; without meaning for a kind that has none.
    namespaces: [\"*\"]
{}  guests:
    decide:
      # A path leads from the folder of this file.
      component: {}
",
        one_line(&description.name),
        one_line(&description.version),
        world.name(),
        transom_api::API_VERSION,
        transom_api::KIND,
        quoted(name),
        quoted(&primary.api_version),
        quoted(&primary.kind),
        labels("    ", &description.grant.primary_labels),
        quoted(component),
    )
}

/// The settings whose default the schema says: as comments, because they hold anyway.
fn settings(schema: &str) -> String {
    let schema: Value = serde_json::from_str(schema).unwrap_or_default();
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut text = String::new();
    let required = schema.get("required").and_then(Value::as_array);
    let required = required.into_iter().flatten().filter_map(Value::as_str);
    let required: Vec<String> = required.take(MAX_SETTINGS).map(str::to_owned).collect();
    let must = list(&required);
    let must = match required.is_empty() || must.len() > MAX_REQUIRED {
        true => String::new(),
        false => format!("      # FILL IN, the guest needs these settings: {must}\n"),
    };
    for (name, about) in properties.into_iter().flatten().take(MAX_SETTINGS) {
        let Some(default) = about.get("default") else {
            continue;
        };
        let line = format!("{}: {}", quoted(name), ascii(&default.to_string()));
        if name.len() <= MAX_DEFAULT && line.len() <= MAX_DEFAULT {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "      #   {line}");
        }
    }
    match text.is_empty() {
        true => must,
        false => format!(
            "{must}      # Defaults of settings; `transom inspect` shows the schema.\n      # settings:\n{text}"
        ),
    }
}

/// Which labels objects have; nothing where that does not matter.
fn labels(indent: &str, terms: &[LabelTerm]) -> String {
    if terms.is_empty() {
        return String::new();
    }
    let mut text = format!("{indent}labels:\n{indent}  matchExpressions:\n");
    for term in terms {
        let values = match term.values.is_empty() {
            true => String::new(),
            false => format!(", values: {}", list(&term.values)),
        };
        let (key, operator) = (quoted(&term.key), term.operator);
        let _ = writeln!(
            text,
            "{indent}  - {{key: {key}, operator: {operator:?}{values}}}"
        );
    }
    text
}

/// A text of the guest as YAML: a string of JSON in letters of ASCII, or the bare word where it cannot mean anything
/// else.
fn quoted(text: &str) -> String {
    let plain =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | '/');
    let bare =
        text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.chars().all(plain);
    // Words that YAML does not read as text.
    let taken = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    match bare && !taken.contains(&text.to_ascii_lowercase().as_str()) {
        true => text.to_owned(),
        false => ascii(&json!(text).to_string()),
    }
}

fn list(items: &[String]) -> String {
    let items: Vec<_> = items.iter().map(|item| quoted(item)).collect();
    format!("[{}]", items.join(", "))
}

/// JSON in letters of ASCII.
fn ascii(json: &str) -> String {
    let mut text = String::new();
    for letter in json.chars() {
        match letter.is_ascii() {
            true => text.push(letter),
            false => {
                let mut units = [0; 2];
                for unit in letter.encode_utf16(&mut units) {
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
        }
    }
    text
}

/// A sentence of the guest that cannot end the comment it stands in.
fn one_line(sentence: &str) -> String {
    let shown = |letter: char| match letter.is_alphanumeric() || letter.is_ascii_graphic() {
        true => letter,
        false => ' ',
    };
    sentence
        .chars()
        .map(shown)
        .collect::<String>()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::description::{ObjectPattern, Read, ReadGrant, SuggestedGrant};
    use crate::world::{KUBECONFIG, TAINTS};

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|text| (*text).to_owned()).collect()
    }

    fn described(api_version: &str, kind: &str, grant: SuggestedGrant) -> Description {
        Description {
            name: "sample".to_owned(),
            version: "1.2.3".to_owned(),
            reads: vec![Read {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                fields: vec![],
                changes: vec![],
            }],
            reasons: vec![],
            settings_schema: r#"{"properties": {"value": {"default": "yes"}}}"#.to_owned(),
            grant,
        }
    }

    fn taints(keys: &[&str]) -> Description {
        let write = WriteGrant {
            verbs: vec![WriteVerb::Patch],
            fields: texts(&["spec.taints"]),
            taint_keys: texts(keys),
            why: "The taint.".to_owned(),
            ..WriteGrant::default()
        };
        let grant = SuggestedGrant {
            write: vec![write],
            ..SuggestedGrant::default()
        };
        described(
            "cluster.open-cluster-management.io/v1",
            "ManagedCluster",
            grant,
        )
    }

    fn secret(name: &str) -> ObjectPattern {
        ObjectPattern {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            namespace: Some("{primary.namespace}".to_owned()),
            name: name.to_owned(),
        }
    }

    fn kubeconfig() -> Description {
        let grant = SuggestedGrant {
            read: vec![ReadGrant {
                role: "source".to_owned(),
                object: secret("{primary.name}-admin-kubeconfig"),
                keys: texts(&["kubeconfig"]),
                every: None,
                why: "It is copied.".to_owned(),
            }],
            write: vec![WriteGrant {
                object: Some(secret("{primary.name}-copy")),
                verbs: vec![WriteVerb::Create, WriteVerb::Update, WriteVerb::Delete],
                fields: texts(&["data.kubeconfig"]),
                servers: texts(&["source"]),
                authorities: texts(&["source"]),
                why: "The copy.".to_owned(),
                ..WriteGrant::default()
            }],
            ..SuggestedGrant::default()
        };
        described("hypershift.openshift.io/v1beta1", "HostedCluster", grant)
    }

    fn of(description: &Description, world: &'static dyn World) -> Result<String, PolicyError> {
        let role = (Role::Decide(world), &["log"][..]);
        manifest("mine", "target/guests/mine.wasm", description, role)
    }

    fn parsed(text: &str) -> Value {
        parse_one(text.as_bytes(), LIMITS).unwrap()
    }

    #[test]
    fn a_manifest_grants_what_the_guest_asks_for_and_nothing_else() {
        let text = of(&taints(&["example.com/a"]), TAINTS).unwrap();
        assert_eq!(
            parsed(&text)["spec"],
            json!({
                "primary": {"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "namespaces": ["*"]},
                "guests": {"decide": {"component": "target/guests/mine.wasm", "capabilities": ["log"]}},
                "grant": {"write": [{"target": "primary", "verbs": ["patch"], "fields": ["spec.taints"], "taintKeys": ["example.com/a"]}]},
            })
        );
        assert!(
            text.contains("    # The taint.\n    - target: primary\n"),
            "{text}"
        );
        assert!(text.contains("      #   value: \"yes\"\n"), "{text}");
        let spec = parsed(&of(&kubeconfig(), KUBECONFIG).unwrap());
        let spec = &spec["spec"];
        assert_eq!(
            spec["grant"]["write"][0]["kubeconfig"],
            json!({"server": ["source"], "ca": ["source"]})
        );
        assert_eq!(
            spec["own"],
            json!({"adopt": "Never", "prune": "WhenSourceDeleted"})
        );
    }

    #[test]
    fn what_no_policy_can_grant_is_refused_with_its_field() {
        let refused = |change: &dyn Fn(&mut Description)| {
            let mut description = kubeconfig();
            change(&mut description);
            of(&description, KUBECONFIG).unwrap_err().field
        };
        assert_eq!(refused(&|d| d.reads.clear()), "spec.primary");
        assert_eq!(refused(&|d| d.grant.write.clear()), "spec.grant.write");
        assert_eq!(
            refused(&|d| d.reads[0].kind = "secret".to_owned()),
            "spec.primary.kind"
        );
        assert_eq!(
            refused(&|d| d.grant.read[0].keys.clear()),
            "spec.grant.read[0].keys"
        );
        assert_eq!(
            refused(&|d| d.grant.read[0].role = "a\nb: c".to_owned()),
            "spec.grant.read[0].role"
        );
        assert_eq!(
            refused(&|d| d.grant.write[0].servers = texts(&["nobody"])),
            "spec.grant.write[0].kubeconfig.server[0]"
        );
        let other = of(&taints(&["a"]), KUBECONFIG).unwrap_err();
        assert_eq!(other.field, "spec.grant.write");
        let trigger = (Role::Trigger, &[][..]);
        let error = manifest("mine", "x", &taints(&["a"]), trigger).unwrap_err();
        assert!(error.why.contains("spec.guests.trigger"), "{error}");
        let error =
            manifest("Mine", "x", &taints(&["a"]), (Role::Decide(TAINTS), &[])).unwrap_err();
        assert_eq!(error.field, "metadata.name");
    }

    #[test]
    fn no_text_of_a_guest_leaves_its_place() {
        let evil = "x\n  suspend: true #\u{2028}suspend: true\r\u{85}\u{202e}\u{0}";
        let mut description = taints(&["example.com/a"]);
        let plain = parsed(&of(&description, TAINTS).unwrap());
        evil.clone_into(&mut description.name);
        evil.clone_into(&mut description.version);
        evil.clone_into(&mut description.grant.write[0].why);
        let mut settings = serde_json::Map::new();
        settings.insert(evil.to_owned(), json!({"default": evil}));
        settings.insert("c".to_owned(), json!({}));
        settings.insert("b".to_owned(), json!({"default": "d".repeat(10_000)}));
        description.settings_schema = json!({"properties": settings}).to_string();
        let text = of(&description, TAINTS).unwrap();
        assert_eq!(parsed(&text), plain);
        let control = |letter: char| letter.is_control() && letter != '\n';
        assert!(
            !text.contains(control) && !text.contains(['\u{2028}', '\u{202e}']),
            "{text}"
        );
        assert!(text.len() < 10_000);
        for key in [evil, "- a", "'", "#", "a: b", "*", "&a", "ü"] {
            let refused = of(&taints(&[key]), TAINTS).unwrap_err();
            assert_eq!(refused.field, "spec.grant.write[0].taintKeys", "{key}");
        }
        let keys = ["yes", "null", "1", "1e3", "0x1", "2026-11-30"];
        let text = of(&taints(&keys), TAINTS).unwrap();
        let found = &parsed(&text)["spec"]["grant"]["write"][0]["taintKeys"];
        assert_eq!(found, &json!(keys));
    }
}
