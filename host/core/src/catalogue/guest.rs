//! One loaded guest as far as decisions need it: description, reasons, settings. The agent keeps the compiled
//! component under the same digest.

use crate::contract::Problem;
use crate::contract::description::{Description, MAX_READS, MAX_REASONS, MAX_WORD};
use crate::failure::{Class, Failure};
use crate::projection::Declared;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use transom_api::{KnownReason, Reason};

/// The most bytes of a settings schema.
const MAX_SCHEMA: usize = 256 * 1024;

/// What the catalogue knows of a loaded guest.
#[derive(Clone, Debug, PartialEq)]
pub struct GuestFacts {
    /// Digest of the component: `sha256:<hex>`.
    pub digest: Arc<str>,
    /// Digest of the manifest by which it was pulled from a registry, where that is known: what its tag meant then.
    pub manifest: Option<String>,
    /// The names of the keys that signed it, when the policy demands signatures.
    pub signers: Vec<String>,
    /// Its self-description.
    pub description: Arc<Description>,
    /// Its settings: one JSON object as text, already accepted by the guest.
    pub settings: Arc<str>,
    declared: DeclaredKinds,
    words: BTreeMap<String, Reason>,
    nothing: Declared,
}

impl GuestFacts {
    /// Takes in a guest's description: compiles its paths, indexes its reasons.
    ///
    /// # Errors
    /// `DescriptionInvalid`, with what is wrong: an invalid path, a kind twice, a Secret, a reason that is not
    /// CamelCase or is one of the agent's own, more of anything than the limits.
    pub fn load(
        digest: &str,
        description: Description,
        settings: &Map<String, Value>,
    ) -> Result<Self, Failure> {
        let invalid = |why: String| {
            let name = &description.name;
            let message = format!("guest `{name}` has an invalid description: {why}");
            Failure::known(KnownReason::DescriptionInvalid, message)
        };
        let (declared, words) = checked(&description).map_err(invalid)?;
        let settings = Value::Object(settings.clone()).to_string().into();
        let description = Arc::new(description);
        Ok(Self {
            digest: digest.into(),
            manifest: None,
            signers: Vec::new(),
            description,
            settings,
            declared,
            words,
            nothing: Declared::default(),
        })
    }

    /// What it declared of a kind; empty when it declared nothing.
    pub fn declared(&self, api_version: &str, kind: &str) -> &Declared {
        let mut declared = self.declared.iter();
        let of_kind = declared.find(|(version, name, _)| version == api_version && name == kind);
        of_kind.map_or(&self.nothing, |(_, _, declared)| declared)
    }

    /// A problem from the guest's answer, as a failure of a class. An undeclared reason becomes `ContractBroken`.
    pub fn failure(&self, class: Class, problem: &Problem) -> Failure {
        let Some(reason) = self.words.get(&problem.reason) else {
            let word: String = problem.reason.chars().take(64).collect();
            let message = format!(
                "guest `{}` answered with the reason `{word}`, which its description does not declare",
                self.description.name
            );
            return Failure::known(KnownReason::ContractBroken, message);
        };
        let message = match &problem.field {
            Some(field) => format!("{}: `{field}`", problem.message.trim_end_matches('.')),
            None => problem.message.clone(),
        };
        Failure::new(class, reason.clone(), &message)
    }

    /// The reason that a need gives for the absence of its object, as a failure of a class.
    pub fn absence(&self, class: Class, word: &str, message: String) -> Failure {
        let problem = Problem {
            reason: word.to_owned(),
            message,
            field: None,
        };
        self.failure(class, &problem)
    }
}

/// Checks a description as [`GuestFacts::load`] does, for whoever loads a component without a policy: what is built and
/// tested is what a policy can load.
///
/// # Errors
/// With what is wrong.
pub fn check(description: &Description) -> Result<(), String> {
    checked(description).map(drop)
}

/// What it declared of each kind, by group and version, and kind.
type DeclaredKinds = Vec<(String, String, Declared)>;

fn checked(description: &Description) -> Result<(DeclaredKinds, BTreeMap<String, Reason>), String> {
    sizes(description)?;
    Ok((declared(description)?, words(description)?))
}

fn sizes(description: &Description) -> Result<(), String> {
    let is_word = |text: &String| (1..=MAX_WORD).contains(&text.len());
    if !is_word(&description.name) || !is_word(&description.version) {
        return Err("name and version must have 1 to 64 bytes".to_owned());
    }
    if description.settings_schema.len() > MAX_SCHEMA {
        return Err("settings-schema has more than 256 KiB".to_owned());
    }
    if description.reads.len() > MAX_READS || description.reasons.len() > MAX_REASONS {
        return Err("it reads more than 64 kinds or declares more than 128 reasons".to_owned());
    }
    Ok(())
}

fn declared(description: &Description) -> Result<DeclaredKinds, String> {
    let mut all = DeclaredKinds::new();
    for read in &description.reads {
        let place = format!("{} {}", read.api_version, read.kind);
        if read.api_version == "v1" && read.kind == "Secret" {
            return Err("it declares fields of Secrets, which guests never see".to_owned());
        }
        if read.fields.len() + read.changes.len() > MAX_READS {
            return Err(format!("it reads more than 64 paths of {place}"));
        }
        let compiled = Declared::compile(read)
            .map_err(|error| format!("invalid reads of {place}: {error}"))?;
        let same =
            |(version, kind, _): &(_, _, _)| (version, kind) == (&read.api_version, &read.kind);
        if all.iter().any(same) {
            return Err(format!("{place} is listed twice"));
        }
        all.push((read.api_version.clone(), read.kind.clone(), compiled));
    }
    Ok(all)
}

/// Checks that a guest's reasons are its own, so that users can tell them from what the agent found. Host and guest
/// share a word only where both check the same thing; even then the reason stays the guest's, and the host does not
/// act by it.
fn words(description: &Description) -> Result<BTreeMap<String, Reason>, String> {
    let mut all = BTreeMap::new();
    for name in description.reasons.iter().map(|reason| &reason.name) {
        let camel = name.starts_with(|first: char| first.is_ascii_uppercase())
            && name.chars().all(|letter| letter.is_ascii_alphanumeric());
        if !camel || name.len() > MAX_WORD {
            return Err(format!(
                "the reason `{name}` is not a CamelCase word of at most 64 bytes"
            ));
        }
        if KnownReason::named(name).is_some_and(|word| !word.is_shared()) {
            return Err(format!(
                "the reason `{name}` is reserved for the agent; declare a CamelCase word of at most 64 bytes that \
                 `transom explain` does not list as a reason of the agent"
            ));
        }
        let word = Reason::Declared(name.as_str().into());
        if all.insert(name.clone(), word).is_some() {
            return Err(format!("the reason `{name}` is listed twice"));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::description::{DeclaredReason, Read};
    use crate::sample::{HOSTED, guest};

    fn described() -> Description {
        (*guest(&["spec"], &[]).description).clone()
    }

    fn reason(word: &str) -> DeclaredReason {
        DeclaredReason {
            name: word.to_owned(),
            meaning: "m".to_owned(),
            remedy: "r".to_owned(),
        }
    }

    /// A change that makes a description invalid.
    type Damage<'a> = &'a dyn Fn(&mut Description);

    fn load(description: Description) -> Result<GuestFacts, Failure> {
        GuestFacts::load("sha256:1", description, &Map::new())
    }

    #[test]
    fn refuses_a_description_that_breaks_the_contract() {
        let read = |kind: &str, field: &str| Read {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            fields: vec![field.to_owned()],
            changes: vec![],
        };
        let many: Vec<_> = (0..200).map(|n| reason(&format!("R{n}"))).collect();
        let schema = format!("{{{}}}", " ".repeat(MAX_SCHEMA));
        let breaks: [(&str, Damage<'_>); 11] = [
            ("no name", &|it| it.name.clear()),
            ("no version", &|it| it.version.clear()),
            ("schema too large", &|it| {
                it.settings_schema = schema.clone();
            }),
            ("a Secret", &|it| it.reads.push(read("Secret", "data"))),
            ("no path", &|it| it.reads.push(read("Pod", "a..b"))),
            ("a kind twice", &|it| it.reads.push(it.reads[0].clone())),
            ("too many paths", &|it| {
                it.reads[0].changes = vec!["a".to_owned(); MAX_READS];
            }),
            ("too many reasons", &|it| it.reasons = many.clone()),
            ("not CamelCase", &|it| it.reasons.push(reason("not camel"))),
            ("a word of the agent", &|it| {
                it.reasons.push(reason("NotLeading"));
            }),
            ("a reason twice", &|it| it.reasons.push(reason("Told"))),
        ];
        for (name, damage) in breaks {
            let mut description = described();
            damage(&mut description);
            let failure = load(description).map(drop).unwrap_err();
            assert_eq!(
                failure.reason,
                KnownReason::DescriptionInvalid.into(),
                "{name}"
            );
        }
        assert!(load(described()).is_ok());
    }

    #[test]
    fn a_guest_uses_only_declared_and_shared_reasons() {
        let problem = |reason: &str| Problem {
            reason: reason.to_owned(),
            message: "Two\nlines.".to_owned(),
            field: Some("spec.x".to_owned()),
        };
        let guest = guest(&[], &[]);
        let told = guest.failure(Class::Held, &problem("Told"));
        assert_eq!(
            (told.class, told.reason, &*told.message),
            (
                Class::Held,
                Reason::Declared("Told".into()),
                "Two lines: `spec.x`"
            )
        );
        let shared = guest.failure(Class::Missing, &problem("NoClusters")).reason;
        assert_eq!(
            shared,
            Reason::Declared("NoClusters".into()),
            "it stays the guest's"
        );
        let broken = guest.failure(Class::Held, &problem("InSync"));
        assert_eq!(
            (broken.class, broken.reason),
            (Class::Invalid, KnownReason::ContractBroken.into())
        );
        for word in KnownReason::ALL {
            let mut description = described();
            let (word, shared) = (word.as_str(), word.is_shared());
            description.reasons = vec![reason(word)];
            let refused = load(description).err().map(|failure| failure.reason);
            let reserved = KnownReason::DescriptionInvalid.into();
            assert_eq!(refused, (!shared).then_some(reserved), "{word}");
        }
    }

    #[test]
    fn the_guest_author_page_names_the_limits() {
        let page = include_str!("../../../../guest/README.md");
        for (limit, most) in [
            ("reasons", MAX_REASONS),
            ("letters of a reason", MAX_WORD),
            ("kinds that it reads", MAX_READS),
            ("paths of one kind", MAX_READS),
            ("bytes of the settings schema", MAX_SCHEMA),
            ("letters of name and of version", MAX_WORD),
            ("needs of one answer", crate::requirements::MAX_NEEDS),
            ("rounds of `require`", crate::requirements::MAX_ROUNDS),
        ] {
            assert!(
                page.contains(&format!("\n| {limit} | {most} |\n")),
                "{limit}: {most}"
            );
        }
    }

    #[test]
    fn undeclared_reasons_are_unknown() {
        let guest = guest(&["spec"], &["status"]);
        assert_eq!(guest.declared(HOSTED.0, HOSTED.1).fields.list().len(), 1);
        assert_eq!(guest.declared("v1", "Pod"), &Declared::default());
        assert_eq!(&*guest.settings, "{}");
    }
}
