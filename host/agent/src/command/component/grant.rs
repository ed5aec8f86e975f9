//! The grant that a guest suggests, for people.

use transom_core::contract::decide::{LabelTerm, Review};
use transom_core::contract::description::{AskGrant, ObjectPattern, SuggestedGrant, WriteGrant};

/// What a policy has to grant, by default.
pub(super) fn print(grant: &SuggestedGrant, line: &impl Fn(&str, &str)) {
    for term in &grant.primary_labels {
        line("primaries", &label(term));
    }
    for (name, template) in &grant.names {
        line("template", &format!("{name}: {template}"));
    }
    for one in &grant.read {
        let keys = match one.keys.as_slice() {
            [] => String::new(),
            keys => format!(", keys {}", keys.join(", ")),
        };
        let every = match one.every {
            None => String::new(),
            Some(every) => format!(
                ", at most {} at once in {} bytes",
                every.objects, every.bytes
            ),
        };
        line(
            "asks for",
            &format!("{} as `{}`{keys}{every}", shown(&one.object), one.role),
        );
        line("  why", &one.why);
    }
    for AskGrant { review, why } in &grant.ask {
        line("asks", &question(review));
        line("  why", why);
    }
    grant.write.iter().for_each(|one| print_write(one, line));
    if let Some(finalizer) = &grant.finalizer {
        line("finalizer", finalizer);
    }
}

fn question(review: &Review) -> String {
    let after = |before: &str, part: &Option<String>| {
        let part = part.as_ref();
        part.map_or_else(String::new, |part| format!("{before}{part}"))
    };
    let group = Some(review.group.clone()).filter(|group| !group.is_empty());
    format!(
        "whether the {:?} may {} {}{}{}{}{}",
        review.who,
        review.verb,
        review.resource,
        after(".", &group),
        after("/", &review.subresource),
        after(" named ", &review.name),
        after(" in the namespace ", &review.namespace),
    )
}

fn print_write(one: &WriteGrant, line: &impl Fn(&str, &str)) {
    let object = one.object.as_ref();
    let object = object.map_or_else(|| "the primary".to_owned(), shown);
    let verbs: Vec<String> = one.verbs.iter().map(|verb| format!("{verb:?}")).collect();
    let verbs = verbs.join(", ").to_lowercase();
    let fields = match one.fields.is_empty() {
        true => String::new(),
        false => format!(": {}", one.fields.join(", ")),
    };
    line("writes", &format!("{object} ({verbs}){fields}"));
    for (path, values) in &one.values {
        let values = match values.is_empty() {
            true => "none".to_owned(),
            false => values.join(", "),
        };
        line("  values", &format!("{path}: {values}"));
    }
    for term in &one.labels {
        line("  labels", &label(term));
    }
    for (name, each) in [
        ("  finalizer", &one.finalizers),
        ("  taint key", &one.taint_keys),
        ("  condition", &one.conditions),
        ("  signer", &one.signers),
    ] {
        each.iter().for_each(|item| line(name, item));
    }
    let from = [("  server of", &one.servers), ("  CA of", &one.authorities)];
    for (label, roles) in from.into_iter().filter(|(_, roles)| !roles.is_empty()) {
        line(label, &roles.join(", "));
    }
    for hole in &one.holes {
        let path = &hole.path;
        for (label, roles) in [
            ("  bytes", &hole.bytes),
            ("  kubeconfig", &hole.kubeconfigs),
        ] {
            if !roles.is_empty() {
                line(label, &format!("{path} of {}", roles.join(", ")));
            }
        }
        for (api_version, kind) in &hole.manifests {
            line("  objects", &format!("{path} of {api_version} {kind}"));
        }
    }
    line("  why", &one.why);
}

fn shown(object: &ObjectPattern) -> String {
    let ObjectPattern {
        api_version,
        kind,
        namespace,
        name,
    } = object;
    let namespace = namespace
        .as_ref()
        .map_or_else(String::new, |it| format!("{it}/"));
    format!("{api_version} {kind} {namespace}{name}")
}

fn label(term: &LabelTerm) -> String {
    let values = term.values.join(", ");
    format!("{} {:?} {values}", term.key, term.operator)
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_core::contract::decide::Who;

    #[test]
    fn a_question_is_shown_with_all_that_it_is_about() {
        let mut review = Review {
            who: Who::Agent,
            verb: "get".to_owned(),
            group: String::new(),
            resource: "secrets".to_owned(),
            subresource: None,
            namespace: Some("{hosted}".to_owned()),
            name: Some("admin".to_owned()),
        };
        let whole = "whether the Agent may get secrets named admin in the namespace {hosted}";
        assert_eq!(question(&review), whole);
        (review.namespace, review.name) = (None, None);
        review.group = "g.io".to_owned();
        review.subresource = Some("status".to_owned());
        let of_group = "whether the Agent may get secrets.g.io/status";
        assert_eq!(question(&review), of_group);
    }
}
