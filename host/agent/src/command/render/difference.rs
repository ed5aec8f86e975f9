//! Prints rendered objects as a difference, line by line. Credentials are redacted unless they are to be revealed.

use super::Rendered;
use super::changes::RenderedChanges;
use crate::args::Reveal;
use crate::output::{Screen, printable};
use similar::TextDiff;
use transom_core::document::emit::to_yaml_in_order;
use transom_core::object::Object;
use transom_core::redact::Marks;

/// Prints what would change; returns whether there is something.
pub(super) fn print(changes: &RenderedChanges, reveal: Option<Reveal>, screen: &Screen) -> bool {
    let marks = super::marks_for(reveal);
    let shown = changes.show(|one| printable(text(one, reveal, &marks)));
    screen.scripts(shown.iter().map(String::as_str));
    !shown.is_empty()
}

/// What would change of one object, in the form of `diff -u`. The marks, all of one run, tell whether a hidden value
/// differs.
pub(crate) fn text(one: Rendered, reveal: Option<Reveal>, marks: &Marks) -> String {
    let text = |object: Option<Object>| {
        object.map_or_else(String::new, |object| {
            let body = super::shown(object, reveal, marks);
            to_yaml_in_order(&body, &["apiVersion", "kind", "metadata"])
        })
    };
    let name = one.reference.to_string();
    let (before, after) = (text(one.before), text(one.after));
    TextDiff::from_lines(&before, &after)
        .unified_diff()
        .context_radius(3)
        .header(&name, &name)
        .to_string()
}
