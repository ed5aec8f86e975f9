//! `transom crd`: prints the CustomResourceDefinition of the kind `FleetPolicy` as YAML.

use crate::output::{Ending, Screen};
use transom_core::document::emit::to_yaml_in_order;

/// The first line of the definition.
const FIRST: &str = "# The kind FleetPolicy. Made by `transom crd`; never edited by hand.";

/// Prints the definition.
pub(crate) fn crd(screen: &Screen) -> Ending {
    screen.text(&format!("{}\n", text().trim_end()));
    Ending::Right
}

/// The definition as it lies in `host/deploy/crd.yaml`.
fn text() -> String {
    let definition = to_yaml_in_order(&transom_api::crd::policy(), &["apiVersion", "kind", "metadata", "spec"]);
    format!("{FIRST}\n{definition}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_copy_is_the_generated_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crd.yaml");
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(committed == text(), "run `cargo run -p transom -- crd > host/deploy/crd.yaml`");
    }
}
