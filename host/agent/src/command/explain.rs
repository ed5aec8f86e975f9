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
            screen.line(format_args!(
                "{:<26} {:<12} {}",
                entry.word, entry.whose, entry.meaning
            ));
        }
        return Ok(Ending::Right);
    };
    let found: Vec<_> = known
        .iter()
        .filter(|entry| entry.word.eq_ignore_ascii_case(wanted))
        .collect();
    if found.is_empty() {
        bail!(
            "failed to explain `{wanted}`: not a reason, state, condition or cause of the agent, nor a reason of {}; `transom explain` lists all of them",
            if args.component.is_some() || args.policies.is_some() {
                "these guests"
            } else {
                "its builtin guests; use --component or --policies for other guests"
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
    ("Applied", "state", "The objects match the desired state."),
    ("Held", "state", "Left unchanged on purpose; not a failure."),
    (
        "Waiting",
        "state",
        "Something that the primary needs does not exist yet; not a failure.",
    ),
    (
        "Failed",
        "state",
        "The reconcile failed; the reason says what to fix.",
    ),
    (
        "WouldApply",
        "state",
        "`transom status` only: a write is pending; `transom status` itself never writes.",
    ),
    (
        "Ready",
        "condition",
        "Every other condition of the policy is true.",
    ),
    (
        "Loaded",
        "condition",
        "The newest revision of the policy is active; if not, the previous revision stays active, if there is one.",
    ),
    (
        "Watched",
        "condition",
        "The agent can watch all objects that the policy needs.",
    ),
    ("Healthy", "condition", "No primary of the policy failed."),
    (
        "Added",
        "cause",
        "The primary is new, or this agent saw it for the first time.",
    ),
    (
        "Triggered",
        "cause",
        "The trigger guest requested it; its reasons are listed with the cause.",
    ),
    (
        "Changed",
        "cause",
        "A declared field of the primary changed and no trigger guest is called for it, or a field that the policy writes \
         changed.",
    ),
    (
        "Undecided",
        "cause",
        "The trigger guest could not be called for the change.",
    ),
    (
        "Input",
        "cause",
        "An input of the last answer was changed, created or deleted.",
    ),
    (
        "Released",
        "cause",
        "A target that another primary owned is free.",
    ),
    ("Gone", "cause", "The primary was deleted."),
    (
        "Timer",
        "cause",
        "The guest requested a requeue at this time.",
    ),
    (
        "Retry",
        "cause",
        "The previous attempt failed; the agent retries automatically.",
    ),
    (
        "Resync",
        "cause",
        "The agent reconciles every primary periodically, even without a watch event.",
    ),
    (
        "Swapped",
        "cause",
        "The policy or one of its components changed.",
    ),
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
            word: reason.name,
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
        let known = |word: &str, whose: &str| {
            BESIDE
                .iter()
                .any(|(known, is, _)| (*known, *is) == (word, whose))
        };
        assert_eq!(
            causes
                .iter()
                .filter(|why| known(why.as_str(), "cause"))
                .count(),
            causes.len()
        );
        for state in [State::Applied, State::Held, State::Waiting, State::Failed] {
            assert!(known(state.as_str(), "state"), "{state:?}");
        }
        assert!(
            BESIDE.iter().filter(|(_, is, _)| *is == "cause").count() == causes.len(),
            "a cause that is none"
        );
    }
}
