//! A plan as text for people, and as YAML. The sentences are those of the page, too.

use super::Told;
use crate::output::Screen;
use serde_json::Value;
use transom_core::document::emit::to_yaml_in_order;
use transom_core::plan::effect::Effect;
use transom_core::plan::fleet::{
    Beside, EffectCount, EffectGroup, FleetCounts, FleetPlan, More, PlannedChange, Refused,
};

/// Maximum number of groups and effects in a table; more are in the other forms.
const ROWS: usize = 20;

/// Prints the plan for people.
pub(super) fn table(told: &Told, screen: &Screen) {
    let plan = &told.plan;
    let line = |label: &str, text: &str| screen.line(format_args!("{label:<11} {text}"));
    line("policy", &plan.policy);
    for (label, component) in told.components() {
        line(label, &component);
    }
    line("plan", &plan.digest);
    line("primaries", &primaries(&plan.primaries));
    if let Some(beside) = &told.active {
        line("active", &active(beside, told.not_active.as_deref()));
    }
    if let Some(withheld) = &told.withheld {
        line("limits", withheld);
    }
    if !plan.would_change() {
        screen.line(format_args!(""));
        screen.line(format_args!("Nothing would change."));
    }
    effects(plan, screen);
    groups(plan, screen);
    refusals(told, screen);
}

fn effects(plan: &FleetPlan, screen: &Screen) {
    if !plan.effects.is_empty() {
        screen.line(format_args!(""));
        screen.table(
            ["PRIMARIES", "EFFECT"],
            plan.effects.iter().take(ROWS).flat_map(effect),
        );
        let more = plan.effects.len().saturating_sub(ROWS) + plan.more_effects;
        more_of(more, "kinds of effects", screen);
    }
}

fn groups(plan: &FleetPlan, screen: &Screen) {
    for group in plan.groups.iter().take(ROWS) {
        screen.line(format_args!(""));
        screen.line(format_args!(
            "{}: {}",
            counted(group.primaries),
            changes(group).join("; ")
        ));
        let names = group.first.iter().map(ToString::to_string);
        list(names, group.primaries, screen);
    }
    let more = plan.groups.len().saturating_sub(ROWS) + plan.more_groups.entries;
    more_of(more, "groups", screen);
}

fn refusals(told: &Told, screen: &Screen) {
    let plan = &told.plan;
    for refused in &plan.refusals {
        screen.line(format_args!(""));
        screen.line(format_args!(
            "{}: {}",
            counted(refused.primaries),
            reason(refused)
        ));
        if let Some(explained) = told.reasons.get(&refused.reason) {
            for (label, text) in [("means", &explained.meaning), ("to do", &explained.remedy)] {
                if !text.is_empty() {
                    screen.line(format_args!("  {label}  {text}"));
                }
            }
        }
        let first = refused.first.iter();
        let names = first.map(|one| format!("{}: {}", one.primary, one.message));
        list(names, refused.primaries, screen);
    }
    more_of(plan.more_refusals.entries, "reasons", screen);
}

/// Prints names, and how many more there are.
fn list(names: impl ExactSizeIterator<Item = String>, all: usize, screen: &Screen) {
    let more = all.saturating_sub(names.len());
    for name in names {
        screen.line(format_args!("  {name}"));
    }
    if more > 0 {
        screen.line(format_args!("  and {more} more"));
    }
}

fn more_of(more: usize, what: &str, screen: &Screen) {
    if more > 0 {
        screen.line(format_args!("and {more} more {what}"));
    }
}

/// One kind of effect and its fields, as rows.
fn effect(effect: &EffectCount) -> Vec<[String; 2]> {
    let row = |count: usize, text: String| [format!("{count:>9}"), text];
    let mut rows = vec![row(effect.primaries, sentence(&effect.effect))];
    let fields = effect.fields.iter();
    rows.extend(fields.map(|(field, count)| row(*count, format!("  {field}"))));
    if effect.more_fields > 0 {
        rows.push([
            String::new(),
            format!("  and {} more fields", effect.more_fields),
        ]);
    }
    rows
}

/// What happens to what, such as ``ManagedCluster spec.taints `key` added``.
pub(super) fn sentence(effect: &Effect) -> String {
    let element = match effect.element.as_str() {
        "" => String::new(),
        element => format!("`{element}`"),
    };
    let quoted = Effect {
        element,
        ..effect.clone()
    };
    quoted.to_string()
}

/// The effects of a group, one by one.
pub(super) fn changes(group: &EffectGroup) -> Vec<String> {
    let change = |change: &PlannedChange| {
        let said = sentence(&change.effect);
        match change.fields.as_slice() {
            [] => said,
            fields => format!("{said} ({})", fields.join(", ")),
        }
    };
    let mut all: Vec<String> = group.changes.iter().map(change).collect();
    if group.more_changes > 0 {
        all.push(format!("and {} more", group.more_changes));
    }
    all
}

/// State and reason.
pub(super) fn reason(refused: &Refused) -> String {
    format!("{} {}", refused.state.as_str(), refused.reason)
}

/// A number of primaries.
pub(super) fn counted(primaries: usize) -> String {
    match primaries {
        1 => "1 primary".to_owned(),
        many => format!("{many} primaries"),
    }
}

/// The primaries by what would become of them.
fn primaries(counts: &FleetCounts) -> String {
    let parts = [
        (counts.would_change, "would change"),
        (counts.unchanged, "unchanged"),
        (counts.held, "held"),
        (counts.waiting, "waiting"),
        (counts.failed, "failed"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    match parts.is_empty() {
        true => counts.total.to_string(),
        false => format!("{}: {}", counts.total, parts.join(", ")),
    }
}

/// What of the plan is due to the change.
pub(super) fn active(beside: &Beside, instead: Option<&str>) -> String {
    let what = instead.map_or_else(
        || "the active revision".to_owned(),
        |instead| format!("the policy as it is written, which is not active ({instead}),"),
    );
    let pending = match beside.pending {
        0 => format!("{what} would write nothing"),
        many => {
            let same = match beside.same {
                0 => "never the same".to_owned(),
                same if same == many => "the same each time".to_owned(),
                same => format!("the same for {same} of them"),
            };
            let many = counted(many);
            format!("{what} itself would write for {many}, {same}")
        }
    };
    let refused = match beside.newly_refused {
        0 => String::new(),
        many => format!("; {} would no longer be applied", counted(many)),
    };
    format!(
        "{pending}; the change makes a difference for {}{refused}",
        counted(beside.different)
    )
}

/// How many groups are not listed, with their primaries.
pub(super) fn not_listed(more: &More, what: &str) -> Option<String> {
    let More { entries, primaries } = more;
    (*entries > 0).then(|| format!("and {entries} more {what} with {}", counted(*primaries)))
}

impl Told {
    /// The guests with their components, for people.
    pub(super) fn components(&self) -> Vec<(&'static str, String)> {
        let trigger = self.guests.trigger.iter().map(|one| ("trigger", one));
        let all = trigger.chain([("decide", &self.guests.decide)]);
        all.map(|(label, one)| (label, format!("{} {}", one.component, one.digest)))
            .collect()
    }
}

/// The plan as YAML, the counts first.
pub(super) fn yaml(data: &Value) -> String {
    let order = [
        "policy",
        "digest",
        "guests",
        "primaries",
        "active",
        "withheld",
        "effects",
        "moreEffects",
        "groups",
        "moreGroups",
        "refusals",
    ];
    to_yaml_in_order(data, &order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_core::plan::effect::EffectVerb;

    #[test]
    fn an_effect_is_one_sentence() {
        let of = |path: &str, element: &str, verb| Effect {
            kind: "ManagedCluster".to_owned(),
            path: path.to_owned(),
            element: element.to_owned(),
            verb,
        };
        for (effect, expected) in [
            (of("", "", EffectVerb::Created), "ManagedCluster created"),
            (
                of("spec.taints", "a/b", EffectVerb::Added),
                "ManagedCluster spec.taints `a/b` added",
            ),
            (
                of("spec.x", "", EffectVerb::Set),
                "ManagedCluster spec.x set",
            ),
        ] {
            assert_eq!(sentence(&effect), expected);
        }
    }

    #[test]
    fn only_what_there_is_is_counted() {
        let counts = FleetCounts {
            total: 3,
            would_change: 1,
            failed: 2,
            ..FleetCounts::default()
        };
        assert_eq!(primaries(&counts), "3: 1 would change, 2 failed");
        assert_eq!(primaries(&FleetCounts::default()), "0");
        let beside = Beside {
            pending: 1,
            same: 0,
            different: 2,
            newly_refused: 1,
        };
        let other = active(&beside, Some("the revision a is active"));
        let said = "the policy as it is written, which is not active (the revision a is active), itself would write for 1";
        assert!(other.starts_with(said), "{other}");
        assert_eq!(
            active(&beside, None),
            "the active revision itself would write for 1 primary, never the same; the change makes a difference for 2 primaries; 1 primary would no longer be applied"
        );
    }
}
