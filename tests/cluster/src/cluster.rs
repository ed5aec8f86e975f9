//! One cluster: etcd and kube-apiserver in their own folder, removed when the value is dropped; and one that all tests
//! of a program share.

use crate::audit::Audit;
use crate::certificates::{self, Authority, Pair, User};
use crate::flags::{self, Ports};
use crate::objects::Objects;
use crate::process::{Process, ProcessGroup};
use crate::{servers, wait};
use anyhow::{Context as _, Result, anyhow};
use kube::api::{GetParams, PostParams};
use kube::core::Request;
use kube::{Client, Config};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use std::{fs, thread};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// The deadline for the servers to become ready; far longer than needed on a busy machine.
const DEADLINE: Duration = Duration::from_secs(300);
/// The deadline of one readiness check.
const LOOK: Duration = Duration::from_secs(5);

/// Options of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether etcd flushes to disk; slower, and useful only if the machine may fail.
    pub fsync: bool,
    /// More flags for the API server, such as `--max-mutating-requests-inflight=1`.
    pub apiserver: Vec<String>,
    /// More DNS names of the API server, for its certificate.
    pub names: Vec<String>,
}

/// A running cluster. Ends when the value is dropped, also in a panic, and with the process, even if that is killed.
pub struct Cluster {
    // Order matters: the group ends first, then its processes are reaped, then the folder is removed.
    _group: ProcessGroup,
    apiserver: Process,
    etcd: Process,
    authority: Authority,
    ports: Ports,
    admin: User,
    objects: Objects,
    folder: TempDir,
}

impl Cluster {
    /// Starts the servers and waits until they are ready; about five seconds on a quiet machine.
    pub async fn start(options: &Options) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("transom-cluster-")
            .tempdir();
        let folder = folder.context("failed to make a folder for the cluster")?;
        let ports = Ports {
            etcd: flags::free_port()?,
            peer: flags::free_port()?,
            apiserver: flags::free_port()?,
        };
        let authority = Authority::new()?;
        let admin =
            User::with_certificate("admin", &authority.client("admin", &["system:masters"])?);
        let kubeconfig = admin.kubeconfig(&server(ports), &authority.pem())?;
        let objects = Objects::new(certificates::client(&kubeconfig).await?);
        let processes = ProcessGroup::start(folder.path())?;
        let group = processes.group()?;
        let log = |name: &str| folder.path().join(format!("{name}.log"));
        let mut flags = flags::apiserver(folder.path(), ports, &authority, &options.names)?;
        flags.extend(options.apiserver.iter().cloned());
        let apiserver = Process::new(
            "kube-apiserver",
            servers::binary("kube-apiserver")?,
            flags,
            log("kube-apiserver"),
            group,
        );
        // It collects garbage less often, which saves a seventh of its CPU.
        let apiserver = apiserver.with_variable("GOGC", "400");
        let flags = flags::etcd(folder.path(), ports, options.fsync);
        let etcd = Process::new("etcd", servers::binary("etcd")?, flags, log("etcd"), group);
        let etcd = etcd.with_variable("GOGC", "400");
        let cluster = Self {
            _group: processes,
            apiserver,
            etcd,
            authority,
            ports,
            admin,
            objects,
            folder,
        };
        cluster.etcd.start()?;
        cluster.apiserver.start()?;
        cluster.ready().await?;
        Ok(cluster)
    }

    /// Waits until the API server reports readiness and reads current data from etcd.
    pub async fn ready(&self) -> Result<()> {
        wait::until("a ready API server", DEADLINE, async || {
            self.etcd.check()?;
            self.apiserver.check()?;
            let look = tokio::time::timeout(LOOK, self.look()).await;
            Ok(matches!(look, Ok(Ok(()))).then_some(()))
        })
        .await
    }

    /// The server's own readiness may be some seconds old; it creates the namespace at its first start.
    async fn look(&self) -> kube::Result<()> {
        let client = self.objects.client();
        for (path, name) in [("", "readyz"), ("/api/v1/namespaces", "default")] {
            let look = Request::new(path)
                .get(name, &GetParams::default())
                .map_err(kube::Error::BuildRequest)?;
            client.request_text(look).await?;
        }
        Ok(())
    }

    /// Kills the API server, starts it again on the same port, and waits until it is ready.
    pub async fn restart_apiserver(&self) -> Result<()> {
        self.apiserver.kill()?;
        self.apiserver.start()?;
        self.ready().await
    }

    /// Kills etcd, starts it again on the same port and data, and waits until the API server is ready.
    pub async fn restart_etcd(&self) -> Result<()> {
        self.etcd.kill()?;
        self.etcd.start()?;
        self.ready().await
    }

    /// The API server, to kill, start, freeze and thaw.
    pub fn apiserver(&self) -> &Process {
        &self.apiserver
    }

    /// etcd, to kill, start, freeze and thaw.
    pub fn etcd(&self) -> &Process {
        &self.etcd
    }

    /// Where the API server listens, `https://127.0.0.1:<port>`.
    pub fn server(&self) -> String {
        server(self.ports)
    }

    /// Where etcd listens for clients, `http://127.0.0.1:<port>`.
    pub fn etcd_server(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.etcd)
    }

    /// The folder of logs, data and kubeconfigs; a test may put its own files there.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The certificate of the CA of the API server, PEM.
    pub fn authority(&self) -> String {
        self.authority.pem()
    }

    /// A certificate of that CA for a test's server on `127.0.0.1` or `localhost`: a proxy, a webhook.
    pub fn serving_certificate(&self) -> Result<Pair> {
        self.authority.server(&[])
    }

    /// The user with all permissions (`system:masters`).
    pub fn admin(&self) -> &User {
        &self.admin
    }

    /// The objects of the cluster, as the admin sees them.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The log of all requests.
    pub fn audit(&self) -> Audit {
        Audit::new(self.folder.path().join("audit.log"))
    }

    /// A user by certificate, with only the permissions that RBAC gives to its name and groups.
    pub fn user(&self, name: &str, groups: &[&str]) -> Result<User> {
        Ok(User::with_certificate(
            name,
            &self.authority.client(name, groups)?,
        ))
    }

    /// Writes the certificate and the key of the authority that server and users trust, for a program that signs
    /// certificates; returns their paths.
    pub fn write_authority(&self) -> Result<(PathBuf, PathBuf)> {
        let [certificate, key] =
            ["signer.crt", "signer.key"].map(|name| self.folder.path().join(name));
        fs::write(&certificate, self.authority.pem())?;
        fs::write(&key, self.authority.key_pem())?;
        Ok((certificate, key))
    }

    /// A service account with a token for an hour; creates the namespace and the account if they are missing.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<User> {
        let token = self.objects.token(namespace, name).await?;
        Ok(User::with_token(
            &format!("system:serviceaccount:{namespace}:{name}"),
            &token,
        ))
    }

    /// A kubeconfig as YAML; it contains the user's credential.
    pub fn kubeconfig(&self, user: &User) -> Result<String> {
        self.kubeconfig_at(user, &self.server())
    }

    /// The same for another address of this API server, such as a proxy in between.
    pub fn kubeconfig_at(&self, user: &User, server: &str) -> Result<String> {
        user.kubeconfig(server, &self.authority.pem())
    }

    /// Writes the kubeconfig of a user into the folder of the cluster, and returns its path.
    pub fn write_kubeconfig(&self, user: &User) -> Result<PathBuf> {
        let path = self
            .folder
            .path()
            .join(format!("{}.kubeconfig", user.name().replace(':', "-")));
        fs::write(&path, self.kubeconfig(user)?)
            .with_context(|| format!("failed to write `{}`", path.display()))?;
        Ok(path)
    }

    /// A client of a user.
    pub async fn client(&self, user: &User) -> Result<Client> {
        certificates::client(&self.kubeconfig(user)?).await
    }

    /// The real kubectl as a user.
    pub fn kubectl(&self, user: &User) -> Result<Command> {
        let mut kubectl = Command::new(servers::binary("kubectl")?);
        kubectl
            .arg("--kubeconfig")
            .arg(self.write_kubeconfig(user)?);
        kubectl
            .arg("--cache-dir")
            .arg(self.folder.path().join("kubectl"));
        Ok(kubectl)
    }
}

fn server(ports: Ports) -> String {
    format!("https://127.0.0.1:{}", ports.apiserver)
}

impl Cluster {
    /// Compacts etcd to its current revision: an older watch gets 410 if the API server has no watch cache. A server
    /// with a watch cache keeps recent events until it restarts; after that it refuses older revisions.
    pub async fn compact(&self) -> Result<()> {
        let about = "failed to compact etcd";
        let address = self.etcd_server().parse().context(about)?;
        let etcd = Client::try_from(Config::new(address)).context(about)?;
        let status = ask(&etcd, "/v3/maintenance/status", &json!({}))
            .await
            .context(about)?;
        let revision = &status["header"]["revision"];
        ask(
            &etcd,
            "/v3/kv/compaction",
            &json!({"revision": revision, "physical": true}),
        )
        .await
        .context(about)?;
        Ok(())
    }
}

/// etcd accepts JSON beside its own protocol.
async fn ask(etcd: &Client, path: &str, body: &Value) -> Result<Value> {
    let request =
        Request::new(path).create(&PostParams::default(), body.to_string().into_bytes())?;
    Ok(etcd.request(request).await?)
}

/// A cluster that the first test starts; it ends with the process. Each test brings its own namespaces and users. Not
/// for a test that kills a server, or changes what the others see.
pub struct Shared(OnceLock<Result<(Runtime, Cluster), String>>);

impl Shared {
    /// Not started yet.
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The cluster; at the first call it is started and prepared. It uses a runtime of its own, which outlives those of
    /// the tests. A test makes its own client: the connections of [`Cluster::objects`] would end with the test that
    /// made them.
    pub fn cluster(
        &self,
        prepare: impl AsyncFnOnce(&Cluster) -> Result<()> + Send,
    ) -> Result<&Cluster> {
        let start = || {
            let runtime = Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()?;
            let cluster = runtime.block_on(async {
                let cluster = Cluster::start(&Options::default()).await?;
                prepare(&cluster).await?;
                anyhow::Ok(cluster)
            })?;
            Ok((runtime, cluster))
        };
        // A test already runs inside a runtime and cannot block on another one.
        let started = self.0.get_or_init(|| {
            thread::scope(|scope| scope.spawn(start).join())
                .unwrap_or_else(|_| Err(anyhow!("the thread that started it panicked")))
                .map_err(|error: anyhow::Error| format!("{error:#}"))
        });
        match started {
            Ok((_, cluster)) => Ok(cluster),
            Err(error) => Err(anyhow!("failed to start the shared cluster: {error}")),
        }
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self::new()
    }
}
