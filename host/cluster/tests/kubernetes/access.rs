//! Access to the admin server's paths, decided by a real API server; and as whom the agent has access. Shows no token.

use crate::support::{DEADLINE, Scene, cluster, connect, secret};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};
use transom_api::KnownReason;
use transom_cluster::kubernetes::{Access, KubeconfigProblem, Kubernetes, KubernetesOptions};
use transom_core::reference::ObjectRef;
use transom_test_cluster::{Cluster, Options, User, wait};

/// The agent may send reviews; Prometheus may read metrics.
const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: agent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:auth-delegator}
subjects:
- {kind: ServiceAccount, name: agent, namespace: transom}
- {kind: ServiceAccount, name: first, namespace: transom}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: monitoring}]
";

/// As `transom rbac --secret-reads strict` prints them for Secrets that a policy reads.
const STRICT: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: strict}
rules: [{apiGroups: [''], resources: [secrets], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: strict}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: strict}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: strict}]
";

fn token(user: &User) -> Result<&str> {
    user.token().context("no token")
}

#[tokio::test]
async fn asks_the_api_server_once_for_each_access_review() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    let agent = cluster.service_account("transom", "agent").await?;
    let first = cluster.service_account("transom", "first").await?;
    let reader = cluster.service_account("monitoring", "prometheus").await?;
    let other = cluster.service_account("monitoring", "other").await?;
    let (reader, other) = (token(&reader)?, token(&other)?);
    cluster.objects().apply_manifest(RIGHTS).await?;
    // RBAC needs a moment to see a new rule; another identity shows when it has.
    let before = connect(&cluster, &first).await?;
    wait::until("the rights", DEADLINE, async || {
        Ok((before.reviews().may(reader, "/metrics").await == Access::Allowed).then_some(()))
    })
    .await?;
    let reviews = connect(&cluster, &agent).await?.reviews();
    for _ in 0..2 {
        for (token, path, access) in [
            (reader, "/metrics", Access::Allowed),
            (reader, "/debug/state", Access::Forbidden),
            (other, "/metrics", Access::Forbidden),
            ("canary", "/metrics", Access::Unauthenticated),
        ] {
            ensure!(
                reviews.may(token, path).await == access,
                "{path} {access:?}"
            );
        }
    }
    // Two requests for the known token, one for the other; none for answers in the cache.
    let asked = wait::until("the questions in the audit log", DEADLINE, async || {
        let lines = cluster.audit().lines()?;
        let ours = lines
            .iter()
            .filter(|line| line.user == agent.name() && line.verb == "create");
        let asked = ours.filter(|line| line.stage == "ResponseComplete").count();
        Ok((asked >= 7).then_some(asked))
    })
    .await?;
    ensure!(asked == 7, "{asked} questions");
    cluster.apiserver().kill()?;
    ensure!(
        reviews.may(reader, "/metrics").await == Access::Allowed,
        "what was answered is remembered"
    );
    ensure!(
        reviews.may("another", "/metrics").await == Access::Unknown,
        "nobody can say"
    );
    Ok(())
}

#[tokio::test]
async fn without_permission_to_ask_access_is_unknown() -> Result<()> {
    let agent = cluster().service_account("access", "agent").await?;
    let reviews = connect(cluster(), &agent).await?.reviews();
    ensure!(reviews.may(token(&agent)?, "/metrics").await == Access::Unknown);
    Ok(())
}

#[tokio::test]
async fn an_absence_is_confirmed_with_the_right_to_get_where_nothing_is_watched() -> Result<()> {
    let scene = Scene::new("strict").await?;
    scene.objects.apply_manifest(STRICT).await?;
    scene.foreign(secret(&scene.secret("there"), "x")).await?;
    let agent = connect(scene.cluster, &scene.cluster.user("strict", &[])?).await?;
    // RBAC needs a moment to see a new rule.
    wait::until("the right", DEADLINE, async || {
        Ok(agent
            .read(&scene.secret("there"))
            .await
            .is_ok()
            .then_some(()))
    })
    .await?;
    ensure!(agent.confirm(&scene.secret("absent")).await == Ok(None));
    let there = agent.confirm(&scene.secret("there")).await;
    ensure!(matches!(there, Ok(Some(_))), "{there:?}");
    let unserved = ObjectRef::local("example.org/v1", "Thing", None, "x");
    let reason = agent
        .confirm(&unserved)
        .await
        .map_err(|failure| failure.reason);
    ensure!(reason == Err(KnownReason::KindMissing), "{reason:?}");
    Ok(())
}

/// An agent with a kubeconfig that others renew.
struct Renewed(Kubernetes);

impl Renewed {
    async fn connect(kubeconfig: &Path) -> Result<Self> {
        let options = KubernetesOptions {
            name: "local".to_owned(),
            kubeconfig: Some(kubeconfig.to_owned()),
            ..KubernetesOptions::default()
        };
        Ok(Self(Kubernetes::connect(options).await?))
    }

    async fn whoami(&self) -> Result<String> {
        let user = self.0.approvals().whoami().await;
        user.map(|user| user.name).map_err(anyhow::Error::msg)
    }

    /// Checks that it goes on as this user, also after a look at the files.
    async fn stays(&self, name: &str) -> Result<()> {
        let before = Instant::now();
        wait::until("a look at the files", DEADLINE, async || {
            ensure!(self.whoami().await? == name);
            Ok((before.elapsed() > Duration::from_secs(11)).then_some(()))
        })
        .await
    }

    /// Waits until it is this user.
    async fn becomes(&self, name: &str) -> Result<()> {
        wait::until("the new credential", DEADLINE, async || {
            Ok((self.whoami().await? == name).then_some(()))
        })
        .await
    }
}

/// The certificate or key of a user, as its kubeconfig holds it.
fn part(kubeconfig: &str, field: &str) -> Result<Vec<u8>> {
    let parsed: Value = serde_yaml::from_str(kubeconfig)?;
    decoded(&parsed["users"][0]["user"][field])
}

fn decoded(field: &Value) -> Result<Vec<u8>> {
    Ok(STANDARD.decode(field.as_str().context("no such field")?)?)
}

#[tokio::test]
async fn uses_a_client_certificate_that_is_renewed_on_disk() -> Result<()> {
    let cluster = cluster();
    let folder = tempfile::tempdir()?;
    let fields = ["client-certificate", "client-key"];
    let users = ["renewed-first", "renewed-second"].map(|name| cluster.user(name, &[]));
    let [first, second] = users;
    let [first, second] = [cluster.kubeconfig(&first?)?, cluster.kubeconfig(&second?)?];
    let write = |kubeconfig: &str, field: &str| {
        let bytes = part(kubeconfig, &format!("{field}-data"))?;
        std::fs::write(folder.path().join(field), bytes).context("failed to write a file")
    };
    let mut named: Value = serde_yaml::from_str(&first)?;
    let user = named["users"][0]["user"]
        .as_object_mut()
        .context("a user")?;
    for field in fields {
        write(&first, field)?;
        user.remove(&format!("{field}-data"));
        // Relative to the kubeconfig.
        user.insert(field.to_owned(), field.into());
    }
    let named_cluster = named["clusters"][0]["cluster"].as_object_mut();
    let named_cluster = named_cluster.context("a cluster")?;
    let authority = named_cluster.remove("certificate-authority-data");
    let authority = decoded(&authority.context("no authority")?)?;
    std::fs::write(folder.path().join("ca"), authority)?;
    named_cluster.insert("certificate-authority".to_owned(), "ca".into());
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, named.to_string())?;
    let agent = Renewed::connect(&path).await?;
    ensure!(agent.whoami().await? == "renewed-first");

    // A kubeconfig that cannot be used holds up no renewal of the files. The certificate comes before its key: until
    // both fit, the earlier pair is used.
    std::fs::write(&path, "{")?;
    write(&second, "client-certificate")?;
    agent.stays("renewed-first").await?;
    write(&second, "client-key")?;
    agent.becomes("renewed-second").await?;
    // The CA in a file is read again as well: here one that signed nothing.
    std::fs::write(&path, named.to_string())?;
    let authority = std::fs::read(folder.path().join("ca"))?;
    let other = part(&first, "client-certificate-data")?;
    for (authority, is_trusted) in [(other, false), (authority, true)] {
        std::fs::write(folder.path().join("ca"), authority)?;
        wait::until("another CA", DEADLINE, async || {
            Ok((agent.whoami().await.is_ok() == is_trusted).then_some(()))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn uses_the_credential_of_a_kubeconfig_that_is_renewed_for_the_same_server() -> Result<()> {
    let cluster = cluster();
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("kubeconfig");
    let users = ["kubeconfig-first", "kubeconfig-second"].map(|name| cluster.user(name, &[]));
    let [first, second] = users;
    let [first, second] = [cluster.kubeconfig(&first?)?, cluster.kubeconfig(&second?)?];
    std::fs::write(&path, &first)?;
    let agent = Renewed::connect(&path).await?;
    ensure!(agent.whoami().await? == "kubeconfig-first");

    // Another server may be another cluster, also behind one address; half a file is no kubeconfig.
    let mut gateway: Value = serde_yaml::from_str(&second)?;
    gateway["clusters"][0]["cluster"]["tls-server-name"] = "localhost".into();
    let mut elsewhere: Value = serde_yaml::from_str(&second)?;
    elsewhere["clusters"][0]["cluster"]["server"] = "https://canary:canary@127.0.0.1:1".into();
    let problem = agent.0.problem();
    let said = async |text: String| -> Result<KubeconfigProblem> {
        std::fs::write(&path, text)?;
        agent.stays("kubeconfig-first").await?;
        problem.borrow().clone().context("nothing is told")
    };
    said(gateway.to_string()).await?;
    let KubeconfigProblem::OtherServer {
        place,
        kubeconfig,
        server,
    } = said(elsewhere.to_string()).await?
    else {
        anyhow::bail!("the other server is not told")
    };
    ensure!(server == "https://127.0.0.1:1", "{server}");
    ensure!(place.contains("context `"), "{place}");
    let file = format!("kubeconfig `{}`", path.display());
    ensure!(kubeconfig == file, "{kubeconfig}");
    let half = said(second[..second.len() / 2].to_owned()).await?;
    let KubeconfigProblem::Unusable(error) = half else {
        anyhow::bail!("half a kubeconfig: {half:?}")
    };
    ensure!(error.message.starts_with(&file), "{error}");
    std::fs::write(&path, &second)?;
    agent.becomes("kubeconfig-second").await?;
    ensure!(problem.borrow().is_none(), "{:?}", problem.borrow());
    Ok(())
}

#[tokio::test]
async fn uses_a_token_file_that_ends_with_a_line_break_and_is_renewed() -> Result<()> {
    let cluster = cluster();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("token");
    let first = cluster.service_account("access", "token-first").await?;
    let second = cluster.service_account("access", "token-second").await?;
    std::fs::write(&file, format!("{}\n", token(&first)?))?;
    let mut named: Value = serde_yaml::from_str(&cluster.kubeconfig(&first)?)?;
    named["users"][0]["user"] = serde_json::json!({"tokenFile": "token"});
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, named.to_string())?;
    let agent = Renewed::connect(&path).await?;
    ensure!(agent.whoami().await? == first.name());

    // While the file is empty, the token before is used.
    std::fs::write(&file, "")?;
    agent.stays(first.name()).await?;
    let Err(error) = Renewed::connect(&path).await else {
        anyhow::bail!("an empty token was accepted")
    };
    let error = error.to_string();
    ensure!(
        error.ends_with("token` cannot be used: it is empty"),
        "{error}"
    );
    std::fs::write(&file, format!("{}\n", token(&second)?))?;
    agent.becomes(second.name()).await
}
