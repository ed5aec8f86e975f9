//! Writes fields: into an object that the agent made, or as a patch that lies over a user's object.

use super::OwnWriter;
use crate::directory::change::FileContent;
use crate::directory::patch::{Patch, get, set};
use crate::directory::shared::version_text;
use crate::directory::slot::{Effective, SlotState};
use crate::directory::tree::Layer;
use serde_json::Value;
use std::sync::Arc;
use transom_core::object::Object;
use transom_core::plan::WriteFailure;

impl OwnWriter<'_> {
    /// Lays fields over a user's object; an object that the agent made is rewritten. Gives the object as the write left
    /// it, `None` if it is gone.
    pub(super) fn patch(
        &self,
        fields: &[(String, Value)],
        version: &str,
    ) -> Result<Option<Object>, WriteFailure> {
        let (effective, patch) = {
            let store = self.shared.store();
            self.expect(&store, Some(version))?;
            (
                store.effective(self.target),
                store.slot(self.target).and_then(|slot| slot.patch.clone()),
            )
        };
        match effective {
            Effective::Made(text) => {
                let mut body = self.parse(&text)?;
                for (path, value) in fields {
                    let value = Some(value.clone()).filter(|value| !value.is_null());
                    set(&mut body, path, value);
                }
                self.remake(body, version)
            }
            Effective::Users(text, _) => {
                let users = self.parse(&text)?;
                let before = patch.map(Arc::unwrap_or_clone).unwrap_or_default();
                let (body, seen) = self.lay((text, users), before, fields)?;
                Ok(self.left(body, &seen))
            }
            Effective::Absent | Effective::Duplicate(_) => {
                Err(self.conflict("it no longer exists"))
            }
        }
    }

    /// The kept text of an object, parsed.
    pub(super) fn parse(&self, text: &str) -> Result<Value, WriteFailure> {
        serde_json::from_str(text).map_err(|_| self.failed("it cannot be parsed"))
    }

    /// Lays fields over a user's object, beside those that lie there; gives the object that way.
    fn lay(
        &self,
        (text, users): (Arc<str>, Value),
        before: Patch,
        fields: &[(String, Value)],
    ) -> Result<(Value, SlotState), WriteFailure> {
        let mut patch = before.clone();
        for (path, value) in fields {
            patch.take(&users, path, value);
        }
        let mut body = users;
        patch.lay(&mut body);
        let differs =
            |(path, value): &&(String, Value)| get(&body, path).unwrap_or(&Value::Null) != value;
        if let Some((path, _)) = fields.iter().find(differs) {
            return Err(self.failed(format!("`{path}` cannot be set")));
        }
        let laid = Some(&patch).filter(|patch| !patch.fields.is_empty());
        let laid = laid.cloned().map(Arc::new);
        let seen = Effective::Users(text, laid).seen(&self.shared.key);
        if patch == before {
            return Ok((body, seen));
        }
        self.put_patch(patch, &seen)?;
        Ok((body, seen))
    }

    /// Writes the file of a patch; one without fields has none.
    pub(super) fn put_patch(&self, patch: Patch, expected: &SlotState) -> Result<(), WriteFailure> {
        if patch.fields.is_empty() {
            return self.remove(Layer::Patch, Some(expected));
        }
        let file = self.written(|| patch.file(self.target));
        let content = FileContent::Patch(Arc::new(self.target.clone()), patch);
        self.put(Layer::Patch, file.as_deref(), content, expected)
    }

    /// The object as a write left it; `None` if it changed since.
    pub(super) fn left(&self, body: Value, seen: &SlotState) -> Option<Object> {
        let unchanged = self.shared.store().seen(self.target) == *seen;
        unchanged.then(|| Object {
            reference: self.target.clone(),
            version: version_text(seen),
            body,
        })
    }
}
