//! Which candidates are tried, and beside which others.

use super::*;
use crate::policies::swap::trial::DueTrial;
use transom_core::rollout::{Approved, Trial};

const QUICK: [&str; 2] = ["quick-0", "quick-1"];

/// Two policies beside the one that is slow to try, which a team wrote; all three as candidates.
fn three(team: &str) -> FoundPolicies {
    let mut found = written(team);
    for name in QUICK {
        let quick = with_component(name, "builtin:kubeconfig").policies;
        found.policies.extend(quick);
    }
    for one in &mut found.policies {
        one.value["spec"]["rollout"] = json!({"mode": "Preview"});
    }
    found
}

/// The policies of which a trial begins beside so many.
fn due(swap: &mut Swap, running: usize) -> Vec<(Arc<str>, DueTrial)> {
    let due = swap.due(running).into_iter();
    due.map(|due| (Arc::clone(&due.loaded.revision.policy.name), due))
        .collect()
}

/// The trial of the slow policy runs for more than a minute.
fn slow(swap: &mut Swap) {
    let running = swap.pending(&policy()).unwrap().running.as_mut().unwrap();
    running.since = Instant::now().checked_sub(2 * SOON).unwrap();
}

#[tokio::test]
async fn a_trial_that_takes_long_leaves_the_room_for_two_others_and_no_edit_takes_it_back() {
    let (_folder, cluster) = place();
    let mut swap = new_agent(&cluster);
    let mut only = three("a");
    only.policies.truncate(1);
    swap.exchange(only).await;
    let first = due(&mut swap, 0);
    assert_eq!(first.len(), 1);
    swap.exchange(three("a")).await;
    // It is as quick as others, as far as is known.
    assert_eq!(due(&mut swap, 2).len(), 0);
    slow(&mut swap);
    let others = due(&mut swap, 1);
    assert_eq!(others.len(), 2, "they wait for the slow one");
    // It is edited meanwhile: the next candidate is a slow one from the start.
    swap.exchange(three("b")).await;
    let next = due(&mut swap, 0);
    assert_eq!(next.len(), 1);
    assert_eq!(swap.newest[&policy()].late, 1);
    for (name, due) in next {
        assert_eq!(name, policy());
        let trial = Trial {
            late: true,
            ..Trial::failed(&policy(), KnownReason::GuestTimedOut, "m")
        };
        swap.tried(due.tried((trial, None), Approved::Nothing, BEGUN));
    }
    assert_eq!(swap.newest[&policy()].late, 2);
    swap.exchange(three("c")).await;
    assert_eq!(swap.newest[&policy()].late, 2);
    for (_, due) in due(&mut swap, 0) {
        let trial = Trial::failed(&policy(), KnownReason::GuestTimedOut, "m");
        swap.tried(due.tried((trial, None), Approved::Nothing, BEGUN));
    }
    assert_eq!(swap.newest[&policy()].late, 0, "it was quick");
}
