//! Which objects a set has, and what of them crosses.

use super::{FoundSet, Members, key};
use crate::contract::decide::{LabelTerm, Member, Need, Query};
use crate::digest::Digest;
use crate::failure::{Failure, InvalidField};
use crate::object::Object;
use crate::policy::EveryRule;
use crate::policy::selector::Selector;
use crate::projection::{Declared, Paths};
use crate::reference::ObjectRef;
use std::sync::Arc;
use transom_api::KnownReason;

/// Which objects a set has, and what of them crosses.
#[derive(Clone, Debug, PartialEq)]
pub struct SetQuestion {
    /// Cluster, version and kind of the objects, and their namespace if it is one; the name is empty.
    pub place: ObjectRef,
    /// Which labels they have.
    pub labels: Selector,
    crosses: Crosses,
    /// Whether those that are being deleted are members.
    terminating: bool,
}

/// What of a set crosses.
#[derive(Clone, Debug, PartialEq)]
enum Crosses {
    /// The members, with what the guest declared of the kind.
    Fields(Paths),
    /// Their names.
    Names,
    /// How many they are.
    Number,
}

impl SetQuestion {
    /// What a need asks for.
    ///
    /// # Errors
    /// `ContractBroken` for labels that no selector can have.
    pub fn of(need: &Need, query: &Query, declared: &Declared) -> Result<Self, Failure> {
        let crosses = match query.names_only {
            true => Crosses::Names,
            false => Crosses::Fields(declared.fields.clone()),
        };
        Self::asked(need, &query.labels, (crosses, query.terminating))
    }

    /// The question how many objects there are.
    ///
    /// # Errors
    /// As for [`SetQuestion::of`].
    pub fn how_many(need: &Need, labels: &[LabelTerm]) -> Result<Self, Failure> {
        // Those that are being deleted count.
        Self::asked(need, labels, (Crosses::Number, true))
    }

    fn asked(
        need: &Need,
        labels: &[LabelTerm],
        (crosses, terminating): (Crosses, bool),
    ) -> Result<Self, Failure> {
        let labels = Selector::of(&need.role, labels).map_err(|error| {
            Failure::known(
                KnownReason::ContractBroken,
                format!("the guest asks for {error}"),
            )
        })?;
        Ok(Self {
            place: need.reference.clone(),
            labels,
            crosses,
            terminating,
        })
    }

    /// Whether an object is a member.
    pub(super) fn has(&self, object: &Object) -> bool {
        let stays = self.terminating || !object.deleting();
        stays && self.may_have(&object.reference) && self.labels.matches(object)
    }

    /// Whether an object is a member if its labels are selected.
    pub fn may_have(&self, object: &ObjectRef) -> bool {
        let place = &self.place;
        object.is(&place.cluster, &place.api_version, &place.kind)
            && (place.namespace.is_none() || place.namespace == object.namespace)
    }

    /// What crosses of a member. What wakes is decided by it, too, so here alone is it cut.
    pub(super) fn member(&self, object: &Object) -> Member {
        Member {
            namespace: object.reference.namespace.clone(),
            name: object.reference.name.clone(),
            fields: match &self.crosses {
                Crosses::Fields(fields) => fields.project_member(&object.body),
                Crosses::Names | Crosses::Number => serde_json::json!({}),
            },
        }
    }

    /// The members among objects whose labels are selected, when only their number crosses.
    pub fn counted(&self, selected: &[ObjectRef]) -> Arc<Members> {
        let nothing = Digest::of(&serde_json::json!({}));
        let counted = selected.iter().filter(|one| self.may_have(one));
        counted
            .map(|one| (key(one), nothing))
            .collect::<Members>()
            .into()
    }

    /// The members among objects, in their order.
    ///
    /// # Errors
    /// `InvalidObject` for a declared field of another shape, `TooManyInputs` beyond what the grant allows.
    pub fn members<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Object>,
        most: EveryRule,
    ) -> Result<FoundSet, Failure> {
        let (mut members, mut seen, mut bytes) = (Vec::new(), Members::new(), 0);
        let mut largest = (0, &self.place);
        for object in objects.into_iter().filter(|object| self.has(object)) {
            let misfit = match &self.crosses {
                Crosses::Fields(fields) => fields.misfit(&object.body),
                Crosses::Names | Crosses::Number => None,
            };
            if let Some(path) = misfit {
                let invalid = InvalidField::shape(path);
                return Err(Failure::invalid_object(object, &invalid));
            }
            let member = self.member(object);
            let size = member.name.len() + member.fields.to_string().len();
            largest = largest.max((size, &object.reference));
            bytes += size;
            if bytes > most.bytes {
                // One object may be all that is wrong, so the largest so far is named.
                let (size, object) = largest;
                let how_many = format!("more than {} bytes", most.bytes);
                return Err(self.too_many(&how_many, &format!("; {object} alone has {size}")));
            }
            seen.insert(key(&object.reference), Digest::of(&member.fields));
            members.push(member);
        }
        self.within(members.len(), most)?;
        let seen = Arc::new(seen);
        Ok(FoundSet { members, seen })
    }

    /// Checks a number of members against the grant.
    ///
    /// # Errors
    /// `TooManyInputs`.
    pub fn within(&self, members: usize, most: EveryRule) -> Result<(), Failure> {
        match members <= most.objects {
            true => Ok(()),
            false => Err(self.too_many(&format!("{members}, more than {}", most.objects), "")),
        }
    }

    fn too_many(&self, how_many: &str, largest: &str) -> Failure {
        let message = format!("{self} are {how_many} that the grant allows{largest}");
        Failure::known(KnownReason::TooManyInputs, message)
    }
}

/// `Namespace objects with the labels a=b`, for people.
impl std::fmt::Display for SetQuestion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the objects of kind {}", self.place.kind)?;
        if let Some(namespace) = &self.place.namespace {
            write!(f, " in {namespace}")?;
        }
        if self.labels.is_empty() {
            return Ok(());
        }
        write!(f, " with the labels {}", self.labels)
    }
}
