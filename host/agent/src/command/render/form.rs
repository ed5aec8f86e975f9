//! Prints rendered objects as YAML, JSON or a table. Credentials are redacted unless they are to be revealed.

use super::Rendered;
use super::changes::RenderedChanges;
use crate::args::{OutputFormat, Reveal};
use crate::output::{Screen, printable};
use serde_json::{Map, Value};
use transom_core::document::emit::to_yaml_in_order;
use transom_core::reference::ObjectRef;

/// Prints all objects. One that would be removed is only in the table.
///
/// # Errors
/// When an object cannot be serialized.
pub(super) fn print(
    changes: &RenderedChanges,
    form: OutputFormat,
    reveal: Option<Reveal>,
    screen: &Screen,
) -> anyhow::Result<()> {
    if form == OutputFormat::Table {
        let rows = changes.show(|one| row(&one));
        screen.table(["ACTION", "KIND", "OBJECT", "POLICY"], rows);
        return Ok(());
    }
    let marks = super::marks_for(reveal);
    let shown = changes.show(|one| {
        let after = one.after?;
        let list = list(vec![super::shown(after, reveal, &marks)], form);
        Some(list.map(printable))
    });
    let lists = shown.into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
    if lists.is_empty() {
        screen.script(list(Vec::new(), form)?.as_bytes());
    } else {
        screen.scripts(joined(&lists, &list(vec![Value::Null; 2], form)?));
    }
    Ok(())
}

/// The text of a List.
fn list(items: Vec<Value>, form: OutputFormat) -> serde_json::Result<String> {
    let fields = [
        ("apiVersion", "v1".into()),
        ("items", Value::Array(items)),
        ("kind", "List".into()),
    ];
    let fields = fields.map(|(key, value)| (key.to_owned(), value));
    let list = Value::Object(Map::from_iter(fields));
    Ok(match form {
        OutputFormat::Json => serde_json::to_string_pretty(&list)? + "\n",
        OutputFormat::Yaml | OutputFormat::Table => {
            to_yaml_in_order(&list, &["apiVersion", "kind"])
        }
    })
}

/// The texts of Lists with one item each, as the text of one List. `nulls`, the List of two nulls, shows what stands
/// around items and between them.
fn joined<'t>(lists: &'t [String], nulls: &'t str) -> impl Iterator<Item = &'t str> {
    let mut parts = nulls.split("null");
    let [head, between, tail] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    let items = lists.iter().enumerate().flat_map(move |(at, list)| {
        let before = if at == 0 { head } else { between };
        let item = list.get(head.len()..list.len() - tail.len());
        [before].into_iter().chain(item)
    });
    items.chain([tail])
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use transom_core::redact::visible::visible_lines;

    #[test]
    fn lists_of_one_item_join_to_the_list_of_all() {
        let items = [
            json!({"metadata": {"name": "a", "null": null}, "spec": {"list": [1, []]}}),
            json!({"kind": "List", "items": [{"text": "two\nlines, null"}, [[{"deep": {}}]]]}),
            json!({"text": "\u{e4} \u{1f980} \u{202e}\u{feff}", "\u{200b}": "null"}),
            json!({}),
            json!({"a": {}}),
        ];
        for form in [OutputFormat::Json, OutputFormat::Yaml] {
            let list = |items: &[Value]| list(items.to_vec(), form).unwrap();
            for count in 1..=items.len() {
                let all = items.get(..count).unwrap();
                let each: Vec<_> = all.chunks(1).map(|one| printable(list(one))).collect();
                let text: String = joined(&each, &list(&[Value::Null, Value::Null])).collect();
                assert_eq!(text, visible_lines(&list(all)));
            }
        }
    }

    #[test]
    fn a_list_without_items_is_still_a_list() {
        let list = |form| list(Vec::new(), form).unwrap();
        assert_eq!(
            list(OutputFormat::Json),
            "{\n  \"apiVersion\": \"v1\",\n  \"items\": [],\n  \"kind\": \"List\"\n}\n"
        );
        assert_eq!(
            list(OutputFormat::Yaml),
            "apiVersion: v1\nkind: List\nitems: []\n"
        );
    }
}
