//! Components as they were built when a generation of the contract was released: the agent of today serves them.

use anyhow::{Result, ensure};
use serde_json::json;
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
        let said = program::stdout(&tested);
        ensure!(code(&tested) == Some(0), "{}: {said}", path.display());
        ensure!(said.contains("passed"), "{}: {said}", path.display());
        let said = program::stdout(&inspected);
        ensure!(said.contains("transom:policy/guest@0.1.0"), "{said}");
        count += 1;
    }
    ensure!(count > 1, "{count} components");
    Ok(())
}

/// What `transom validate` says about a policy without `grant.write` whose guest is this component.
fn observes(component: &str) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let bytes = wat::parse_str(
        r#"(component
            (core module $m (func (export "f") (result i32) i32.const 0))
            (core instance $i (instantiate $m))
            (func $f (result u32) (canon lift (core func $i "f")))
            (instance $guest (export "describe" (func $f)) (export "validate" (func $f)))
            (export "transom:policy/guest@0.7.0" (instance $guest)))"#,
    )?;
    fs::write(folder.path().join("later.wasm"), bytes)?;
    let policy = json!({
        "apiVersion": "transom.dev/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": "observes"},
        "spec": {
            "primary": {"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster"},
            "guests": {"decide": {"component": component}},
        },
    });
    let file = folder.path().join("policy.yaml");
    fs::write(&file, policy.to_string())?;
    let mut transom = Command::new(program::binary()?);
    let output = transom.args(["validate", "-f"]).arg(&file).output()?;
    ensure!(code(&output) == Some(1), "{}", program::stderr(&output));
    Ok(program::stdout(&output) + &program::stderr(&output))
}

#[test]
fn a_component_of_a_later_generation_is_told_to_be_that_and_no_guest_of_another_world() -> Result<()>
{
    let hint = "only an objects guest can do without it";
    let said = observes("later.wasm")?;
    ensure!(
        said.contains("the generation 0.7.0 of the contract"),
        "{said}"
    );
    ensure!(!said.contains(hint), "{said}");
    let said = observes("builtin:taints")?;
    ensure!(said.contains(hint), "{said}");
    Ok(())
}
