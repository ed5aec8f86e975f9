//! Patterns of names in a policy: `*` for any text, `{primary.namespace}` and `{primary.name}` for the primary's own,
//! and [templates](template) that derive a name from it.

mod covers;
mod matcher;
pub mod template;

use crate::contract::AgentFacts;
use crate::object::Object;
use crate::reference::ObjectRef;
use matcher::Against;
pub(crate) use matcher::Matcher;
use std::fmt;
use std::sync::Arc;
pub use template::{PatternError, Wrong};
use template::{Template, TemplateNames};

/// The most stars that a pattern may have.
const MAX_STARS: usize = 2;
/// The most stars and templates that a pattern may have.
const MAX_OPEN: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Star,
    PrimaryNamespace,
    PrimaryName,
    Template(Arc<Template>),
}

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    parts: Vec<Part>,
}

/// Where templates take their values from.
#[derive(Clone, Copy, Debug)]
pub struct TemplateData<'a> {
    /// The primary.
    pub object: &'a Object,
    /// Facts about the agent.
    pub agent: &'a AgentFacts,
}

/// What the stars and templates of a pattern stand for in one name, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captures {
    stars: Vec<String>,
    templates: Vec<(Arc<Template>, String)>,
}

impl Pattern {
    /// Reads a pattern; braces hold a template, or the name of one.
    ///
    /// # Errors
    /// When it is empty, has an invalid template, or too many stars.
    pub fn parse(text: &str, names: &TemplateNames) -> Result<Self, PatternError> {
        let mut parts: Vec<Part> = Vec::new();
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let (part, length) = next(rest, names).map_err(|error| PatternError {
                at: at + error.at,
                ..error
            })?;
            if is_open(&part) && parts.last().is_some_and(is_open) {
                return Err(Wrong::Stars.at(at));
            }
            parts.push(part);
            at += length;
        }
        let stars = parts.iter().filter(|part| **part == Part::Star).count();
        if parts.is_empty() {
            return Err(Wrong::Empty.at(0));
        }
        if stars > MAX_STARS || parts.iter().filter(|part| is_open(part)).count() > MAX_OPEN {
            return Err(Wrong::Stars.at(0));
        }
        Ok(Self {
            text: text.into(),
            parts,
        })
    }

    /// Whether a name matches for a primary as it is now. Without a star each part stands for one text, and most names
    /// differ in the first: each reconcile asks this of every rule, so nothing is put together for it.
    pub fn matches(&self, name: &str, data: &TemplateData<'_>) -> bool {
        let mut rest = name;
        for part in &self.parts {
            if *part == Part::Star {
                let matcher = self.matcher(data);
                return matcher.is_some_and(|matcher| matcher.matches(name));
            }
            let text = matcher::text(part, Against::Primary(*data));
            let Some(after) = text.and_then(|text| rest.strip_prefix(&*text)) else {
                return false;
            };
            rest = after;
        }
        rest.is_empty()
    }

    /// Whether a name matches a pattern without templates.
    pub fn matches_text(&self, name: &str) -> bool {
        Matcher::of(&self.parts, Against::Nobody).is_some_and(|matcher| matcher.matches(name))
    }

    /// What stars and templates stand for, each as short as possible, in a name that was made for a primary; its
    /// labels and annotations may have been different then. `None` when the name does not match.
    pub fn captures(&self, name: &str, primary: &ObjectRef) -> Option<Captures> {
        Matcher::of(&self.parts, Against::Former(primary))?.captures(name)
    }

    /// The pattern with a primary's values put in, to match many texts; `None` when a template has no value, so that
    /// nothing matches.
    pub(crate) fn matcher<'a>(&'a self, data: &TemplateData<'a>) -> Option<Matcher<'a>> {
        Matcher::of(&self.parts, Against::Primary(*data))
    }

    /// The name that the pattern gives with captured values for its stars and templates; `None` when a value is
    /// missing, or the primary has no namespace.
    pub fn fill(&self, captured: &Captures, primary: &ObjectRef) -> Option<String> {
        let mut stars = captured.stars.iter();
        let text = |part: &Part| match part {
            Part::Star => stars.next().cloned(),
            Part::Template(template) => captured
                .templates
                .iter()
                .find(|(known, _)| known == template)
                .map(|(_, name)| name.clone()),
            Part::Text(text) => Some(text.to_string()),
            Part::PrimaryNamespace => primary.namespace.clone(),
            Part::PrimaryName => Some(primary.name.clone()),
        };
        self.parts.iter().map(text).collect()
    }

    /// A wildcard for every name that the pattern may give, for primaries in namespaces of another wildcard: that one
    /// replaces `{primary.namespace}`, every other template becomes `*`.
    pub fn wildcard(&self, namespace: &str) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.to_string(),
            Part::PrimaryNamespace => namespace.to_owned(),
            Part::Star | Part::PrimaryName | Part::Template(_) => "*".to_owned(),
        };
        let mut wildcard: String = self.parts.iter().map(part).collect();
        while wildcard.contains("**") {
            wildcard = wildcard.replace("**", "*");
        }
        wildcard
    }

    /// The pattern with a primary's values put in, for people: `klusterlet-demo`. A template without a value stays as
    /// it is.
    pub fn shown(&self, data: &TemplateData<'_>) -> String {
        let part = |part: &Part| match part {
            Part::Template(template) => template
                .resolve(data)
                .unwrap_or_else(|| format!("{{{template}}}")),
            Part::Star => "*".to_owned(),
            Part::Text(text) => text.to_string(),
            Part::PrimaryNamespace => data.object.reference.namespace.clone().unwrap_or_default(),
            Part::PrimaryName => data.object.reference.name.clone(),
        };
        self.parts.iter().map(part).collect()
    }

    /// How many stars it has.
    pub fn stars(&self) -> usize {
        self.parts
            .iter()
            .filter(|part| **part == Part::Star)
            .count()
    }

    /// Its templates, other than the primary's own name or namespace.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        self.parts.iter().filter_map(|part| match part {
            Part::Template(template) => Some(&**template),
            _ => None,
        })
    }

    /// Whether it takes anything from the primary.
    pub fn is_template(&self) -> bool {
        self.parts
            .iter()
            .any(|part| !matches!(part, Part::Text(_) | Part::Star))
    }

    /// Whether it matches any name, whatever the primary.
    pub fn is_any(&self) -> bool {
        &*self.text == "*"
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn is_open(part: &Part) -> bool {
    matches!(part, Part::Star | Part::Template(_))
}

/// The next part of a pattern, and its length.
fn next(rest: &str, names: &TemplateNames) -> Result<(Part, usize), PatternError> {
    if rest.starts_with('*') {
        return Ok((Part::Star, 1));
    }
    let Some(after) = rest.strip_prefix('{') else {
        let end = rest.find(['*', '{', '}']).unwrap_or(rest.len());
        return match rest.get(..end) {
            None | Some("") => Err(Wrong::Unclosed.at(0)),
            Some(text) => Ok((Part::Text(text.into()), end)),
        };
    };
    let inside = after
        .split_once('}')
        .map(|(inside, _)| inside)
        .ok_or(Wrong::Unclosed.at(0))?;
    let part = match inside {
        "primary.namespace" => Part::PrimaryNamespace,
        "primary.name" => Part::PrimaryName,
        name if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            Part::Template(Arc::clone(names.get(name).ok_or(Wrong::Name.at(1))?))
        }
        template => {
            let read = Template::parse(template).map_err(|error| PatternError {
                at: error.at + 1,
                ..error
            })?;
            Part::Template(Arc::new(read))
        }
    };
    Ok((part, inside.len() + 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{agent, hosted, object};
    use serde_json::json;

    fn primary() -> ObjectRef {
        hosted("demo")
    }

    fn parse(text: &str) -> Pattern {
        Pattern::parse(text, &TemplateNames::new()).unwrap()
    }

    fn stars(texts: &[&str]) -> Captures {
        Captures {
            stars: texts.iter().map(|text| (*text).to_owned()).collect(),
            ..Captures::default()
        }
    }

    #[test]
    fn names_match_and_stars_capture() {
        for (pattern, name, expected) in [
            ("*", "", Some(vec![""])),
            ("*", "x", Some(vec!["x"])),
            ("klusterlet-*", "klusterlet-demo", Some(vec!["demo"])),
            ("klusterlet-*", "klusterle-demo", None),
            ("{primary.namespace}-*", "clusters-demo", Some(vec!["demo"])),
            ("{primary.namespace}-*", "other-demo", None),
            (
                "{primary.name}-admin-kubeconfig",
                "demo-admin-kubeconfig",
                Some(vec![]),
            ),
            (
                "*-admin-kubeconfig",
                "a-admin-kubeconfig-admin-kubeconfig",
                Some(vec!["a-admin-kubeconfig"]),
            ),
            ("a*b*c", "a1b2b3c", Some(vec!["1", "2b3"])),
            ("kube-apiserver", "kube-apiserver2", None),
        ] {
            let found = parse(pattern).captures(name, &primary());
            assert_eq!(found, expected.as_deref().map(stars), "{pattern} on {name}");
            let agent = agent("local", true);
            let object = object(primary(), json!({}));
            let matches = parse(pattern).matches(
                name,
                &TemplateData {
                    object: &object,
                    agent: &agent,
                },
            );
            assert_eq!(matches, expected.is_some(), "{pattern} on {name}");
        }
    }

    #[test]
    fn a_cluster_scoped_primary_has_no_namespace() {
        let primary = ObjectRef::local("v1", "Node", None, "a");
        assert_eq!(parse("{primary.namespace}").captures("", &primary), None);
        assert_eq!(
            parse("{primary.namespace}").fill(&Captures::default(), &primary),
            None
        );
    }

    #[test]
    fn fills_stars_in_order() {
        let fill = |pattern: &str, texts: &[&str]| parse(pattern).fill(&stars(texts), &primary());
        assert_eq!(
            fill("klusterlet-*", &["demo"]).as_deref(),
            Some("klusterlet-demo")
        );
        assert_eq!(
            fill("{primary.name}-*-*", &["a", "b"]).as_deref(),
            Some("demo-a-b")
        );
        assert_eq!(fill("*-*", &["a"]), None);
    }

    #[test]
    fn a_wildcard_covers_all_primaries() {
        for (pattern, namespace, wildcard) in [
            ("kube-apiserver", "*", "kube-apiserver"),
            ("{primary.namespace}", "clusters", "clusters"),
            ("{primary.namespace}-*", "clusters", "clusters-*"),
            ("{primary.namespace}-*", "team-*", "team-*-*"),
            ("{primary.namespace}{primary.name}*", "*", "*"),
            ("*-{primary.name}-x", "*", "*-*-x"),
            (
                "klusterlet-{primary.labels[\"a\"] | primary.name}",
                "clusters",
                "klusterlet-*",
            ),
        ] {
            assert_eq!(
                parse(pattern).wildcard(namespace),
                wildcard,
                "{pattern} in {namespace}"
            );
        }
    }

    #[test]
    fn names_the_position_of_an_error_in_a_pattern() {
        let twice = "\"a\" ".repeat(9);
        let names = TemplateNames::from([(
            "known".to_owned(),
            Arc::new(Template::parse("primary.name").unwrap()),
        )]);
        for (text, at, wrong) in [
            ("", 0, Wrong::Empty),
            ("**", 1, Wrong::Stars),
            ("a**", 2, Wrong::Stars),
            ("*a*b*", 0, Wrong::Stars),
            ("*{known}", 1, Wrong::Stars),
            ("{known}{known}", 7, Wrong::Stars),
            ("{known}-{known}-*-*", 0, Wrong::Stars),
            ("{", 0, Wrong::Unclosed),
            ("}", 0, Wrong::Unclosed),
            ("a}b", 1, Wrong::Unclosed),
            ("{primary.name", 0, Wrong::Unclosed),
            ("{}", 1, Wrong::EmptyChoice),
            ("{primary.name | }", 16, Wrong::EmptyChoice),
            ("{primary.name |}", 15, Wrong::EmptyChoice),
            ("{primary.name||primary.name}", 14, Wrong::EmptyChoice),
            ("{ | primary.name}", 2, Wrong::EmptyChoice),
            ("{primary.uid}", 1, Wrong::Field),
            ("{primary.names}", 1, Wrong::Field),
            ("{primary.name.x}", 1, Wrong::Field),
            ("a-{primary.name | primary.spec}", 18, Wrong::Field),
            ("{dashed(primary.name}", 1, Wrong::Field),
            ("{dashed(dashed(primary.name))}", 8, Wrong::Field),
            ("{agent.clusterName}", 1, Wrong::Field),
            ("{unknown}", 1, Wrong::Name),
            ("{primary.labels[\"\"]}", 1, Wrong::Key),
            ("{primary.labels[\"a b\"]}", 1, Wrong::Key),
            ("{primary.annotations[\"a/b/c\"]}", 1, Wrong::Key),
            ("{primary.annotations[\"a\"}", 1, Wrong::Key),
            ("{primary.annotations[\"a}", 22, Wrong::Unclosed),
            ("{\"A\" primary.name}", 1, Wrong::Text),
            ("{\"*\"}", 1, Wrong::Text),
            ("{\"\" primary.name}", 1, Wrong::Text),
            (&*format!("{{{twice}}}"), 33, Wrong::TooMany),
            (
                &*format!("{{{}}}", ["primary.name"; 9].join("|")),
                104,
                Wrong::TooMany,
            ),
        ] {
            assert_eq!(Pattern::parse(text, &names), Err(wrong.at(at)), "{text}");
        }
    }

    const MANAGED: &str = "klusterlet-{primary.annotations[\"a.b/c\"] | agent.remoteCluster \"-\" primary.name | primary.name}";

    /// Which names a pattern admits for the HostedCluster `demo.x` with a value as its annotation `a.b/c` and its
    /// label `l`.
    fn admitted(pattern: &str, value: serde_json::Value, remote: bool) -> String {
        let metadata =
            json!({"annotations": {"a.b/c": value, "other": "o"}, "labels": {"l": value}});
        let (object, agent) = (
            object(hosted("demo.x"), json!({"metadata": metadata})),
            agent("spoke", !remote),
        );
        let data = TemplateData {
            object: &object,
            agent: &agent,
        };
        let pattern = parse(pattern);
        let shown = pattern.shown(&data);
        match pattern.matches(&shown, &data) {
            true => shown,
            false => "nothing".to_owned(),
        }
    }

    #[test]
    fn a_template_uses_the_first_choice_with_a_value() {
        let (some, none, empty) = (json!("c1"), json!(null), json!(""));
        let label = "{primary.labels[\"l\"]|primary.namespace}";
        let annotation = "{primary.annotations[\"a.b/c\"]}";
        let dashed = "{primary.namespace}-{dashed(primary.name)}";
        let plain = "{primary.namespace}-{primary.name}";
        for (pattern, value, remote, expected) in [
            (MANAGED, &some, true, "klusterlet-c1"),
            (MANAGED, &some, false, "klusterlet-c1"),
            (MANAGED, &none, true, "klusterlet-spoke-demo.x"),
            (MANAGED, &empty, true, "klusterlet-spoke-demo.x"),
            (MANAGED, &none, false, "klusterlet-demo.x"),
            (label, &some, true, "c1"),
            (label, &none, true, "clusters"),
            (dashed, &none, true, "clusters-demo-x"),
            (plain, &none, true, "clusters-demo.x"),
            (annotation, &none, true, "nothing"),
        ] {
            assert_eq!(
                admitted(pattern, value.clone(), remote),
                expected,
                "{pattern} of {value}"
            );
        }
    }

    #[test]
    fn a_value_is_one_name_and_never_a_pattern() {
        let long = "a".repeat(300);
        for value in [
            json!("*"),
            json!("../x"),
            json!("a/b"),
            json!(long),
            json!("A"),
            json!("-a"),
            json!("{primary.name}"),
            json!(7),
        ] {
            let pattern = parse(MANAGED);
            let metadata = json!({"annotations": {"a.b/c": value}});
            let (object, agent) = (
                object(hosted("demo"), json!({"metadata": metadata})),
                agent("spoke", false),
            );
            let data = TemplateData {
                object: &object,
                agent: &agent,
            };
            let text = value.as_str().unwrap_or("7");
            for name in [text, "x", "", "demo", "spoke-demo", "other"] {
                assert!(
                    !pattern.matches(&format!("klusterlet-{name}"), &data),
                    "{value} admits {name}"
                );
            }
        }
        // A name that is too long as a whole is not valid either.
        let pieces = "{primary.labels[\"l\"] primary.labels[\"l\"]}";
        assert_eq!(admitted(pieces, json!("a".repeat(127)), true), "nothing");
        assert_eq!(admitted(pieces, json!("a".repeat(126)), true).len(), 252);
    }

    #[test]
    fn finds_managed_objects_even_if_the_primary_changed() {
        let (target, role) = (parse(MANAGED), parse(MANAGED));
        let captured = target.captures("klusterlet-old", &primary()).unwrap();
        assert_eq!(
            role.fill(&captured, &primary()).as_deref(),
            Some("klusterlet-old")
        );
        assert_eq!(
            parse("klusterlet-{primary.name \"-x\"}").fill(&captured, &primary()),
            None,
            "another template"
        );
        assert_eq!(target.captures("klusterlet-", &primary()), None);
        assert_eq!(target.captures("klusterlet-../x", &primary()), None);
        let twice = parse("{primary.labels[\"l\"]}-x-{primary.labels[\"l\"]}");
        assert!(
            twice.captures("a-x-b", &primary()).is_none()
                && twice.captures("a-b-x-a-b", &primary()).is_some()
        );
        let hostile = parse("{primary.labels[\"l\"]}-*-*");
        assert_eq!(hostile.captures(&"a".repeat(253), &primary()), None);
    }

    #[test]
    fn a_pattern_covers_another_if_it_matches_all_of_its_names() {
        for (one, other, covers) in [
            ("a", "a", true),
            ("a", "b", false),
            ("*", "a", true),
            ("*", "*", true),
            ("*", "{primary.name}-*", true),
            ("a", "*", false),
            ("klusterlet-*", "klusterlet-a*", true),
            ("klusterlet-a*", "klusterlet-*", false),
            ("*-*", "*", false),
            ("a*", "a*b*", true),
            ("a*b", "a*b*", false),
            ("*b*", "a*b", true),
            ("{primary.namespace}-*", "{primary.namespace}-x", true),
            ("{primary.namespace}-*", "clusters-x", false),
            ("{primary.namespace}", "{primary.name}", false),
        ] {
            let (one, other) = (parse(one), parse(other));
            assert_eq!(one.covers(&other), covers, "{one} over {other}");
        }
    }
}
