//! Applies every rule to the real workspace. Each failure says in one sentence what to do.

use std::io;
use std::process::Command;
use transom_tidy::{
    dependencies, first_line, frozen, manifests, names, packages, pages, places, size, top_level,
    tree,
};

/// Fails with the findings.
fn hold(findings: &[String]) {
    assert!(findings.is_empty(), "\n  {}\n", findings.join("\n  "));
}

fn sources() -> io::Result<Vec<tree::Source>> {
    tree::read(&tree::root())
}

#[test]
fn dependencies_follow_the_arrows() -> io::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(tree::root())
        .output()?;
    let packages = packages::read(&serde_json::from_slice(&output.stdout)?);
    assert!(
        packages.iter().any(|package| package.folder == "host/core"),
        "cargo metadata shows no host/core"
    );
    hold(&dependencies::check(&packages));
    Ok(())
}

#[test]
fn manifests_inherit_lints_and_versions() -> io::Result<()> {
    hold(&manifests::check(&sources()?));
    Ok(())
}

#[test]
fn files_keep_their_budgets() -> io::Result<()> {
    hold(&size::check(&sources()?));
    Ok(())
}

#[test]
fn files_have_headers() -> io::Result<()> {
    hold(&first_line::check(&sources()?));
    Ok(())
}

#[test]
fn modules_and_types_have_clear_names() -> io::Result<()> {
    hold(&names::check(&sources()?));
    Ok(())
}

#[test]
fn forbidden_words_stay_in_their_places() -> io::Result<()> {
    let sources = sources()?;
    hold(&places::check(&sources));
    hold(&places::stale(&sources));
    Ok(())
}

#[test]
fn released_contracts_are_frozen() -> io::Result<()> {
    hold(&frozen::check(&sources()?));
    Ok(())
}

#[test]
fn the_top_level_has_only_known_names() -> io::Result<()> {
    hold(&top_level::check(&tree::top(&tree::root())?));
    Ok(())
}

#[test]
fn pages_name_only_what_exists() -> io::Result<()> {
    hold(&pages::check(&sources()?));
    Ok(())
}
