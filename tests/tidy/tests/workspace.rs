//! Applies every rule to the real workspace. Each failure says in one sentence what to do.

use std::collections::BTreeMap;
use std::{fs, io, process::Command};
use transom_tidy::files::{self, CONTROLLER, SLEEPING, UNSAFE, sleeps};
use transom_tidy::{Source, contract, dependencies, pages, released, root, rows, sources};

/// Fails with what a rule says about the sources.
fn hold(rule: impl Fn(&Source) -> Option<String>) -> io::Result<()> {
    let sources = sources()?;
    let found = |path: &str| sources.iter().any(|source| source.path == path);
    assert!(found("tests/tidy/tests/workspace.rs") && found("host/core/src/lib.rs"));
    let finding = |source: &Source| Some(format!("{}: {}", source.path, rule(source)?));
    none(&sources.iter().filter_map(finding).collect::<Vec<_>>());
    Ok(())
}

fn none(findings: &[String]) {
    assert!(findings.is_empty(), "\n  {}\n", findings.join("\n  "));
}

#[test]
fn dependencies_follow_the_arrows() -> io::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(root())
        .output()?;
    let metadata = serde_json::from_slice(&output.stdout)?;
    assert!(String::from_utf8_lossy(&output.stdout).contains("host/core/Cargo.toml"));
    none(&dependencies::check(&metadata));
    Ok(())
}

#[test]
fn manifests_inherit_lints_and_versions() -> io::Result<()> {
    hold(files::manifest)
}

#[test]
fn files_keep_their_budgets() -> io::Result<()> {
    hold(files::size)
}

#[test]
fn files_have_headers() -> io::Result<()> {
    hold(files::first_line)
}

#[test]
fn modules_and_types_have_clear_names() -> io::Result<()> {
    hold(files::names)
}

#[test]
fn a_type_of_the_host_has_a_name_of_its_own() -> io::Result<()> {
    none(&files::types_of_one_name(&sources()?));
    Ok(())
}

#[test]
fn comments_fit_on_a_screen() -> io::Result<()> {
    hold(files::comments)
}

#[test]
fn forbidden_words_stay_in_their_places() -> io::Result<()> {
    hold(files::words)?;
    assert!(root().join(CONTROLLER).is_dir(), "{CONTROLLER} is gone");
    for path in UNSAFE {
        let text = fs::read_to_string(root().join(path))?;
        assert!(text.contains("unsafe_code"), "{path} needs no exception");
    }
    for path in SLEEPING {
        let text = fs::read_to_string(root().join(path))?;
        assert!(sleeps(&text), "{path} needs no exception");
    }
    Ok(())
}

#[test]
fn the_top_level_has_only_known_names() -> io::Result<()> {
    let known = [
        "CHANGELOG.md",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "README.md",
        "guest",
        "host",
        "policies",
        "target",
        "tests",
        "wit",
    ];
    for entry in fs::read_dir(root())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // Hidden names are settings of tools.
        let belongs = name.starts_with('.') || known.contains(&name.as_str());
        assert!(
            belongs,
            "{name}: put it below host, guest, wit, policies or tests"
        );
    }
    Ok(())
}

#[test]
fn released_contracts_never_change() -> io::Result<()> {
    none(&released::check(&sources()?));
    let (folder, mut files) = (root().join("tests/fixtures/released"), BTreeMap::new());
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let all: Vec<_> = match path.is_dir() {
            true => fs::read_dir(&path)?.collect::<io::Result<_>>()?,
            false => Vec::new(),
        };
        for path in all.iter().map(fs::DirEntry::path).chain([path]) {
            if path.is_file() {
                let below = path.strip_prefix(&folder).unwrap_or(&path);
                files.insert(below.to_string_lossy().into_owned(), fs::read(&path)?);
            }
        }
    }
    assert!(files.len() > 2, "there are no components of releases");
    none(&released::components(&files));
    Ok(())
}

#[test]
fn the_contract_says_what_each_item_is() -> io::Result<()> {
    none(&contract::undocumented(&sources()?));
    Ok(())
}

#[test]
fn rows_of_what_is_replaced_are_proven() -> io::Result<()> {
    none(&rows::check(&sources()?));
    Ok(())
}

#[test]
fn pages_name_only_what_exists() -> io::Result<()> {
    let sources = sources()?;
    hold(|page| pages::missing(page, &sources))
}
