//! The grant of a suggested manifest: each part with the guest's sentence as a comment.

use super::{ascii, labels, list, one_line, quoted};
use crate::contract::decide::Who;
use crate::contract::description::{
    AskGrant, HoleGrant, ObjectPattern, ReadGrant, SuggestedGrant, WriteGrant, WriteVerb,
};
use crate::policy::rbac;
use serde_json::Value;
use std::fmt::Write as _;

// Writing to a text cannot fail.

/// Writes what is below `grant`.
pub(super) fn write(text: &mut String, grant: &SuggestedGrant) {
    if !grant.names.is_empty() {
        text.push_str("    # Templates that the patterns below use.\n    names:\n");
    }
    for (name, template) in &grant.names {
        let _ = writeln!(text, "      {}: {}", quoted(name), quoted(template));
    }
    if let Some(finalizer) = &grant.finalizer {
        text.push_str("    # It stays on a primary until the guest has cleaned up.\n");
        let _ = writeln!(text, "    finalizer: {}", quoted(finalizer));
    }
    if !grant.read.is_empty() {
        text.push_str("    read:\n");
        grant.read.iter().for_each(|one| read_grant(text, one));
    }
    if !grant.ask.is_empty() {
        text.push_str("    ask:\n");
        grant.ask.iter().for_each(|one| ask_grant(text, one));
    }
    if grant.write.is_empty() {
        text.push_str("    # It only observes.\n    write: []\n");
        return;
    }
    text.push_str("    write:\n");
    grant.write.iter().for_each(|one| write_grant(text, one));
}

fn named(text: &mut String, object: &ObjectPattern) {
    for (field, value) in [
        ("apiVersion", Some(&object.api_version)),
        ("kind", Some(&object.kind)),
        ("namespace", object.namespace.as_ref()),
        ("name", Some(&object.name)),
    ] {
        if let Some(value) = value {
            let _ = writeln!(text, "      {field}: {}", quoted(value));
        }
    }
}

fn read_grant(text: &mut String, grant: &ReadGrant) {
    let _ = writeln!(text, "    # {}", one_line(&grant.why));
    let _ = writeln!(text, "    - role: {}", quoted(&grant.role));
    named(text, &grant.object);
    if !grant.keys.is_empty() {
        let _ = writeln!(text, "      keys: {}", list(&grant.keys));
    }
    if let Some(every) = grant.every {
        let _ = writeln!(
            text,
            "      every: {{objects: {}, bytes: {}}}",
            every.objects, every.bytes
        );
    }
}

fn ask_grant(text: &mut String, grant: &AskGrant) {
    let review = &grant.review;
    let _ = writeln!(text, "    # {}", one_line(&grant.why));
    let _ = writeln!(
        text,
        "    - accessReview:\n        verb: {}",
        quoted(&review.verb)
    );
    if !review.group.is_empty() {
        let _ = writeln!(text, "        group: {}", quoted(&review.group));
    }
    let part = review.subresource.iter();
    let part: String = part.map(|part| format!("/{part}")).collect();
    let _ = writeln!(
        text,
        "        resource: {}",
        quoted(&format!("{}{part}", review.resource))
    );
    for (field, value) in [("namespace", &review.namespace), ("name", &review.name)] {
        if let Some(value) = value {
            let _ = writeln!(text, "        {field}: {}", quoted(value));
        }
    }
    let who = match review.who {
        Who::Requester => "Requester",
        Who::Agent => "Agent",
    };
    let _ = writeln!(text, "        as: {who}");
}

fn verb(verb: WriteVerb) -> &'static str {
    match verb {
        WriteVerb::Create => "create",
        WriteVerb::Update => "update",
        WriteVerb::Patch => "patch",
        WriteVerb::Delete => "delete",
        WriteVerb::Remove => "remove",
        WriteVerb::Release => "release",
    }
}

fn write_grant(text: &mut String, grant: &WriteGrant) {
    let _ = writeln!(text, "    # {}", one_line(&grant.why));
    let verbs: Vec<&str> = grant.verbs.iter().copied().map(verb).collect();
    let verbs = verbs.join(", ");
    match &grant.object {
        None => {
            let _ = writeln!(text, "    - target: primary\n      verbs: [{verbs}]");
        }
        Some(object) => {
            if rbac::gives_rights(&object.api_version) {
                text.push_str("    # It gives rights: the agent has to hold them itself, and `transom rbac` prints them.\n");
            }
            let _ = writeln!(text, "    - verbs: [{verbs}]");
            named(text, object);
        }
    }
    lists(text, grant);
    text.push_str(&labels("      ", &grant.labels));
    values(text, &grant.values);
    holes(text, &grant.holes);
    if !(grant.servers.is_empty() && grant.authorities.is_empty()) {
        text.push_str("      # Where a credential may be sent, and whose certificates are trusted there: by role.\n");
        text.push_str("      kubeconfig:\n");
        let _ = writeln!(text, "        server: {}", list(&grant.servers));
        let _ = writeln!(text, "        ca: {}", list(&grant.authorities));
    }
}

/// The fields of a write grant that list names.
fn lists(text: &mut String, grant: &WriteGrant) {
    for (field, what, names) in [
        ("fields", None, &grant.fields),
        ("finalizers", None, &grant.finalizers),
        (
            "taintKeys",
            Some("Taints with other keys stay as they are."),
            &grant.taint_keys,
        ),
        (
            "conditions",
            Some("Conditions of other types stay as they are."),
            &grant.conditions,
        ),
        (
            "signers",
            Some("Requests for other signers are left alone."),
            &grant.signers,
        ),
    ] {
        if names.is_empty() {
            continue;
        }
        if let Some(what) = what {
            let _ = writeln!(text, "      # {what}");
        }
        let _ = writeln!(text, "      {field}: {}", list(names));
    }
}

fn values(text: &mut String, values: &[(String, Vec<String>)]) {
    if !values.is_empty() {
        text.push_str(
            "      # The values that these fields, or parts of them, may get.\n      values:\n",
        );
    }
    for (path, allowed) in values {
        // A text that is no JSON becomes one that no field has.
        let read =
            |one: &String| serde_json::from_str(one).unwrap_or_else(|_| Value::from(one.as_str()));
        let allowed: Vec<String> = allowed
            .iter()
            .map(|one| ascii(&read(one).to_string()))
            .collect();
        let _ = writeln!(text, "        {}: [{}]", quoted(path), allowed.join(", "));
    }
}

fn holes(text: &mut String, holes: &[HoleGrant]) {
    if !holes.is_empty() {
        text.push_str("      # What no guest sees, by the role of the Secret that it comes from.\n      holes:\n");
    }
    for hole in holes {
        let _ = writeln!(text, "        {}:", quoted(&hole.path));
        for (field, roles) in [("bytes", &hole.bytes), ("kubeconfig", &hole.kubeconfigs)] {
            if !roles.is_empty() {
                let _ = writeln!(text, "          {field}: {}", list(roles));
            }
        }
        if !hole.manifests.is_empty() {
            text.push_str(
                "          # The kinds of objects that the text may have.\n          manifests:\n",
            );
        }
        for (api_version, kind) in &hole.manifests {
            let (version, kind) = (quoted(api_version), quoted(kind));
            let _ = writeln!(text, "          - {{apiVersion: {version}, kind: {kind}}}");
            if rbac::gives_rights(api_version) {
                text.push_str("            # FILL IN `values`: each rule, or each roleRef and subject, that the text may have.\n");
            }
        }
    }
}
