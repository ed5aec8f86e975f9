//! Which write rule of a policy is about an object.

use super::{Policy, Target, WriteRule};
use crate::contract::decide::Requirement;
use crate::failure::Failure;
use crate::pattern::TemplateData;
use crate::projection::path::Path;
use crate::reference::ObjectRef;
use transom_api::KnownReason;
use transom_api::policy::WriteVerb;

impl Policy {
    /// Whether the policy makes objects, which more than one primary may want.
    pub fn has_targets(&self) -> bool {
        self.makes().next().is_some()
    }

    /// The rules for objects that the policy makes, each with its index among all write rules.
    pub fn makes(&self) -> impl Iterator<Item = (usize, &WriteRule)> {
        self.beside().filter(|(_, rule)| rule.named().is_some())
    }

    /// The rules for all objects but the primary, made by the policy or by others, each with its index.
    pub fn beside(&self) -> impl Iterator<Item = (usize, &WriteRule)> {
        let all = self.writes.iter().enumerate();
        all.filter(|(_, rule)| rule.target != Target::Primary)
    }

    /// The rule for an object that the policy may make for a primary.
    ///
    /// # Errors
    /// `WriteNotGranted`, with what is granted for this primary.
    pub fn whole(
        &self,
        target: &ObjectRef,
        data: &TemplateData<'_>,
    ) -> Result<&WriteRule, Failure> {
        let rule = self.making(target, data);
        rule.ok_or_else(|| not_granted(target, self.makes(), data))
    }

    /// The rule by which the policy may write fields of an object for a primary: the primary itself, or an object that
    /// others made. An object that the policy makes has no such rule, unless the policy only creates it: then it
    /// belongs to others.
    ///
    /// # Errors
    /// `WriteNotGranted`, with what is granted for this primary.
    pub fn fields(
        &self,
        object: &ObjectRef,
        data: &TemplateData<'_>,
    ) -> Result<&WriteRule, Failure> {
        let refused = |why: &str| {
            let message = format!("the policy does not grant writing fields of {object}, {why}");
            Failure::known(KnownReason::WriteNotGranted, message)
        };
        if *object == data.object.reference {
            let mut rules = self.writes.iter();
            let rule = rules.find(|rule| rule.target == Target::Primary);
            return rule.ok_or_else(|| refused("its primary: that takes `target: primary`"));
        }
        let making = self.making(object, data);
        if making.is_some_and(|rule| !rule.creates_only()) {
            return Err(refused(
                "which it makes: a guest wants such an object whole",
            ));
        }
        let patched = || {
            let others = self.of_others();
            others.filter(|(_, rule)| rule.verbs.contains(&WriteVerb::Patch))
        };
        let rule = patched().find(|(_, rule)| rule.admits(object, data));
        let rule = rule.map(|(_, rule)| rule);
        rule.ok_or_else(|| not_granted(object, patched(), data))
    }

    /// The rules for objects on other connections than the primary's that the policy makes or removes, each with its
    /// index among all write rules. Agents of other clusters may make objects there, too.
    pub fn marks_elsewhere(&self) -> impl Iterator<Item = (usize, &WriteRule)> {
        let marks = |rule: &WriteRule| {
            let mut verbs = rule.verbs.iter();
            !rule.creates_only() && verbs.any(|verb| *verb != WriteVerb::Patch)
        };
        let rules = self.writes.iter().enumerate();
        rules.filter(move |(_, rule)| rule.cluster != self.primary.cluster && marks(rule))
    }

    /// The rules for objects that others made, each with its index among all write rules.
    fn of_others(&self) -> impl Iterator<Item = (usize, &WriteRule)> {
        self.beside().filter(|(_, rule)| rule.named().is_none())
    }

    /// The fields to compare of an object that others made and a guest names as target: those that the policy may
    /// write.
    pub fn watched(&self, object: &ObjectRef, data: &TemplateData<'_>) -> Vec<Path> {
        let rules = self.of_others();
        let rules = rules.filter(|(_, rule)| rule.admits(object, data));
        rules.flat_map(|(_, rule)| rule.watched()).collect()
    }

    /// The rule for an object that a guest may name as a target, beside its primary.
    ///
    /// # Errors
    /// `WriteNotGranted`, with what is granted for this primary.
    pub fn target(
        &self,
        target: &ObjectRef,
        data: &TemplateData<'_>,
    ) -> Result<&WriteRule, Failure> {
        let rule = self.making(target, data);
        let is_other = *target != data.object.reference;
        let mut others = self.of_others().filter(|_| is_other);
        let mut other = || others.find(|(_, rule)| rule.admits(target, data));
        let rule = rule.or_else(|| other().map(|(_, rule)| rule));
        rule.ok_or_else(|| not_granted(target, self.beside(), data))
    }

    /// The targets that a guest names for a primary: those that the policy makes, and those of others.
    pub fn targets_of(
        &self,
        asked: &Requirement,
        data: &TemplateData<'_>,
    ) -> (Vec<ObjectRef>, Vec<ObjectRef>) {
        let targets = asked.targets().cloned();
        targets.partition(|target| self.making(target, data).is_some())
    }

    fn making(&self, target: &ObjectRef, data: &TemplateData<'_>) -> Option<&WriteRule> {
        let rule = self.makes().find(|(_, rule)| rule.admits(target, data));
        rule.map(|(_, rule)| rule)
    }

    /// The rule for an object that was made for a primary; the primary may be gone or changed since.
    pub fn made(&self, output: &ObjectRef, primary: &ObjectRef) -> Option<&WriteRule> {
        let rule = self.makes().find(|(_, rule)| rule.made(output, primary));
        rule.map(|(_, rule)| rule)
    }

    /// The fields of its primary that the policy may write.
    pub fn primary_fields(&self) -> &[Path] {
        let mut rules = self.writes.iter();
        let rule = rules.find(|rule| rule.target == Target::Primary);
        rule.map(|rule| rule.fields.as_slice()).unwrap_or_default()
    }

    /// Whether all primaries may share an object; a cheap look before its rule is asked for.
    pub fn may_share(&self, object: &ObjectRef) -> bool {
        let mut rules = self.writes.iter();
        rules.any(|rule| rule.kind == object.kind && rule.is_shared())
    }

    /// The keys of taints that the policy owns.
    pub fn taint_keys(&self) -> impl Iterator<Item = &str> {
        let keys = self.writes.iter().flat_map(|rule| &rule.taint_keys);
        keys.map(String::as_str)
    }
}

/// `WriteNotGranted`, with the objects of these rules for a primary.
fn not_granted<'a>(
    target: &ObjectRef,
    rules: impl Iterator<Item = (usize, &'a WriteRule)>,
    data: &TemplateData<'_>,
) -> Failure {
    let granted: Vec<_> = rules.filter_map(|(_, rule)| rule.shown(data)).collect();
    let granted = match granted.is_empty() {
        true => String::new(),
        false => format!("; granted: {}", granted.join(", ")),
    };
    let message = format!("the policy does not grant writing {target}{granted}");
    Failure::known(KnownReason::WriteNotGranted, message)
}
