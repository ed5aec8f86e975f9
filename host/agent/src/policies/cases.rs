//! Asks a guest the questions of the cases that travel with its component, before a revision with it may become active.

use crate::policies::load::known_reason;
use crate::policies::swap::GRACE;
use anyhow::{Context as _, bail};
use serde_json::Value;
use std::time::{Duration, Instant};
use transom_api::KnownReason;
use transom_core::cases::{Difference, GuestCase, difference};
use transom_core::redact::visible::visible;
use transom_core::rollout::history::RevisionRecord;
use transom_engine::{CallFailure, Engine, Guest, LogLine, travelling_cases};

/// The longest that all cases of a component may take.
const MOST: Duration = Duration::from_secs(10);
/// How often a question without an answer is asked: the machine may be too busy for it.
const TRIES: usize = 3;
/// Maximum number of characters of a message about a case.
const MAX_MESSAGE: usize = 300;

/// Which components need not pass their cases, because they did before: the answers depend on their bytes alone.
#[derive(Clone, Copy)]
pub(crate) enum PassedCases<'a> {
    /// None.
    Nothing,
    /// Those of the revision that was active when the agent ended.
    Of(&'a RevisionRecord),
    /// All: an earlier run loaded them.
    All,
}

impl PassedCases<'_> {
    /// Whether the component with this digest passed.
    pub(super) fn has(self, digest: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Of(record) => {
                record.decide == digest || record.trigger.as_deref() == Some(digest)
            }
            Self::All => true,
        }
    }
}

/// Why a component does not pass its cases.
pub(crate) enum CaseFailure {
    /// A case fails, or the cases cannot be read.
    Refused(KnownReason, String),
    /// They take longer than other work should wait.
    Slow,
}

/// Runs the cases that travel with a component; one without cases passes.
///
/// # Errors
/// The first case that fails, by name, and the place in the answer that differs, without the values there.
pub(crate) fn check(engine: &Engine, guest: &Guest, component: &[u8]) -> Result<(), CaseFailure> {
    let failed = |why: String| CaseFailure::Refused(KnownReason::CasesFailed, why);
    let cases = travelling_cases(component)
        .map_err(|error| CaseFailure::Refused(KnownReason::CasesInvalid, error.to_string()))?;
    let most = if engine.is_hasty() { GRACE } else { MOST };
    let begun = Instant::now();
    for GuestCase {
        name,
        given,
        expected,
    } in &cases
    {
        if begun.elapsed() > most {
            return Err(match engine.is_hasty() {
                true => CaseFailure::Slow,
                false => failed(format!(
                    "its {} cases take longer than {} s",
                    cases.len(),
                    MOST.as_secs()
                )),
            });
        }
        let mut answer = ask(guest, given, &mut Vec::new());
        for _ in 1..TRIES {
            answer = answer.or_else(|_| ask(guest, given, &mut Vec::new()));
        }
        let (reason, why) = match answer {
            Ok(answer) => {
                let why = difference(expected, &answer).map(|differs| place(&differs));
                (KnownReason::CasesFailed, why)
            }
            Err(error) => (reason(&error), Some(format!("{error:#}"))),
        };
        if let Some(why) = why {
            let why: String = visible(&why).chars().take(MAX_MESSAGE).collect();
            return Err(CaseFailure::Refused(
                reason,
                format!("case `{name}`: {why}"),
            ));
        }
    }
    Ok(())
}

/// Why a case has no answer: a machine that has too much to do says nothing about the component.
fn reason(error: &anyhow::Error) -> KnownReason {
    let failure = error.downcast_ref::<CallFailure>();
    match failure.map(|failure| known_reason(failure.reason())) {
        Some(KnownReason::EngineBusy) => KnownReason::EngineBusy,
        _ => KnownReason::CasesFailed,
    }
}

/// Where an answer differs, without what it says there.
fn place(Difference { place, .. }: &Difference) -> String {
    match place.as_str() {
        "" => "the answer is not the expected one".to_owned(),
        place => format!("`{place}` of the answer is not the expected one"),
    }
}

/// The answer of a guest to the question of a case, and what it logged. The question is asked twice.
///
/// # Errors
/// When the case gives no question, when there is no answer, and when there are two.
pub(crate) fn ask(guest: &Guest, given: &Value, log: &mut Vec<LogLine>) -> anyhow::Result<Value> {
    let once = |log: &mut Vec<LogLine>| {
        let call = guest.ask(given.clone()).map_err(anyhow::Error::msg)?;
        log.extend(call.receipt.log);
        call.result.context("failed to call the component")
    };
    let answer = once(log)?;
    if once(&mut Vec::new())? != answer {
        bail!("the guest gave two different answers to the same call");
    }
    Ok(answer)
}
