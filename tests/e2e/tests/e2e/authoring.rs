//! Commands for guest authors: building a component from a module, and the guest's own cases. The modules here are
//! written as text; `tutorial.rs` compiles one.

use anyhow::{Context as _, Error, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use transom_conformance::fixture;
use transom_core::document::{ParseLimits, parse_one};
use transom_core::policy::{check, manifest};
use transom_e2e::program;
use transom_e2e::program::{code, stderr};

/// Logs three times, and then answers that it desires no taints.
fn logging() -> Result<Vec<u8>> {
    let text = fs::read_to_string(program::root().join("tests/fixtures/hostile/log-lines.wat"))?;
    fixture::taints_module(&text.replace("500", "3"))
}

fn componentize(module: &Path, to: &Path) -> Result<Output> {
    Ok(Command::new(program::binary()?)
        .arg("componentize")
        .arg(module)
        .arg("-o")
        .arg(to)
        .output()?)
}

/// A guest in its own crate with one case.
fn guest(folder: &Path) -> Result<PathBuf> {
    let case = folder.join("cases/one");
    fs::create_dir_all(&case)?;
    fs::write(folder.join("Cargo.toml"), "[package]\nname = \"logs\"\n")?;
    let reference = "{cluster: local, api-version: cluster.open-cluster-management.io/v1, kind: ManagedCluster, name: c}";
    fs::write(
        case.join("given.yaml"),
        format!("cluster:\n  reference: {reference}\n"),
    )?;
    fs::write(case.join("expected.yaml"), "ok: {decision: {own: []}}\n")?;
    Ok(folder.join("target/guests/logs.wasm"))
}

#[test]
fn builds_a_component_from_a_module_and_cases_show_its_logs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (module, component) = (folder.path().join("logs.module"), guest(folder.path())?);
    fs::write(&module, logging()?)?;
    let output = componentize(&module, &component)?;
    ensure!(code(&output) == Some(0), "{}", stderr(&output));
    let said = String::from_utf8(output.stdout)?;
    let bytes = fs::read(&component)?;
    ensure!(
        said.contains(&format!("{} bytes, taints-guest, sha256:", bytes.len())),
        "{said}"
    );
    let inspected = Command::new(program::binary()?)
        .arg("inspect")
        .arg(&component)
        .output()?;
    ensure!(
        String::from_utf8_lossy(&inspected.stdout).contains("needs       log"),
        "{inspected:?}"
    );
    let test = || {
        Ok::<_, anyhow::Error>(
            Command::new(program::binary()?)
                .arg("test")
                .arg(folder.path())
                .output()?,
        )
    };
    let output = test()?;
    ensure!(
        code(&output) == Some(0),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        stderr(&output)
    );
    // The guest is called twice but its log is shown once; each line names its case.
    let lines: Vec<String> = stderr(&output)
        .lines()
        .filter(|line| line.contains("guest: Seen"))
        .map(str::to_owned)
        .collect();
    ensure!(
        lines.len() == 3 && lines.iter().all(|line| line.contains("cases/one")),
        "{}",
        stderr(&output)
    );
    // A failing case shows the lines, too, even if the guest gives no answer.
    fs::write(
        folder.path().join("cases/one/expected.yaml"),
        "ok: {decision: hold}\n",
    )?;
    ensure!(stderr(&test()?).matches("guest: Seen").count() == 3);
    fs::write(
        &module,
        fixture::taints_module(&fs::read_to_string(
            program::root().join("tests/fixtures/hostile/log-lines.wat"),
        )?)?,
    )?;
    ensure!(code(&componentize(&module, &component)?) == Some(0));
    let output = test()?;
    ensure!(
        code(&output) == Some(1) && stderr(&output).matches("guest: Seen").count() == 100,
        "{}",
        stderr(&output)
    );
    Ok(())
}

#[test]
fn the_cases_that_travel_with_a_component_run_without_its_crate() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("guest.wasm");
    let good = || fixture::hostile("good");
    for (component, passes, count, told) in [
        (
            fixture::with_case(good()?, false)?,
            true,
            "cases       1",
            "1 passed, 0 failed",
        ),
        (
            fixture::with_case(good()?, true)?,
            false,
            "cases       1",
            "expected [{\"reason\":\"Never\"}], got []",
        ),
        (good()?, false, "cases       0", "failed to find a case"),
        (
            fixture::with_section(good()?, b"{\"version\": 9}")?,
            false,
            "CasesInvalid",
            "its version is not 1",
        ),
    ] {
        fs::write(&path, component)?;
        let run = |word: &str| {
            Command::new(program::binary()?)
                .arg(word)
                .arg(&path)
                .output()
                .map_err(Error::from)
        };
        let (inspected, tested) = (run("inspect")?, run("test")?);
        let said = String::from_utf8_lossy(&inspected.stdout);
        ensure!(said.contains(count), "{said}");
        let said = program::stdout(&tested) + &stderr(&tested);
        ensure!(said.contains(told), "{said}");
        ensure!((code(&tested) == Some(0)) == passes, "{said}");
    }
    Ok(())
}

#[test]
fn bench_measures_the_cases_of_every_world_and_names_those_that_fail() -> Result<()> {
    for (guest, case) in [
        ("taints", "T02-not-available"),
        ("kubeconfig", "target-with-dash"),
        ("trigger", "unreadable-after"),
        ("cluster-sets", "S07-fits-every-cluster"),
    ] {
        let component = format!("builtin:{guest}");
        let cases = program::root().join(format!("guest/{guest}/cases/{case}"));
        let cases = cases.to_str().context("a path that is no text")?;
        let (code, said, told) = transom(&["bench", &component, "--cases", cases, "-o", "json"])?;
        ensure!(code == Some(0), "{guest}: {said}{told}");
        let found: Value = serde_json::from_str(&said)?;
        let one = &found["cases"][0];
        let time = |word: &str| one["microseconds"][word].as_u64().context("no time");
        ensure!(
            time("min")? <= time("median")? && time("median")? <= time("p99")?,
            "{said}"
        );
        let memory = one["used"]["memoryBytes"].as_u64().unwrap_or_default();
        let budget = found["budget"]["memoryBytes"].as_u64().unwrap_or_default();
        ensure!((1..budget).contains(&memory), "{said}");
        ensure!(one["calls"].as_u64() > Some(0), "{said}");
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("guest.wasm");
    let at = path.to_str().context("a path that is no text")?;
    for (fails, expected, told) in [
        (false, 0, "1 passed, 0 failed"),
        (true, 1, "expected [{\"reason\":\"Never\"}], got []"),
    ] {
        fs::write(&path, fixture::with_case(fixture::hostile("good")?, fails)?)?;
        let (code, said, _) = transom(&["bench", at])?;
        ensure!(code == Some(expected) && said.contains(told), "{said}");
    }
    fs::write(&path, fixture::hostile("good")?)?;
    let (code, _, told) = transom(&["bench", at])?;
    ensure!(
        code == Some(2) && told.contains("no case travels with it"),
        "{told}"
    );
    Ok(())
}

#[test]
fn bench_shows_the_budget_that_stopped_a_guest_beside_cases_that_cannot_be_read() -> Result<()> {
    let folder = tempfile::tempdir()?;
    guest(folder.path())?;
    let path = folder.path().join("guest.wasm");
    let text = fs::read_to_string(program::root().join("tests/fixtures/hostile/log-lines.wat"))?;
    fs::write(&path, fixture::taints_component(&text)?)?;
    let [broken, misspelt] =
        ["broken", "misspelt"].map(|name| folder.path().join("cases").join(name));
    for case in [&broken, &misspelt] {
        fs::create_dir_all(case)?;
        fs::write(case.join("expected.yaml"), "")?;
    }
    fs::write(broken.join("given.yaml"), "[")?;
    fs::write(misspelt.join("given.yaml"), "clutser: {}")?;
    let words = [
        "bench".as_ref(),
        path.as_os_str(),
        "--cases".as_ref(),
        folder.path().as_os_str(),
    ];
    let output = Command::new(program::binary()?).args(words).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(code(&output) == Some(1), "{said}{}", stderr(&output));
    for part in [
        "100 % logLines",
        "cases/broken",
        "`cluster` is missing",
        "0 passed, 3 failed",
    ] {
        ensure!(said.contains(part), "{part}: {said}");
    }
    Ok(())
}

#[test]
fn refuses_a_file_that_is_not_a_guest_and_keeps_the_old_output() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (module, component) = (
        folder.path().join("module"),
        folder.path().join("guest.wasm"),
    );
    fs::write(&component, "what was there")?;
    let no_world = b"\0asm\x01\0\0\0".to_vec();
    let text = fs::read_to_string(program::root().join("tests/fixtures/hostile/good.wat"))?;
    let wasi = format!(
        "(import \"wasi_snapshot_preview1\" \"fd_write\" (func (param i32 i32 i32 i32) (result i32)))\n{text}"
    );
    for (bytes, words) in [
        (b"no module".to_vec(), "not a WebAssembly module"),
        (Vec::new(), "not a WebAssembly module"),
        (b"\0asm\x0d\0\x01\0".to_vec(), "it is already a component"),
        (no_world, "no component was written"),
        (logging()?[..200].to_vec(), "failed to turn `"),
        (fixture::taints_module(&wasi)?, "wasi_snapshot_preview1"),
    ] {
        fs::write(&module, bytes)?;
        let output = componentize(&module, &component)?;
        let told = stderr(&output);
        ensure!(
            code(&output) == Some(1) && told.contains(words),
            "{words}: {:?}: {told}",
            code(&output)
        );
        ensure!(told.lines().count() == 1, "{told}");
    }
    for path in [
        folder.path().to_owned(),
        folder.path().join("missing"),
        PathBuf::from("/dev/zero"),
    ] {
        let output = componentize(&path, &component)?;
        ensure!(
            code(&output) == Some(2) && stderr(&output).starts_with("failed to read"),
            "{}",
            stderr(&output)
        );
    }
    ensure!(
        fs::read(&component)? == b"what was there",
        "it was replaced"
    );
    fs::write(&module, logging()?)?;
    for to in [folder.path().to_owned(), component.join("below-a-file")] {
        let output = componentize(&module, &to)?;
        ensure!(
            code(&output) == Some(2) && stderr(&output).starts_with("failed to write"),
            "{}",
            stderr(&output)
        );
    }
    ensure!(code(&componentize(&module, &component)?) == Some(0));
    ensure!(fs::read(&component)?.starts_with(b"\0asm\x0d\0"));
    let left: Vec<_> = fs::read_dir(folder.path())?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<Result<_>>()?;
    ensure!(left.len() == 2, "drafts are left: {left:?}");
    component.metadata().context("it is gone")?;
    Ok(())
}

/// Runs `transom`; gives the exit code and both outputs.
fn transom(words: &[&str]) -> Result<(Option<i32>, String, String)> {
    let output = Command::new(program::binary()?).args(words).output()?;
    let shown = program::stdout(&output);
    Ok((code(&output), shown, stderr(&output)))
}

/// The checked grants to write and the finalizer of the policy in a file, in any order.
fn grants(path: &Path) -> Result<(Vec<String>, Option<String>)> {
    let limits = ParseLimits {
        bytes: 1 << 20,
        nodes: 10_000,
        depth: 64,
    };
    let policy = parse_one(&fs::read(path)?, limits)?;
    let policy = check::policy(manifest::parse(&policy)?)?;
    let mut writes: Vec<String> = policy
        .writes
        .iter()
        .map(|rule| format!("{rule:?}"))
        .collect();
    writes.sort();
    Ok((writes, policy.finalizer))
}

/// The first grant to write of the policy in a file.
fn write_grant(path: &Path) -> Result<Value> {
    let limits = ParseLimits {
        bytes: 1 << 20,
        nodes: 10_000,
        depth: 64,
    };
    let mut policy = parse_one(&fs::read(path)?, limits)?;
    Ok(policy["spec"]["grant"]["write"][0].take())
}

#[test]
fn policy_init_grants_what_a_bundled_guest_needs_as_the_shipped_policy_does() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let own = folder.path().join("policy.yaml");
    let at = own.to_str().context("a path that is no text")?;
    for (component, name, case) in [
        ("builtin:taints", "built-in-taints", "T02-not-available"),
        (
            "builtin:kubeconfig",
            "external-managed-kubeconfig",
            "T01-port-443",
        ),
    ] {
        let (code, policy, told) = transom(&["policy", "init", component, "--name", name])?;
        ensure!(
            (code, told.as_str()) == (Some(0), ""),
            "{component}: {told}"
        );
        fs::write(&own, &policy)?;
        let (code, shown, told) = transom(&["validate", "-f", at])?;
        let valid = format!("valid    {name} (");
        ensure!(
            code == Some(0) && shown.starts_with(&valid),
            "{shown}{told}"
        );
        let shipped = program::root().join("policies").join(name);
        let (mine, theirs) = (
            write_grant(&own)?,
            write_grant(&shipped.join("policy.yaml"))?,
        );
        for field in ["fields", "taintKeys", "verbs"] {
            ensure!(mine[field] == theirs[field], "{field}: {mine} {theirs}");
        }
        // It is enough to do what the shipped policy does.
        let given = shipped.join("cases").join(case).join("given.yaml");
        let given = given.to_str().context("a path that is no text")?;
        let render = |policies: &str| transom(&["render", given, "-f", policies, "-o", "table"]);
        let (code, shown, told) = render(at)?;
        let (_, expected, _) = render(shipped.to_str().context("a path that is no text")?)?;
        ensure!(
            code == Some(0) && shown == expected,
            "{shown}{expected}{told}"
        );
        ensure!(told.contains("1  would be Applied"), "{told}");
    }
    let (code, shown, told) = transom(&["policy", "init", "builtin:trigger"])?;
    ensure!(
        code == Some(2) && shown.is_empty() && told.contains("`spec.guests.trigger`"),
        "{told}"
    );
    let (code, _, told) = transom(&["policy", "init", "builtin:taints", "--name", "A b"])?;
    ensure!(code == Some(2) && told.contains("metadata.name"), "{told}");
    Ok(())
}

#[test]
fn policy_init_writes_a_manifest_that_loads_for_every_bundled_guest() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let own = folder.path().join("policy.yaml");
    let at = own.to_str().context("a path that is no text")?;
    let mut guests = 0;
    for entry in fs::read_dir(program::root().join("guest"))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().context("a name that is no text")?;
        let is_guest = entry.path().join("Cargo.toml").is_file();
        if !is_guest || ["sdk", "trigger"].contains(&name) {
            continue;
        }
        guests += 1;
        let (code, policy, told) =
            transom(&["policy", "init", &format!("builtin:{name}"), "--name", name])?;
        ensure!((code, told.as_str()) == (Some(0), ""), "{name}: {told}");
        fs::write(&own, &policy)?;
        let (code, shown, told) = transom(&["validate", "-f", at])?;
        let valid = format!("valid    {name} (");
        ensure!(
            code == Some(0) && shown.starts_with(&valid),
            "{shown}{told}"
        );
    }
    ensure!(guests > 15, "only {guests} guests");
    // What it suggests is what the shipped policies grant, where these are for its default settings.
    for (name, shipped) in [
        ("cluster-access", "cluster-access"),
        ("client-certificates", "client-certificates"),
        ("cleanup", "cleanup"),
        ("availability", "availability"),
    ] {
        let (_, policy, _) = transom(&["policy", "init", &format!("builtin:{name}")])?;
        fs::write(&own, &policy)?;
        let theirs = program::root().join("policies").join(shipped);
        let (mine, theirs) = (grants(&own)?, grants(&theirs.join("policy.yaml"))?);
        ensure!(mine == theirs, "{name}: {mine:#?} {theirs:#?}");
    }
    Ok(())
}
