//! Access to the admin server's paths, decided by a real API server. Shows no token.

use crate::support::{DEADLINE, cluster, connect};
use anyhow::{Context as _, Result, ensure};
use transom_cluster::kubernetes::Access;
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
