//! A few API servers for all tests of a binary, each emptied before a test. A test has its server alone, and ends with
//! a search for harm. The agent is not cluster-admin: it has the permissions that `transom rbac` prints.

use crate::unharmed::Guard;
use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use transom_core::share::lock::MutexExt as _;
use transom_e2e::program;
use transom_test_cluster::{Cluster, Line, Mark, Objects, Options, User, wait};

/// The deadline of every wait.
pub(crate) const DEADLINE: Duration = transom_e2e::agent::DEADLINE;
/// The namespace of the agent's service account.
pub(crate) const HOME: &str = "transom";
/// The account's name.
const ACCOUNT: &str = "agent";
/// API version and kind of the objects that the tests create.
pub(crate) const HOSTED: (&str, &str) = ("hypershift.openshift.io/v1beta1", "HostedCluster");
pub(crate) const MANAGED: (&str, &str) =
    ("cluster.open-cluster-management.io/v1", "ManagedCluster");
pub(crate) const KLUSTERLET: (&str, &str) =
    ("operator.open-cluster-management.io/v1", "Klusterlet");
pub(crate) const SECRET: (&str, &str) = ("v1", "Secret");
pub(crate) const SERVICE: (&str, &str) = ("v1", "Service");
pub(crate) const NAMESPACE: (&str, &str) = ("v1", "Namespace");
/// Names of the CRDs.
pub(crate) const CRDS: [&str; 3] = [
    "hostedclusters.hypershift.openshift.io",
    "managedclusters.cluster.open-cluster-management.io",
    "klusterlets.operator.open-cluster-management.io",
];
/// The words of `transom rbac` for whatever an agent with the bundled policies is asked to do.
pub(crate) const ANY_TASK: [&str; 5] = [
    "--policy-objects",
    "--lease-namespace",
    HOME,
    "--admin-address",
    "0.0.0.0:0",
];
/// What the agent writes beside its main task.
pub(crate) const BESIDE: [&str; 3] = ["events", "leases", "fleetpolicies"];

/// Whether a request is a write other than what an agent writes beside its main task.
pub(crate) fn is_main_write(line: &Line) -> bool {
    line.is_write() && !BESIDE.contains(&line.resource())
}
/// Concurrent requests.
pub(crate) const PARALLEL: usize = 12;

/// The server and the agent's account on it.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) agent: User,
    pub(crate) guard: Guard,
}

/// Servers at most at a time: a test mostly waits, so two cores serve this many.
const SERVERS: usize = 4;

/// The servers that no test uses, and the number of tests that run. A server is started by the first test that finds
/// none; it comes back emptied of faults or not at all: a test that fails takes its server with it.
struct Pool {
    state: Mutex<(Vec<(Stage, Runtime)>, usize)>,
    ended: Condvar,
}

static POOL: Pool = Pool {
    state: Mutex::new((Vec::new(), 0)),
    ended: Condvar::new(),
};

/// The right to use one server; ends also in a panic.
struct Turn;

impl Turn {
    fn wait() -> Self {
        let mut state = POOL
            .ended
            .wait_while(POOL.state(), |(_, running)| *running >= SERVERS)
            .unwrap_or_else(PoisonError::into_inner);
        state.1 += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        POOL.state().1 -= 1;
        POOL.ended.notify_one();
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, (Vec<(Stage, Runtime)>, usize)> {
        self.state.locked()
    }
}

/// Runs one test on a server that no other test uses meanwhile.
pub(crate) fn on_stage(test: impl AsyncFnOnce(&Stage) -> Result<()>) -> Result<()> {
    let _turn = Turn::wait();
    let free = POOL.state().0.pop();
    let (stage, runtime) = free.map_or_else(|| started(&[]), Ok)?;
    run(&stage, &runtime, test)?;
    POOL.state().0.push((stage, runtime));
    Ok(())
}

/// The same on a server that no other test gets, for tests with another permanent writer on it.
pub(crate) fn on_stage_of_its_own(test: impl AsyncFnOnce(&Stage) -> Result<()>) -> Result<()> {
    let _turn = Turn::wait();
    let (stage, runtime) = started(&[])?;
    run(&stage, &runtime, test)
}

/// The same on a server that answers watches from etcd, so that it cannot answer for revisions that etcd has compacted.
pub(crate) fn on_stage_without_cache(test: impl AsyncFnOnce(&Stage) -> Result<()>) -> Result<()> {
    let _turn = Turn::wait();
    let (stage, runtime) = started(&["--watch-cache=false"])?;
    run(&stage, &runtime, test)
}

fn started(flags: &[&str]) -> Result<(Stage, Runtime)> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("failed to start a runtime")?;
    let options = Options {
        apiserver: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        ..Options::default()
    };
    Ok((runtime.block_on(Stage::start(&options))?, runtime))
}

fn run(
    stage: &Stage,
    runtime: &Runtime,
    test: impl AsyncFnOnce(&Stage) -> Result<()>,
) -> Result<()> {
    runtime.block_on(async {
        stage.clear().await.context("failed to empty the server")?;
        test(stage).await?;
        stage.unharmed().await
    })
}

/// The words of a command that uses the policies at a path.
pub(crate) fn policies_at(path: &Path) -> Result<[&str; 2]> {
    let path = path
        .to_str()
        .context("the path of the policies is not UTF-8")?;
    Ok(["--policies", path])
}

impl Stage {
    async fn start(options: &Options) -> Result<Self> {
        let cluster = Cluster::start(options).await?;
        cluster.install_crds(&CRDS).await?;
        let agent = cluster.service_account(HOME, ACCOUNT).await?;
        let guard = Guard::default();
        guard.look_for_token(&agent);
        let stage = Self {
            cluster,
            agent,
            guard,
        };
        stage.grant().await?;
        Ok(stage)
    }

    /// Grants the agent the permissions that it says it needs, for any task.
    pub(crate) async fn grant(&self) -> Result<()> {
        /// What is printed for every test.
        static RIGHTS: OnceLock<String> = OnceLock::new();
        if RIGHTS.get().is_none() {
            // Another test may have been faster.
            drop(RIGHTS.set(self.rights(ACCOUNT, &ANY_TASK, "yaml")?));
        }
        let rights = RIGHTS.get().context("nothing was printed")?;
        self.objects().apply_manifest(rights).await
    }

    /// A second agent, with the same permissions.
    pub(crate) async fn another_agent(&self, name: &str) -> Result<User> {
        self.account(name, &ANY_TASK).await
    }

    /// An account with the permissions that `transom rbac` prints for some words.
    pub(crate) async fn account(&self, name: &str, words: &[&str]) -> Result<User> {
        self.grant_to(name, words).await?;
        let user = self.cluster.service_account(HOME, name).await?;
        self.guard.look_for_token(&user);
        Ok(user)
    }

    async fn grant_to(&self, account: &str, words: &[&str]) -> Result<()> {
        let rights = self.rights(account, words, "yaml")?;
        self.objects().apply_manifest(&rights).await
    }

    /// What `transom rbac` prints for an account with these flags.
    pub(crate) fn rights(&self, account: &str, words: &[&str], form: &str) -> Result<String> {
        let mut transom = Command::new(program::binary()?);
        let output = transom
            .args([
                "rbac",
                "--name",
                account,
                "--service-account",
                account,
                "--output",
                form,
            ])
            .args(words)
            .output()?;
        ensure!(
            output.status.success(),
            "`transom rbac` ended with {}",
            output.status
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Revokes all permissions, and waits until the server knows.
    pub(crate) async fn revoke(&self) -> Result<()> {
        self.delete(
            ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
            None,
            ACCOUNT,
        )
        .await?;
        let client = self.cluster.client(&self.agent).await?;
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client);
        wait::until("the end of the agent's rights", DEADLINE, async || {
            let refused = namespaces.list(&ListParams::default().limit(1)).await;
            Ok(
                matches!(refused, Err(kube::Error::Api(status)) if status.code == 403)
                    .then_some(()),
            )
        })
        .await
    }

    /// Removes a CRD with its objects, and waits until it is gone.
    pub(crate) async fn remove_crd(&self, name: &str) -> Result<()> {
        let kind = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        self.delete(kind, None, name).await?;
        wait::until(
            &format!("the end of the CRD {name}"),
            DEADLINE,
            async || Ok(self.get(kind, None, name).await?.is_none().then_some(())),
        )
        .await
    }

    /// The objects of the server, as the admin sees them.
    pub(crate) fn objects(&self) -> &Objects {
        self.cluster.objects()
    }

    /// One kind, in one namespace or in all.
    pub(crate) async fn api(
        &self,
        kind: (&str, &str),
        namespace: Option<&str>,
    ) -> Result<Api<DynamicObject>> {
        self.objects().api(kind.0, kind.1, namespace).await
    }

    /// All objects of a kind; waits while the server does not serve a new CRD yet.
    pub(crate) async fn list(&self, kind: (&str, &str)) -> Result<Vec<DynamicObject>> {
        let api = self.api(kind, None).await?;
        wait::until(
            &format!("a list of {}", kind.1),
            DEADLINE,
            async || match api.list(&ListParams::default()).await {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 429) => Ok(None),
                listed => Ok(Some(listed?.items)),
            },
        )
        .await
    }

    /// An object as JSON; none if it does not exist.
    pub(crate) async fn get(
        &self,
        kind: (&str, &str),
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>> {
        let found = self.api(kind, namespace).await?.get_opt(name).await?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }

    /// Merges a patch into an object.
    pub(crate) async fn patch(
        &self,
        kind: (&str, &str),
        namespace: Option<&str>,
        name: &str,
        patch: Value,
    ) -> Result<()> {
        let api = self.api(kind, namespace).await?;
        let patched = api
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.with_context(|| format!("failed to patch {} `{name}`", kind.1))?;
        Ok(())
    }

    /// Replaces the status of an object, nulls included.
    pub(crate) async fn put_status(
        &self,
        kind: (&str, &str),
        namespace: Option<&str>,
        name: &str,
        to: &Value,
    ) -> Result<()> {
        let api = self.api(kind, namespace).await?;
        let written = self.objects().write_status(&api, name, to).await;
        written.with_context(|| format!("failed to write the status of {} `{name}`", kind.1))?;
        Ok(())
    }

    /// Deletes an object; it may be missing.
    pub(crate) async fn delete(
        &self,
        kind: (&str, &str),
        namespace: Option<&str>,
        name: &str,
    ) -> Result<()> {
        match self
            .api(kind, namespace)
            .await?
            .delete(name, &DeleteParams::default())
            .await
        {
            // Gone, or a namespace that is being deleted.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            deleted => deleted
                .map(drop)
                .with_context(|| format!("failed to delete {} `{name}`", kind.1)),
        }
    }

    /// The end of the audit log, once it contains the agent's earlier requests.
    pub(crate) fn mark(&self) -> Result<Mark> {
        self.cluster.audit().mark()
    }

    /// Who wrote what since a mark, as `verb resource namespace/name`, without Events, leases and the status of
    /// policies. Waits for a request of its own first: the log is in the order of the responses.
    pub(crate) async fn writes(&self, since: Mark) -> Result<Vec<String>> {
        let lines = self.lines(since).await?;
        let writes = lines.iter().filter(|line| {
            line.is_write()
                && line.code < 300
                && line
                    .target
                    .as_ref()
                    .is_some_and(|target| !BESIDE.contains(&target.resource.as_str()))
        });
        let text = |line: &Line| {
            let target = line.target.clone().unwrap_or_default();
            format!(
                "{} {} {}/{}",
                line.verb, target.resource, target.namespace, target.name
            )
        };
        Ok(writes.map(text).collect())
    }

    /// Every request of the agent that changes something, including Events and status.
    pub(crate) async fn changing(&self, since: Mark) -> Result<Vec<String>> {
        let lines = self.lines(since).await?;
        let reads = ["get", "list", "watch"];
        let changing = lines
            .iter()
            .filter(|line| !reads.contains(&line.verb.as_str()));
        Ok(changing
            .map(|line| format!("{} {}", line.verb, line.uri))
            .collect())
    }

    /// Every request of the agent that was answered since a mark.
    pub(crate) async fn lines(&self, since: Mark) -> Result<Vec<Line>> {
        let lines = self.all_lines(since).await?;
        Ok(lines
            .into_iter()
            .filter(|line| line.user == self.agent.name())
            .collect())
    }

    /// Checks that nothing was denied to the agent since a mark.
    pub(crate) async fn nothing_denied(&self, since: Mark) -> Result<()> {
        let lines = self.lines(since).await?;
        let denied: Vec<_> = lines.iter().filter(|line| line.denied).collect();
        ensure!(denied.is_empty(), "denied: {denied:#?}");
        Ok(())
    }

    /// Checks that another agent finds everything right: these primaries are in sync, and it writes nothing.
    pub(crate) async fn finds_all_right(&self, words: &[&str], primaries: &[&str]) -> Result<()> {
        let mark = self.mark()?;
        let agent = self.start_agent(words)?;
        agent.wait_for_first_pass()?;
        for primary in primaries {
            agent.wait_for(primary, "Applied InSync")?;
        }
        agent.stop()?;
        let writes = self.writes(mark).await?;
        ensure!(writes.is_empty(), "{writes:#?}");
        Ok(())
    }

    /// Every request of any client that was answered since a mark.
    pub(crate) async fn all_lines(&self, since: Mark) -> Result<Vec<Line>> {
        let secrets = self.api(SECRET, Some("default")).await?;
        let last = format!("mark-{}", self.mark_number());
        drop(secrets.get_opt(&last).await?);
        wait::until("the end of the audit log", DEADLINE, async || {
            let lines = self.cluster.audit().since(since)?;
            let seen = lines.iter().any(|line| {
                line.target
                    .as_ref()
                    .is_some_and(|target| target.name == last)
            });
            Ok(seen.then(|| {
                lines
                    .into_iter()
                    .filter(|line| line.stage == "ResponseComplete")
                    .collect()
            }))
        })
        .await
    }

    fn mark_number(&self) -> u64 {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
}
