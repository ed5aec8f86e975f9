//! Matches a name against a pattern whose values are known. The work grows with the length of the name: a guest and an
//! editor of policies choose both.

use super::template::Template;
use super::{Captures, Part, TemplateData};
use crate::reference::{ObjectRef, dns};
use std::borrow::Cow;
use std::sync::Arc;

/// What a name is matched for.
#[derive(Clone, Copy)]
pub(super) enum Against<'a> {
    /// A primary as it is: a template stands for exactly one name.
    Primary(TemplateData<'a>),
    /// A primary as it may have been: a template stands for any name.
    Former(&'a ObjectRef),
    /// No primary: a template matches nothing.
    Nobody,
}

/// A pattern, ready to match.
#[derive(Debug)]
pub(crate) struct Matcher<'a> {
    /// The text before the first open slot.
    first: Cow<'a, str>,
    open: Vec<Open<'a>>,
}

/// A part that stands for more than one text.
#[derive(Debug)]
struct Open<'a> {
    /// The template that it is; `None` for a star.
    template: Option<&'a Arc<Template>>,
    /// The text up to the next open slot, or up to the end.
    after: Cow<'a, str>,
}

impl<'a> Matcher<'a> {
    /// `None` when a part has no value, so that nothing matches.
    pub(super) fn of(parts: &'a [Part], against: Against<'a>) -> Option<Self> {
        let (mut first, mut open) = (Cow::default(), Vec::<Open<'a>>::new());
        for part in parts {
            let template = match (part, against) {
                (Part::Star, _) => None,
                (Part::Template(template), Against::Former(_)) => Some(template),
                _ => {
                    let place = open.last_mut().map(|open| &mut open.after);
                    *place.unwrap_or(&mut first) += text(part, against)?;
                    continue;
                }
            };
            open.push(Open {
                template,
                after: Cow::default(),
            });
        }
        Some(Self { first, open })
    }

    /// Whether a name matches.
    pub(crate) fn matches(&self, name: &str) -> bool {
        self.texts(name).is_some()
    }

    /// Whether any text matches.
    pub(crate) fn is_any(&self) -> bool {
        let star = |open: &Open<'a>| open.template.is_none() && open.after.is_empty();
        self.first.is_empty() && self.open.len() == 1 && self.open.iter().all(star)
    }

    /// What stars and templates stand for in a name, each as short as possible; `None` when it does not match.
    pub(super) fn captures(&self, name: &str) -> Option<Captures> {
        let mut captures = Captures::default();
        for (open, text) in self.open.iter().zip(self.texts(name)?) {
            match open.template {
                None => captures.stars.push(text.to_owned()),
                Some(template) if captures.templates.iter().any(|(one, _)| one == template) => {}
                Some(template) => {
                    let one = (Arc::clone(template), text.to_owned());
                    captures.templates.push(one);
                }
            }
        }
        Some(captures)
    }

    /// The text of each open slot.
    fn texts<'n>(&self, name: &'n str) -> Option<Vec<&'n str>> {
        let rest = name.strip_prefix(&*self.first)?;
        let mut texts = Vec::with_capacity(self.open.len());
        self.fits(rest, &mut texts).then_some(texts)
    }

    /// Matches the open slots for which there is no text yet; the shortest text comes first.
    fn fits<'n>(&self, rest: &'n str, texts: &mut Vec<&'n str>) -> bool {
        let mut left = self.open.iter().skip(texts.len());
        let Some(open) = left.next() else {
            return rest.is_empty();
        };
        if left.len() == 0 {
            let text = rest.strip_suffix(&*open.after);
            let text = text.filter(|text| self.takes(open, text, texts));
            texts.extend(text);
            return text.is_some();
        }
        if open.template.is_none() && left.all(|open| open.template.is_none()) {
            // The shortest text leaves the most for the stars that follow: no longer one can do better.
            let Some((text, rest)) = rest.split_once(&*open.after) else {
                return false;
            };
            texts.push(text);
            return self.fits(rest, texts);
        }
        // A template may need a longer text before it. There is one only in names of objects, which are short.
        if rest.len() > dns::MAX_NAME {
            return false;
        }
        for end in rest.char_indices().map(|(at, _)| at).chain([rest.len()]) {
            let (text, after) = rest.split_at(end);
            let Some(after) = after.strip_prefix(&*open.after) else {
                continue;
            };
            if self.takes(open, text, texts) {
                let before = texts.len();
                texts.push(text);
                if self.fits(after, texts) {
                    return true;
                }
                texts.truncate(before);
            }
        }
        false
    }

    /// Whether an open slot may stand for a text: that of a template must be a valid name, and the same wherever the
    /// template occurs.
    fn takes(&self, open: &Open<'_>, text: &str, texts: &[&str]) -> bool {
        let Some(template) = open.template else {
            return true;
        };
        let mut known = self.open.iter().zip(texts);
        match known.find(|(known, _)| known.template == Some(template)) {
            Some((_, known)) => *known == text,
            None => dns::is_subdomain(text),
        }
    }
}

/// The one text that a part stands for; `None` when there is none.
pub(super) fn text<'a>(part: &'a Part, against: Against<'a>) -> Option<Cow<'a, str>> {
    let primary = match against {
        Against::Primary(data) => Some(&data.object.reference),
        Against::Former(primary) => Some(primary),
        Against::Nobody => None,
    };
    match (part, against) {
        (Part::Text(text), _) => Some(Cow::Borrowed(text)),
        (Part::PrimaryNamespace, _) => primary?.namespace.as_deref().map(Cow::Borrowed),
        (Part::PrimaryName, _) => Some(Cow::Borrowed(&primary?.name)),
        (Part::Template(template), Against::Primary(data)) => {
            template.resolve(&data).map(Cow::Owned)
        }
        (Part::Star | Part::Template(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;
    use crate::pattern::template::TemplateNames;
    use crate::sample::{agent, hosted, object};
    use proptest::prelude::*;
    use serde_json::json;

    fn parse(text: &str) -> Pattern {
        Pattern::parse(text, &TemplateNames::new()).unwrap()
    }

    /// Whether parts match a name, by trial of every text, the shortest first.
    fn tried(parts: &[Part], name: &str, captured: &mut Captures) -> bool {
        let Some((first, others)) = parts.split_first() else {
            return name.is_empty();
        };
        if let Part::Text(text) = first {
            let rest = name.strip_prefix(&**text);
            return rest.is_some_and(|rest| tried(others, rest, captured));
        }
        for end in 0..=name.len() {
            let (text, rest) = name.split_at(end);
            let before = captured.clone();
            let known = |of: &Arc<Template>| {
                let mut known = before.templates.iter();
                known.find(|(one, _)| one == of).map(|(_, text)| text)
            };
            let taken = match first {
                Part::Template(of) => match known(of) {
                    Some(known) => known == text,
                    None => {
                        let one = (Arc::clone(of), text.to_owned());
                        captured.templates.push(one);
                        dns::is_subdomain(text)
                    }
                },
                _ => {
                    captured.stars.push(text.to_owned());
                    true
                }
            };
            if taken && tried(others, rest, captured) {
                return true;
            }
            *captured = before;
        }
        false
    }

    proptest! {
        #[test]
        fn captures_are_those_of_a_trial_of_every_text(
            parts in proptest::collection::vec(0..9_usize, 1..8),
            name in "[ab-]{0,10}",
        ) {
            let (one, other) = ("{primary.labels[\"l\"]}", "{primary.labels[\"m\"]}");
            let parts = parts.into_iter().map(|part| ["a", "b", "-", "a", "-", "*", "*", one, other][part]);
            if let Ok(pattern) = Pattern::parse(&parts.collect::<String>(), &TemplateNames::new()) {
                let mut captured = Captures::default();
                let tried = tried(&pattern.parts, &name, &mut captured).then_some(captured);
                prop_assert_eq!(pattern.captures(&name, &hosted("demo")), tried, "{} on {}", pattern, name);
            }
        }
    }

    proptest! {
        #[test]
        fn a_name_matches_at_once_if_it_matches_the_parts_put_together(
            parts in proptest::collection::vec(0..9_usize, 1..5),
            name in "[ab-]{0,5}",
        ) {
            let primary = ObjectRef::local("v1", "Secret", (parts.len() > 1).then_some("b"), "a");
            let object = object(primary, json!({"metadata": {"labels": {"l": "ab"}}}));
            let agent = agent("local", true);
            let data = TemplateData { object: &object, agent: &agent };
            let (there, absent) = ("{primary.labels[\"l\"]}", "{primary.labels[\"m\"]}");
            let own = ["{primary.name}", "{primary.namespace}"];
            let parts = parts.into_iter().map(|part| ["a", "b", "-", "a-", own[0], own[1], "*", there, absent][part]);
            if let Ok(pattern) = Pattern::parse(&parts.collect::<String>(), &TemplateNames::new()) {
                for name in [&name, &pattern.shown(&data)] {
                    let whole = pattern.matcher(&data).is_some_and(|matcher| matcher.matches(name));
                    prop_assert_eq!(pattern.matches(name, &data), whole, "{} on {}", &pattern, name);
                }
            }
        }
    }

    #[test]
    fn a_long_text_takes_no_more_than_its_length() {
        // Trying every text would take its square or its cube.
        let long = "a".repeat(1 << 20);
        let (object, agent) = (object(hosted("demo"), json!({})), agent("local", true));
        let data = TemplateData {
            object: &object,
            agent: &agent,
        };
        for (pattern, matches) in [
            ("*-admin-kubeconfig", false),
            ("a*b*c", false),
            ("*a*b", false),
            ("*aaaaaaaaaaaaaaaaaaaaaaaaaaaaab*", false),
            ("*{primary.name}*a", false),
            ("a*a*a", true),
            ("*a*", true),
        ] {
            let pattern = parse(pattern);
            assert_eq!(pattern.matches(&long, &data), matches, "{pattern}");
        }
        let made = parse("{primary.labels[\"l\"]}-*-{primary.labels[\"m\"]}");
        assert_eq!(made.captures(&"a-".repeat(1 << 19), &hosted("demo")), None);
    }
}
