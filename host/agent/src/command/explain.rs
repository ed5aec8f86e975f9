//! `transom explain`: what a reason means and what to do about it.

use crate::args::ExplainArgs;
use crate::command::builtin;
use crate::output::{Ending, Screen};
use anyhow::bail;
use transom_api::KnownReason;

/// Prints one reason, or all of them.
///
/// # Errors
/// When neither the agent nor one of the guests has this word, or a guest cannot be loaded.
pub(crate) fn explain(args: &ExplainArgs, screen: &Screen) -> anyhow::Result<Ending> {
    let known = entries(args)?;
    let Some(wanted) = &args.reason else {
        for entry in &known {
            screen.line(format_args!("{:<26} {:<12} {}", entry.word, entry.whose, entry.meaning));
        }
        return Ok(Ending::Right);
    };
    let found: Vec<_> = known.iter().filter(|entry| entry.word.eq_ignore_ascii_case(wanted)).collect();
    if found.is_empty() {
        bail!(
            "failed to explain `{wanted}`: no reason, state, condition or cause of the agent, and no reason of {}; `transom explain` lists them all",
            if args.component.is_some() || args.policies.is_some() {
                "these guests"
            } else {
                "its builtin guests; --component or --policies asks others"
            }
        );
    }
    for entry in found {
        screen.line(format_args!("{} ({})", entry.word, entry.whose));
        screen.line(format_args!("  What it means: {}", entry.meaning));
        if !entry.remedy.is_empty() {
            screen.line(format_args!("  What to do:    {}", entry.remedy));
        }
    }
    Ok(Ending::Right)
}

/// One word with its explanation.
struct Entry {
    word: String,
    whose: String,
    meaning: String,
    remedy: String,
}

/// Words other than reasons, each with its sort and its meaning.
const BESIDE: [(&str, &str, &str); 20] = [
    ("Applied", "state", "What is there is what should be there."),
    ("Held", "state", "Left as it is on purpose; nothing is wrong."),
    ("Waiting", "state", "Something is not there yet; not a failure."),
    ("Failed", "state", "Something must be mended."),
    ("WouldApply", "state", "`transom status` only: something is to be written, and was not."),
    ("Ready", "condition", "Every other condition of the policy holds."),
    ("Loaded", "condition", "The newest revision of the policy is at work; if not, an earlier one goes on."),
    ("Watched", "condition", "Everything that the policy needs can be watched."),
    ("Healthy", "condition", "No primary of the policy failed."),
    ("Added", "cause", "The primary was seen for the first time, by this agent or at all."),
    ("Triggered", "cause", "The trigger guest asked for it; its reasons stand beside."),
    ("Changed", "cause", "A declared field of the primary changed, and no trigger guest is asked."),
    ("Undecided", "cause", "The change could not be put to the trigger guest."),
    ("Input", "cause", "Something that the answer rests on changed, appeared or went."),
    ("Released", "cause", "A target that another primary had is free."),
    ("Gone", "cause", "The primary is gone."),
    ("Timer", "cause", "The guest had asked to be asked again at this time."),
    ("Retry", "cause", "The attempt before failed, and is tried again by itself."),
    ("Resync", "cause", "Every primary is looked at now and then, whether anything was told or not."),
    ("Swapped", "cause", "The policy or one of its components changed."),
];

/// The agent's reasons, the words beside them, then the reasons that guests declare: those of the named guests, else of
/// the builtin ones.
fn entries(args: &ExplainArgs) -> anyhow::Result<Vec<Entry>> {
    let own = KnownReason::ALL.iter().map(|word| Entry {
        word: word.as_str().to_owned(),
        whose: "agent".to_owned(),
        meaning: word.meaning().to_owned(),
        remedy: word.remedy().to_owned(),
    });
    let beside = BESIDE.iter().map(|(word, whose, meaning)| Entry {
        word: (*word).to_owned(),
        whose: (*whose).to_owned(),
        meaning: (*meaning).to_owned(),
        remedy: String::new(),
    });
    let mut entries: Vec<_> = own.chain(beside).collect();
    let guests = match (&args.component, &args.policies) {
        (None, None) => builtin::descriptions()?,
        (component, policies) => builtin::described(component.as_deref(), policies.as_deref())?,
    };
    for description in guests {
        entries.extend(description.reasons.into_iter().map(|reason| Entry {
            word: reason.word,
            whose: description.name.clone(),
            meaning: reason.meaning,
            remedy: reason.remedy,
        }));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_api::State;
    use transom_core::reference::ObjectRef;
    use transom_core::work::Cause;

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
            Cause::Retry,
            Cause::Resync,
            Cause::Swapped,
        ];
        let known = |word: &str, whose: &str| BESIDE.iter().any(|(known, is, _)| (*known, *is) == (word, whose));
        assert_eq!(causes.iter().filter(|why| known(why.as_str(), "cause")).count(), causes.len());
        for state in [State::Applied, State::Held, State::Waiting, State::Failed] {
            assert!(known(state.as_str(), "state"), "{state:?}");
        }
        assert!(BESIDE.iter().filter(|(_, is, _)| *is == "cause").count() == causes.len(), "a cause that is none");
    }
}
