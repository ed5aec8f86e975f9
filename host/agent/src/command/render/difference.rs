//! Prints rendered objects as a difference, line by line. Credentials are redacted unless they are to be revealed.

use super::Rendered;
use crate::args::Reveal;
use crate::output::Screen;
use similar::TextDiff;
use transom_core::document::emit::to_yaml_in_order;
use transom_core::object::Object;

/// Prints what would change, in the form of `diff -u`. The marks, all of one run, tell whether a hidden value differs.
pub(crate) fn print(rendered: &[Rendered], reveal: Option<Reveal>, screen: &Screen) {
    let marks = super::marks_for(reveal);
    let text = |object: &Option<Object>| {
        object.as_ref().map_or_else(String::new, |object| {
            let body = super::shown(object, reveal, &marks);
            to_yaml_in_order(&body, &["apiVersion", "kind", "metadata"])
        })
    };
    for one in rendered {
        let (before, after) = (text(&one.before), text(&one.after));
        let name = one.reference.to_string();
        let difference = TextDiff::from_lines(&before, &after);
        screen.text(
            &difference
                .unified_diff()
                .context_radius(3)
                .header(&name, &name)
                .to_string(),
        );
    }
}
