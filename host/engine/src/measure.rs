//! Counts and checks what crosses: arguments on their way in, answers on their way out. Both are counted alike: bytes
//! of text, and the host's size of each list entry.

use crate::limits::printable;
use std::collections::BTreeSet;

/// Makes arguments; stops copying beyond the limit.
pub(crate) struct Lower {
    pub(crate) bytes: u64,
    allowed: u64,
}

impl Lower {
    pub(crate) fn new(allowed: u64) -> Self {
        Self { bytes: 0, allowed }
    }

    pub(crate) fn fits(&self) -> bool {
        self.bytes <= self.allowed
    }

    pub(crate) fn text(&mut self, text: &str) -> String {
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        if self.fits() {
            text.to_owned()
        } else {
            String::new()
        }
    }

    pub(crate) fn maybe(&mut self, text: Option<&str>) -> Option<String> {
        text.map(|text| self.text(text))
    }

    pub(crate) fn json(&mut self, value: &serde_json::Value) -> String {
        if !self.fits() {
            return String::new();
        }
        // Only keys that are not strings could fail, and a Value has none.
        let text = serde_json::to_string(value).unwrap_or_default();
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        text
    }

    pub(crate) fn list<T, U>(
        &mut self,
        items: &[T],
        mut make: impl FnMut(&mut Self, &T) -> U,
    ) -> Vec<U> {
        self.bytes = self
            .bytes
            .saturating_add((items.len() * size_of::<U>()) as u64);
        if !self.fits() {
            return Vec::new();
        }
        let mut made = Vec::with_capacity(items.len());
        for item in items {
            made.push(make(self, item));
            if !self.fits() {
                break;
            }
        }
        made
    }
}

/// Converts answers; remembers the first breach of the contract.
pub(crate) struct Lift<'a> {
    pub(crate) bytes: u64,
    pub(crate) broken: Option<String>,
    declared: Option<&'a BTreeSet<String>>,
}

impl<'a> Lift<'a> {
    /// With the reasons that the guest declared; `None` while it describes itself.
    pub(crate) fn new(declared: Option<&'a BTreeSet<String>>) -> Self {
        Self {
            bytes: 0,
            broken: None,
            declared,
        }
    }

    pub(crate) fn text(&mut self, text: String) -> String {
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        text
    }

    pub(crate) fn maybe(&mut self, text: Option<String>) -> Option<String> {
        text.map(|text| self.text(text))
    }

    /// A sentence for people: cut and escaped.
    pub(crate) fn sentence(&mut self, text: String) -> String {
        printable(&self.text(text))
    }

    /// A reason, which must be declared.
    pub(crate) fn reason(&mut self, word: String) -> String {
        let word = self.text(word);
        if self
            .declared
            .is_some_and(|declared| !declared.contains(&word))
        {
            self.breaks(format!(
                "it answered with reason `{}`, which its description does not declare",
                printable(&word)
            ));
        }
        word
    }

    pub(crate) fn breaks(&mut self, how: String) {
        self.broken.get_or_insert(how);
    }

    pub(crate) fn list<T, U>(
        &mut self,
        items: Vec<T>,
        mut make: impl FnMut(&mut Self, T) -> U,
    ) -> Vec<U> {
        self.bytes = self
            .bytes
            .saturating_add((items.len() * size_of::<T>()) as u64);
        items.into_iter().map(|item| make(self, item)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_is_made_beyond_the_limit() {
        let mut lower = Lower::new(3 * size_of::<String>() as u64 + 5);
        let mut asked = 0;
        let texts = lower.list(&["123", "456", "7"], |lower, text| {
            asked += 1;
            lower.text(text)
        });
        assert!(!lower.fits() && asked == 2, "{asked}");
        assert_eq!(texts, ["123", ""]);
        assert_eq!(lower.json(&json!({"a": "b"})), "");
        assert!(
            lower
                .list(&["8"], |lower, text| lower.text(text))
                .is_empty()
        );
    }
}
