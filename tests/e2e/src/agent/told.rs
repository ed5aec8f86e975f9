//! What the agent says about primaries in a log in JSON.

use serde_json::Value;

/// One line of a log in JSON about a primary.
#[derive(Clone, Debug)]
pub struct Told {
    /// The policy.
    pub policy: String,
    /// Kind, namespace and name: `HostedCluster clusters/demo`.
    pub primary: String,
    /// Why it was reconciled; empty for a line about a write.
    pub cause: String,
    /// `Applied`, `Held`, `Waiting`, `Failed`; nothing for a line about a write.
    pub state: Option<String>,
    /// The reason.
    pub reason: String,
}

/// What a line says, if it is about a primary.
pub(super) fn told(line: &str) -> Option<Told> {
    let line: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| line.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(Told {
        policy: text("policy").unwrap_or_default(),
        primary: text("primary")?,
        cause: text("cause").unwrap_or_default(),
        state: text("state"),
        reason: text("reason").unwrap_or_default(),
    })
}

/// Whether a line is of the summary of the first pass.
pub(super) fn is_summary(line: &str) -> Option<()> {
    let said: Value = serde_json::from_str(line).ok()?;
    let mut words = said["message"].as_str()?.split_whitespace();
    words.next()?.parse::<usize>().ok()?;
    ["Applied", "Held", "Waiting", "Failed"]
        .contains(&words.next()?)
        .then_some(())
}
