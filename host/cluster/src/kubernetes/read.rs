//! Requests one object from the API server. Sends no request for a name that could lead to another path.

use super::cause::{Cause, Next};
use super::counts::{Purpose, Verb};
use super::decode::{self, Page};
use super::shared::{Shared, failure};
use super::store::Fault;
use super::stream::{self, Unfit};
use crate::ReadFailure;
use kube::api::ListParams;
use transom_api::KnownReason;
use transom_core::object::Object;
use transom_core::reference::ObjectRef;

impl Shared {
    /// Requests an object by a GET; `None` when it does not exist or its kind is not served.
    pub(super) async fn ask(&self, reference: &ObjectRef) -> Result<Option<Object>, ReadFailure> {
        if !is_named(reference) {
            return Ok(None);
        }
        let fail = |fault: &Fault| failure(reference, fault);
        let mut answer = self.fetch(reference).await;
        if answer.as_ref().is_err_and(|cause| {
            cause.reason == KnownReason::KindMissing && cause.next == Next::Relist
        }) {
            self.resources
                .forget(&reference.api_version, &reference.kind);
            answer = self.fetch(reference).await;
        }
        match answer {
            Ok(Ok(bytes)) => {
                let text =
                    std::str::from_utf8(&bytes).map_err(|_| fail(&of(Cause::malformed())))?;
                self.understood(text, reference).map(Some)
            }
            Ok(Err(Unfit::TooLarge)) => Err(fail(&decode::too_large())),
            Ok(Err(late)) => Err(fail(&of(late.cause()))),
            Err(cause) if cause.reason == KnownReason::KindMissing && cause.next == Next::Again => {
                Ok(None)
            }
            Err(cause) if cause.reason == KnownReason::KindMissing => {
                Err(fail(&of(Cause::malformed())))
            }
            Err(cause) => Err(fail(&of(cause))),
        }
    }

    /// Requests an object by a LIST of its name. Fails when its kind is not served, because that does not prove that
    /// the object is gone: a CRD may be on its way back, and its objects with it.
    pub(super) async fn confirm(
        &self,
        reference: &ObjectRef,
    ) -> Result<Option<Object>, ReadFailure> {
        if !is_named(reference) {
            return Ok(None);
        }
        let ObjectRef {
            api_version,
            kind,
            namespace,
            name,
            ..
        } = reference;
        let fail = |cause: Cause| failure(reference, &of(cause));
        let path = self
            .path(api_version, kind, namespace.as_deref())
            .await
            .map_err(fail)?;
        self.counts.add(Verb::List, Purpose::Work);
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        let answer = stream::page(&self.client, &path, &params)
            .await
            .map_err(|cause| {
                // The kind may have been removed since its path was resolved.
                self.resources.forget(api_version, kind);
                fail(cause)
            })?;
        let bytes = answer.map_err(|unfit| fail(unfit.cause()))?;
        let page: Page<'_> =
            serde_json::from_slice(&bytes).map_err(|_| fail(Cause::malformed()))?;
        page.items
            .iter()
            .flatten()
            .next()
            .map(|item| self.understood(item.get(), reference))
            .transpose()
    }

    /// Decodes the object in an answer and cuts it to the fields that are kept of its kind.
    fn understood(&self, text: &str, reference: &ObjectRef) -> Result<Object, ReadFailure> {
        let fail = |fault: &Fault| failure(reference, fault);
        let answer = decode::answer(text, reference).map_err(|_| fail(&of(Cause::malformed())))?;
        Ok(self
            .cache()
            .projected(answer.map_err(|fault| fail(&fault))?))
    }

    async fn fetch(&self, reference: &ObjectRef) -> Result<stream::Fetched, Cause> {
        let ObjectRef {
            api_version,
            kind,
            namespace,
            name,
            ..
        } = reference;
        let path = self.path(api_version, kind, namespace.as_deref()).await?;
        self.counts.add(Verb::Get, Purpose::Work);
        stream::get(&self.client, &path, name).await
    }
}

fn of(cause: Cause) -> Fault {
    Fault {
        reason: cause.reason,
        message: cause.message,
    }
}

/// Whether namespace and name are possible names. A guest may have made them up, and other text could lead to another
/// path.
fn is_named(reference: &ObjectRef) -> bool {
    reference
        .namespace
        .iter()
        .chain([&reference.name])
        .all(|name| is_name(name))
}

/// Whether a text can be the name of an object: it has no character with a meaning in a path.
fn is_name(name: &str) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'_');
    !name.is_empty() && name != "." && name != ".." && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_name_that_would_change_the_path() {
        assert!(
            ["a", "a.b-c", "system:node", "1_2"]
                .iter()
                .all(|name| is_name(name))
        );
        assert!(
            [
                "", ".", "..", "a/b", "a?b", "a%2fb", "a#", "a b", "ä", "a\n"
            ]
            .iter()
            .all(|name| !is_name(name))
        );
    }
}
