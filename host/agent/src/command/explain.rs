//! `transom explain`: what a reason means and what to do about it.

use crate::args::ExplainArgs;
use crate::command::{engine, place};
use crate::output::{CommandEnd, Screen};
use crate::policies::{self, Written};
use anyhow::{Context as _, bail};
use std::collections::BTreeSet;
use transom_api::{KnownReason, Reason};
use transom_artifacts::{GatheredComponents, Location, builtin_names};
use transom_core::catalogue::guest::GuestFacts;
use transom_core::contract::description::Description;
use transom_engine::CallLimits;

/// Meaning and remedy of a reason, as the agent or one of these guests declares it.
pub(crate) fn declared<'g>(
    guests: impl Iterator<Item = &'g GuestFacts>,
    reason: &Reason,
) -> (String, String) {
    if let Reason::Known(word) = reason {
        return (word.meaning().to_owned(), word.remedy().to_owned());
    }
    let mut declared = guests.flat_map(|guest| &guest.description.reasons);
    let found = declared.find(|known| known.name == reason.as_str());
    let explained = found.map(|known| (known.meaning.clone(), known.remedy.clone()));
    explained.unwrap_or_default()
}

/// Prints one reason, or all of them.
///
/// # Errors
/// When neither the agent nor one of the guests has this word, a guest cannot be loaded, or `--policies` names a place
/// without a policy.
pub(crate) fn explain(args: &ExplainArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let mut known = of_the_agent();
    let is_known =
        |known: &[ExplainedWord], wanted: &String| known.iter().any(|entry| entry.is(wanted));
    // No guest has a word of the agent, and guests take long to load.
    let unknown = args.reasons.iter().filter(|one| !is_known(&known, one));
    let unknown: Vec<_> = unknown.map(String::as_bytes).collect();
    if args.reasons.is_empty() || !unknown.is_empty() || names_guests(args) {
        known.extend(of_guests(args, &unknown, screen)?);
    }
    if args.reasons.is_empty() {
        for entry in &known {
            screen.line(format_args!(
                "{:<26} {:<12} {}",
                entry.word, entry.whose, entry.meaning
            ));
        }
        return Ok(CommandEnd::Right);
    }
    let mut wanted = args.reasons.iter();
    if let Some(wanted) = wanted.find(|wanted| !is_known(&known, wanted)) {
        bail!(
            "failed to explain `{wanted}`: not a reason, state, condition or cause of the agent, nor a reason of {}; `transom explain` lists all of them",
            if names_guests(args) {
                "these guests"
            } else {
                "its builtin guests; use --component, --policies or --policy-objects for other guests"
            }
        );
    }
    let each = |wanted: &String| {
        let wanted = wanted.clone();
        known.iter().filter(move |entry| entry.is(&wanted))
    };
    for entry in args.reasons.iter().flat_map(each) {
        screen.line(format_args!("{} ({})", entry.word, entry.whose));
        screen.line(format_args!("  What it means: {}", entry.meaning));
        if !entry.remedy.is_empty() {
            screen.line(format_args!("  What to do:    {}", entry.remedy));
        }
    }
    Ok(CommandEnd::Right)
}

/// One word with its explanation.
struct ExplainedWord {
    word: String,
    whose: String,
    meaning: String,
    remedy: String,
}

impl ExplainedWord {
    fn is(&self, wanted: &str) -> bool {
        self.word.eq_ignore_ascii_case(wanted)
    }
}

/// The words other than reasons: which sort each is, and what it means.
const OTHER_WORDS: &str = "\
state Applied: The objects match the desired state.
state Held: Left unchanged on purpose; not a failure.
state Waiting: Something that the primary needs does not exist yet; not a failure.
state Failed: The reconcile failed; the reason says what to fix.
state WouldApply: `transom status` only: a write is pending; `transom status` itself never writes.
condition Ready: Every other condition of the policy is true.
condition Loaded: The newest revision of the policy is active; if not, the previous revision stays active, if there is one.
condition Watched: The agent can watch all objects that the policy needs.
condition Healthy: No primary of the policy failed, and no limit is reached.
condition Reconciling: The newest revision is tried, waits for an approval, or is read again by itself.
condition Stalled: The newest revision is refused and only a change helps; or, with the mode Fail of onFailure, the guest fails for a primary.
cause Added: The primary is new, or this agent saw it for the first time.
cause Triggered: The trigger guest requested it; its reasons are listed with the cause.
cause Changed: A declared field of the primary changed and no trigger guest is called for it, or a field that the policy writes changed.
cause Undecided: It is not known whether the change matters: the trigger guest failed, the object could not be read, or the state after a write is unknown.
cause Input: An input of the last answer was changed, created or deleted.
cause Released: A target that another primary owned is free.
cause Gone: The primary was deleted.
cause Timer: The guest requested a requeue at this time.
cause Expired: A time in an object that the guest asked about got as old as its limit.
cause Retry: The previous attempt failed; the agent retries automatically.
cause Resync: The agent reconciles every primary periodically, even without a watch event.
cause Swapped: The policy or one of its components changed.";

/// The agent's reasons, then its other words.
fn of_the_agent() -> Vec<ExplainedWord> {
    let reasons = KnownReason::ALL.iter().map(|word| ExplainedWord {
        word: word.as_str().to_owned(),
        whose: "agent".to_owned(),
        meaning: word.meaning().to_owned(),
        remedy: word.remedy().to_owned(),
    });
    let others = OTHER_WORDS.lines().filter_map(|line| {
        let (word, meaning) = line.split_once(": ")?;
        let (whose, word) = word.split_once(' ')?;
        Some(ExplainedWord {
            word: word.to_owned(),
            whose: whose.to_owned(),
            meaning: meaning.to_owned(),
            remedy: String::new(),
        })
    });
    reasons.chain(others).collect()
}

/// The reasons that guests declare: the named guests, else the builtin ones that may have one of the words.
fn of_guests(
    args: &ExplainArgs,
    unknown: &[&[u8]],
    screen: &Screen,
) -> anyhow::Result<Vec<ExplainedWord>> {
    let mut entries = Vec::new();
    for guest in guests(args, unknown, screen)? {
        entries.extend(guest.reasons.into_iter().map(|reason| ExplainedWord {
            word: reason.name,
            whose: guest.name.clone(),
            meaning: reason.meaning,
            remedy: reason.remedy,
        }));
    }
    Ok(entries)
}

/// Whether a builtin guest may declare one of these words: its reasons are constants, which its component holds as they
/// are written. Compiling all builtin guests takes seconds. Every guest may where no word is given.
fn may_declare(component: &[u8], words: &[&[u8]]) -> bool {
    let holds = |word: &&[u8]| {
        let mut places = component.windows(word.len().max(1));
        places.any(|place| place.eq_ignore_ascii_case(word))
    };
    words.is_empty() || words.iter().any(holds)
}

/// How the guests that the flags name describe themselves, each once; without flags, the builtin guests. A component of
/// a policy that cannot be read is left out with a note, because the others still explain their words.
fn guests(
    args: &ExplainArgs,
    unknown: &[&[u8]],
    screen: &Screen,
) -> anyhow::Result<Vec<Description>> {
    let nothing = GatheredComponents::default();
    let engine = engine::engine(CallLimits::LARGEST)?;
    let describe = |location: Location| {
        let failed = format!("failed to read the description of `{location}`");
        let found = place::read(location, &args.from, false);
        let described = found.and_then(|found| {
            let inspected = engine.inspect(&found.artifact.bytes)?;
            Ok(inspected.description?)
        });
        described.context(failed)
    };
    let mut named = BTreeSet::new();
    let mut guests = Vec::new();
    let components = args.component.iter();
    let components = components.map(|text| Location::anywhere(text).map_err(anyhow::Error::msg));
    let builtin = builtin_names().map(|name| Location::Builtin(name.to_owned()));
    let builtin = builtin.filter(|guest| {
        let mut read = guest.fetch(None, &nothing).into_iter();
        !names_guests(args) && read.any(|read| may_declare(&read.bytes, unknown))
    });
    for location in components.chain(builtin.map(Ok)) {
        let location = location?;
        if named.insert(location.to_string()) {
            guests.push(describe(location)?);
        }
    }
    for location in policies(args, screen)?.iter().flat_map(Written::components) {
        if named.insert(location.to_string()) {
            // Whoever wrote the policies does not say which servers are asked.
            let allowed = location.check(&args.sources).map_err(anyhow::Error::new);
            match allowed.and_then(|()| describe(location)) {
                Ok(guest) => guests.push(guest),
                Err(error) => screen.note(format_args!("its reasons are left out: {error:#}")),
            }
        }
    }
    Ok(guests)
}

/// Whether the flags say which guests are explained.
fn names_guests(args: &ExplainArgs) -> bool {
    !args.component.is_empty() || args.policies.is_some() || args.policy_objects
}

/// The policies whose components are explained; notes each that cannot be read.
fn policies(args: &ExplainArgs, screen: &Screen) -> anyhow::Result<Vec<Written>> {
    match &args.policies {
        Some(path) => {
            let found = policies::read_some(path, None)?;
            for (place, why) in found.broken {
                screen.note(format_args!("its reasons are left out: {place}: {why}"));
            }
            Ok(found.policies)
        }
        None if args.policy_objects => place::policies(&args.from.cluster),
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_api::State;
    use transom_core::reference::ObjectRef;
    use transom_core::work::Cause;

    #[test]
    fn only_a_guest_that_holds_a_word_may_declare_it() {
        let component = b"..NoSuchNamespace..";
        let may = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
            may_declare(component, &words)
        };
        assert!(may(&[]) && may(&["nosuchnamespace"]) && may(&["Other", "NoSuch"]));
        assert!(!may(&["Other"]) && !may(&[""]) && !may(&["NoSuchNamespaceAtAll"]));
    }

    #[test]
    fn every_state_and_cause_is_explained() {
        let object = ObjectRef::local("v1", "Secret", None, "s");
        let causes = [
            Cause::Added,
            Cause::Triggered(vec![]),
            Cause::Changed(vec![]),
            Cause::Undecided,
            Cause::Input(object),
            Cause::Released,
            Cause::Gone,
            Cause::Timer,
            Cause::Expired,
            Cause::Retry,
            Cause::Resync,
            Cause::Swapped,
        ];
        let explained =
            |sort: &str, word: &str| OTHER_WORDS.contains(&format!("\n{sort} {word}: "));
        for cause in &causes {
            assert!(explained("cause", cause.as_str()), "{cause:?}");
        }
        for state in [State::Held, State::Waiting, State::Failed] {
            assert!(explained("state", state.as_str()), "{state:?}");
        }
        assert!(OTHER_WORDS.starts_with("state Applied: "));
        let of_causes = OTHER_WORDS
            .lines()
            .filter(|line| line.starts_with("cause "));
        assert_eq!(of_causes.count(), causes.len(), "a cause that is none");
    }
}
