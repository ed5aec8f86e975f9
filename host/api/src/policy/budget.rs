//! What one call of a policy's guests may use: `spec.budget`. The agent's flag `--call-limit` bounds it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one call of a guest may use. A call that needs more is stopped; the reason names the limit. An omitted field
/// has the agent's default. The agent refuses more than its flag `--call-limit` allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BudgetSpec {
    /// Milliseconds of processor time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_milliseconds: Option<u32>,
    /// Bytes of all its memories together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u32>,
    /// Elements of all its tables together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_elements: Option<u32>,
    /// Bytes of its arguments: the primary, and what was read for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument_bytes: Option<u32>,
    /// Bytes of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_bytes: Option<u32>,
    /// Log lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_lines: Option<u32>,
    /// Bytes of all its log lines together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u32>,
    /// Calls of functions of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_calls: Option<u32>,
}

crate::words! {
    // The word of each is the name of its field in `spec.budget`.
    /// What a budget counts.
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
    )]
    #[serde(rename_all = "camelCase")]
    pub enum Budgeted {
        /// Milliseconds of processor time.
        TimeMilliseconds = "timeMilliseconds",
        /// Bytes of all memories together.
        MemoryBytes = "memoryBytes",
        /// Elements of all tables together.
        TableElements = "tableElements",
        /// Bytes of the arguments.
        ArgumentBytes = "argumentBytes",
        /// Bytes of the answer.
        AnswerBytes = "answerBytes",
        /// Log lines.
        LogLines = "logLines",
        /// Bytes of all log lines together.
        LogBytes = "logBytes",
        /// Calls of functions of the host.
        HostCalls = "hostCalls",
    }
}

impl BudgetSpec {
    /// What the policy asks for, if it does.
    pub fn of(&self, what: Budgeted) -> Option<u32> {
        match what {
            Budgeted::TimeMilliseconds => self.time_milliseconds,
            Budgeted::MemoryBytes => self.memory_bytes,
            Budgeted::TableElements => self.table_elements,
            Budgeted::ArgumentBytes => self.argument_bytes,
            Budgeted::AnswerBytes => self.answer_bytes,
            Budgeted::LogLines => self.log_lines,
            Budgeted::LogBytes => self.log_bytes,
            Budgeted::HostCalls => self.host_calls,
        }
    }

    /// Whether the policy asks for nothing: then it has the defaults of the agent.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_field_is_read_under_its_own_name() {
        for what in Budgeted::ALL {
            let spec = json!({what.as_str(): 7});
            let spec: BudgetSpec = serde_json::from_value(spec).unwrap();
            for other in Budgeted::ALL {
                let expected = (other == what).then_some(7);
                assert_eq!(spec.of(other), expected, "{}", other.as_str());
            }
            assert_eq!(json!(what), what.as_str());
            assert!(!spec.is_empty());
        }
        assert!(BudgetSpec::default().is_empty());
    }
}
