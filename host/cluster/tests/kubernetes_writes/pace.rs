//! An API server with room for one write at a time: everything is written, and nobody is pushed beyond what they take.

use crate::support::*;
use anyhow::Result;
use futures::future::try_join_all;
use std::sync::Arc;
use transom_api::Word;
use transom_cluster::kubernetes::{Purpose, Verb};
use transom_test_cluster::{Cluster, Options, wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_pushes_back_gets_everything_in_the_end() -> Result<()> {
    // Without priority and fairness the server answers 429 as soon as a second write comes.
    let flags = ["--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=1"];
    let options = Options { apiserver: flags.map(str::to_owned).into(), ..Options::default() };
    let cluster = Cluster::start(&options).await?;
    cluster.objects().namespace("pushed").await?;
    let admin = Arc::new(connect(&cluster, cluster.admin()).await?);
    let mark = cluster.audit().mark()?;
    let write = |number: usize| {
        let admin = Arc::clone(&admin);
        tokio::spawn(async move {
            let step = create(&secret_ref("pushed", &format!("s{number}")), "one");
            admin.writer().perform(POLICY, &step).await.map_err(|failure| failure.reason)
        })
    };
    let written = try_join_all((0..60).map(write)).await?;
    let refused = written.iter().filter(|result| **result == Err(Word::ServerUnavailable)).count();
    assert!(written.iter().all(|result| result.is_ok() || *result == Err(Word::ServerUnavailable)), "{written:?}");
    assert!(refused <= 6, "{refused} of 60 were given up");
    let sent = admin.writer().counts().of(Verb::Create, Purpose::Work);
    let pushed = cluster.audit().since(mark)?.iter().filter(|line| line.code == 429).count();
    assert!(sent <= 60 * 4, "{sent} requests for 60 writes, {pushed} of them pushed back");

    // A server that stands still is not waited for much longer than its time.
    cluster.apiserver().freeze()?;
    let step = create(&secret_ref("pushed", "late"), "one");
    let late = admin.writer().perform(POLICY, &step).await;
    cluster.apiserver().thaw()?;
    let late = late.unwrap_err();
    assert_eq!(late.reason, Word::ServerUnavailable);
    assert!(late.message.ends_with("the API server did not answer within 10 s"), "{}", late.message);
    wait::until("a write after it goes on", DEADLINE, async || {
        // What was sent before may be done by now, or not at all.
        let word = admin.writer().perform(POLICY, &step).await.err().map(|failure| failure.reason);
        Ok(matches!(word, None | Some(Word::WriteConflict)).then_some(()))
    })
    .await
}
