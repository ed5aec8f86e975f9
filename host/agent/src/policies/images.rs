//! Pulls components from registries, each in a process of its own: a registry may answer without end, and then only
//! that process ends.

use crate::policies::load::known_reason;
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::{Instant, interval, timeout};
use transom_api::KnownReason;
use transom_artifacts::signature::Evidence;
use transom_artifacts::{MAX_BYTES, Pulled, Unread};
use transom_core::policy::component::Image;
use transom_core::share::lock::MutexExt as _;
use transom_engine::{anonymous_bytes, memory_is_told};

/// How long a pull may take.
const LONGEST: Duration = Duration::from_secs(60);
/// How long a registry may take to say what a tag means.
const RESOLVES: Duration = Duration::from_secs(15);
/// The most bytes of memory that a pull takes besides the program itself; the largest component with its signatures
/// takes some 30 MiB.
const BYTES: u64 = 40 << 20;
/// How many processes there are at once, for pulls and for looks at tags: together with the agent and its compilers
/// they fit into the memory that the chart gives.
const AT_ONCE: usize = 4;
/// The interval between two checks of the memory; in between the process can take little more.
const LOOK: Duration = Duration::from_millis(5);
/// The most bytes of the first line of an answer, which holds the signatures.
const HEAD: u64 = 2 << 20;

/// Registries, asked through a program.
#[derive(Clone)]
pub(crate) struct Images {
    /// The program and its arguments; the artifact follows.
    words: Arc<Vec<OsString>>,
    turns: Arc<Semaphore>,
    /// Which registries are asked now, and since when.
    asked: Arc<Mutex<Vec<(String, Instant)>>>,
}

/// A process that asks a registry.
struct Asking<'a> {
    images: &'a Images,
    registry: &'a str,
    since: Instant,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut asked = self.images.asked.locked();
        let this = |(registry, since): &_| registry == self.registry && *since == self.since;
        if let Some(at) = asked.iter().position(this) {
            asked.swap_remove(at);
        }
    }
}

impl Images {
    /// Asks by a program that prints a line of JSON and the bytes of the component: this one, as `transom fetch`.
    pub(crate) fn new(words: Vec<OsString>) -> Self {
        Self {
            words: Arc::new(words),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            asked: Arc::default(),
        }
    }

    /// How long a process has been asking a registry, if one does.
    pub(crate) fn asked_for(&self, registry: &str) -> Option<Duration> {
        let asked = self.asked.locked();
        let mut of_it = asked.iter().filter(|(one, _)| one == registry);
        of_it.next().map(|(_, since)| since.elapsed())
    }

    /// Records that a process asks a registry, until the result is dropped.
    fn asking<'a>(&'a self, registry: &'a str) -> Asking<'a> {
        let since = Instant::now();
        self.asked.locked().push((registry.to_owned(), since));
        Asking {
            images: self,
            registry,
            since,
        }
    }

    /// Pulls a component, with its signatures if they are wanted.
    ///
    /// # Errors
    /// With the reason and the message of the program; or when it exceeds a limit.
    pub(crate) async fn pull(&self, image: &Image, signed: bool) -> Result<Pulled, Unread> {
        let flag = signed.then_some("--signatures");
        let (head, bytes) = self.told(image, flag, LONGEST).await?;
        let manifest = head.get("manifest").and_then(Value::as_str);
        Ok(Pulled {
            bytes,
            manifest: manifest.unwrap_or_default().to_owned(),
            evidence: head.get("evidence").and_then(Evidence::from_json),
        })
    }

    /// `sha256:<hex>` of the manifest that a tag names now.
    ///
    /// # Errors
    /// As for [`Images::pull`].
    pub(crate) async fn resolve(&self, image: &Image) -> Result<String, Unread> {
        let (head, _) = self.told(image, Some("--resolve"), RESOLVES).await?;
        let manifest = head.get("manifest").and_then(Value::as_str);
        Ok(manifest.unwrap_or_default().to_owned())
    }

    /// The line of JSON and the bytes that the program prints. The wait for a free process does not count as time.
    async fn told(
        &self,
        image: &Image,
        flag: Option<&str>,
        longest: Duration,
    ) -> Result<(Value, Vec<u8>), Unread> {
        let message = |why: String| format!("failed to pull `oci:{image}`: {why}");
        let failed = |reason, why: String| Unread::new(reason, message(why));
        // Never closed.
        let _turn = self.turns.acquire().await.ok();
        let _asking = self.asking(&image.registry);
        let said = match timeout(longest, self.ask(image, flag)).await {
            Ok(Ok(Some(said))) => said,
            Ok(Ok(None)) => {
                let why = format!(
                    "reading the answers of the registry takes more than {BYTES} bytes of memory"
                );
                return Err(failed(KnownReason::RegistryUnavailable, why));
            }
            Ok(Err(error)) => {
                let why = format!("failed to run the process for it: {error}");
                return Err(failed(KnownReason::AgentFailed, why));
            }
            Err(_) => {
                let why = format!("it takes longer than {} seconds", longest.as_secs());
                return Err(Unread::silent(
                    KnownReason::RegistryUnavailable,
                    message(why),
                ));
            }
        };
        let ended = || {
            let why = "the process for it ended without a result".to_owned();
            failed(KnownReason::AgentFailed, why)
        };
        let end = said
            .iter()
            .position(|byte| *byte == b'\n')
            .ok_or_else(ended)?;
        let (head, rest) = said.split_at(end);
        let head: Value = serde_json::from_slice(head).map_err(|_| ended())?;
        let text = |field: &str| head.get(field).and_then(Value::as_str);
        match (text("manifest"), text("reason"), text("message")) {
            (Some(_), ..) => Ok((head, rest.get(1..).unwrap_or_default().to_vec())),
            (None, Some(reason), Some(message)) => Err(Unread {
                reason: known_reason(reason),
                message: message.to_owned(),
                silent: head.get("silent") == Some(&Value::Bool(true)),
            }),
            _ => Err(ended()),
        }
    }

    /// What the program prints; `None` when it takes too much memory.
    async fn ask(&self, image: &Image, flag: Option<&str>) -> std::io::Result<Option<Vec<u8>>> {
        memory_is_told(Path::new("/proc/self"))?;
        let (program, words) = self
            .words
            .split_first()
            .ok_or(std::io::ErrorKind::InvalidInput)?;
        let mut child = Command::new(program)
            .args(words)
            .args(flag)
            .arg("--")
            .arg(image.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let process = child.id().map(|id| PathBuf::from(format!("/proc/{id}")));
        let stdout = child.stdout.take();
        let reading = async {
            let mut said = Vec::new();
            if let Some(stdout) = stdout {
                stdout.take(MAX_BYTES + HEAD).read_to_end(&mut said).await?;
            }
            child.wait().await?;
            Ok(Some(said))
        };
        let watching = async {
            let mut looks = interval(LOOK);
            let bytes = || process.as_deref().map_or(0, anonymous_bytes);
            while bytes() <= BYTES {
                looks.tick().await;
            }
        };
        tokio::select! {
            said = reading => said,
            () = watching => Ok(None),
        }
    }
}
