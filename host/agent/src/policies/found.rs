//! The policies that were found at a source, and what could not be read there.

use super::{LIMITS, Written};
use std::collections::BTreeSet;
use std::path::Path;
use transom_artifacts::Base;
use transom_core::document::{flatten_list, parse_many};
use transom_core::policy::manifest;
/// What was found at a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FoundPolicies {
    /// Manifests of kind `FleetPolicy`, in order of their place.
    pub(crate) policies: Vec<Written>,
    /// Files or documents that cannot be read, and why.
    pub(crate) broken: Vec<(String, String)>,
    /// The files, folders and objects that cannot be read. What was written there does not count as removed.
    pub(crate) unread: BTreeSet<String>,
}

impl FoundPolicies {
    /// Takes the policies in one text, and skips other kinds. One whose kind or version is misspelt cannot be read.
    pub(super) fn take(&mut self, file: &str, base: &Base, text: &[u8]) {
        let documents = parse_many(text, LIMITS);
        let several = documents.len() > 1;
        for document in documents {
            let number = several.then_some(document.number);
            let place = format!("{file}, document {}", document.number);
            let values = match document.value {
                Ok(value) => flatten_list(value),
                Err(error) => {
                    self.miss(file.to_owned(), place, error.to_string());
                    continue;
                }
            };
            for value in values {
                match manifest::misnamed(&value) {
                    Err(error) => self.miss(file.to_owned(), place.clone(), error.to_string()),
                    Ok(()) if manifest::is_policy(&value) => self.policies.push(Written {
                        place: file.to_owned(),
                        document: number,
                        base: base.clone(),
                        value,
                    }),
                    Ok(()) => {}
                }
            }
        }
    }

    /// Records something that cannot be read.
    pub(crate) fn miss(&mut self, file: String, place: String, why: String) {
        self.unread.insert(file);
        self.broken.push((place, why));
    }

    /// Adds what was found elsewhere.
    pub(super) fn add(&mut self, other: Self) {
        self.policies.extend(other.policies);
        self.broken.extend(other.broken);
        self.unread.extend(other.unread);
    }

    /// What cannot be read now and is a place or lies above it: what was written there may still be there.
    pub(super) fn unread_at(&self, place: &str) -> Option<&String> {
        let mut unread = self.unread.iter();
        unread.find(|unread| Path::new(place).starts_with(unread))
    }

    /// Why a place cannot be read.
    pub(super) fn why(&self, place: &str) -> Option<&str> {
        let unread = self.unread_at(place)?;
        let mut broken = self.broken.iter();
        let (_, why) = broken.find(|(at, _)| at.starts_with(unread.as_str()))?;
        Some(why)
    }
}
