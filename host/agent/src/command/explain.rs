//! `transom explain`: what a reason means and what to do. Never knows a reason that is not declared somewhere.

use crate::args::ExplainArgs;
use crate::command::builtin;
use crate::output::{Ending, Screen};
use anyhow::bail;
use transom_api::Word;

/// Prints one reason, or all of them.
///
/// # Errors
/// When the word is nobody's.
pub(crate) fn explain(args: &ExplainArgs, screen: &Screen) -> anyhow::Result<Ending> {
    let known = entries()?;
    let Some(wanted) = &args.reason else {
        for entry in &known {
            screen.line(format_args!("{:<26} {:<12} {}", entry.word, entry.whose, entry.meaning));
        }
        return Ok(Ending::Right);
    };
    let found: Vec<_> = known.iter().filter(|entry| entry.word.eq_ignore_ascii_case(wanted)).collect();
    if found.is_empty() {
        bail!(
            "failed to explain `{wanted}`: no reason of the agent or its builtin guests; `transom explain` lists them all"
        );
    }
    for entry in found {
        screen.line(format_args!(
            "{} ({})\n  What it means: {}\n  What to do:    {}",
            entry.word, entry.whose, entry.meaning, entry.remedy
        ));
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

/// The agent's own words, then those that the builtin guests declare.
fn entries() -> anyhow::Result<Vec<Entry>> {
    let own = Word::ALL.iter().map(|word| Entry {
        word: word.as_str().to_owned(),
        whose: "agent".to_owned(),
        meaning: word.meaning().to_owned(),
        remedy: word.remedy().to_owned(),
    });
    let mut entries: Vec<_> = own.collect();
    for description in builtin::descriptions()? {
        entries.extend(description.reasons.into_iter().map(|reason| Entry {
            word: reason.word,
            whose: description.name.clone(),
            meaning: reason.meaning,
            remedy: reason.remedy,
        }));
    }
    Ok(entries)
}
