//! What an approval is worth for a candidate in the mode `Preview`.

use super::*;
use transom_api::labels::APPROVED;
use transom_core::rollout::{Approved, Trial};

/// A digest of which the user may not approve anything.
const FORBIDDEN: &str = "sha256:forbidden";

/// Tries the candidate under the approval of its policy, and gives the reason why it waits.
fn tried_reason(swap: &mut Swap) -> Option<KnownReason> {
    let due = swap.due(0).pop().unwrap();
    let trial = Trial {
        incomplete: None,
        ..Trial::failed(&policy(), KnownReason::Trying, "")
    };
    let approved = match due.approval_of(&trial) {
        Some(approval) if approval.digest == FORBIDDEN => Approved::Forbidden("no".to_owned()),
        Some(approval) => Approved::Digest(approval.digest.clone()),
        None => Approved::Nothing,
    };
    swap.tried(due.tried((trial, None), approved, BEGUN));
    let catalogue = swap.active.catalogue();
    let candidate = catalogue.entry(&policy()).unwrap().candidate.as_ref();
    candidate.map(|candidate| candidate.reason)
}

#[tokio::test]
async fn a_plan_changed_only_if_an_approval_was_given_since_there_is_a_candidate() {
    let (_folder, cluster) = place();
    let preview = |team: &str, approved: Option<&str>| {
        let mut found = written(team);
        let manifest = &mut found.policies[0].value;
        manifest["spec"]["rollout"] = json!({"mode": "Preview"});
        manifest["metadata"]["annotations"][APPROVED] = json!(approved);
        found
    };
    let mut swap = replica(&cluster).await;
    // Left there from what the limits withheld, or from the plan of an earlier candidate.
    for (team, approved, reason) in [
        ("b", Some("sha256:0"), KnownReason::ApprovalRequired),
        ("b", Some("sha256:1"), KnownReason::PlanChanged),
        ("b", None, KnownReason::ApprovalRequired),
        ("b", Some("sha256:1"), KnownReason::PlanChanged),
        ("c", Some("sha256:1"), KnownReason::ApprovalRequired),
        // The same one is given anew once it was gone.
        ("c", None, KnownReason::ApprovalRequired),
        ("c", Some("sha256:1"), KnownReason::PlanChanged),
        ("c", Some(FORBIDDEN), KnownReason::ApprovalForbidden),
        // Nobody asks what an old one is worth.
        ("d", Some(FORBIDDEN), KnownReason::ApprovalRequired),
    ] {
        swap.exchange(preview(team, approved)).await;
        assert_eq!(tried_reason(&mut swap), Some(reason), "{team} {approved:?}");
    }
}
