//! Decides which kinds of credentials may be copied to another place.

use crate::reasons;
use crate::settings::{Permission, Settings};
use transom_guest::Problem;
use transom_guest::kubeconfig::User;

/// Refuses credentials that do not belong into a secret that others read. Checks every user, not only the one in use: a
/// program runs for anyone who selects its context.
pub(crate) fn check(settings: &Settings, users: &[User]) -> Result<(), Problem> {
    for (at, user) in users.iter().enumerate() {
        let credential = &user.credential;
        let kinds = [
            (
                credential.exec,
                settings.exec,
                &reasons::EXEC_CREDENTIAL,
                "].user.exec",
                "it runs a program",
            ),
            (
                credential.auth_provider,
                settings.auth_provider,
                &reasons::AUTH_PROVIDER_CREDENTIAL,
                "].user.auth-provider",
                "it is one of a legacy auth provider",
            ),
            (
                credential.file,
                settings.file,
                &reasons::FILE_CREDENTIAL,
                "].user",
                "it lies in a file",
            ),
        ];
        for (there, permission, reason, field, message) in kinds {
            if there && permission == Permission::Refuse {
                return Err(reason
                    .problem(message)
                    .at(["users[", &at.to_string(), field].concat()));
            }
        }
    }
    Ok(())
}
