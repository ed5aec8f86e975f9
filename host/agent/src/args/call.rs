//! Flags of the calls of guests: what one may use at most.

use clap::Args;
use transom_core::policy::budget::{Budgeted, CallLimits};

/// What one call of a guest may use at most, whatever the budgets of policies say.
#[derive(Clone, Debug, Args)]
pub(crate) struct CallArgs {
    /// Maximum that `spec.budget` of a policy may allow one call of a guest, by a name of `spec.budget`, such as
    /// `timeMilliseconds=1000`. Default: what a policy without a budget gets. May be repeated.
    #[arg(long, value_name = "NAME=NUMBER", value_parser = parse_call_limit)]
    call_limit: Vec<(Budgeted, u64)>,
}

impl CallArgs {
    /// The limits of every call.
    pub(crate) fn limits(&self) -> CallLimits {
        let given = self.call_limit.iter();
        given.fold(CallLimits::default(), |limits, (what, most)| {
            limits.with(*what, *most)
        })
    }
}

/// `NAME=NUMBER`, within what an agent can be told to allow.
fn parse_call_limit(text: &str) -> Result<(Budgeted, u64), String> {
    let names = || {
        let names = Budgeted::ALL.map(Budgeted::as_str);
        format!("expected NAME=NUMBER, NAME one of {}", names.join(", "))
    };
    let (name, number) = text.split_once('=').ok_or_else(names)?;
    let mut all = Budgeted::ALL.into_iter();
    let what = all.find(|what| what.as_str() == name).ok_or_else(names)?;
    let most = CallLimits::LARGEST.of(what);
    let number = number.parse().ok();
    let number = number.filter(|number| (1..=most).contains(number));
    number
        .map(|number| (what, number))
        .ok_or_else(|| format!("expected a number from 1 to {most} for {name}"))
}
