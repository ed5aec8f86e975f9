//! Prints rendered objects as a difference, line by line. Credentials are redacted unless they are to be revealed.

use super::Rendered;
use super::changes::RenderedChanges;
use crate::args::Reveal;
use crate::output::{Screen, printable};
use similar::TextDiff;
use std::time::Duration;
use transom_core::document::emit::to_yaml_in_order;
use transom_core::object::Object;
use transom_core::redact::Marks;

/// How long the smallest difference of one object is searched for: that takes the square of its lines.
const MOST: Duration = Duration::from_secs(1);

/// Prints what would change.
pub(super) fn print(changes: &RenderedChanges, reveal: Option<Reveal>, screen: &Screen) {
    let marks = super::marks_for(reveal);
    let shown = changes.show(|one| printable(text(one, reveal, &marks)));
    screen.scripts(shown.iter().map(String::as_str));
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
    unified(&name, [&before, &after], MOST)
}

/// The difference of two texts under one name. Beyond the time it is larger than need be, and still right.
fn unified(name: &str, [before, after]: [&str; 2], most: Duration) -> String {
    let difference = TextDiff::configure()
        .timeout(most)
        .diff_lines(before, after);
    let mut unified = difference.unified_diff();
    unified.context_radius(3).header(name, name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_time_a_difference_is_coarse_and_whole() {
        let texts = ["a\nb\nc\nd\n", "x\nb\ny\nd\n"];
        let fine = "--- o\n+++ o\n@@ -1,4 +1,4 @@\n-a\n+x\n b\n-c\n+y\n d\n";
        assert_eq!(unified("o", texts, MOST), fine);
        let coarse = "--- o\n+++ o\n@@ -1,4 +1,4 @@\n-a\n-b\n-c\n+x\n+b\n+y\n d\n";
        assert_eq!(unified("o", texts, Duration::ZERO), coarse);
    }
}
