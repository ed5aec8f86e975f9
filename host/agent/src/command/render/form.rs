//! Prints rendered objects as YAML, JSON or a table. Credentials are redacted unless they are to be revealed.

use super::Rendered;
use crate::args::{OutputFormat, Reveal};
use crate::output::Screen;
use serde::{Serialize, Serializer};
use transom_core::document::emit::to_yaml_in_order;
use transom_core::redact::Marks;
use transom_core::reference::ObjectRef;

/// Prints all objects. One that would be removed is only in the table.
///
/// # Errors
/// When an object cannot be serialized.
pub(super) fn print(
    rendered: &[Rendered],
    form: OutputFormat,
    reveal: Option<Reveal>,
    screen: &Screen,
) -> anyhow::Result<()> {
    if form == OutputFormat::Table {
        let heading = ["ACTION", "KIND", "OBJECT", "POLICY"];
        screen.table(heading, rendered.iter().map(row));
        return Ok(());
    }
    let list = List {
        api_version: "v1",
        items: Items {
            rendered,
            reveal,
            marks: super::marks_for(reveal),
        },
        kind: "List",
    };
    match form {
        OutputFormat::Json => screen.json(&list),
        OutputFormat::Yaml | OutputFormat::Table => {
            screen.text(&to_yaml_in_order(
                &serde_json::to_value(list)?,
                &["apiVersion", "kind"],
            ));
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct List<'a> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    items: Items<'a>,
    kind: &'static str,
}

/// The objects after the writes, redacted one at a time, since there may be many.
struct Items<'a> {
    rendered: &'a [Rendered],
    reveal: Option<Reveal>,
    marks: Marks,
}

impl Serialize for Items<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let after = self.rendered.iter().filter_map(|one| one.after.as_ref());
        serializer.collect_seq(after.map(|after| super::shown(after, self.reveal, &self.marks)))
    }
}

/// The row of a table for one object.
fn row(one: &Rendered) -> [String; 4] {
    let action = match (&one.before, &one.after) {
        (None, _) => "create",
        (Some(_), None) => "delete",
        (Some(_), Some(_)) => "change",
    };
    let ObjectRef {
        kind,
        namespace,
        name,
        ..
    } = &one.reference;
    let object = match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.clone(),
    };
    [
        action.to_owned(),
        kind.clone(),
        object,
        one.policies.join(", "),
    ]
}
