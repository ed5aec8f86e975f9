//! `transom run --once`: reconciles everything, tries candidates, and ends.

use super::{GRACE, Prepared, drive, prepare};
use crate::args::run::RunArgs;
use crate::command::summary::WrittenTo;
use crate::command::{summary, would};
use crate::output::{CommandEnd, Screen};
use crate::policies::active::PolicyChanges;
use crate::policies::swap::Swap;
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Reconciles everything once. A candidate is tried, too, and becomes active if it may.
pub(super) async fn once(args: &RunArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let Prepared {
        controller,
        mut swap,
        begun,
        mut opening,
        ..
    } = prepare(args).await?;
    begun.await.context("failed to start the policies")?;
    drive(&controller, screen).await;
    let (active, mut told) = (swap.active().clone(), BTreeSet::new());
    while swap.tries() {
        for due in swap.due(0) {
            let attempt = Arc::clone(&controller).try_candidate(active.clone(), due);
            let mut changes = swap.tried(attempt.await);
            changes.extend(keep(&mut swap, &mut told, screen).await);
            Arc::clone(&controller)
                .begin_policies(active.clone(), changes)
                .await;
        }
        drive(&controller, screen).await;
    }
    keep(&mut swap, &mut told, screen).await;
    if controller.release_withheld(swap.active()).await {
        // Something was approved.
        drive(&controller, screen).await;
        controller.release_withheld(swap.active()).await;
    }
    // Waits for every connection, so that one that does not answer is reported even if no policy needs it.
    while opening.join_next().await.is_some() {}
    if would::is_asked_for(args) {
        would::print(&controller, screen).await;
    }
    controller.tidy_status(swap.active());
    controller.publish_policies();
    let finish = controller.connections.finish_policies();
    let end = async { tokio::join!(controller.settle_limits(), finish) };
    // A reconcile that is tried again may be under way, and what it counts for is not settled before it ends.
    controller.stop();
    drop(tokio::time::timeout(GRACE, controller.rested()).await);
    let _ = tokio::time::timeout(GRACE, end).await;
    let ending = summary::tell(&controller, swap.active(), WrittenTo::Written, screen);
    let unwritten = summary::unwritten(&controller, screen);
    // The process ends next. To free what the agent knows, object by object, would only delay that.
    std::mem::forget(controller);
    Ok(if unwritten {
        CommandEnd::Failed
    } else {
        ending
    })
}

/// Writes the pending notes to the history, and prints each failure once; returns the changes that follow.
async fn keep(swap: &mut Swap, told: &mut BTreeSet<String>, screen: &Screen) -> PolicyChanges {
    let (changes, failed) = swap.keep_notes().await;
    for (policy, failure) in failed {
        let why = failure.message;
        let message = format!("failed to keep the revision of {policy}: {why}");
        if told.insert(message.clone()) {
            screen.note(format_args!("{message}"));
        }
    }
    changes
}
