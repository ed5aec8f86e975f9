//! A limit on the memory of a program and of all its children: a control group if possible, else a resource limit. If
//! neither is available, this is an error.

use crate::agent::DEADLINE;
use anyhow::{Context as _, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use transom_support::wait;

/// A limit for what is started within it.
#[derive(Debug)]
pub struct Bound {
    bytes: u64,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// All processes together, including page cache and kernel memory; the kernel kills one of them beyond the limit.
    Group(Group),
    /// `RLIMIT_DATA` of each process: its private writable memory. Address space that is only reserved, as wasmtime
    /// does, does not count; memory that is mapped but untouched does. Beyond the limit, an allocation fails.
    Limit,
}

/// A control group created by the test.
#[derive(Debug)]
struct Group {
    folder: PathBuf,
    /// The names of its files.
    version: &'static Version,
}

/// The names of the files of a control group.
#[derive(Debug)]
struct Version {
    limit: &'static str,
    peak: &'static str,
    events: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version {
        limit: "memory.limit_in_bytes",
        peak: "memory.max_usage_in_bytes",
        events: "memory.oom_control",
    },
    Version {
        limit: "memory.max",
        peak: "memory.peak",
        events: "memory.events",
    },
];

impl Bound {
    /// A limit of this many bytes. If the limit applies to each process alone, the program gets what its children do
    /// not use together, and it sets a limit for each child: `children` bytes for all of them.
    ///
    /// # Errors
    /// When there is no way to limit memory.
    pub fn new(bytes: u64, children: u64) -> Result<Self> {
        match Group::new(bytes) {
            Some(group) => Ok(Self {
                bytes,
                way: Way::Group(group),
            }),
            None => Self::limit(bytes - children),
        }
    }

    /// A resource limit, even if a control group is possible.
    ///
    /// # Errors
    /// When the shell knows no such limit.
    pub fn limit(bytes: u64) -> Result<Self> {
        let bound = Self {
            bytes,
            way: Way::Limit,
        };
        let tried = bound
            .on(&Command::new("true"))
            .status()
            .context("failed to run a shell")?;
        ensure!(
            tried.success(),
            "memory can be bounded neither by a control group nor by `ulimit -d`"
        );
        Ok(bound)
    }

    /// The command within the limit; the resulting process is the command itself.
    pub fn on(&self, command: &Command) -> Command {
        let mut within = Command::new("sh");
        let bound = match &self.way {
            Way::Group(group) => format!(
                "echo $$ > '{}'",
                group.folder.join("cgroup.procs").display()
            ),
            Way::Limit => format!("ulimit -d {}", self.bytes >> 10),
        };
        within
            .args(["-c", &format!("{bound} && exec \"$@\""), "sh"])
            .arg(command.get_program())
            .args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            within.current_dir(folder);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => within.env(name, value),
                None => within.env_remove(name),
            };
        }
        within
    }

    /// The peak bytes within the limit; fails if a process was killed for it. Without a group the kernel counts
    /// nothing, and a program beyond the limit exits by itself.
    ///
    /// # Errors
    /// When a process was killed, or the kernel does not provide this.
    pub fn held(&self) -> Result<Option<u64>> {
        let Way::Group(group) = &self.way else {
            return Ok(None);
        };
        let events = fs::read_to_string(group.folder.join(group.version.events))?;
        let killed = events
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "))
            .context("no count of kills")?;
        ensure!(
            killed.trim() == "0",
            "{killed} processes were killed beyond {} MiB",
            self.bytes >> 20
        );
        // A kernel before 5.19 has no peak value for a cgroup v2 group.
        let peak = fs::read_to_string(group.folder.join(group.version.peak)).ok();
        Ok(peak.and_then(|peak| peak.trim().parse().ok()))
    }
}

impl Group {
    /// Beside or below the group of this process, or at the root; none if no group can be created.
    fn new(bytes: u64) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut places = Vec::new();
        for line in own.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
            let root = match controllers {
                "" => Path::new("/sys/fs/cgroup"),
                controllers if controllers.split(',').any(|one| one == "memory") => {
                    Path::new("/sys/fs/cgroup/memory")
                }
                _ => continue,
            };
            let own = root.join(path);
            places.extend(own.parent().map(Path::to_owned));
            places.extend([own, root.to_owned()]);
        }
        places.iter().find_map(|place| Self::below(place, bytes))
    }

    fn below(place: &Path, bytes: u64) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = place.join(format!("transom-test-{}-{number}", std::process::id()));
        if !place.starts_with("/sys/fs/cgroup") || fs::create_dir(&folder).is_err() {
            return None;
        }
        let version = VERSIONS
            .iter()
            .find(|version| folder.join(version.limit).exists());
        let Some(version) = version else {
            drop(fs::remove_dir(&folder));
            return None;
        };
        let group = Self { folder, version };
        group.set(bytes).ok().map(|()| group)
    }

    /// Sets the limit, and checks that a process can enter.
    fn set(&self, bytes: u64) -> Result<()> {
        fs::write(self.folder.join(self.version.limit), bytes.to_string())?;
        let enter = format!("echo $$ > '{}'", self.folder.join("cgroup.procs").display());
        let entered = Command::new("sh")
            .args(["-c", &enter])
            .stderr(Stdio::null())
            .status()?;
        if !entered.success() {
            bail!("no process may enter");
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A killed process leaves the group a little later. A process that remains keeps the group, where it can be
        // seen.
        drop(wait::until("the end of a control group", DEADLINE, || {
            fs::remove_dir(&self.folder).ok()
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a shell can allocate this many MiB in a child process within a limit.
    fn holds(bound: &Bound, mebibytes: u64) -> bool {
        let script = format!(
            "head -c {mebibytes}m /dev/zero | tail -c {mebibytes}m > /dev/null && echo whole"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stderr(Stdio::null());
        bound
            .on(&command)
            .stderr(Stdio::null())
            .output()
            .is_ok_and(|done| done.stdout == b"whole\n")
    }

    #[test]
    fn kills_a_process_only_beyond_its_bound() {
        for bound in [
            Bound::new(64 << 20, 0).unwrap(),
            Bound::limit(64 << 20).unwrap(),
        ] {
            assert!(holds(&bound, 20), "{bound:?}");
            assert!(
                bound
                    .held()
                    .is_ok_and(|peak| peak.is_none_or(|peak| peak > 20 << 20)),
                "{bound:?}"
            );
            assert!(!holds(&bound, 200), "{bound:?}");
            let killed = bound.held().is_err();
            assert_eq!(killed, matches!(bound.way, Way::Group(_)), "{bound:?}");
        }
    }
}
