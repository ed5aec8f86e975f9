//! Rendered objects as YAML, JSON or a table. Never shows a credential unless it is told to.

use super::Rendered;
use crate::args::{OutputFormat, Reveal};
use crate::output::{Screen, columns};
use serde_json::{Value, json};
use transom_core::document::emit::to_yaml_in_order;

/// Prints all of them; what would be removed stands in the table only.
///
/// # Errors
/// When there is no randomness for the marks.
pub(super) fn print(
    rendered: &[Rendered],
    form: OutputFormat,
    reveal: Option<Reveal>,
    screen: &Screen,
) -> anyhow::Result<()> {
    if form == OutputFormat::Table {
        table(rendered, screen);
        return Ok(());
    }
    let marks = super::marks_for(reveal);
    let shown = |one: &Rendered| one.after.as_ref().map(|after| super::shown(after, reveal, &marks));
    let items: Vec<Value> = rendered.iter().filter_map(shown).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    match form {
        OutputFormat::Json => screen.json(&list),
        OutputFormat::Yaml | OutputFormat::Table => screen.text(&to_yaml_in_order(&list, &["apiVersion", "kind"])),
    }
    Ok(())
}

fn table(rendered: &[Rendered], screen: &Screen) {
    let mut rows = vec![["ACTION", "KIND", "OBJECT", "POLICY"].map(str::to_owned).to_vec()];
    for one in rendered {
        let action = match (&one.before, &one.after) {
            (None, _) => "create",
            (Some(_), None) => "delete",
            (Some(_), Some(_)) => "change",
        };
        let object = match &one.reference.namespace {
            Some(namespace) => format!("{namespace}/{}", one.reference.name),
            None => one.reference.name.clone(),
        };
        rows.push(vec![action.to_owned(), one.reference.kind.clone(), object, one.policies.join(", ")]);
    }
    columns(&rows).iter().for_each(|line| screen.line(format_args!("{line}")));
}
