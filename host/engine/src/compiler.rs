//! Compiles in a process of its own, which is ended when it takes more memory or time than is set aside for it: what a
//! compiler takes cannot be told from a component's size (host/adr/0014). It ends with the agent, however that ends.

use crate::config::config;
use crate::engine::{Allocation, EngineOptions};
use crate::failure::LoadError;
use crate::receipt::printable;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

/// Bytes that one compilation takes at most, beside the program itself.
pub const COMPILATION_BYTES: u64 = 96 << 20;
/// What a compilation may take that others wait for; some six times what a guest written in Rust takes.
pub(crate) const HASTY: Allowed = Allowed { bytes: 32 << 20, seconds: 2 };
/// Bytes that all compilations together take at most: a hasty one beside a patient one.
pub const COMPILING_BYTES: u64 = COMPILATION_BYTES + HASTY.bytes;
/// Ticks of a second by which Linux counts a process's time.
const TICKS: u64 = 100;
/// How often it is looked at; in between it can take little more.
const LOOK: Duration = Duration::from_millis(2);

/// A program that compiles: one that calls [`compile`] when it is given these words and the name of an allocation.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// The program.
    pub program: PathBuf,
    /// What it is told first.
    pub words: Vec<OsString>,
    /// Seconds of a processor that one compilation takes at most.
    pub seconds: u64,
}

/// What a compilation may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    bytes: u64,
    seconds: u64,
}

/// What a compiler says first: code follows, or why there is none.
const CODE: u8 = 0;
const REFUSED: u8 = 1;

impl Compiler {
    /// What a compilation may take that nobody waits for.
    pub(crate) fn patient(&self) -> Allowed {
        Allowed { bytes: COMPILATION_BYTES, seconds: self.seconds }
    }

    /// The code of a component for an engine that allocates like this.
    pub(crate) fn code(&self, bytes: &[u8], allocation: Allocation, allowed: Allowed) -> Result<Vec<u8>, LoadError> {
        let failed = |error: io::Error| LoadError::Invalid(format!("failed to run the compiler: {error}"));
        let mut command = Command::new(&self.program);
        command.args(&self.words).arg(allocation.name()).env_clear();
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = piped.spawn().map_err(failed)?;
        let (mut stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (watched, mut said) = thread::scope(|scope| {
            let telling = &mut stdin;
            // Whoever ends early reads no further; its own end says why.
            scope.spawn(move || telling.as_mut().map(|stdin| tell(stdin, bytes)));
            let said = scope.spawn(move || {
                let mut said = Vec::new();
                stdout.map(|stdout| stdout.take(COMPILATION_BYTES).read_to_end(&mut said));
                said
            });
            let watched = watch(&mut child, allowed);
            (watched, said.join().unwrap_or_default())
        });
        // Open until now: the compiler ends where it closes.
        drop(stdin);
        watched.map_err(failed)??;
        match said.first() {
            Some(&CODE) => {
                said.remove(0);
                Ok(said)
            }
            Some(_) => Err(LoadError::Invalid(printable(&String::from_utf8_lossy(&said[1..])))),
            None => Err(LoadError::Invalid("the compiler ended without a word".to_owned())),
        }
    }
}

/// Hands a component to a compiler: its length, then its bytes.
fn tell(stdin: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    stdin.write_all(&(bytes.len() as u64).to_le_bytes())?;
    stdin.write_all(bytes)?;
    stdin.flush()
}

/// Waits for the end of a compiler, or ends it.
fn watch(child: &mut Child, allowed: Allowed) -> io::Result<Result<(), LoadError>> {
    let process = PathBuf::from(format!("/proc/{}", child.id()));
    while child.try_wait()?.is_none() {
        let (memory, seconds) = (anonymous_bytes(&process), seconds(&process));
        let over = [
            ("the memory that compiling it takes in bytes", memory, allowed.bytes),
            ("the time that compiling it takes in seconds", seconds, allowed.seconds),
        ];
        if let Some((what, found, allowed)) = over.into_iter().find(|(_, found, allowed)| found > allowed) {
            child.kill()?;
            child.wait()?;
            return Ok(Err(LoadError::TooLarge { what, found, allowed }));
        }
        thread::sleep(LOOK);
    }
    Ok(Ok(()))
}

/// Memory of its own that a process has; nothing once it has ended.
fn anonymous_bytes(process: &std::path::Path) -> u64 {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or_default() << 10
}

/// Time of a processor that a process has had.
fn seconds(process: &std::path::Path) -> u64 {
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    // Fields 14 and 15; the second is a name in parentheses, which may hold spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_ascii_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() / TICKS
}

/// The other side: compiles what it reads for an engine that allocates as named, and writes the code. Ends this process when
/// there is nobody any more to read from: whoever wanted the code was killed.
///
/// # Errors
/// When it cannot be read or written.
pub fn compile(allocation: &str, mut from: impl Read + Send + 'static, mut to: impl Write) -> io::Result<()> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let mut bytes = Vec::new();
    from.by_ref().take(u64::from_le_bytes(length)).read_to_end(&mut bytes)?;
    thread::spawn(move || {
        // Nothing more is told: it returns when the other end closes.
        drop(from.read(&mut [0]));
        std::process::exit(1);
    });
    let way = Allocation::ALL.into_iter().find(|way| way.name() == allocation).unwrap_or(Allocation::SmallOnDemand);
    let options = EngineOptions { concurrency: 1, ..EngineOptions::default() };
    let code = wasmtime::Engine::new(&config(&options, way)).and_then(|wasm| wasm.precompile_component(&bytes));
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
