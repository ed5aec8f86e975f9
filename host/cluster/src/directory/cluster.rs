//! A directory as a cluster of the agent.

use super::names::object_file;
use super::slot::Effective;
use super::status;
use super::tree::{FilePlace, Layer};
use super::{Directory, apply, load};
use crate::kubernetes::Server;
use crate::parallel::on_each;
use crate::review;
use crate::{AccessVerdict, Cluster, KeptStatuses, Patience, ReadFailure, ReadResult};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io;
use transom_api::KnownReason;
use transom_api::labels;
use transom_api::status::{PolicyStatus, PrimaryStatus, WatchStatus};
use transom_core::contract::decide::Review;
use transom_core::inputs::request::Requester;
use transom_core::object::Object;
use transom_core::observation::{Observation, Unreadable};
use transom_core::plan::{Step, StepOutcome};
use transom_core::policy::selector::Selector;
use transom_core::reference::ObjectRef;
use transom_core::report::Report;
use transom_core::stamp::Stamp;
use transom_core::watches::{self, Scope, Watches};

/// Maximum number of unreadable files in a status.
const FILES: usize = 1_000;

impl Cluster for Directory {
    fn watch(&self, wanted: Watches) {
        self.shared.want(watches::by_kind(&wanted));
    }

    fn synced(&self, _patience: Patience) -> BoxFuture<'_, Result<(), Unreadable>> {
        async { Ok(()) }.boxed()
    }

    fn changes(&self) -> BoxStream<'static, Observation> {
        stream::unfold(Directory::changes(self), |mut changes| async {
            Some((changes.next().await, changes))
        })
        .boxed()
    }

    fn unreadable(&self) -> Vec<Unreadable> {
        self.shared.store().unreadable()
    }

    fn watch_errors(&self) -> Vec<WatchStatus> {
        let error = |one: Unreadable| WatchStatus {
            cluster: self.shared.name.clone(),
            api_version: String::new(),
            kind: String::new(),
            namespace: None,
            reason: one.reason.as_str().to_owned(),
            message: one.message,
        };
        let files = self.unreadable().into_iter().take(FILES);
        files.map(error).collect()
    }

    fn list(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        labels: &Selector,
    ) -> Vec<ObjectRef> {
        let all = Directory::list(self, api_version, kind, namespace);
        if labels.is_empty() {
            return all;
        }
        let selected = |one: &ObjectRef| {
            let read = self.shared.read_kept(one);
            read.map_or(true, |object| {
                object.is_some_and(|object| labels.matches(&object))
            })
        };
        let selected = on_each(all.iter(), selected);
        let all = all.into_iter().zip(selected);
        all.filter_map(|(one, selected)| selected.then_some(one))
            .collect()
    }

    /// Any file may hold an object of the scope. One that several files define is left out of lists.
    fn complete(&self, scope: &Scope) -> Result<(), ReadFailure> {
        self.all_read(&scope.kind)?;
        let duplicate = self.shared.store().duplicate(scope);
        duplicate.map_or(Ok(()), |one| self.shared.read_kept(&one).map(drop))
    }

    fn listed<'a>(&'a self, _scope: &'a Scope) -> BoxFuture<'a, ()> {
        async {}.boxed()
    }

    fn made(&self, policy: &str, api_version: &str, kind: &str) -> BTreeSet<ObjectRef> {
        let objects = Directory::list(self, api_version, kind, None).into_iter();
        let of_policy = |reference: &ObjectRef| {
            let object = self.shared.read_kept(reference).ok().flatten();
            object.is_some_and(|object| Stamp::is_of(&object, policy))
        };
        objects
            .filter(|object| Directory::made(self, object) && of_policy(object))
            .collect()
    }

    /// Includes those in a user's files.
    fn stamped(&self) -> Vec<(ObjectRef, Stamp)> {
        // Parsing every object for a label that few have would double the time to start.
        let labelled = self.shared.store().holding(labels::POLICY);
        let stamped = |one: &ObjectRef| {
            let object = self.shared.read_kept(one).ok().flatten()?;
            Some((object.reference.clone(), Stamp::read(&object)?))
        };
        let objects = on_each(labelled.iter().map(AsRef::as_ref), stamped);
        objects.into_iter().flatten().collect()
    }

    fn weigh(&self, reference: &ObjectRef) -> Option<usize> {
        let store = self.shared.store();
        Some(store.slot(reference).map_or(0, super::slot::Slot::weigh))
    }

    fn read<'a>(&'a self, reference: &'a ObjectRef) -> BoxFuture<'a, ReadResult> {
        async move { self.unless_hidden(reference, || self.shared.read_kept(reference)) }.boxed()
    }

    fn read_confirmed<'a>(&'a self, reference: &'a ObjectRef) -> BoxFuture<'a, ReadResult> {
        let unconfirmed = |file: &FilePlace| {
            let known = self.shared.store().print(file);
            known.is_some_and(|print| print.stamp.is_none())
        };
        async move { self.unless_hidden(reference, || self.read_again(reference, unconfirmed)) }
            .boxed()
    }

    /// An object that is in no file that can be read may be in one that cannot.
    fn confirm<'a>(&'a self, reference: &'a ObjectRef) -> BoxFuture<'a, ReadResult> {
        async move {
            let read = self.unless_hidden(reference, || self.read_again(reference, |_| true))?;
            if read.is_none() {
                self.all_read(&reference.kind)?;
            }
            Ok(read)
        }
        .boxed()
    }

    fn read_whole<'a>(&'a self, reference: &'a ObjectRef) -> BoxFuture<'a, ReadResult> {
        async move { self.unless_hidden(reference, || self.shared.read_one(reference)) }.boxed()
    }

    fn read_record<'a>(&'a self, reference: &'a ObjectRef) -> BoxFuture<'a, ReadResult> {
        async move { self.shared.read_made(reference) }.boxed()
    }

    fn list_records<'a>(
        &'a self,
        like: &'a ObjectRef,
        (label, value): (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<Vec<Object>, ReadFailure>> {
        let first = self.first(&like.api_version, &like.kind);
        let inside = |one: &&ObjectRef| one.namespace == like.namespace;
        let store = self.shared.store();
        let made: Vec<ObjectRef> = store.made_of_kind(first).filter(inside).cloned().collect();
        drop(store);
        let read = move |reference| self.shared.read_made(&reference).ok().flatten();
        let labelled = move |object: &Object| object.label(label) == Some(value);
        let objects = made.into_iter().filter_map(read).filter(labelled).collect();
        async move { Ok(objects) }.boxed()
    }

    fn list_metadata<'a>(
        &'a self,
        place: &'a ObjectRef,
        labels: &'a Selector,
        wanted: &'a (dyn Fn(&Object) -> bool + Sync),
    ) -> BoxFuture<'a, Result<Vec<Object>, ReadFailure>> {
        async move {
            let name = Some(place.name.clone()).filter(|name| !name.is_empty());
            self.complete(&Scope {
                name,
                ..Scope::of(place)
            })?;
            let (kind, namespace) = (&place.kind, place.namespace.as_deref());
            let mut there = Vec::new();
            for one in Directory::list(self, &place.api_version, kind, namespace) {
                if place.name.is_empty() || place.name == one.name {
                    let object = self.shared.read_kept(&one)?;
                    let object = object.filter(|object| labels.matches(object) && wanted(object));
                    there.extend(object);
                }
            }
            Ok(there)
        }
        .boxed()
    }

    /// Any file may hold the object.
    fn unread(&self, _object: &ObjectRef) -> Option<String> {
        let store = self.shared.store();
        store.unread().map(|place| format!("`{place}`"))
    }

    fn review<'a>(
        &'a self,
        question: &'a Review,
        requester: Option<&'a Requester>,
    ) -> BoxFuture<'a, Result<AccessVerdict, ReadFailure>> {
        let (kind, spec) = (review::kind(requester), review::spec(question, requester));
        let all = Directory::list(self, review::API, kind, None);
        let read = |one| self.shared.read_one(&one).ok().flatten();
        let mut answers = all.into_iter().filter_map(read);
        let asks = |body: &Value| {
            body.get("spec")
                .is_some_and(|one| review::is_of(one, &spec))
        };
        let answer = answers.find(|answer| asks(&answer.body));
        let verdict = answer.and_then(|answer| review::verdict(answer.body.get("status")?));
        let answered = verdict.ok_or_else(|| ReadFailure {
            reason: KnownReason::ReadFailed,
            message: format!("no manifest of kind {kind} answers whether this is allowed: {spec}"),
        });
        async move { answered }.boxed()
    }

    fn perform<'a>(&'a self, _policy: &'a str, step: Step) -> BoxFuture<'a, StepOutcome> {
        let (target, kind) = (step.target().clone(), step.kind());
        async move {
            let result = apply::perform(&self.shared, &target, step);
            StepOutcome::of(target, kind, result)
        }
        .boxed()
    }

    fn publish(&self, report: &Report, _uid: &str) -> io::Result<()> {
        status::publish(&self.shared, report)
    }

    fn reported(&self, policy: &str, primary: &ObjectRef) -> Option<PrimaryStatus> {
        status::reported(&self.shared, policy, primary)
            .ok()
            .flatten()
    }

    fn publish_policy(&self, policy: &str, status: &PolicyStatus) -> io::Result<()> {
        status::publish_policy(&self.shared, policy, status)
    }

    fn policy_status(&self, policy: &str) -> Option<PolicyStatus> {
        status::policy_status(&self.shared, policy).ok().flatten()
    }

    fn retain(&self, kept: &KeptStatuses) -> io::Result<()> {
        status::retain(&self.shared, kept)
    }

    fn forget(&self, policy: &str) -> io::Result<()> {
        status::forget(&self.shared, policy)
    }

    fn server(&self) -> Option<&Server> {
        None
    }
}

/// A file hides what is asked for.
fn hidden(message: String) -> ReadFailure {
    let reason = KnownReason::ReadFailed;
    ReadFailure { reason, message }
}

impl Directory {
    /// Checks that every file can be read.
    fn all_read(&self, kind: &str) -> Result<(), ReadFailure> {
        let store = self.shared.store();
        store.unread().map_or(Ok(()), |place| {
            Err(hidden(format!(
                "`{place}` cannot be read, and may hold a {kind}"
            )))
        })
    }

    /// What was read of an object, unless no user's file has it and one that could never be parsed names it: then it
    /// does not count as absent, nor as the one that the agent made.
    fn unless_hidden(
        &self,
        reference: &ObjectRef,
        read: impl FnOnce() -> ReadResult,
    ) -> ReadResult {
        // Looked at before the read: a file that is mended meanwhile is read by it or fails it, and never hides more.
        let hidden_in = self.shared.store().hidden_in(reference).cloned();
        let read = read()?;
        let Some(place) = hidden_in else {
            return Ok(read);
        };
        match self.shared.store().effective(reference) {
            Effective::Absent | Effective::Made(_) => Err(hidden(format!(
                "failed to read {reference}: `{place}` cannot be parsed, and may hold it"
            ))),
            Effective::Users(..) | Effective::Duplicate(_) => Ok(read),
        }
    }

    /// Reads some of the agent's files that may hold an object or fields of it again, and then the object. A directory
    /// that may not be written holds them in memory only; while the root is away, nothing below it counts as gone.
    fn read_again(&self, reference: &ObjectRef, which: impl Fn(&FilePlace) -> bool) -> ReadResult {
        if self.shared.own.is_some() && self.shared.tree().is_there() {
            let file = object_file(reference);
            let files = [Layer::Made, Layer::Patch].map(|layer| FilePlace::new(layer, &file));
            load::refresh(&self.shared, files.into_iter().filter(which).collect());
        }
        self.shared.read_kept(reference)
    }
}
