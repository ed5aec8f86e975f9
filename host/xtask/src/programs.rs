//! Runs the test programs of the workspace side by side: cargo runs one after the other, and most of them wait for
//! servers. Prints the output of each when it ends, and the failures once more at the end.

use crate::{check, process, progress, workspace};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// The programs that take longest, and start first.
const LONGEST: [&str; 5] = [
    "tests/e2e/tests/cluster/main.rs",
    "tests/e2e/tests/e2e/main.rs",
    "tests/conformance/tests/conformance/main.rs",
    "tests/deploy/tests/deploy/main.rs",
    "tests/cluster/tests/cluster.rs",
];

/// A program to run.
struct Program {
    name: String,
    command: Command,
}

/// What became of it.
struct Ended {
    name: String,
    output: String,
    passed: bool,
}

/// Builds all tests, runs them, and then the examples in documentation, which cargo builds as it runs them.
pub(crate) fn run() -> Result<()> {
    let format = "--message-format=json-render-diagnostics";
    let built = process::output(&mut check::test(&["--no-run", format])?)?;
    let root = workspace::read()?.root;
    let mut programs = Vec::new();
    for line in built.lines() {
        let message = serde_json::from_str(line).context("failed to read a message of cargo")?;
        programs.extend(program(&message, &root)?);
    }
    let environment = check::environment()?;
    for program in &mut programs {
        program.command.envs(environment.clone());
    }
    ensure!(!programs.is_empty(), "cargo built no test program");
    programs.push(Program {
        name: "examples in documentation".to_owned(),
        command: check::test(&["--doc"])?,
    });
    let place = |program: &Program| LONGEST.iter().position(|name| program.name == *name);
    programs.sort_by_key(|program| place(program).unwrap_or(LONGEST.len()));
    report(&side_by_side(programs)?)
}

/// The program of a message, to run as cargo does: in the folder of its package.
fn program(message: &Value, root: &Path) -> Result<Option<Program>> {
    let Some(path) = message["executable"].as_str() else {
        return Ok(None);
    };
    if message["profile"]["test"] != true {
        return Ok(None);
    }
    let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
    let about = || format!("failed to read cargo's message on `{path}`");
    let manifest = text(&message["manifest_path"]).with_context(about)?;
    let source = text(&message["target"]["src_path"]).with_context(about)?;
    let package = Path::new(&manifest).parent().with_context(about)?;
    let mut command = Command::new(path);
    command
        .current_dir(package)
        .env("CARGO_MANIFEST_DIR", package);
    let name = Path::new(&source).strip_prefix(root);
    Ok(Some(Program {
        name: name.with_context(about)?.display().to_string(),
        command,
    }))
}

/// Runs one program more than there are cores: while one waits, another works.
fn side_by_side(programs: Vec<Program>) -> Result<Vec<Ended>> {
    let jobs = thread::available_parallelism().map_or(1, usize::from) + 1;
    let (open, ended) = (Mutex::new(programs.into_iter()), Mutex::new(Vec::new()));
    let next = || open.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || -> Result<()> {
        while let Some(mut program) = next() {
            let start = Instant::now();
            let end = execute(&mut program)
                .with_context(|| format!("failed to run the tests of `{}`", program.name))?;
            // One after the other, so that outputs do not mix.
            let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
            progress::say(&format!(
                "     Running {} ({} s)",
                end.name,
                start.elapsed().as_secs()
            ));
            std::io::stdout().write_all(end.output.as_bytes())?;
            ended.push(end);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    Ok(ended.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Runs a program to its end, with both outputs in one text.
fn execute(program: &mut Program) -> Result<Ended> {
    let (mut reader, writer) = std::io::pipe()?;
    let (output, errors) = (writer.try_clone()?, writer);
    program.command.stdin(std::process::Stdio::null());
    let mut child = program.command.stdout(output).stderr(errors).spawn()?;
    // The command holds the other ends of the pipe.
    program.command = Command::new("");
    let mut output = Vec::new();
    reader.read_to_end(&mut output)?;
    Ok(Ended {
        name: program.name.clone(),
        output: String::from_utf8_lossy(&output).into_owned(),
        passed: child.wait()?.success(),
    })
}

/// Repeats what failed, which is far above by now.
fn report(ended: &[Ended]) -> Result<()> {
    let failed: Vec<&Ended> = ended.iter().filter(|end| !end.passed).collect();
    for end in &failed {
        let start = end.output.find("\nfailures:\n").unwrap_or_default();
        progress::say(&format!("{} failed:{}", end.name, &end.output[start..]));
    }
    let names: Vec<&str> = failed.iter().map(|end| end.name.as_str()).collect();
    ensure!(
        names.is_empty(),
        "{} of {} test programs failed: {}",
        names.len(),
        ended.len(),
        names.join(", ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program {
            name: script.to_owned(),
            command,
        }
    }

    #[test]
    fn names_each_failed_program_and_runs_the_others() {
        let scripts = ["echo one; echo two >&2; exit 1", "true", "kill -9 $$"];
        let ended = side_by_side(scripts.map(program).into()).unwrap();
        let error = report(&ended).unwrap_err().to_string();
        assert!(error.starts_with("2 of 3 test programs failed"), "{error}");
        assert!(error.contains(scripts[0]) && error.contains(scripts[2]));
        assert!(ended.iter().any(|end| end.output == "one\ntwo\n"));
    }
}
