//! `transom approve`: approves the plan of a candidate, or what the limits withhold.

use super::Opened;
use crate::args::run::ApproveArgs;
use crate::command::block_on;
use crate::output::{CommandEnd, Screen};
use anyhow::{Context as _, bail};
use serde_json::json;
use transom_api::labels::{APPROVED, APPROVED_BY, APPROVED_GROUPS};
use transom_core::object::Object;

/// Approves the plan of the candidate of a policy, or what its limits withhold.
///
/// # Errors
/// When there is nothing to approve, another plan is to be approved, or the user may not.
pub(crate) fn approve(args: &ApproveArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    block_on(async {
        let opened = Opened::new(&args.at).await?;
        let policy = &args.policy;
        let no_object = || {
            format!(
                "failed to approve: {policy} is not a FleetPolicy object; set the annotation {APPROVED} in its file"
            )
        };
        let server = opened.cluster.server().with_context(no_object)?;
        let user = server.kubernetes().approvals().whoami().await;
        let user = user.map_err(anyhow::Error::msg);
        let user = user.context("failed to approve: the API server does not tell who asks")?;
        let annotation =
            |label: &str, value: &str| (format!("metadata.annotations[\"{label}\"]"), json!(value));
        let approved = |object: &Object| {
            check_waits(object, args)?;
            Ok(vec![
                annotation(APPROVED, &args.digest),
                annotation(APPROVED_BY, &user.name),
                annotation(APPROVED_GROUPS, &joined(&user.groups)),
            ])
        };
        let changed = opened.change(policy, approved).await?;
        changed.with_context(no_object)?;
        screen.line(format_args!(
            "{policy}: {} approved {}",
            user.name, args.digest
        ));
        Ok(CommandEnd::Right)
    })?
}

/// Checks that what is to be approved waits for approval.
fn check_waits(object: &Object, args: &ApproveArgs) -> anyhow::Result<()> {
    let (policy, digest) = (&args.policy, &args.digest);
    let waiting = ["candidate", "limits"].iter().filter_map(|part| {
        let path = format!("/status/{part}/approve");
        object.body.pointer(&path)?.as_str()
    });
    let waiting: Vec<&str> = waiting.collect();
    if waiting.is_empty() {
        bail!("failed to approve: nothing of {policy} waits for approval");
    }
    if !waiting.contains(&digest.as_str()) {
        let waiting = waiting.join(" and ");
        bail!("failed to approve: what waits for approval of {policy} is {waiting} now");
    }
    Ok(())
}

/// The groups of a user as the annotation lists them. One with a comma in its name would be read as two, of which the
/// user may be in neither.
fn joined(groups: &[String]) -> String {
    let whole = groups.iter().filter(|group| !group.contains(','));
    whole.map(String::as_str).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_with_a_comma_does_not_become_two() {
        let groups = ["a", "cn=b,ou=c", "d"].map(str::to_owned);
        assert_eq!(joined(&groups), "a,d");
        assert_eq!(joined(&[]), "");
    }
}
