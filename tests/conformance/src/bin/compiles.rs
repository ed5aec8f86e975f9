//! Loads the component on standard input and prints the result and the peak memory. Only run by the tests, which
//! measure it as a separate process.

use anyhow::{Context as _, Result};
use std::fs;
use std::io::{Read as _, Write as _};
use transom_engine::{Compiler, Engine, EngineOptions};

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    if let (Some("compile"), Some(allocation)) = (words.next().as_deref(), words.next()) {
        return Ok(transom_engine::compile(
            &allocation,
            std::io::stdin(),
            std::io::stdout(),
        )?);
    }
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes)?;
    let compiler = Compiler {
        program: std::env::current_exe()?,
        words: vec!["compile".into()],
        seconds: 2,
    };
    let engine = Engine::new(EngineOptions {
        compiler: Some(compiler),
        ..EngineOptions::default()
    })?;
    let before = peak_kib()?;
    let seen = engine.inspect(&bytes);
    let took = peak_kib()? - before;
    let said = match &seen {
        Ok(_) => "compiled".to_owned(),
        Err(error) => format!("{}: {error}", error.reason()),
    };
    writeln!(std::io::stdout(), "{took} {said}").context("failed to write to standard output")
}

/// The peak memory of this process.
fn peak_kib() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .context("the system does not say")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
