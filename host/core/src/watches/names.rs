//! Which names are kept of what a watch delivers.

use super::matches;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Wildcards of names, `*` for any text. Without one every name is kept. Policies together may have very many that are
/// exact: these are looked up, and the others are compared one by one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptNames {
    pub(super) exact: BTreeSet<Arc<str>>,
    pub(super) open: BTreeSet<Arc<str>>,
}

impl<'w> FromIterator<&'w str> for KeptNames {
    fn from_iter<T: IntoIterator<Item = &'w str>>(wildcards: T) -> Self {
        let wildcards = wildcards.into_iter().map(Arc::from);
        let (open, exact) = wildcards.partition(|wildcard: &Arc<str>| wildcard.contains('*'));
        Self { exact, open }
    }
}

impl<const N: usize> From<[&str; N]> for KeptNames {
    fn from(wildcards: [&str; N]) -> Self {
        wildcards.into_iter().collect()
    }
}

impl KeptNames {
    /// Whether every name is kept.
    pub(super) fn are_all(&self) -> bool {
        self.exact.is_empty() && self.open.is_empty()
    }

    /// Whether a name is kept.
    pub(super) fn admits(&self, name: &str) -> bool {
        let mut open = self.open.iter();
        self.are_all() || self.exact.contains(name) || open.any(|wildcard| matches(wildcard, name))
    }

    /// Also keeps the names of another one.
    pub(super) fn widen(&mut self, other: &Self) {
        if self.are_all() || other.are_all() {
            *self = Self::default();
            return;
        }
        // `append` makes a new set of both each time, which is quadratic over many policies.
        self.exact.extend(other.exact.iter().cloned());
        self.open.extend(other.open.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::super::Keep;
    use super::*;
    use crate::reference::ObjectRef;

    #[test]
    fn very_many_exact_names_are_put_together_and_looked_up() {
        let texts: Vec<String> = (0..50_000).map(|at| format!("n{at:06}")).collect();
        let open = KeptNames::from(["o*"]);
        let all = texts.iter().rev().fold(open.clone(), |mut all, text| {
            all.widen(&[text.as_str()].into());
            all
        });
        assert!(texts.iter().all(|text| all.admits(text)) && all.admits("other"));
        assert!(!texts.iter().any(|text| all.admits(&format!("x{text}"))));
    }

    #[test]
    fn objects_are_stored_by_name_and_namespace() {
        let keep = Keep {
            names: ["*-admin-kubeconfig"].into(),
            namespaces: ["clusters", "team-*"].into(),
            ..Keep::default()
        };
        let admits = |namespace: &str, name: &str| {
            keep.admits(&ObjectRef::local("v1", "Secret", Some(namespace), name))
        };
        assert!(admits("clusters", "a-admin-kubeconfig") && admits("team-1", "-admin-kubeconfig"));
        assert!(
            !admits("clusters", "a-admin-kubeconfig-2") && !admits("other", "a-admin-kubeconfig")
        );
        assert!(Keep::default().admits(&ObjectRef::local("v1", "Namespace", None, "x")));
    }
}
