//! Which job may begin: how many of each kind run at once, and which wait for others.

use super::{Job, JobKind, LoadQueue, RunningJob};
use crate::policies::swap::GRACE;
use std::collections::BTreeSet;
use std::time::Duration;

/// How many jobs of one kind run at once, not counting those that take longer than [`GRACE`].
const AT_ONCE: usize = 2;
/// How many quick jobs run at once, counting those that take longer than [`GRACE`]: each holds the bytes of its
/// components.
const AT_MOST: usize = 6;
/// How many jobs read components or have read them and wait for their turn: each holds the bytes.
const READING: usize = 2;
/// How many jobs ask registries at once, counting those that take longer than [`GRACE`]: each has a process for it.
const PULLING: usize = 4;

/// How long a registry that was not asked before may give nothing while another one waits for its process.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many registries are remembered.
const REGISTRIES: usize = 1_024;

/// What the queue holds, counted once for all jobs in it: there may be thousands.
pub(super) struct InQueue {
    /// Whether any job uses builtin guests only.
    builtin: bool,
    /// Whether a slow job holds what it read.
    slow: bool,
    /// How many other jobs hold what they read near.
    read: usize,
    /// How many other jobs hold what they pulled.
    pulled: usize,
}

impl LoadQueue {
    /// Counts what the queue holds.
    pub(super) fn in_queue(&self) -> InQueue {
        let mut in_queue = InQueue {
            builtin: self.builtin(),
            slow: false,
            read: 0,
            pulled: 0,
        };
        for job in self.queue.iter().filter(|job| job.holds()) {
            match (job.slow, job.pulls) {
                (true, _) => in_queue.slow = true,
                (false, false) => in_queue.read += 1,
                (false, true) => in_queue.pulled += 1,
            }
        }
        in_queue
    }

    /// Whether a job may begin. A policy has one job at a time; builtin guests come first and wait for no file.
    pub(super) fn may_begin(&self, job: &Job, in_queue: &InQueue) -> bool {
        let mut running = self.running.values();
        if job.rests() || running.any(|running| running.policy == job.name) {
            return false;
        }
        let kind = job.kind();
        let same = || self.running.values().filter(|running| running.kind == kind);
        let quick = |running: &&RunningJob| running.since.elapsed() < GRACE;
        match kind {
            // One slow job at a time holds or reads components, so that the memory for them is bounded, too.
            JobKind::Reading | JobKind::Pulling if job.slow => {
                !in_queue.slow && !self.running.values().any(|running| running.slow)
            }
            // A slow registry holds up no job that needs none.
            JobKind::Reading | JobKind::Pulling => {
                let is_near = kind == JobKind::Reading;
                let reading = same().filter(|running| !running.slow && (is_near || quick(running)));
                let held = if job.pulls {
                    in_queue.pulled
                } else {
                    in_queue.read
                };
                reading.count() + held < READING && (is_near || self.may_pull(job))
            }
            JobKind::Builtin => same().count() < AT_ONCE,
            JobKind::Quick => {
                !in_queue.builtin
                    && same().filter(quick).count() < AT_ONCE
                    && same().count() < AT_MOST
            }
            JobKind::Slow => !in_queue.builtin && same().next().is_none(),
        }
    }

    /// Whether registries may be asked for a job. One registry gets few of the processes: one until it has given
    /// something, so that some that are slow hold up no others. Once one is known to give something, another process is
    /// left for it. All that gave nothing the last time get one together.
    fn may_pull(&self, job: &Job) -> bool {
        let running = self.running.values();
        let pulling: Vec<_> = running
            .filter(|running| running.kind == JobKind::Pulling)
            .map(|running| &running.registries)
            .collect();
        let is_new = |one: &&String| self.gave(one) != Some(true);
        let is_silent =
            |asked: &BTreeSet<String>| asked.iter().any(|one| self.gave(one) == Some(false));
        let is_same = |asked: &&&BTreeSet<String>| !asked.is_disjoint(&job.registries);
        let same = pulling.iter().filter(is_same).count();
        let new: Vec<_> = job.registries.iter().filter(is_new).collect();
        let is_asked = pulling
            .iter()
            .any(|asked| new.iter().any(|one| asked.contains(*one)));
        let waits = is_silent(&job.registries) && pulling.iter().any(|asked| is_silent(asked));
        if pulling.len() >= PULLING || waits || same >= READING {
            return false;
        }
        if new.is_empty() {
            return true;
        }
        let asks_new = |asked: &&&BTreeSet<String>| asked.iter().any(|one| is_new(&one));
        let unknown = pulling.iter().filter(asks_new).count();
        !is_asked && unknown < self.for_unknown()
    }

    /// Has the job of a registry that was not asked before, and gives nothing, make way for a job of another registry
    /// that waits for a process. The registry counts as one that gives nothing from then on; its job is queued again.
    pub(super) fn make_way(&mut self) {
        let asked: BTreeSet<&String> = (self.running.values())
            .flat_map(|running| &running.registries)
            .collect();
        let waits = self.queue.iter().any(|job| {
            let mut registries = job.registries.iter();
            job.kind() == JobKind::Pulling
                && !(job.rests() || job.slow)
                && registries.all(|one| self.gave(one) != Some(false) && !asked.contains(one))
        });
        let pulling = |one: &&RunningJob| one.kind == JobKind::Pulling && !one.ended;
        let pulling = || self.running.iter().filter(move |(_, one)| pulling(one));
        let is_over = pulling().any(|(_, one)| one.gives_way.is_none());
        if !waits || is_over || pulling().count() < self.for_unknown() {
            return;
        }
        let asked_for = |one: &String| self.components.images()?.asked_for(one);
        let is_late = |one: &&String| {
            self.gave(one).is_none() && asked_for(one).is_some_and(|asked| asked >= PATIENCE)
        };
        let late = pulling().filter_map(|(id, one)| {
            let registry = one.registries.iter().find(is_late)?;
            Some((one.since, *id, registry.clone()))
        });
        let Some((_, id, registry)) = late.min_by_key(|(since, ..)| *since) else {
            return;
        };
        self.remember(&registry, false);
        let late = self.running.get_mut(&id);
        if let Some(gives_way) = late.and_then(|late| late.gives_way.take()) {
            gives_way.notify_one();
        }
    }

    /// How many processes may ask registries that are not known to answer: where any is known to, one is left for it.
    fn for_unknown(&self) -> usize {
        PULLING - usize::from(self.registries.values().any(|gave| *gave))
    }

    /// Records whether anything could be had from a registry. Policies come and go: where so many were asked, most are
    /// asked no more.
    pub(super) fn remember(&mut self, registry: &str, gave: bool) {
        if self.registries.len() >= REGISTRIES {
            self.registries.clear();
        }
        self.registries.insert(registry.to_owned(), gave);
    }

    /// Whether anything could be had from a registry the last time; `None` for one that was not asked yet.
    fn gave(&self, registry: &str) -> Option<bool> {
        self.registries.get(registry).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::engine;
    use crate::policies::component_cache::ComponentCache;
    use crate::policies::components::Components;
    use crate::policies::images::Images;
    use crate::policies::load;
    use crate::policies::load_queue::JobOutput;
    use crate::policies::wanted::WantedReads;
    use crate::policies::{BUILTIN, FoundPolicies};
    use serde_json::json;
    use transom_artifacts::{Base, Sources};

    /// A job that pulls from a registry, and its trigger from another one.
    fn job(number: u64, registry: &str, of_trigger: &str) -> Job {
        let mut found = FoundPolicies::default();
        found.take("a", &Base::Nowhere, BUILTIN[0].1.as_bytes());
        let mut written = found.policies.remove(0);
        written.value["metadata"]["name"] = json!(format!("p{number}"));
        let guests = &mut written.value["spec"]["guests"];
        guests["decide"]["component"] = json!(format!("oci:{registry}/a:v1"));
        guests["trigger"]["component"] = json!(format!("oci:{of_trigger}/a:v1"));
        let policy = load::check(&written.value).ok().unwrap();
        let wanted = WantedReads::new(&policy, &written, false);
        Job {
            policy: Some(policy.clone()),
            ..Job::new(number, &policy.name, wanted)
        }
    }

    #[tokio::test]
    async fn registries_that_hang_hold_up_no_policy_of_another_one() {
        let unfit = r#"{"reason": "ComponentNotFound", "message": "no"}"#;
        let script = format!(r#"case "$*" in *hangs*) exec sleep 3600;; *) echo '{unfit}';; esac"#);
        let words = ["sh", "-c", &script, "sh"].map(Into::into);
        let components = Components::new(&"builtin,oci:*".parse::<Sources>().unwrap())
            .pulling(Images::new(words.to_vec()), ComponentCache::default());
        let engine = engine::of_tests();
        let mut loads = LoadQueue::new(engine, components);
        for number in 1..=6 {
            let hangs = format!("hangs-{number}.example");
            loads.add(job(number, &hangs, &format!("answers-{number}.example")));
        }
        loads.add(job(7, "answers.example", "answers.example"));
        let JobOutput::Done(first) = loads.next().await else {
            panic!("it restores nothing")
        };
        assert_eq!(&*first.policy, "p7", "{:?}", first.result.err());
        assert_eq!(loads.count(), 6, "the others are still tried");
        let silent: Vec<_> = loads
            .registries
            .iter()
            .filter(|(_, gave)| !**gave)
            .collect();
        assert!(
            silent
                .iter()
                .all(|(registry, _)| registry.starts_with("hangs"))
                && !silent.is_empty(),
            "{silent:?}"
        );
    }
}
