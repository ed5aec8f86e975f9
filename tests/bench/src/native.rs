//! What a controller without a sandbox does with a kubeconfig: parse it, set the server, write it, without checks.

use anyhow::{Context as _, Result};
use serde_yaml::Value;

/// The kubeconfig with another server in its first cluster.
pub(crate) fn rewrite(text: &str, server: &str) -> Result<String> {
    let mut document: Value = serde_yaml::from_str(text)?;
    let cluster = document
        .get_mut("clusters")
        .and_then(|clusters| clusters.get_mut(0));
    let cluster = cluster
        .and_then(|entry| entry.get_mut("cluster"))
        .context("failed to find the first cluster")?;
    let cluster = cluster
        .as_mapping_mut()
        .context("failed to read the first cluster")?;
    cluster.insert("server".into(), server.into());
    Ok(serde_yaml::to_string(&document)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_only_the_server() {
        let text = "clusters:\n- cluster:\n    server: https://a\n  name: cluster\nkind: Config\n";
        assert_eq!(
            rewrite(text, "https://b").unwrap(),
            text.replace("https://a", "https://b")
        );
    }
}
