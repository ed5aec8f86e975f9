//! The file of everything that cannot be read.

use super::read;
use crate::directory::SharedDirectory;
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use transom_core::document::emit::to_yaml;
use transom_core::observation::Unreadable;
use transom_core::reference::ObjectRef;

/// The file of everything that cannot be read.
const UNREADABLE: &str = "unreadable.yaml";
/// How many places it shows; further places are only counted.
const SHOWN_PLACES: usize = 200;
/// How many objects of one place it shows; further objects are only counted.
const SHOWN_OBJECTS: usize = 10;

/// Writes the list of everything that cannot be read, or removes the file if there is nothing.
pub(in crate::directory) fn publish_unreadable(shared: &SharedDirectory) -> io::Result<()> {
    let Some(own) = &shared.own else {
        return Ok(());
    };
    let unreadable = shared.store().unreadable();
    if unreadable.is_empty() {
        return own.remove(Path::new(UNREADABLE));
    }
    let one = |one: &Unreadable| {
        let objects: Vec<&ObjectRef> = one
            .objects
            .iter()
            .take(SHOWN_OBJECTS)
            .map(AsRef::as_ref)
            .collect();
        let more = one.objects.len() - objects.len();
        json!({
            "place": one.place, "reason": one.reason.as_str(), "message": one.message,
            "objects": objects, "moreObjects": more,
        })
    };
    let shown: Vec<Value> = unreadable.iter().take(SHOWN_PLACES).map(one).collect();
    let text = to_yaml(&json!({ "unreadable": shown, "more": unreadable.len() - shown.len() }));
    if read(own, Path::new(UNREADABLE))
        .is_ok_and(|before| before.is_some_and(|bytes| bytes == text.as_bytes()))
    {
        return Ok(());
    }
    own.write(Path::new(UNREADABLE), text.as_bytes())
}
