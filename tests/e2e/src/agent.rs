//! The binary as a running process: its log, its admin server, its memory, and every wait for something that it does.
//! It is killed when its handle is dropped. Treats it as a black box.

mod process;
mod told;

use crate::bound::Bound;
use crate::http;
use anyhow::{Context as _, Result, bail, ensure};
pub use process::has_ended;
use process::process;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
pub use told::Told;
use told::{is_summary, told};
use transom_support::wait;

/// The deadline for anything that the agent does. It decides only about what never comes: a busy machine is slower than
/// an idle one by more than ten times.
pub const DEADLINE: Duration = Duration::from_secs(600);

/// The flag of the admin server.
pub const ADMIN: &str = "--admin-address";
/// The pages of the admin server.
const PAGES: [&str; 3] = ["/metrics", "/debug/state", "/readyz"];
/// Lines of a log that an error shows.
const TAIL: usize = 12;

/// A running agent, or another program that runs beside a test, with its log.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    log: PathBuf,
    /// The address of its admin server, if the command chooses one.
    admin: Option<SocketAddr>,
    /// The file for the admin server's pages at the end.
    pages: Option<PathBuf>,
    /// Dropped after the process, which runs inside it.
    bound: Option<Bound>,
}

impl Agent {
    /// Starts a command, with standard output and standard error in one file.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command, log: PathBuf) -> Result<Self> {
        let file =
            File::create(&log).with_context(|| format!("failed to make `{}`", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("failed to start `{}`", command.get_program().display()))?;
        let mut words = command.get_args().skip_while(|word| *word != ADMIN).skip(1);
        let address = words.next().and_then(|word| word.to_str()?.parse().ok());
        Ok(Self {
            child,
            log,
            admin: address.filter(|address: &SocketAddr| address.port() != 0),
            pages: None,
            bound: None,
        })
    }

    /// The same within a memory limit.
    ///
    /// # Errors
    /// As for [`Agent::start`].
    pub fn bounded(command: &Command, log: PathBuf, bound: Bound) -> Result<Self> {
        let mut agent = Self::start(&mut bound.on(command), log)?;
        agent.bound = Some(bound);
        Ok(agent)
    }

    /// Saves the pages of its admin server to a file when it is asked to exit.
    #[must_use]
    pub fn keeping_pages(mut self, file: PathBuf) -> Self {
        self.pages = Some(file);
        self
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its entire output.
    ///
    /// # Errors
    /// When its log cannot be read.
    pub fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?).into_owned())
    }

    /// The end of its log, for a failure message.
    pub fn tail(&self) -> String {
        let log = self.log().unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    /// All lines about primaries, after skipping a number of lines.
    ///
    /// # Errors
    /// When its log cannot be read.
    pub fn told(&self, skip: usize) -> Result<Vec<Told>> {
        Ok(self.log()?.lines().skip(skip).filter_map(told).collect())
    }

    /// The last state of a primary (`HostedCluster clusters/demo`), as `Applied InSync`.
    ///
    /// # Errors
    /// When its log cannot be read.
    pub fn state(&self, primary: &str) -> Result<Option<String>> {
        let told = self.told(0)?.into_iter().rev();
        let mut states = told
            .filter(|told| told.primary == primary)
            .filter_map(|told| Some(format!("{} {}", told.state?, told.reason)));
        Ok(states.next())
    }

    /// The address of its admin server; none before it has logged it.
    pub fn admin(&self) -> Option<SocketAddr> {
        let log = || {
            let log = self.log().ok()?;
            let mut lines = log.lines();
            let line = lines.find(|line| line.contains("the admin server is listening"))?;
            let at = |host| line.split_once(host);
            let (_, rest) = at("127.0.0.1:").or_else(|| at("0.0.0.0:"))?;
            let port = rest.split(|char: char| !char.is_ascii_digit()).next()?;
            Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?)))
        };
        self.admin.or_else(log)
    }

    /// Looks until it gets a value.
    ///
    /// # Errors
    /// When the agent ends before, or at the deadline; the error shows the end of its log.
    pub fn wait<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T> {
        let seen = wait::until(what, DEADLINE, || {
            // Asked first: what it did last counts.
            let ended = has_ended(self.id());
            look().map(Some).or_else(|| ended.then_some(None))
        });
        match seen {
            Ok(Some(seen)) => Ok(seen),
            Ok(None) => bail!("it ended before {what}; it said {}", self.tail()),
            Err(late) => Err(late).with_context(|| format!("it said {}", self.tail())),
        }
    }

    /// Waits until a number of lines contain all of some words.
    ///
    /// # Errors
    /// As for [`Agent::wait`].
    pub fn wait_for_lines(&self, count: usize, words: &[&str]) -> Result<()> {
        let says = |line: &&str| words.iter().all(|word| line.contains(word));
        self.wait(&format!("{count} lines with {words:?}"), || {
            let log = self.log().ok()?;
            (log.lines().filter(says).count() >= count).then_some(())
        })
    }

    /// Waits until a primary has a state, by a log in JSON.
    ///
    /// # Errors
    /// As for [`Agent::wait`].
    pub fn wait_for(&self, primary: &str, state: &str) -> Result<()> {
        let seen = self.wait(&format!("`{state}` of {primary}"), || {
            (self.state(primary).ok()?.as_deref() == Some(state)).then_some(())
        });
        seen.with_context(|| format!("it is {:?}", self.state(primary).ok().flatten()))
    }

    /// Waits until the first pass is complete: the agent then prints its summary, a line for each state and reason,
    /// here in JSON.
    ///
    /// # Errors
    /// As for [`Agent::wait`].
    pub fn wait_for_first_pass(&self) -> Result<()> {
        self.wait("the summary of the first pass", || {
            self.log().ok()?.lines().find_map(is_summary)
        })
    }

    /// Whether the first pass is complete and its workqueues are empty now.
    pub fn has_nothing_to_do(&self) -> bool {
        let looked = self
            .log()
            .ok()
            .and_then(|log| log.lines().find_map(is_summary));
        let left = |admin| http::metric(admin, "transom_queue_primaries", "").ok();
        looked.is_some() && self.admin().and_then(left) == Some(0.0)
    }

    /// Waits until its admin server listens, and returns its address.
    ///
    /// # Errors
    /// As for [`Agent::wait`].
    pub fn listening(&self) -> Result<SocketAddr> {
        self.wait("the address of its admin server", || self.admin())
    }

    /// Waits until it is ready, and returns the address of its admin server.
    ///
    /// # Errors
    /// As for [`Agent::wait`].
    pub fn ready(&self) -> Result<SocketAddr> {
        let admin = self.listening()?;
        let answers = || Some(http::get(admin, "/readyz").ok()?.status == 200);
        self.wait("readiness", || answers()?.then_some(admin))
    }

    /// Bytes of memory that it uses now.
    ///
    /// # Errors
    /// When it is not running.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.bytes("VmRSS:")
    }

    /// Its peak memory in bytes.
    ///
    /// # Errors
    /// When it is not running.
    pub fn peak_bytes(&self) -> Result<u64> {
        self.bytes("VmHWM:")
    }

    /// The peak memory in bytes of it and its children together, if the kernel counts that.
    ///
    /// # Errors
    /// When it has no limit, has exited, or a process was killed for exceeding the limit.
    pub fn held(&mut self) -> Result<Option<u64>> {
        let ended = self.ended()?;
        let peak = self.bound.as_ref().context("it has no bound")?.held()?;
        ensure!(
            ended.is_none(),
            "the agent ended within its bound: {ended:?}\n{}",
            self.log()?
        );
        Ok(peak)
    }

    fn bytes(&self, name: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .context("the agent is not running")?;
        let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kibibytes * 1024)
    }

    /// The ids of its running child processes.
    ///
    /// # Errors
    /// When the system does not provide this.
    pub fn children(&self) -> Result<Vec<u32>> {
        let own = self.child.id().to_string();
        let mut children = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(number) = entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            if process(number).is_some_and(|(_, parent)| parent == own) {
                children.push(number);
            }
        }
        Ok(children)
    }

    /// Its exit status; none while it is running.
    ///
    /// # Errors
    /// When the system does not provide this.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Kills it at once.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends it a signal, named as for `kill`.
    ///
    /// # Errors
    /// When it has already exited.
    pub fn signal(&self, signal: &str) -> Result<()> {
        let sent = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status()?;
        ensure!(sent.success(), "the agent had ended before it got {signal}");
        Ok(())
    }

    /// Asks it to exit, and returns its output.
    ///
    /// # Errors
    /// When it does not exit, or exits with an error.
    pub fn stop(mut self) -> Result<String> {
        if let Some(file) = self.pages.take() {
            let admin = self
                .admin()
                .context("it never said where its admin server listens")?;
            let page = |page: &&str| Ok(http::get(admin, page)?.body);
            fs::write(file, PAGES.iter().map(page).collect::<Result<String>>()?)?;
        }
        self.signal("-TERM")?;
        self.end()
    }

    /// Waits until it exits by itself, and returns its output.
    ///
    /// # Errors
    /// When it does not exit, or exits with an error.
    pub fn end(mut self) -> Result<String> {
        let status = wait::until("its end", DEADLINE, || self.child.try_wait().ok().flatten())?;
        let log = self.log()?;
        ensure!(status.success(), "it ended with {status}: {}", self.tail());
        Ok(log)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // If it has already exited, both do nothing.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
