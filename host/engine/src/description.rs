//! Checks whether a guest's self-description keeps to the contract.

use crate::bindings::v0_1::binding;
use crate::failure::LoadError;
use crate::limits::printable;
use std::collections::BTreeSet;
use transom_core::contract::description::{
    Description, MAX_GRANTS, MAX_PATTERN, MAX_READS, MAX_REASONS, MAX_WORD, ObjectPattern, Read,
    ReadGrant, Role, SuggestedGrant,
};
use transom_core::projection::Declared;

/// Checks a description; returns the reasons that the guest may answer with.
pub(crate) fn check(description: &Description, role: Role) -> Result<BTreeSet<String>, LoadError> {
    named("name", &description.name)?;
    named("version", &description.version)?;
    at_most("kinds that it reads", description.reads.len(), MAX_READS)?;
    at_most("reasons", description.reasons.len(), MAX_REASONS)?;
    description
        .reads
        .iter()
        .try_for_each(|read| check_read(read, role))?;
    schema(&description.settings_schema)?;
    grant(&description.grant)?;
    let mut words = BTreeSet::new();
    for reason in &description.reasons {
        if !is_reason(&reason.name) {
            return refuse(format!(
                "reason `{}` is not a CamelCase word of at most {MAX_WORD} characters",
                printable(&reason.name)
            ));
        }
        if !words.insert(reason.name.clone()) {
            return refuse(format!("reason `{}` is declared twice", reason.name));
        }
    }
    Ok(words)
}

/// Whether a word may be a condition's reason: CamelCase, at most 64 characters.
fn is_reason(word: &str) -> bool {
    word.len() <= MAX_WORD
        && word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.chars().all(|c| c.is_ascii_alphanumeric())
}

fn check_read(read: &Read, role: Role) -> Result<(), LoadError> {
    named("apiVersion", &read.api_version)?;
    named("kind", &read.kind)?;
    at_most(
        "paths of one kind",
        read.fields.len() + read.changes.len(),
        MAX_READS,
    )?;
    let compiled = Declared::compile(read).map_err(|error| error.to_string());
    let fault = match (compiled, role) {
        (Err(error), _) => Some(error),
        (Ok(_), Role::Decide(world)) => binding(world).ok().and_then(|world| world.fault(read)),
        (Ok(_), Role::Trigger) => None,
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

/// Checks the size and the letters of what it asks a policy to grant. Whether a policy can grant it is for the policy to
/// say.
fn grant(grant: &SuggestedGrant) -> Result<(), LoadError> {
    at_most("grants to read", grant.read.len(), MAX_READS)?;
    at_most("grants to write", grant.write.len(), MAX_GRANTS)?;
    for ReadGrant {
        role, object, keys, ..
    } in &grant.read
    {
        patterns("role of a grant", std::slice::from_ref(role))?;
        patterns("keys of a grant", keys)?;
        object_pattern(object)?;
    }
    for one in &grant.write {
        one.object.iter().try_for_each(object_pattern)?;
        patterns("fields of a grant", &one.fields)?;
        patterns("taint keys of a grant", &one.taint_keys)?;
        patterns("conditions of a grant", &one.conditions)?;
        patterns("servers of a grant", &one.servers)?;
        patterns("authorities of a grant", &one.authorities)?;
        at_most("holes of a grant", one.holes.len(), MAX_GRANTS)?;
        for (path, roles) in &one.holes {
            patterns("path of a hole of a grant", std::slice::from_ref(path))?;
            patterns("roles of a hole of a grant", roles)?;
        }
    }
    Ok(())
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
    use transom_core::contract::description::{DeclaredReason, WriteGrant};
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
    fn names_each_error() {
        type Fault = fn(&mut Description);
        let faults: [(Fault, &str); 18] = [
            (|d| d.name.clear(), "its name"),
            (|d| d.version = "a b".to_owned(), "its version"),
            (
                |d| d.reads = vec![d.reads[0].clone(); MAX_READS + 1],
                "65 kinds",
            ),
            (
                |d| d.reads[0].fields = vec!["a".to_owned(); MAX_READS],
                "65 paths",
            ),
            (|d| d.reads[0].fields.push("a[".to_owned()), "of Node"),
            (
                |d| d.reasons = vec![declared("A"); MAX_REASONS + 1],
                "129 reasons",
            ),
            (|d| d.reasons.push(declared("notCamel")), "`notCamel`"),
            (
                |d| d.reasons.push(declared(&"A".repeat(MAX_WORD + 1))),
                "CamelCase",
            ),
            (|d| d.reasons.push(declared("NotReady")), "twice"),
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
