//! Applies every rule to the real workspace. Each failure says in one sentence what to do.

use std::io;
use std::process::Command;
use transom_tidy::finding::{Finding, Rule};
use transom_tidy::{
    dependencies, exceptions, first_line, forbidden, frozen, manifests, names, packages, pages,
    public_items, size, top_level, tree,
};

/// Fails with the findings that remain after the exceptions.
fn hold(rules: &[Rule], findings: Vec<Finding>) {
    let left = exceptions::apply(rules, findings, exceptions::EXCEPTIONS);
    let lines: Vec<String> = left.iter().map(|finding| format!("  {finding}")).collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
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
    hold(&[Rule::Dependency], dependencies::check(&packages));
    Ok(())
}

#[test]
fn manifests_inherit_lints_and_versions() -> io::Result<()> {
    hold(&[Rule::Manifest], manifests::check(&sources()?));
    Ok(())
}

#[test]
fn files_keep_their_budgets() -> io::Result<()> {
    hold(&[Rule::Size], size::check(&sources()?));
    Ok(())
}

#[test]
fn files_have_headers() -> io::Result<()> {
    hold(&[Rule::FirstLine], first_line::check(&sources()?));
    Ok(())
}

#[test]
fn modules_and_types_have_clear_names() -> io::Result<()> {
    hold(&[Rule::Name], names::check(&sources()?));
    Ok(())
}

#[test]
fn forbidden_words_stay_in_their_places() -> io::Result<()> {
    hold(
        &[
            Rule::Unsafe,
            Rule::Allow,
            Rule::Sleep,
            Rule::Pure,
            Rule::Reason,
        ],
        forbidden::check(&sources()?),
    );
    Ok(())
}

#[test]
fn released_contracts_are_frozen() -> io::Result<()> {
    hold(&[Rule::Frozen], frozen::check(&sources()?));
    Ok(())
}

#[test]
fn the_top_level_has_only_known_names() -> io::Result<()> {
    hold(
        &[Rule::TopLevel],
        top_level::check(&tree::top(&tree::root())?),
    );
    Ok(())
}

#[test]
fn pages_name_only_what_exists() -> io::Result<()> {
    hold(&[Rule::Page], pages::check(&sources()?));
    Ok(())
}

#[test]
fn public_items_are_counted() -> io::Result<()> {
    let counts = public_items::count(&sources()?);
    assert!(
        counts.get("host/api").is_some_and(|count| *count > 0),
        "the count finds nothing: {counts:?}"
    );
    for (package, count) in counts {
        println!("{count:4} public items in {package} (40 is the budget)");
    }
    Ok(())
}
