//! Components as they were built when a generation of the contract was released: the agent of today serves them.

use anyhow::{Result, ensure};
use std::fs;
use std::process::Command;
use transom_e2e::program::{self, code};

#[test]
fn components_of_a_release_pass_the_cases_that_travel_in_them() -> Result<()> {
    let folder = program::root().join("tests/fixtures/released/0.1.0");
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let run = |word: &str| {
            Command::new(program::binary()?)
                .arg(word)
                .arg(&path)
                .output()
                .map_err(anyhow::Error::from)
        };
        let (tested, inspected) = (run("test")?, run("inspect")?);
        let said = String::from_utf8_lossy(&tested.stdout).into_owned();
        ensure!(code(&tested) == Some(0), "{}: {said}", path.display());
        ensure!(said.contains("passed"), "{}: {said}", path.display());
        let said = String::from_utf8_lossy(&inspected.stdout).into_owned();
        ensure!(said.contains("transom:policy/guest@0.1.0"), "{said}");
        count += 1;
    }
    ensure!(count > 1, "{count} components");
    Ok(())
}
