//! Checks whether a guest's self-description keeps to the contract.

use crate::bindings::fault;
use crate::failure::LoadError;
use crate::limits::printable;
use serde_json::Value;
use std::collections::BTreeSet;
use transom_core::catalogue::guest;
use transom_core::contract::decide::LabelTerm;
use transom_core::contract::description::{
    AskGrant, Description, MAX_GRANTS, MAX_PATTERN, MAX_READS, MAX_VALUE, MAX_WORD, ObjectPattern,
    Read, ReadGrant, Role, SuggestedGrant, WriteGrant,
};

/// Checks a description; returns the reasons that the guest may answer with.
pub(crate) fn check(description: &Description, role: Role) -> Result<BTreeSet<String>, LoadError> {
    named("name", &description.name)?;
    named("version", &description.version)?;
    guest::check(description).or_else(|why| refuse(printable(&why)))?;
    description
        .reads
        .iter()
        .try_for_each(|read| check_read(read, role))?;
    schema(&description.settings_schema)?;
    grant(&description.grant)?;
    let words = description.reasons.iter();
    Ok(words.map(|reason| reason.name.clone()).collect())
}

fn check_read(read: &Read, role: Role) -> Result<(), LoadError> {
    named("apiVersion", &read.api_version)?;
    named("kind", &read.kind)?;
    let fault = match role {
        Role::Decide(world) => fault(world, read),
        Role::Trigger => None,
    };
    match fault {
        None => Ok(()),
        Some(fault) => refuse(format!(
            "invalid reads of {}: {}",
            read.kind,
            printable(&fault)
        )),
    }
}

/// Checks the size and the letters of what it asks a policy to grant. Whether a policy can grant it is for the policy
/// to say.
fn grant(grant: &SuggestedGrant) -> Result<(), LoadError> {
    label_terms("labels of the primaries", &grant.primary_labels)?;
    at_most("templates", grant.names.len(), MAX_GRANTS)?;
    let (names, templates): (Vec<_>, Vec<_>) = grant.names.iter().cloned().unzip();
    patterns("names of templates", &names)?;
    patterns("templates", &templates)?;
    at_most("grants to read", grant.read.len(), MAX_READS)?;
    at_most("questions", grant.ask.len(), MAX_GRANTS)?;
    at_most("grants to write", grant.write.len(), MAX_GRANTS)?;
    let finalizer: Vec<_> = grant.finalizer.iter().cloned().collect();
    patterns("finalizer", &finalizer)?;
    for ReadGrant {
        role, object, keys, ..
    } in &grant.read
    {
        patterns("role of a grant", std::slice::from_ref(role))?;
        patterns("keys of a grant", keys)?;
        object_pattern(object)?;
    }
    for AskGrant { review, .. } in &grant.ask {
        patterns("verb of a question", std::slice::from_ref(&review.verb))?;
        let resource = std::slice::from_ref(&review.resource);
        patterns("resource of a question", resource)?;
        let group = Some(&review.group).filter(|group| !group.is_empty());
        let rest = [
            group,
            review.subresource.as_ref(),
            review.namespace.as_ref(),
            review.name.as_ref(),
        ];
        let rest: Vec<String> = rest.into_iter().flatten().cloned().collect();
        patterns("part of a question", &rest)?;
    }
    grant.write.iter().try_for_each(write_grant)
}

fn write_grant(one: &WriteGrant) -> Result<(), LoadError> {
    one.object.iter().try_for_each(object_pattern)?;
    at_most("verbs of a grant", one.verbs.len(), MAX_GRANTS)?;
    for (what, texts) in [
        ("fields of a grant", &one.fields),
        ("finalizers of a grant", &one.finalizers),
        ("taint keys of a grant", &one.taint_keys),
        ("conditions of a grant", &one.conditions),
        ("signers of a grant", &one.signers),
        ("servers of a grant", &one.servers),
        ("authorities of a grant", &one.authorities),
    ] {
        patterns(what, texts)?;
    }
    label_terms("labels of a grant", &one.labels)?;
    at_most("lists of values of a grant", one.values.len(), MAX_GRANTS)?;
    for (path, values) in &one.values {
        patterns("path of values of a grant", std::slice::from_ref(path))?;
        at_most("values of a grant", values.len(), MAX_GRANTS)?;
        let long = |value: &&String| value.len() > MAX_VALUE;
        if values.iter().any(|value| long(&value)) {
            return refuse(format!(
                "a value of a grant is longer than {MAX_VALUE} bytes"
            ));
        }
        let is_json = |value: &String| serde_json::from_str::<Value>(value).is_ok();
        if !values.iter().all(is_json) {
            return refuse("a value of a grant is not JSON".to_owned());
        }
    }
    at_most("holes of a grant", one.holes.len(), MAX_GRANTS)?;
    for hole in &one.holes {
        patterns(
            "path of a hole of a grant",
            std::slice::from_ref(&hole.path),
        )?;
        patterns("roles of a hole of a grant", &hole.bytes)?;
        patterns("roles of a hole of a grant", &hole.kubeconfigs)?;
        let kinds = hole.manifests.iter();
        let kinds = kinds.flat_map(|(version, kind)| [version.clone(), kind.clone()]);
        let kinds: Vec<String> = kinds.collect();
        at_most("kinds of a hole", hole.manifests.len(), MAX_GRANTS)?;
        printable_texts("kinds of a hole of a grant", &kinds)?;
    }
    Ok(())
}

fn label_terms(what: &str, terms: &[LabelTerm]) -> Result<(), LoadError> {
    at_most(what, terms.len(), MAX_GRANTS)?;
    terms.iter().try_for_each(|term| {
        patterns(what, std::slice::from_ref(&term.key))?;
        patterns(what, &term.values)
    })
}

fn object_pattern(object: &ObjectPattern) -> Result<(), LoadError> {
    let ObjectPattern {
        api_version,
        kind,
        namespace,
        name,
    } = object;
    let all = [
        Some(api_version),
        Some(kind),
        namespace.as_ref(),
        Some(name),
    ];
    let all: Vec<String> = all.into_iter().flatten().cloned().collect();
    patterns("pattern of a grant", &all)
}

/// Checks that each text has printable letters of ASCII, and not too many.
fn patterns(what: &str, texts: &[String]) -> Result<(), LoadError> {
    at_most(what, texts.len(), MAX_GRANTS)?;
    printable_texts(what, texts)
}

fn printable_texts(what: &str, texts: &[String]) -> Result<(), LoadError> {
    let printable = |text: &String| text.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    let fits = |text: &String| (1..=MAX_PATTERN).contains(&text.len()) && printable(text);
    match texts.iter().all(fits) {
        true => Ok(()),
        false => refuse(format!(
            "its {what} must have 1 to {MAX_PATTERN} printable characters"
        )),
    }
}

/// Checks that a text is printable, not empty and not too long.
fn named(what: &str, text: &str) -> Result<(), LoadError> {
    if text.is_empty() || text.len() > MAX_WORD || !text.chars().all(|c| c.is_ascii_graphic()) {
        return refuse(format!(
            "its {what} must have 1 to {MAX_WORD} printable characters"
        ));
    }
    Ok(())
}

fn schema(text: &str) -> Result<(), LoadError> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(schema) if schema.is_object() => Ok(()),
        Ok(_) => refuse("its settings schema is not a JSON object".to_owned()),
        Err(error) => refuse(format!(
            "its settings schema is not JSON: line {}",
            error.line()
        )),
    }
}

fn at_most(what: &str, found: usize, allowed: usize) -> Result<(), LoadError> {
    if found > allowed {
        return refuse(format!(
            "it declares {found} {what}; the limit is {allowed}"
        ));
    }
    Ok(())
}

fn refuse<T>(why: String) -> Result<T, LoadError> {
    Err(LoadError::DescriptionInvalid(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_core::contract::description::{DeclaredReason, MAX_REASONS};
    use transom_core::world::{KUBECONFIG, TAINTS};

    fn good() -> Description {
        Description {
            name: "taints".to_owned(),
            version: "1.0.0".to_owned(),
            reads: vec![Read {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                fields: vec!["status.conditions[Ready]".to_owned()],
                changes: vec!["metadata.annotations".to_owned()],
            }],
            reasons: vec![declared("NotReady")],
            settings_schema: "{}".to_owned(),
            grant: SuggestedGrant::default(),
        }
    }

    fn declared(word: &str) -> DeclaredReason {
        DeclaredReason {
            name: word.to_owned(),
            meaning: String::new(),
            remedy: String::new(),
        }
    }

    fn ask() -> ReadGrant {
        let word = || "a".to_owned();
        let object = ObjectPattern {
            api_version: word(),
            kind: word(),
            namespace: None,
            name: word(),
        };
        ReadGrant {
            role: word(),
            object,
            ..ReadGrant::default()
        }
    }

    #[test]
    fn a_valid_description_gives_its_reasons() {
        assert_eq!(
            check(&good(), Role::Trigger)
                .unwrap()
                .into_iter()
                .collect::<Vec<_>>(),
            ["NotReady"]
        );
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
    fn names_each_error() {
        type Fault = fn(&mut Description);
        let faults: [(Fault, &str); 21] = [
            (|d| d.name.clear(), "its name"),
            (|d| d.version = "a b".to_owned(), "its version"),
            (
                |d| d.reads = vec![d.reads[0].clone(); MAX_READS + 1],
                "more than 64 kinds",
            ),
            (
                |d| d.reads[0].fields = vec!["a".to_owned(); MAX_READS],
                "more than 64 paths",
            ),
            (|d| d.reads[0].fields.push("a[".to_owned()), "of v1 Node"),
            (
                |d| d.reasons = vec![declared("A"); MAX_REASONS + 1],
                "more than 128 reasons",
            ),
            (|d| d.reasons.push(declared("notCamel")), "`notCamel`"),
            (
                |d| d.reasons.push(declared(&"A".repeat(MAX_WORD + 1))),
                "CamelCase",
            ),
            (|d| d.reasons.push(declared("NotReady")), "twice"),
            // What only a policy would find is found without one: no component is built that none can load.
            (|d| d.reasons.push(declared("NotLeading")), "reserved"),
            (|d| d.reads[0].kind = "Secret".to_owned(), "Secrets"),
            (|d| d.reads.push(d.reads[0].clone()), "twice"),
            (
                |d| d.grant.read = vec![ask(); MAX_READS + 1],
                "65 grants to read",
            ),
            (
                |d| d.grant.write = vec![WriteGrant::default(); MAX_GRANTS + 1],
                "17 grants to write",
            ),
            (
                |d| {
                    d.grant.read = vec![ReadGrant {
                        role: "a\nb".to_owned(),
                        ..ask()
                    }];
                },
                "its role of a grant",
            ),
            (
                |d| {
                    d.grant.read = vec![ReadGrant {
                        keys: vec!["k".to_owned(); MAX_GRANTS + 1],
                        ..ask()
                    }];
                },
                "17 keys of a grant",
            ),
            (
                |d| {
                    d.grant.read = vec![ReadGrant {
                        object: ObjectPattern::default(),
                        ..ask()
                    }];
                },
                "its pattern of a grant",
            ),
            (
                |d| {
                    d.grant.write = vec![WriteGrant {
                        taint_keys: vec!["k".repeat(MAX_PATTERN + 1)],
                        ..WriteGrant::default()
                    }];
                },
                "its taint keys of a grant",
            ),
            (
                |d| {
                    d.grant.write = vec![WriteGrant {
                        fields: vec!["\u{202e}".to_owned()],
                        ..WriteGrant::default()
                    }];
                },
                "its fields of a grant",
            ),
            (|d| d.settings_schema = "[]".to_owned(), "not a JSON object"),
            (|d| d.settings_schema = "{".to_owned(), "not JSON: line 1"),
        ];
        for (fault, named) in faults {
            let mut description = good();
            fault(&mut description);
            let error = check(&description, Role::Trigger).unwrap_err();
            assert_eq!(error.reason(), "DescriptionInvalid");
            assert!(
                error.to_string().contains(named),
                "{error} does not name {named}"
            );
        }
    }

    #[test]
    fn only_a_guest_that_receives_a_record_must_declare_its_fields() {
        assert!(check(&good(), Role::Decide(KUBECONFIG)).is_ok());
        let of_node = check(&good(), Role::Decide(TAINTS)).unwrap_err();
        assert!(of_node.to_string().contains("reads v1 Node"), "{of_node}");
        let mut typo = good();
        "cluster.open-cluster-management.io/v1".clone_into(&mut typo.reads[0].api_version);
        "ManagedCluster".clone_into(&mut typo.reads[0].kind);
        assert!(check(&typo, Role::Decide(TAINTS)).is_ok());
        typo.reads[0].fields.push("status.clusterClaim".to_owned());
        let refused = check(&typo, Role::Decide(TAINTS)).unwrap_err();
        assert_eq!(refused.reason(), "DescriptionInvalid");
        assert!(
            refused.to_string().contains("`status.clusterClaims`"),
            "{refused}"
        );
    }
}
