//! What one call of a guest may use: the budget of its policy, within the limits of the agent.

pub mod usage;

use crate::policy::manifest::PolicyError;
use transom_api::policy::BudgetSpec;
pub use transom_api::policy::Budgeted;

/// What one call may use. Each limit stops a guest that exceeds it with its own reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Milliseconds of processor time until the guest is stopped; waiting for a free instance or a processor does not
    /// count.
    pub time_ms: u64,
    /// Bytes of all linear memories together; growth beyond stops the guest instead of returning -1.
    pub memory_bytes: u64,
    /// Elements of all tables together.
    pub table_elements: u64,
    /// Bytes of the guest's arguments: their texts and list entries.
    pub argument_bytes: u64,
    /// Bytes of the guest's answer, counted like the arguments.
    pub answer_bytes: u64,
    /// Log lines, cut or not.
    pub log_lines: u64,
    /// Bytes of all log lines before they are cut.
    pub log_bytes: u64,
    /// Calls of functions of the host.
    pub host_calls: u64,
}

/// The default memory of a call, in bytes. Of the agent's budget of 256 MiB, compiling has 128 and documents with
/// credentials have 32. Four calls have 24 each; four is the fewest with which guests of two policies work while
/// another is loaded and one hangs. Of the 24, 16 are memory, the rest is for arguments and answer
/// ([`CallLimits::bytes`]). Guests written in Rust take one or two.
pub const MEMORY_BYTES: u64 = 16 << 20;

impl Default for CallLimits {
    /// Ample for a guest that reads a few objects, and small enough that a hostile one does not disturb others.
    fn default() -> Self {
        Self {
            time_ms: 250,
            memory_bytes: MEMORY_BYTES,
            table_elements: 10_000,
            argument_bytes: 4 << 20,
            answer_bytes: 1 << 20,
            log_lines: 100,
            log_bytes: 64 << 10,
            host_calls: 1000,
        }
    }
}

impl CallLimits {
    /// The most that an agent can be told to allow, so that one call can neither hold a thread for long nor exhaust a
    /// machine.
    pub const LARGEST: Self = Self {
        time_ms: 60_000,
        memory_bytes: 64 << 20,
        table_elements: 10_000,
        argument_bytes: 64 << 20,
        answer_bytes: 64 << 20,
        log_lines: 10_000,
        log_bytes: 1 << 20,
        host_calls: 1_000_000,
    };

    /// The limits of the calls of a policy: what it asks for, and the defaults for what it does not name, all within
    /// the limits of the agent.
    ///
    /// # Errors
    /// The first field that asks for more than the agent allows.
    pub fn of_policy(spec: &BudgetSpec, agent: &Self) -> Result<Self, PolicyError> {
        let mut limits = Self::default().and(agent);
        for what in Budgeted::ALL {
            let Some(asked) = spec.of(what).map(u64::from) else {
                continue;
            };
            let (name, most) = (what.as_str(), agent.of(what));
            if asked > most {
                let why = format!(
                    "{asked} is more than the agent allows, {most} (its flag --call-limit)"
                );
                return Err(PolicyError::new(format!("spec.budget.{name}"), why));
            }
            *limits.at(what) = asked;
        }
        Ok(limits)
    }

    /// The limit of something.
    pub fn of(&self, what: Budgeted) -> u64 {
        *self.clone().at(what)
    }

    /// The same with another limit of something.
    #[must_use]
    pub fn with(mut self, what: Budgeted, amount: u64) -> Self {
        *self.at(what) = amount;
        self
    }

    /// The smaller limit of both for everything.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let smaller = |both: Self, what| both.with(what, self.of(what).min(other.of(what)));
        Budgeted::ALL.into_iter().fold(self.clone(), smaller)
    }

    /// The most bytes that a call takes: its memories, its arguments, its answer (once as received and once
    /// converted), and its log.
    pub fn bytes(&self) -> u64 {
        let answer = self.answer_bytes.saturating_mul(2);
        [self.argument_bytes, answer, self.log_bytes]
            .into_iter()
            .fold(self.memory_bytes, u64::saturating_add)
    }

    fn at(&mut self, what: Budgeted) -> &mut u64 {
        match what {
            Budgeted::TimeMilliseconds => &mut self.time_ms,
            Budgeted::MemoryBytes => &mut self.memory_bytes,
            Budgeted::TableElements => &mut self.table_elements,
            Budgeted::ArgumentBytes => &mut self.argument_bytes,
            Budgeted::AnswerBytes => &mut self.answer_bytes,
            Budgeted::LogLines => &mut self.log_lines,
            Budgeted::LogBytes => &mut self.log_bytes,
            Budgeted::HostCalls => &mut self.host_calls,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(what: Budgeted, amount: u64) -> BudgetSpec {
        serde_json::from_value(json!({what.as_str(): amount})).unwrap()
    }

    #[test]
    fn a_policy_gets_what_it_asks_for_up_to_what_the_agent_allows() {
        for what in Budgeted::ALL {
            let agent = CallLimits::default().with(what, 2_000);
            for amount in [1, 2_000] {
                let limits = CallLimits::of_policy(&asked(what, amount), &agent).unwrap();
                let expected = CallLimits::default().and(&agent).with(what, amount);
                assert_eq!(limits, expected);
            }
            let refused = CallLimits::of_policy(&asked(what, 2_001), &agent).unwrap_err();
            let (refused, name) = (refused.to_string(), what.as_str());
            assert!(
                refused.contains(&format!("spec.budget.{name}")) && refused.contains("2000"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_policy_that_asks_for_nothing_has_the_default_even_when_the_agent_allows_more() {
        let nothing = BudgetSpec::default();
        let of = |agent: &CallLimits| CallLimits::of_policy(&nothing, agent).unwrap();
        assert_eq!(of(&CallLimits::LARGEST), CallLimits::default());
        let strict = CallLimits::default().with(Budgeted::TimeMilliseconds, 9);
        assert_eq!(of(&strict), strict);
    }

    #[test]
    fn the_defaults_are_within_what_an_agent_can_be_told_to_allow() {
        assert_eq!(
            CallLimits::default().and(&CallLimits::LARGEST),
            CallLimits::default()
        );
    }
}
