//! What happens to the applied state of a primary while its guest fails: `spec.onFailure`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens to the applied state of a primary whose guest fails by its own fault: a limit stops the guest, it
/// traps, or it breaks the contract or the grant. A missing input or an API server that is down is not its fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OnFailureSpec {
    /// What happens while it fails, and after that.
    #[serde(default)]
    pub mode: FailureMode,
    /// Seconds from the first failure until the applied state is stale (`HoldLast`) or withdrawn (`Withdraw`); 0 for at
    /// once. `Fail` ignores it.
    #[serde(default = "a_day")]
    pub stale_after_seconds: u32,
}

/// What happens to the applied state while a guest fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailureMode {
    /// It stays. After `staleAfterSeconds` the reason of the primary is `Stale`.
    #[default]
    HoldLast,
    /// It stays until `staleAfterSeconds` are over. Then it is taken back, within the grant and `spec.limits`.
    Withdraw,
    /// It stays, and the policy is `Stalled` at once.
    Fail,
}

impl OnFailureSpec {
    /// The longest time until something is stale, in seconds: a year.
    pub const MAX_STALE_AFTER_SECONDS: u32 = 31_536_000;

    /// Withdraws only if both withdraw, and then at the later time; otherwise the first of them that does not.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let held = [*self, *other]
            .into_iter()
            .find(|one| one.mode != FailureMode::Withdraw);
        held.unwrap_or(Self {
            stale_after_seconds: self.stale_after_seconds.max(other.stale_after_seconds),
            ..*self
        })
    }
}

impl Default for OnFailureSpec {
    fn default() -> Self {
        Self {
            mode: FailureMode::default(),
            stale_after_seconds: a_day(),
        }
    }
}

fn a_day() -> u32 {
    86_400
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_together_withdraw_only_what_both_withdraw() {
        let spec = |mode, stale_after_seconds| OnFailureSpec {
            mode,
            stale_after_seconds,
        };
        let (hold, early) = (OnFailureSpec::default(), spec(FailureMode::Withdraw, 0));
        let late = spec(FailureMode::Withdraw, 60);
        assert_eq!((early.and(&hold), hold.and(&early)), (hold, hold));
        assert_eq!((early.and(&late), late.and(&early)), (late, late));
    }
}
