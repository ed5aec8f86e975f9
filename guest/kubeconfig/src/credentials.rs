//! Which credentials may be moved to another place. Never sees one: only of which kinds it is.

use crate::reasons;
use crate::settings::{Permission, Settings};
use transom_guest::Problem;
use transom_guest::kubeconfig::User;

/// Refuses what does not belong into a secret that others read. Every user counts, not only the one in use:
/// a program runs for whoever picks its context.
pub(crate) fn check(settings: &Settings, users: &[User]) -> Result<(), Problem> {
    for (at, user) in users.iter().enumerate() {
        let credential = &user.credential;
        let kinds = [
            (credential.exec, settings.exec, &reasons::EXEC_CREDENTIAL, "].user.exec", "it runs a program"),
            (
                credential.auth_provider,
                settings.auth_provider,
                &reasons::AUTH_PROVIDER_CREDENTIAL,
                "].user.auth-provider",
                "it is one of a legacy auth provider",
            ),
            (credential.file, settings.file, &reasons::FILE_CREDENTIAL, "].user", "it lies in a file"),
        ];
        for (there, permission, reason, field, message) in kinds {
            if there && permission == Permission::Refuse {
                return Err(reason.problem(message).at(["users[", &at.to_string(), field].concat()));
            }
        }
    }
    Ok(())
}
