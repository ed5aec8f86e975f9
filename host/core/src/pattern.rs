//! Patterns of names in a policy: `*` for any text, `{subject.namespace}` and `{subject.name}` for the subject's own.
//! Never decides what a match allows.

use crate::reference::ObjectRef;
use std::fmt;

/// The most stars that a pattern may have.
const MAX_STARS: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Star,
    SubjectNamespace,
    SubjectName,
}

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    parts: Vec<Part>,
}

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Nothing at all.
    #[error("a pattern is empty")]
    Empty,
    /// A brace that does not belong to one of the two templates.
    #[error("only {{subject.namespace}} and {{subject.name}} may stand in braces")]
    Template,
    /// More stars than anyone can follow.
    #[error("a pattern has more than two stars, or two in a row")]
    Stars,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When it is empty, has an unknown template, or too many stars.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (part, after) = next(rest)?;
            if part == Part::Star && parts.last() == Some(&Part::Star) {
                return Err(PatternError::Stars);
            }
            parts.push(part);
            rest = after;
        }
        match parts.iter().filter(|part| **part == Part::Star).count() {
            _ if parts.is_empty() => Err(PatternError::Empty),
            stars if stars > MAX_STARS => Err(PatternError::Stars),
            _ => Ok(Self { text: text.into(), parts }),
        }
    }

    /// What the stars stand for when a name matches, each as short as possible; nothing when it does not match.
    pub fn captures(&self, name: &str, subject: &ObjectRef) -> Option<Vec<String>> {
        let mut stars = Vec::new();
        matches(&self.parts, name, subject, &mut stars).then_some(stars)
    }

    /// Whether a name matches.
    pub fn matches(&self, name: &str, subject: &ObjectRef) -> bool {
        self.captures(name, subject).is_some()
    }

    /// The name that the pattern stands for when its stars stand for these texts, in order;
    /// nothing when there are too few, or the subject has no namespace to put in.
    pub fn fill(&self, stars: &[String], subject: &ObjectRef) -> Option<String> {
        let mut stars = stars.iter();
        self.parts
            .iter()
            .map(|part| if *part == Part::Star { stars.next().map(String::as_str) } else { literal(part, subject) })
            .collect()
    }

    /// The wildcard of every name that it may stand for, for subjects in namespaces of another wildcard:
    /// `{subject.namespace}` is that one, `{subject.name}` any text.
    pub fn wildcard(&self, namespace: &str) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.to_string(),
            Part::SubjectNamespace => namespace.to_owned(),
            Part::Star | Part::SubjectName => "*".to_owned(),
        };
        let mut wildcard: String = self.parts.iter().map(part).collect();
        while wildcard.contains("**") {
            wildcard = wildcard.replace("**", "*");
        }
        wildcard
    }

    /// How many stars it has.
    pub fn stars(&self) -> usize {
        self.parts.iter().filter(|part| **part == Part::Star).count()
    }

    /// Whether it takes something from the subject.
    pub fn is_template(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::SubjectNamespace | Part::SubjectName))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The next part of a pattern, and what follows it.
fn next(rest: &str) -> Result<(Part, &str), PatternError> {
    if let Some(after) = rest.strip_prefix('*') {
        return Ok((Part::Star, after));
    }
    if let Some(after) = rest.strip_prefix("{subject.namespace}") {
        return Ok((Part::SubjectNamespace, after));
    }
    if let Some(after) = rest.strip_prefix("{subject.name}") {
        return Ok((Part::SubjectName, after));
    }
    let end = rest.find(['*', '{', '}']).unwrap_or(rest.len());
    match rest.split_at(end) {
        ("", _) => Err(PatternError::Template),
        (text, after) => Ok((Part::Text(text.into()), after)),
    }
}

/// The text of a part that is no star.
fn literal<'a>(part: &'a Part, subject: &'a ObjectRef) -> Option<&'a str> {
    match part {
        Part::Text(text) => Some(text),
        Part::SubjectNamespace => subject.namespace.as_deref(),
        Part::SubjectName => Some(&subject.name),
        Part::Star => None,
    }
}

/// Matches part by part; a star tries the shortest text first. Bounded: two stars over names of 253 bytes.
fn matches(parts: &[Part], name: &str, subject: &ObjectRef, stars: &mut Vec<String>) -> bool {
    let Some((first, others)) = parts.split_first() else { return name.is_empty() };
    if *first != Part::Star {
        let after = literal(first, subject).and_then(|text| name.strip_prefix(text));
        return after.is_some_and(|after| matches(others, after, subject, stars));
    }
    if others.is_empty() {
        stars.push(name.to_owned());
        return true;
    }
    for end in name.char_indices().map(|(at, _)| at).chain([name.len()]) {
        let (text, after) = name.split_at(end);
        stars.push(text.to_owned());
        if matches(others, after, subject, stars) {
            return true;
        }
        stars.pop();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> ObjectRef {
        ObjectRef::local("hypershift.openshift.io/v1beta1", "HostedCluster", Some("clusters"), "demo")
    }

    #[test]
    fn names_match_and_stars_are_captured() {
        for (pattern, name, stars) in [
            ("*", "", Some(vec![""])),
            ("*", "x", Some(vec!["x"])),
            ("klusterlet-*", "klusterlet-demo", Some(vec!["demo"])),
            ("klusterlet-*", "klusterle-demo", None),
            ("{subject.namespace}-*", "clusters-demo", Some(vec!["demo"])),
            ("{subject.namespace}-*", "other-demo", None),
            ("{subject.name}-admin-kubeconfig", "demo-admin-kubeconfig", Some(vec![])),
            ("*-admin-kubeconfig", "a-admin-kubeconfig-admin-kubeconfig", Some(vec!["a-admin-kubeconfig"])),
            ("a*b*c", "a1b2b3c", Some(vec!["1", "2b3"])),
            ("kube-apiserver", "kube-apiserver2", None),
        ] {
            let found = Pattern::parse(pattern).unwrap().captures(name, &subject());
            assert_eq!(found, stars.map(|stars| stars.into_iter().map(str::to_owned).collect()), "{pattern} on {name}");
        }
    }

    #[test]
    fn a_cluster_scoped_subject_has_no_namespace() {
        let subject = ObjectRef::local("v1", "Node", None, "a");
        assert!(!Pattern::parse("{subject.namespace}").unwrap().matches("", &subject));
        assert_eq!(Pattern::parse("{subject.namespace}").unwrap().fill(&[], &subject), None);
    }

    #[test]
    fn stars_are_filled_in_order() {
        let fill = |pattern: &str, stars: &[&str]| {
            Pattern::parse(pattern)
                .unwrap()
                .fill(&stars.iter().map(|star| (*star).to_owned()).collect::<Vec<_>>(), &subject())
        };
        assert_eq!(fill("klusterlet-*", &["demo"]).as_deref(), Some("klusterlet-demo"));
        assert_eq!(fill("{subject.name}-*-*", &["a", "b"]).as_deref(), Some("demo-a-b"));
        assert_eq!(fill("*-*", &["a"]), None);
    }

    #[test]
    fn a_wildcard_stands_for_all_subjects() {
        for (pattern, namespace, wildcard) in [
            ("kube-apiserver", "*", "kube-apiserver"),
            ("{subject.namespace}", "clusters", "clusters"),
            ("{subject.namespace}-*", "clusters", "clusters-*"),
            ("{subject.namespace}-*", "team-*", "team-*-*"),
            ("{subject.namespace}{subject.name}*", "*", "*"),
            ("*-{subject.name}-x", "*", "*-*-x"),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().wildcard(namespace), wildcard, "{pattern} in {namespace}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["", "**", "a**", "{", "}", "{subject.uid}", "{subject.name", "a}b", "*a*b*"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
