//! Compiles in a separate process, which is killed when it takes more memory or time than it is allowed: the cost of
//! compiling does not follow from a component's size (host/adr/0014). It ends with the agent, however that ends.

use crate::config::config;
use crate::engine::{Allocation, EngineOptions};
use crate::failure::LoadError;
use crate::limits::printable;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

/// The most bytes that one compilation takes, besides the program itself.
pub const COMPILATION_BYTES: u64 = 96 << 20;
/// The limits of a compilation that others wait for; some six times what a guest written in Rust takes.
pub(crate) const HASTY: CompileLimits = CompileLimits {
    bytes: 32 << 20,
    seconds: 2,
};
/// The most bytes that all compilations together take: a hasty one beside a patient one.
pub const COMPILING_BYTES: u64 = COMPILATION_BYTES + HASTY.bytes;
/// Ticks per second in which Linux counts the processor time of a process.
const TICKS: u64 = 100;
/// The interval between two checks; in between the process can take little more.
const LOOK: Duration = Duration::from_millis(2);

/// A program that compiles: it calls [`compile`] when it is started with these words and the name of an allocation.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub words: Vec<OsString>,
    /// The most processor time of one compilation, in seconds.
    pub seconds: u64,
}

/// The limits of a compilation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompileLimits {
    bytes: u64,
    seconds: u64,
}

/// The number of the signal SIGKILL.
const KILLED: i32 = 9;
/// The first byte of a compiler's answer: code follows, or the error.
const CODE: u8 = 0;
const REFUSED: u8 = 1;

impl Compiler {
    /// The limits of a compilation that blocks no other work.
    pub(crate) fn patient(&self) -> CompileLimits {
        CompileLimits {
            bytes: COMPILATION_BYTES,
            seconds: self.seconds,
        }
    }

    /// The code of a component, for an engine with this allocation.
    pub(crate) fn code(
        &self,
        bytes: &[u8],
        allocation: Allocation,
        allowed: CompileLimits,
    ) -> Result<Vec<u8>, LoadError> {
        let failed = |error: io::Error| LoadError::Compiler(error.to_string());
        let mut command = Command::new(&self.program);
        command.args(&self.words).arg(allocation.name()).env_clear();
        let piped = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = piped.spawn().map_err(failed)?;
        let (mut stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (watched, mut said) = thread::scope(|scope| {
            let telling = &mut stdin;
            // A compiler that ends early reads no further; its exit says why.
            scope.spawn(move || telling.as_mut().map(|stdin| tell(stdin, bytes)));
            let said = scope.spawn(move || {
                let mut said = Vec::new();
                stdout.map(|stdout| stdout.take(COMPILATION_BYTES).read_to_end(&mut said));
                said
            });
            let watched = watch(&mut child, allowed);
            (watched, said.join().unwrap_or_default())
        });
        // Keep stdin open until now: the compiler exits when it closes.
        drop(stdin);
        watched.map_err(failed)??;
        match said.first() {
            Some(&CODE) => {
                said.remove(0);
                Ok(said)
            }
            Some(_) => Err(LoadError::Invalid(printable(&String::from_utf8_lossy(
                &said[1..],
            )))),
            // The kernel kills a process when the machine has no memory left.
            None if child.wait().map_err(failed)?.signal() == Some(KILLED) => {
                Err(LoadError::Compiler("it was killed".to_owned()))
            }
            None => Err(LoadError::Invalid(
                "the compiler process ended without a result".to_owned(),
            )),
        }
    }
}

/// Sends a component to a compiler: its length, then its bytes.
fn tell(stdin: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    stdin.write_all(&(bytes.len() as u64).to_le_bytes())?;
    stdin.write_all(bytes)?;
    stdin.flush()
}

/// Waits for the end of a compiler, or kills it when it exceeds a limit.
fn watch(child: &mut Child, allowed: CompileLimits) -> io::Result<Result<(), LoadError>> {
    let process = PathBuf::from(format!("/proc/{}", child.id()));
    while child.try_wait()?.is_none() {
        let (memory, seconds) = (anonymous_bytes(&process), seconds(&process));
        let over = [
            ("its compilation memory in bytes", memory, allowed.bytes),
            ("its compilation time in seconds", seconds, allowed.seconds),
        ];
        if let Some((what, found, allowed)) =
            over.into_iter().find(|(_, found, allowed)| found > allowed)
        {
            child.kill()?;
            child.wait()?;
            return Ok(Err(LoadError::TooLarge {
                what,
                found,
                allowed,
            }));
        }
        thread::sleep(LOOK);
    }
    Ok(Ok(()))
}

/// The anonymous memory of a process, whose folder below `/proc` this is; 0 once it has ended.
pub fn anonymous_bytes(process: &Path) -> u64 {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap_or_default();
    line.trim()
        .trim_end_matches("kB")
        .trim()
        .parse::<u64>()
        .unwrap_or_default()
        << 10
}

/// The processor time that a process has used, in seconds.
fn seconds(process: &Path) -> u64 {
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    // Fields 14 and 15; the second is a name in parentheses, which may hold spaces.
    let fields = stat
        .rsplit_once(')')
        .map_or("", |(_, fields)| fields)
        .split_ascii_whitespace();
    fields
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum::<u64>()
        / TICKS
}

/// The compiler's side: compiles what it reads for an engine with the named allocation, and writes the code. Exits
/// this process when the input closes, because then the parent was killed.
///
/// # Errors
/// When the input cannot be read or the output not written.
pub fn compile(
    allocation: &str,
    mut from: impl Read + Send + 'static,
    mut to: impl Write,
) -> io::Result<()> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let mut bytes = Vec::new();
    from.by_ref()
        .take(u64::from_le_bytes(length))
        .read_to_end(&mut bytes)?;
    thread::spawn(move || {
        // The parent sends nothing more: this read returns when the parent closes the pipe.
        drop(from.read(&mut [0]));
        std::process::exit(1);
    });
    let way = Allocation::ALL
        .into_iter()
        .find(|way| way.name() == allocation)
        .unwrap_or(Allocation::SmallOnDemand);
    let options = EngineOptions {
        concurrency: 1,
        ..EngineOptions::default()
    };
    let code = wasmtime::Engine::new(&config(&options, way))
        .and_then(|wasm| wasm.precompile_component(&bytes));
    match code {
        Ok(code) => {
            to.write_all(&[CODE])?;
            to.write_all(&code)
        }
        Err(error) => {
            to.write_all(&[REFUSED])?;
            to.write_all(format!("{error:#}").as_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_that_cannot_run_or_is_killed_says_nothing_about_the_component() {
        let reason = |program: &str, words: &[&str]| {
            let compiler = Compiler {
                program: program.into(),
                words: words.iter().map(Into::into).collect(),
                seconds: 60,
            };
            let code = compiler.code(b"", Allocation::SmallOnDemand, compiler.patient());
            code.unwrap_err().reason()
        };
        assert_eq!(reason("/no/such/program", &[]), "EngineBusy");
        assert_eq!(reason("/bin/sh", &["-c", "kill -KILL $$"]), "EngineBusy");
        assert_eq!(reason("/bin/sh", &["-c", "exit 1"]), "ComponentInvalid");
    }
}
