//! Stages 3 to 7 of a policy that owns Secrets with a kubeconfig. Never sees a byte of a credential outside `core`.

use super::Seen;
use crate::agent::Agent;
use crate::load::Loaded;
use std::sync::Arc;
use transom_api::Word;
use transom_core::failure::Failure;
use transom_core::object::Object;
use transom_core::report::Success;
use transom_core::work::Key;

impl Agent {
    /// x
    pub(super) async fn kubeconfig(
        &self,
        _loaded: &Arc<Loaded>,
        _key: &Key,
        _subject: &Arc<Object>,
        _seen: &mut Seen,
    ) -> Result<Success, Failure> {
        Err(Failure::known(Word::KubeconfigInvalid, "not yet"))
    }
}
