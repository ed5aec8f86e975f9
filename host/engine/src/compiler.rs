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
use std::process::{Child, Command, ExitStatus, Stdio};
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
/// The exit code of a compiler that could not begin, as in sysexits.h for what may pass.
const UNABLE: i32 = 75;

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
        memory_is_told(Path::new("/proc/self")).map_err(failed)?;
        let mut command = Command::new(&self.program);
        command.args(&self.words).arg(allocation.name()).env_clear();
        let piped = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = piped.spawn().map_err(failed)?;
        let (mut stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (watched, said) = thread::scope(|scope| {
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
        outcome(child.wait().map_err(failed)?, said)
    }
}

/// What a compiler's end and answer mean. Only what it wrote to its end counts: loading its code trusts the bytes.
fn outcome(ended: ExitStatus, mut said: Vec<u8>) -> Result<Vec<u8>, LoadError> {
    let unable = |why: &str| Err(LoadError::Compiler(why.to_owned()));
    match said.first() {
        // The kernel kills a process when the machine has no memory left.
        _ if ended.signal() == Some(KILLED) => unable("it was killed"),
        _ if ended.code() == Some(UNABLE) => unable("it could not start its engine or a thread"),
        Some(_) if !ended.success() => unable(&format!("it ended within its answer: {ended}")),
        Some(&CODE) => {
            said.remove(0);
            Ok(said)
        }
        Some(_) => Err(LoadError::Invalid(printable(&String::from_utf8_lossy(
            &said[1..],
        )))),
        None => Err(LoadError::Invalid(
            "the compiler process ended without a result".to_owned(),
        )),
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

/// The memory that a process has of its own, whose folder below `/proc` this is; 0 once it has ended.
pub fn anonymous_bytes(process: &Path) -> u64 {
    told(process).unwrap_or_default()
}

/// Checks that the system tells the memory of this process, and so that of others: without it no limit would hold.
///
/// # Errors
/// When it does not.
pub fn memory_is_told(process: &Path) -> io::Result<()> {
    match told(process) {
        Some(_) => Ok(()),
        None => Err(io::Error::other(
            "/proc does not tell how much memory a process takes",
        )),
    }
}

/// The anonymous memory of a process. Some systems, as gVisor, tell only that with the pages of its program: as many of
/// these as the program has are left out.
fn told(process: &Path) -> Option<u64> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let bytes = |field: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(field))?;
        let kib = value.trim().trim_end_matches("kB").trim();
        Some(kib.parse::<u64>().ok()? << 10)
    };
    bytes("RssAnon:").or_else(|| {
        let program = fs::metadata(process.join("exe"));
        let program = program.map_or(0, |program| program.len());
        Some(bytes("VmRSS:")?.saturating_sub(program))
    })
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
/// this process when the input closes, because then the parent was killed, and when this machine lets it not begin.
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
    let guarded = thread::Builder::new().spawn(move || {
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
    let (Ok(_), Ok(wasm)) = (guarded, wasmtime::Engine::new(&config(&options, way))) else {
        std::process::exit(UNABLE);
    };
    match wasm.precompile_component(&bytes) {
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
    fn only_what_a_compiler_says_to_its_end_counts() {
        let answer = |program: &str, words: &[&str]| {
            let compiler = Compiler {
                program: program.into(),
                words: words.iter().map(Into::into).collect(),
                seconds: 60,
            };
            let code = compiler.code(b"", Allocation::SmallOnDemand, compiler.patient());
            code.map_err(|error| error.reason())
        };
        let sh = |script: &str| answer("/bin/sh", &["-c", script]);
        assert_eq!(sh(r"printf '\000code'"), Ok(b"code".to_vec()));
        assert_eq!(sh(r"printf '\001bad'"), Err("ComponentInvalid"));
        assert_eq!(sh("exit 1"), Err("ComponentInvalid"));
        // The component is not to blame.
        assert_eq!(answer("/no/such/program", &[]), Err("EngineBusy"));
        assert_eq!(sh("kill -KILL $$"), Err("EngineBusy"));
        assert_eq!(sh("exit 75"), Err("EngineBusy"));
        assert_eq!(sh(r"printf '\000co'; exit 1"), Err("EngineBusy"));
        assert_eq!(sh(r"printf '\000co'; kill -KILL $$"), Err("EngineBusy"));
    }

    #[test]
    fn the_memory_of_a_process_is_seen_or_its_absence_is_told() {
        let process = tempfile::tempdir().unwrap();
        let seen = |status: &str| {
            fs::write(process.path().join("status"), status).unwrap();
            let told = memory_is_told(process.path()).is_ok();
            (told, anonymous_bytes(process.path()))
        };
        let linux = "VmRSS:\t    9 kB\nRssAnon:\t    2 kB\nRssFile:\t    7 kB\n";
        let other = "VmSize:\t99 kB\nVmRSS:\t9 kB\nVmData:\t5 kB\n";
        assert_eq!(seen(linux), (true, 2 << 10));
        assert_eq!(seen(other), (true, 9 << 10));
        fs::write(process.path().join("exe"), [0; 3 << 10]).unwrap();
        assert_eq!(seen(other), (true, 6 << 10));
        assert_eq!(seen("VmSize:\t99 kB\n"), (false, 0));
        assert!(memory_is_told(&process.path().join("none")).is_err());
        assert!(memory_is_told(Path::new("/proc/self")).is_ok());
    }
}
