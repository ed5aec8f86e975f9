//! Checks what a grant of this world names: objects and their fields.

use super::Checked;
use crate::inputs::request::is_request;
use crate::pattern::Pattern;
use crate::policy::check::{self, at_most, pattern, unique, wrong};
use crate::policy::manifest::PolicyError;
use crate::policy::selector::Selector;
use crate::policy::{Target, rbac};
use crate::projection::path::Path;
use crate::reference::dns;
use crate::world::Granted;
use std::collections::BTreeSet;
use transom_api::labels;
use transom_api::policy::WriteVerb;
use transom_api::policy::bounds::{FEW, MANY};

/// Checks which objects beside the primary a grant is about: those that the policy makes, or, with the verb `patch`,
/// those that others made.
pub(super) fn beside(granted: &Granted<'_>) -> Checked<Target> {
    let Granted { field, grant, .. } = *granted;
    let patches = grant.verbs == [WriteVerb::Patch];
    if grant.verbs.is_empty() || grant.verbs.contains(&WriteVerb::Patch) && !patches {
        let why = "must be some of create, update, delete, for objects that the policy makes; or patch alone, for fields \
                   of objects that others made";
        return wrong(format!("{field}.verbs"), why);
    }
    let (namespace, name) = patterns(granted)?;
    Ok(match patches {
        true => Target::Others {
            namespace,
            name,
            labels: Selector::default(),
            finalizers: BTreeSet::new(),
        },
        false => Target::Named {
            namespace,
            name,
            finalizers: made_with(granted)?,
        },
    })
}

/// The finalizers that objects of the policy bear. Who puts them on also has to take them off.
fn made_with(granted: &Granted<'_>) -> Checked<BTreeSet<String>> {
    let Granted { field, grant, .. } = *granted;
    let needed = [WriteVerb::Create, WriteVerb::Update, WriteVerb::Delete];
    let may = needed.iter().all(|verb| grant.verbs.contains(verb));
    if !grant.finalizers.is_empty() && !may {
        let why = "of objects that the policy makes needs the verbs create, update and delete";
        return wrong(format!("{field}.finalizers"), why);
    }
    finalizers(granted)
}

/// Checks the names of the finalizers of a grant.
pub(super) fn finalizers(granted: &Granted<'_>) -> Checked<BTreeSet<String>> {
    let field = format!("{}.finalizers", granted.field);
    let names = &granted.grant.finalizers;
    at_most(&field, names, FEW)?;
    match names.iter().position(|name| !dns::is_qualified_name(name)) {
        Some(index) => wrong(
            format!("{field}[{index}]"),
            "is not the name of a finalizer",
        ),
        None => Ok(names.iter().cloned().collect()),
    }
}

/// Checks which objects a grant names.
pub(super) fn patterns(granted: &Granted<'_>) -> Checked<(Option<Pattern>, Pattern)> {
    let Granted { field, grant, .. } = *granted;
    let kind = grant.kind.as_deref().unwrap_or_default();
    check::object(field, &grant.cluster, &grant.api_version, kind)?;
    let parsed = |name: &str, text: &str| pattern(&format!("{field}.{name}"), text, granted.names);
    let Some(name) = &grant.name else {
        return wrong(format!("{field}.name"), "is missing");
    };
    let namespace = grant.namespace.as_deref();
    let namespace = namespace
        .map(|text| parsed("namespace", text))
        .transpose()?;
    Ok((namespace, parsed("name", name)?))
}

/// Why no guest of this world may write objects of a kind, if so.
pub(super) fn unwritable(
    target: &Target,
    api_version: &str,
    kind: &str,
    has_holes: bool,
) -> Option<&'static str> {
    let is_made = matches!(target, Target::Named { .. });
    if !is_made && rbac::gives_rights(api_version) {
        return Some("gives rights: only objects that the policy itself makes may do that");
    }
    if matches!(target, Target::Others { .. }) && is_request(api_version, kind) {
        return Some(
            "is CertificateSigningRequest: only a policy whose primaries they are writes them",
        );
    }
    if crate::reference::is_secret(api_version, kind) && !has_holes {
        return Some("is Secret, which can only be written with `kubeconfig` or `holes`");
    }
    match api_version.strip_prefix(transom_api::GROUP) {
        Some(rest) if rest.starts_with('/') => {
            Some("a policy cannot write policies: it would grant itself what it likes")
        }
        _ => None,
    }
}

/// Reads granted fields, and checks that a policy may own each of them.
pub(super) fn fields(
    granted: &Granted<'_>,
    texts: &[(usize, &String)],
    target: &Target,
) -> Checked<Vec<Path>> {
    let field = &format!("{}.fields", granted.field);
    at_most(field, &granted.grant.fields, MANY)?;
    unique(field, granted.grant.fields.iter())?;
    if texts.is_empty() {
        return Err(PolicyError::new(
            field,
            "is empty, so nothing could be written",
        ));
    }
    let mut paths = Vec::new();
    for (index, text) in texts {
        let field = format!("{field}[{index}]");
        let path =
            Path::parse(text).map_err(|error| PolicyError::new(&field, error.to_string()))?;
        match unownable(&path, target) {
            Some(why) => return Err(PolicyError::new(field, why)),
            None => paths.push(path),
        }
    }
    Ok(paths)
}

/// Why no policy may own a field, if so.
pub(super) fn unownable(path: &Path, target: &Target) -> Option<&'static str> {
    let Some(keys) = path.keys() else {
        return Some(
            "leads through an element of a list; name the whole list, or of taints `spec.taints[key=example.com/a]`",
        );
    };
    match keys.as_slice() {
        ["apiVersion" | "kind", ..] => Some("says which object it is"),
        ["status", ..] if matches!(target, Target::Named { .. }) => Some(
            "is part of a status; only that of the primary and of objects that others made can be written",
        ),
        ["status"] => Some("is the whole status; name fields of it"),
        ["status", "conditions", _, ..] => {
            Some("is part of `status.conditions`; name these, and their types in `conditions`")
        }
        ["metadata", "labels" | "annotations", key, ..] if labels::is_reserved(key) => {
            Some("is reserved for the agent")
        }
        ["metadata", "labels" | "annotations", key] if key.contains('*') => unusable_prefix(key),
        ["metadata", "labels" | "annotations"] | ["metadata", "labels" | "annotations", _] => None,
        ["metadata", ..] => Some("is not a label, an annotation, or all of them"),
        _ => None,
    }
}

/// Why a key with `*` does not stand for keys that a policy may own, if so.
fn unusable_prefix(key: &str) -> Option<&'static str> {
    let prefix = key.strip_suffix('*').filter(|prefix| !prefix.contains('*'));
    let named = prefix.and_then(|prefix| prefix.split_once('/'));
    match (prefix, named) {
        (Some(prefix), _) if labels::MANAGED_BY.starts_with(prefix) => {
            Some("stands for a key that is reserved for the agent")
        }
        (_, Some((domain, _))) if !domain.is_empty() => None,
        _ => Some("has `*` elsewhere than at the end of a key with a domain: `example.com/part-*`"),
    }
}
