//! The rights to write: objects that a policy makes, and fields of the primary and of objects that others made.

use super::{CoveredObjects, Needed, Verb, because};
use crate::inputs::request::REQUEST;
use crate::plan::conditions::subresource;
use crate::policy::{Policy, WriteRule};
use crate::projection::path::Path;
use crate::watches::plan;
use std::collections::BTreeSet;
use transom_api::policy::WriteVerb;

impl Needed<'_> {
    /// An object is created by a server-side apply, whose path names it, so that RBAC can limit both `create` and
    /// `patch` by name. An object that was in the way of a write is read again by its name.
    pub(super) fn makes(&mut self, policy: &Policy, index: usize, rule: &WriteRule) {
        let read_only = self.asked.read_only;
        let because = because(policy, plan::write_line(index));
        let granted = rule.verbs.iter().filter(|_| !read_only);
        let mut verbs: Vec<Verb> = granted.flat_map(|verb| requests(*verb)).cloned().collect();
        for (scope, _) in plan::target(policy, None, rule) {
            if !read_only || scope.name.is_none() {
                verbs.push(Verb::Get);
            }
            self.scope(&scope, &verbs, &because);
        }
    }

    /// What the objects of a grant hand on: the API server lets nobody give a right that they do not hold.
    pub(super) fn hands_on(&mut self, policy: &Policy, index: usize, rule: &WriteRule) {
        if self.asked.read_only {
            return;
        }
        let line = format!("{} (handed on)", plan::write_line(index));
        let because = because(policy, line);
        for handed_on in &rule.hands_on {
            let verbs = handed_on.verbs.iter().map(|verb| Verb::of(verb));
            let verbs: Vec<Verb> = verbs.collect();
            let resources = handed_on.resources.iter();
            let of_group = |group| resources.clone().map(move |resource| (group, resource));
            for (group, resource) in handed_on.groups.iter().flat_map(of_group) {
                for name in &handed_on.names {
                    let objects = CoveredObjects {
                        namespace: handed_on.namespace.clone(),
                        group: group.clone(),
                        resource: resource.clone(),
                        name: name.clone(),
                    };
                    self.add(objects, &verbs, because.iter().cloned());
                }
            }
        }
    }

    /// A primary, or an object that others made, is patched, where the fields are in subresources these, and read again
    /// when something was in the way of that. Who approves or denies a request needs the right for its signer as well.
    pub(super) fn patches(
        &mut self,
        policy: &Policy,
        index: usize,
        rule: &WriteRule,
        scopes: plan::Bounds,
    ) {
        if self.asked.read_only {
            return;
        }
        let because = because(policy, plan::write_line(index));
        let paths = rule.fields.iter().filter_map(Path::keys);
        let parts: BTreeSet<_> = paths
            .map(|keys| subresource(&rule.api_version, &rule.kind, &keys))
            .collect();
        for (scope, _) in scopes {
            self.scope(&scope, &[Verb::Get], &because);
            for part in &parts {
                let mut objects = self.objects(&scope);
                if let Some(subresource) = part {
                    objects.resource = format!("{}/{subresource}", objects.resource);
                }
                self.add(objects, &[Verb::Patch], because.iter().cloned());
            }
        }
        for signer in &rule.signers {
            let objects = CoveredObjects {
                name: Some(signer.clone()),
                ..CoveredObjects::all(REQUEST.0, "signers")
            };
            let approve = Verb::Other("approve".into());
            self.add(objects, &[approve], because.iter().cloned());
        }
    }
}

/// The requests that a granted verb needs.
fn requests(verb: WriteVerb) -> &'static [Verb] {
    const CREATE: &[Verb] = &[Verb::Create, Verb::Patch];
    const PATCH: &[Verb] = &[Verb::Patch];
    const DELETE: &[Verb] = &[Verb::Delete];
    match verb {
        WriteVerb::Create => CREATE,
        WriteVerb::Update | WriteVerb::Patch | WriteVerb::Release => PATCH,
        WriteVerb::Delete | WriteVerb::Remove => DELETE,
    }
}
