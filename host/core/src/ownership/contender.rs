//! A primary that wants a target.

use crate::object::Object;
use crate::work::Key;

/// A primary that wants a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    /// Policy and primary.
    pub key: Key,
    /// uid of the primary, empty when it has none.
    pub uid: String,
    /// When the primary was created, in seconds since 1970.
    pub created_seconds: Option<i64>,
}

impl Contender {
    /// The contender for a primary; without uid and creation time when the primary cannot be read.
    pub fn of(key: &Key, primary: Option<&Object>) -> Self {
        let uid = primary.map(Object::uid).unwrap_or_default().to_owned();
        Self {
            key: key.clone(),
            uid,
            created_seconds: primary.and_then(Object::created_seconds),
        }
    }

    /// Whether it has the name of another one and is another object.
    pub(super) fn is_another(&self, than: &Self) -> bool {
        !self.uid.is_empty() && !than.uid.is_empty() && self.uid != than.uid
    }

    /// Orders contenders: older first, without a creation time last; then by namespace, name, and the rest of the key.
    pub(super) fn rank(&self) -> (i64, Option<&str>, &str, &Key) {
        let created = self.created_seconds.unwrap_or(i64::MAX);
        (
            created,
            self.key.primary.namespace.as_deref(),
            &self.key.primary.name,
            &self.key,
        )
    }
}
