//! Fills fields of Secrets with what no guest sees: bytes of other Secrets, kubeconfigs, and texts of objects with
//! either.

use super::holes::key_of;
use super::manifests;
use crate::contract::objects::{Apply, CredentialRef, Filled, Hole, MadeKubeconfig};
use crate::failure::Failure;
use crate::inputs::secrets::HeldSecret;
use crate::pattern::TemplateData;
use crate::plan::desired::{HoleContent, KeyContent};
use crate::policy::{HoleRule, WriteRule};
use crate::projection::path;
use crate::reference::is_secret;
use crate::world::Lowering;
use crate::world::kubeconfig::{self, Document};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use transom_api::KnownReason;
use transom_api::policy::KubeconfigGrant;

/// The most bytes of all texts that are made for one answer.
const MAX_TEXTS: usize = 4 << 20;

/// The data of one Secret.
#[derive(Default)]
pub(super) struct Data<'a> {
    /// By key.
    pub(super) content: BTreeMap<String, KeyContent<'a>>,
    /// When the first client certificate in it ends, in seconds since 1970.
    pub(super) ends_seconds: Option<i64>,
}

/// Fills the holes of one answer.
pub(super) struct Filler<'a> {
    given: Lowering<'a>,
    /// The bytes that may still be made.
    left: usize,
}

/// What a hole may be filled with, and which one it is.
#[derive(Clone, Copy)]
pub(super) struct HolePlace<'r> {
    /// For messages: `data.a` of which object.
    pub(super) name: &'r str,
    /// What may go there.
    pub(super) rule: &'r HoleRule,
    /// Where the credential of a kubeconfig may go.
    pub(super) kubeconfig: Option<&'r KubeconfigGrant>,
}

impl<'a> Filler<'a> {
    pub(super) fn new(given: &Lowering<'a>) -> Self {
        Self {
            given: *given,
            left: MAX_TEXTS,
        }
    }

    /// What templates of the policy stand for.
    pub(super) fn templates(&self) -> TemplateData<'a> {
        self.given.data
    }

    /// The data of a whole object. Only a Secret has any, and it has some.
    pub(super) fn data(&mut self, apply: &Apply, rule: &WriteRule) -> Result<Data<'a>, Failure> {
        let object = &apply.object;
        if is_secret(&rule.api_version, &rule.kind) && apply.holes.is_empty() {
            let message = format!(
                "the content for {object} has no hole: data of a Secret is made of bytes by reference"
            );
            return Err(Failure::known(KnownReason::ContractBroken, message));
        }
        let mut data = Data::default();
        for filled in &apply.holes {
            let granted = key_of(&filled.path).and_then(|key| rule.holes.get_key_value(&key));
            let Some((key, hole)) = granted else {
                return Err(not_granted(apply, Some(rule)));
            };
            let path = path::of(&["data", key]);
            let name = format!("`{path}` of {object}");
            let place = HolePlace {
                name: &name,
                rule: hole,
                kubeconfig: rule.kubeconfig.as_ref(),
            };
            let (content, ends) = self.hole(filled, place)?;
            data.ends_seconds = data.ends_seconds.into_iter().chain(ends).min();
            if data.content.insert(key.clone(), content).is_some() {
                let message = format!("the content for {object} has a hole at `{path}` twice");
                return Err(Failure::known(KnownReason::ContractBroken, message));
            }
        }
        Ok(data)
    }

    fn hole(
        &mut self,
        Filled { hole, .. }: &Filled,
        place: HolePlace<'_>,
    ) -> Result<(KeyContent<'a>, Option<i64>), Failure> {
        match (hole, place.rule.manifests.is_empty()) {
            (Hole::Credential(credential), true) => {
                let part = self.credential(credential, place)?;
                if let FilledPart::Made(document) = &part {
                    self.take(document.bytes().len())?;
                }
                let ends = part.ends_seconds();
                Ok((KeyContent::Hole(Box::new(part)), ends))
            }
            (Hole::Manifests(all), false) => {
                let (text, ends) = manifests::text(self, all, place)?;
                Ok((KeyContent::Hole(Box::new(Text(text))), ends))
            }
            (Hole::Credential(_), false) => Err(refused(place, "anything but objects")),
            (Hole::Manifests(_), true) => Err(refused(place, "objects")),
        }
    }

    /// What a reference stands for, if it may go there. Its bytes are counted where they go: into a text, with the
    /// text.
    pub(super) fn credential(
        &mut self,
        credential: &CredentialRef,
        place: HolePlace<'_>,
    ) -> Result<FilledPart<'a>, Failure> {
        match credential {
            CredentialRef::Bytes(reference) => {
                self.bytes(*reference, place).map(FilledPart::Copied)
            }
            CredentialRef::Kubeconfig(made) => self.kubeconfig(made, place).map(FilledPart::Made),
        }
    }

    fn bytes(&self, reference: u32, place: HolePlace<'_>) -> Result<&'a HeldSecret, Failure> {
        let Some(held) = self.given.secrets.get(reference) else {
            let message = format!(
                "the guest fills {} with the bytes {reference}, which it was never given",
                place.name
            );
            return Err(Failure::known(KnownReason::UnknownReference, message));
        };
        let roles = &place.rule.bytes;
        match roles.contains(&held.role) {
            true => Ok(held),
            false => Err(of_role("bytes", &held.role, place.name, roles)),
        }
    }

    fn kubeconfig(
        &mut self,
        made: &MadeKubeconfig,
        place: HolePlace<'_>,
    ) -> Result<Document<'a>, Failure> {
        let MadeKubeconfig { source, proposal } = made;
        let roles = &place.rule.kubeconfigs;
        let granted = place.kubeconfig.filter(|_| roles.contains(source));
        let Some(granted) = granted else {
            // The guest's text may be long.
            let source: String = source.chars().take(80).collect();
            return Err(of_role("a kubeconfig", &source, place.name, roles));
        };
        let Some(read) = self.given.kubeconfigs.of(source) else {
            let message = format!(
                "the guest makes {} of the kubeconfig of `{source}`, which it was not given, or more than once",
                place.name
            );
            return Err(Failure::known(KnownReason::UnknownReference, message));
        };
        kubeconfig::made(proposal, read, granted, &self.given)
    }

    /// Takes so many bytes off what may be made for the answer.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), Failure> {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or_default();
        let message = "the guest wants texts of more than 4 MiB in one answer";
        left.map(drop)
            .ok_or_else(|| Failure::known(KnownReason::ContractBroken, message))
    }
}

/// The failure for what a role may not fill.
fn of_role(what: &str, role: &str, place: &str, granted: &BTreeSet<String>) -> Failure {
    let granted: Vec<&str> = granted.iter().map(String::as_str).collect();
    let granted = match granted.is_empty() {
        true => "none".to_owned(),
        false => granted.join(", "),
    };
    let message =
        format!("the policy does not grant {what} of `{role}` for {place}; granted: {granted}");
    Failure::known(KnownReason::CredentialNotGranted, message)
}

/// The failure for a hole that takes something else.
fn refused(place: HolePlace<'_>, what: &str) -> Failure {
    let message = format!(
        "the policy does not grant filling {} with {what}",
        place.name
    );
    Failure::known(KnownReason::CredentialNotGranted, message)
}

/// The failure for holes that are not granted; without a rule none is.
pub(super) fn not_granted(apply: &Apply, rule: Option<&WriteRule>) -> Failure {
    let holes = rule.map(|rule| rule.holes.keys()).into_iter().flatten();
    let granted: Vec<String> = holes
        .map(|key| format!("`{}`", path::of(&["data", key])))
        .collect();
    let granted = match granted.is_empty() {
        true => "none".to_owned(),
        false => granted.join(", "),
    };
    // The guest's text may be long; the number of the hole is enough.
    let object = &apply.object;
    let known = |hole: &&Filled| {
        let key = key_of(&hole.path);
        key.is_some_and(|key| rule.is_some_and(|rule| rule.holes.contains_key(&key)))
    };
    let at = apply.holes.iter().take_while(known).count();
    let path: String = apply
        .holes
        .get(at)
        .map_or("", |hole| &hole.path)
        .chars()
        .take(80)
        .collect();
    let message =
        format!("the policy does not grant filling `{path}` of {object}; granted: {granted}");
    Failure::known(KnownReason::CredentialNotGranted, message)
}

/// Takes the fields out of the content of a Secret that hold for a new one only.
pub(super) fn fixed(rule: &WriteRule, content: &mut Map<String, Value>) -> Map<String, Value> {
    if !is_secret(&rule.api_version, &rule.kind) {
        return Map::new();
    }
    let kind = content.remove("type").unwrap_or_else(|| json!("Opaque"));
    Map::from_iter([("type".to_owned(), kind)])
}

/// What may hold a credential, as it goes into a field.
#[derive(Debug)]
pub(super) enum FilledPart<'a> {
    /// Bytes as they are in another Secret.
    Copied(&'a HeldSecret),
    /// A kubeconfig.
    Made(Document<'a>),
}

impl FilledPart<'_> {
    pub(super) fn ends_seconds(&self) -> Option<i64> {
        match self {
            Self::Copied(_) => None,
            Self::Made(document) => document.ends_seconds,
        }
    }
}

impl HoleContent for FilledPart<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(held) => &held.bytes,
            Self::Made(document) => document.bytes(),
        }
    }

    fn equals(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Copied(held) => held.bytes == bytes,
            Self::Made(document) => document.equals(bytes),
        }
    }

    fn shares_credential(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Copied(_) => self.equals(bytes),
            Self::Made(document) => document.shares_credential(bytes),
        }
    }

    fn open(&self) -> Option<Value> {
        match self {
            Self::Copied(_) => None,
            Self::Made(document) => document.open(),
        }
    }
}

/// A text of objects: always the same for the same objects.
struct Text(String);

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.0.len())
    }
}

impl HoleContent for Text {
    fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    fn equals(&self, bytes: &[u8]) -> bool {
        self.0.as_bytes() == bytes
    }

    fn shares_credential(&self, bytes: &[u8]) -> bool {
        self.equals(bytes)
    }
}

#[cfg(test)]
mod tests;
