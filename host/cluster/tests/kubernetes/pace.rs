//! An API server that throttles: everything is eventually written, and nothing is sent before the time that the server
//! named.

use crate::support::*;
use anyhow::Result;
use futures::future::try_join_all;
use std::sync::Arc;
use std::time::Duration;
use transom_api::KnownReason;
use transom_cluster::kubernetes::{Kubernetes, Purpose, RequestVerb};
use transom_test_cluster::{Cluster, Fault, Options, Proxy, wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completes_all_writes_when_the_server_throttles() -> Result<()> {
    // Without priority and fairness the server answers 429 to a second concurrent write.
    let flags = [
        "--enable-priority-and-fairness=false",
        "--max-mutating-requests-inflight=1",
    ];
    let options = Options {
        apiserver: flags.map(str::to_owned).into(),
        ..Options::default()
    };
    let cluster = Cluster::start(&options).await?;
    cluster.objects().namespace("pushed").await?;
    let admin = Arc::new(connect(&cluster, cluster.admin()).await?);
    let mark = cluster.audit().mark()?;
    let write = |number: usize| {
        let admin = Arc::clone(&admin);
        tokio::spawn(async move {
            let step = create(&secret_ref("pushed", &format!("s{number}")), "one");
            admin
                .writer()
                .perform(POLICY, &step)
                .await
                .map_err(|failure| failure.reason)
        })
    };
    let written = try_join_all((0..60).map(write)).await?;
    let refused = written
        .iter()
        .filter(|result| **result == Err(KnownReason::ServerUnavailable))
        .count();
    assert!(
        written
            .iter()
            .all(|result| result.is_ok() || *result == Err(KnownReason::ServerUnavailable)),
        "{written:?}"
    );
    assert!(refused <= 6, "{refused} of 60 were given up");
    let sent = admin
        .writer()
        .counts()
        .of(RequestVerb::Create, Purpose::Work);
    let pushed = cluster
        .audit()
        .since(mark)?
        .iter()
        .filter(|line| line.code == 429)
        .count();
    assert!(
        sent <= 60 * 4,
        "{sent} requests for 60 writes, {pushed} of them pushed back"
    );

    // A frozen server does not block much longer than its timeout.
    cluster.apiserver().freeze()?;
    let step = create(&secret_ref("pushed", "late"), "one");
    let late = admin.writer().perform(POLICY, &step).await;
    cluster.apiserver().thaw()?;
    let late = late.unwrap_err();
    assert_eq!(late.reason, KnownReason::ServerUnavailable);
    assert!(
        late.message
            .ends_with("the API server did not answer within 10 s"),
        "{}",
        late.message
    );
    wait::until("a write after it goes on", DEADLINE, async || {
        // The earlier request may have succeeded by now, or not.
        let word = admin
            .writer()
            .perform(POLICY, &step)
            .await
            .err()
            .map(|failure| failure.reason);
        Ok(matches!(word, None | Some(KnownReason::WriteConflict)).then_some(()))
    })
    .await
}

/// Longer than the wait for a server that names no time.
const NAMED: u32 = 3;
/// The permissions of an agent for a user whom a proxy can authenticate: one with a token.
const WRITER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: paced}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: agent}
subjects: [{kind: ServiceAccount, name: paced, namespace: paced}]
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_no_request_before_the_servers_retry_time() -> Result<()> {
    let scene = Scene::new("paced").await?;
    let user = scene.cluster.service_account("paced", "paced").await?;
    scene.objects.apply_manifest(WRITER).await?;
    let proxy = Proxy::start(scene.cluster).await?;
    let agent =
        Arc::new(Kubernetes::connect(options(scene.cluster, &user, &proxy.server())?).await?);
    wait::until("the rights", DEADLINE, async || {
        Ok(agent
            .writer()
            .perform(POLICY, &create(&scene.secret("first"), "one"))
            .await
            .ok()
            .map(drop))
    })
    .await?;
    proxy.fail(Some(Fault::Code(429, Some(NAMED))));
    let write = |name: &'static str| {
        let (agent, step) = (Arc::clone(&agent), create(&scene.secret(name), "one"));
        tokio::spawn(async move {
            agent
                .writer()
                .perform(POLICY, &step)
                .await
                .map_err(|failure| failure.reason)
        })
    };
    let one = write("one");
    wait::until("a request that is pushed back", DEADLINE, async || {
        Ok((proxy.met() > 0).then_some(()))
    })
    .await?;
    // This one may be on its way before the agent has read that answer; no other is.
    let two = write("two");
    wait::until("a third one", DEADLINE, async || {
        Ok((proxy.met() > 2).then_some(()))
    })
    .await?;
    let times = proxy.times();
    assert!(
        times[2] - times[0] >= Duration::from_secs(NAMED.into()),
        "again after {:?}",
        times[2] - times[0]
    );
    proxy.fail(None);
    for written in [one.await?, two.await?] {
        assert!(written.is_ok(), "{written:?}");
    }
    Ok(())
}
