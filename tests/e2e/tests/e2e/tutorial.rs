//! Follows the page `guest/README.md` to the letter, from an empty folder to a rendered cluster: runs its commands, and
//! compares the parts of files that it shows. It takes half a minute because it compiles guests natively and for
//! WebAssembly; nothing less shows whether the first hour of a newcomer works.

use anyhow::{Context as _, Result, bail, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use transom_e2e::program;

const TARGET: &str = "wasm32-unknown-unknown";

/// A block of code on the page, and the line before it.
struct Block {
    before: String,
    language: String,
    text: String,
}

/// The blocks of one chapter.
fn blocks(page: &str, chapter: &str) -> Result<Vec<Block>> {
    let (_, rest) = page
        .split_once(&format!("\n## {chapter}\n"))
        .context("the chapter is not there")?;
    let text = rest.split("\n## ").next().unwrap_or_default();
    let (mut blocks, mut open) = (Vec::new(), None::<Block>);
    let mut before = String::new();
    for line in text.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => blocks.push(block),
            (Some(language), None) => {
                open = Some(Block {
                    before: before.clone(),
                    language: language.to_owned(),
                    text: String::new(),
                });
            }
            (None, Some(mut block)) => {
                block.text.push_str(&format!("{line}\n"));
                open = Some(block);
            }
            (None, None) if !line.is_empty() => before = line.to_owned(),
            (None, None) => {}
        }
    }
    ensure!(open.is_none(), "a block does not end");
    Ok(blocks)
}

/// The file that a line names last.
fn file(line: &str) -> Option<&str> {
    line.split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.contains('.'))
        .last()
}

/// Runs a block in a folder; returns what it printed on both outputs.
fn run(block: &str, folder: &Path) -> Result<String> {
    let binary = program::binary()?
        .parent()
        .context("the binary lies in no folder")?
        .to_owned();
    let mut bash = Command::new("bash");
    // Keeps only the toolchain from the environment of the cargo that runs this test.
    for name in [
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET_DIR",
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
    ] {
        bash.env_remove(name);
    }
    // Keeps build output, so that dependencies are built once.
    let target = binary.parent().context("no target folder")?;
    bash.env("CARGO_BUILD_BUILD_DIR", target.join("tutorial"));
    let mut path = format!(
        "{}:{}",
        binary.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    if has_library()? {
        bash.env("CARGO_NET_OFFLINE", "true");
    } else if block.contains("transom build") {
        // As `cargo xtask guests` does with the compiler of Debian's packages.
        for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"] {
            bash.env_remove(name);
        }
        bash.env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_UNSTABLE_BUILD_STD", "std,panic_abort");
        path = format!("{}:/usr/bin:/bin", binary.display());
    }
    let output = bash
        .args(["-euc", block])
        .current_dir(folder)
        .env("PATH", path)
        .output()?;
    let said = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    if !output.status.success() {
        bail!("{} of:\n{block}\n{said}", output.status);
    }
    Ok(said)
}

/// Whether the compiler on the path has the standard library of guests.
fn has_library() -> Result<bool> {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()?;
    Ok(output.status.success()
        && Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

/// Makes a crate with `transom new`, with the versions of this repository.
fn new_crate(command: &str, top: &Path) -> Result<String> {
    let said = run(command, top)?;
    let name = command.rsplit(' ').next().unwrap_or_default().trim();
    fs::copy(
        program::root().join("Cargo.lock"),
        top.join(name).join("Cargo.lock"),
    )?;
    Ok(said)
}

/// An empty folder with a clone of this repository.
fn beside_a_clone() -> Result<tempfile::TempDir> {
    let top = tempfile::tempdir()?;
    symlink(program::root().canonicalize()?, top.path().join("transom"))?;
    Ok(top)
}

/// What following a chapter gave.
struct Followed {
    /// What its commands said.
    said: String,
    /// How many parts of files it showed.
    shown: usize,
    /// Whether it installs the agent.
    installs: bool,
}

/// Follows a chapter that makes the crate of this name, in a folder with a clone.
fn follow(chapter: &str, name: &str, top: &Path) -> Result<Followed> {
    let guest = top.join(name);
    let page = fs::read_to_string(program::root().join("guest/README.md"))?;
    let enter = format!("cd {name}\n");
    let (mut shown, mut said, mut installs) = (0, Vec::new(), false);
    for Block {
        before,
        language,
        text,
    } in blocks(&page, chapter)?
    {
        match language.as_str() {
            // Installs what was built for this test.
            "sh" if text.contains("cargo install") => {
                ensure!(
                    !installs
                        && text.lines().all(|line| line.contains("rustup target add")
                            || line.contains("cargo xtask guests")),
                    "{text}"
                );
                installs = true;
            }
            "sh" if !guest.exists() => said.push(new_crate(&text, top)?),
            "sh" => said.push(run(text.trim_start_matches(&enter), &guest)?),
            _ => {
                let file =
                    file(&before).with_context(|| format!("no file is named by: {before}"))?;
                let made = fs::read_to_string(guest.join(file))?;
                ensure!(made.contains(&text), "`{file}` does not contain:\n{text}");
                shown += 1;
            }
        }
    }
    // Also with the files that the last steps left beside the cases.
    said.push(run("transom test .", &guest)?);
    Ok(Followed {
        said: said.join("\n"),
        shown,
        installs,
    })
}

#[test]
fn the_tutorial_works_as_written() -> Result<()> {
    let top = beside_a_clone()?;
    let followed = follow("A guest in ten minutes", "maintenance", top.path())?;
    let (said, shown) = (followed.said, followed.shown);
    ensure!(
        followed.installs && shown == 5,
        "{shown} parts of files were shown"
    );
    for words in [
        "maintenance/src/lib.rs",
        "test result: ok. 1 passed",
        "target/guests/maintenance.wasm  ",
        "taints-guest",
        "passed   ./cases/labelled",
        "4 passed, 0 failed",
        "valid    maintenance",
        "    taints:\n    - effect: NoSelect\n      key: example.com/maintenance",
        "1  would be Applied",
    ] {
        ensure!(
            said.contains(words),
            "the page's commands never said `{words}`:\n{said}"
        );
    }
    ensure!(!said.contains("is older than"), "{said}");
    Ok(())
}

#[test]
fn the_tutorial_about_objects_works_as_written() -> Result<()> {
    let top = beside_a_clone()?;
    let followed = follow("A guest that makes objects", "cluster-card", top.path())?;
    let (said, shown) = (followed.said, followed.shown);
    ensure!(shown == 5, "{shown} parts of files were shown");
    for words in [
        "test result: ok. 1 passed",
        "objects-guest",
        "3 passed, 0 failed",
        "valid    cluster-card",
        "  name: cluster-card-c1",
        "  env: test",
        "1  would be Applied",
    ] {
        ensure!(
            said.contains(words),
            "the page's commands never said `{words}`:\n{said}"
        );
    }
    let formatted = run("cargo fmt --check", &top.path().join("cluster-card"));
    ensure!(formatted.is_ok(), "{formatted:?}");
    Ok(())
}

#[test]
fn a_new_guest_of_every_other_world_builds_and_passes_its_cases() -> Result<()> {
    let top = beside_a_clone()?;
    for (world, name, rendered) in [
        ("kubeconfig", "copied", None),
        ("trigger", "on-hold", Some("OnHold")),
    ] {
        new_crate(&format!("transom new {world} {name}"), top.path())?;
        let guest = top.path().join(name);
        let tested = run("cargo test", &guest)?;
        ensure!(tested.contains("test result: ok. 1 passed"), "{tested}");
        let built = run("transom build", &guest)?;
        ensure!(built.contains(&format!("{world}-guest")), "{built}");
        let cases = run("transom test .", &guest)?;
        ensure!(cases.contains(", 0 failed"), "{cases}");
        if world == "kubeconfig" {
            let asked = format!("transom policy init target/guests/{name}.wasm > policy.yaml");
            run(&asked, &guest)?;
        }
        let valid = run("transom validate policy.yaml", &guest)?;
        ensure!(valid.contains(&format!("valid    {name}")), "{valid}");
        if let Some(words) = rendered {
            let said = run("transom render given.yaml --policies policy.yaml", &guest)?;
            ensure!(said.contains(words), "{said}");
        }
        let formatted = run("cargo fmt --check", &guest);
        ensure!(formatted.is_ok(), "{formatted:?}");
    }
    Ok(())
}
