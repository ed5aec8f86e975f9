//! Puts off a primary that would be reconciled too often. Asks no guest, and reads at most the primary.

use crate::agent::Agent;
use crate::agent::queue::Request;
use crate::agent::workqueue::Workqueue;
use crate::policies::load::Loaded;
use crate::telemetry;
use std::time::Duration;
use transom_core::report::{self, Reconcile};
use transom_core::share::often::PutOff;
use transom_core::work::{Cause, Key, WorkItem};

impl Agent {
    /// Puts a request back into the queue until the primary may be reconciled again, and reports that once.
    pub(super) async fn put_off(
        &self,
        queue: &Workqueue,
        loaded: &Loaded,
        key: Key,
        request: Request,
        off: PutOff,
    ) {
        let left = off
            .until_seconds
            .saturating_sub(self.clock.now_seconds())
            .max(1);
        let after = Duration::from_secs(left.unsigned_abs());
        let cause = request.cause().cloned().unwrap_or(Cause::Undecided);
        for cause in request.causes {
            queue.push(&request.primary, cause, Some(after));
        }
        let Some(failure) = off.told else { return };
        // A primary that cannot be read now is reported without its uid.
        let primary = self.connections.read(&request.primary).await.ok().flatten();
        let uid = primary
            .map(|primary| primary.uid().to_owned())
            .unwrap_or_default();
        let reconcile = Reconcile::new(key.clone());
        let report = report::of(reconcile, Err(failure), self.schedule(loaded, &key));
        let work = WorkItem { key, cause };
        telemetry::counted(&work, &report, None, request.since.elapsed());
        queue.unless_removed(|| self.publish(&work, &uid, &report));
    }
}

#[cfg(test)]
mod tests {
    use crate::agent::Agent;
    use crate::agent::clock::Clock;
    use crate::agent::queue::{Queued, Request};
    use crate::command::session::Session;
    use crate::policies::Source;
    use crate::policies::loads::Loading;
    use std::path::Path;
    use tokio::time::Instant;
    use transom_cluster::directory::{Directory, DirectoryOptions};
    use transom_core::contract::AgentFacts;
    use transom_core::share::often::MAX_RECONCILES;
    use transom_core::work::Cause;
    use transom_engine::{Engine, EngineOptions};

    const POLICY: &str = "external-managed-kubeconfig";

    #[tokio::test(flavor = "multi_thread")]
    async fn limits_and_reports_reconciles_of_an_ever_changing_primary() {
        let folder = tempfile::tempdir().unwrap();
        let case = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../policies")
            .join(POLICY)
            .join("cases/G03-available");
        std::fs::copy(case.join("given.yaml"), folder.path().join("given.yaml")).unwrap();
        let options = DirectoryOptions {
            watch: false,
            ..DirectoryOptions::new("local", folder.path())
        };
        let engine = Engine::new(EngineOptions::default()).unwrap();
        let loading = Loading::start(engine, Source::Builtin, ["local".to_owned()].into());
        let session = Session::start(loading, Directory::open(options).unwrap(), |connections| {
            Agent::new(
                connections,
                Clock::new(Some(1_795_000_000)),
                AgentFacts::new("local-cluster", None),
            )
        });
        let Session { agent, .. } = &session.await.unwrap();
        let queue = agent.queue(POLICY).unwrap();
        let primary = agent
            .known
            .lock()
            .told
            .keys()
            .next()
            .unwrap()
            .primary
            .clone();
        agent.known.lock().journal = Some(Vec::new());
        for change in 0..2 * MAX_RECONCILES {
            let cause = if change % 2 == 0 {
                Queued::Updated
            } else {
                Queued::Reconcile(Cause::Timer)
            };
            let request = Request {
                primary: (*primary).clone(),
                causes: vec![cause],
                since: Instant::now(),
            };
            agent.reconcile(&queue, request).await;
            queue.done(&primary);
        }
        let reconciled = agent.known.lock().journal.take().unwrap().len();
        // The first one was reconciled when the session began.
        assert!(
            (1..MAX_RECONCILES as usize).contains(&reconciled),
            "{reconciled}"
        );
        let told = agent.known.lock().told.values().next().unwrap().clone();
        assert_eq!(told.reason.as_str(), "ReconcileBudgetExceeded");
        let status = folder.path().join(".transom/status").join(POLICY);
        let text: String = std::fs::read_dir(status)
            .unwrap()
            .flatten()
            .map(|file| std::fs::read_to_string(file.path()).unwrap())
            .collect();
        assert!(
            text.contains("ReconcileBudgetExceeded") && text.contains("2026-11-"),
            "{text}"
        );
        assert!(queue.is_idle(), "it waits for the minute to end");
    }
}
