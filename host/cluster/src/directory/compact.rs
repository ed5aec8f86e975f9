//! Copies the JSON text of one object as compact JSON without building a value: that takes a third of the time. Takes
//! only what `manifest` would read the same way; everything else, broken objects among them, is left to it.

use super::manifest::FoundObject;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;
use transom_core::reference::ObjectRef;

/// The deepest nesting of maps and lists; what is nested deeper is left to `manifest`.
const DEPTH: usize = 60;

/// The object of a text; `None` for one that is left to `manifest`: it is no object with text as its names, it is a
/// list or a Secret, a map has keys out of order or twice, or its compact text has more bytes than `limit`.
pub(super) fn object(text: &str, cluster: &str, limit: usize) -> Option<FoundObject> {
    let mut copy = Copy {
        text: Vec::with_capacity(text.len()),
        names: [None; 4],
    };
    let mut json = serde_json::Deserializer::from_str(text);
    Part::root(&mut copy).deserialize(&mut json).ok()?;
    json.end().ok()?;
    let [api_version, kind, namespace, name] = copy.names;
    let (api_version, kind, name) = (api_version?, kind?, name?);
    if kind.ends_with("List") || (kind, api_version) == ("Secret", "v1") || copy.text.len() > limit
    {
        return None;
    }
    let reference = ObjectRef {
        cluster: cluster.to_owned(),
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    };
    Some(FoundObject::new(
        reference,
        String::from_utf8(copy.text).ok()?,
    ))
}

/// What is copied so far.
struct Copy<'t> {
    text: Vec<u8>,
    /// Version, kind, namespace and name.
    names: [Option<&'t str>; 4],
}

/// Where in an object a value is.
#[derive(Clone, Copy)]
enum Place {
    Object,
    Metadata,
    /// One of the names.
    Name(usize),
    Other,
}

impl Place {
    fn of(self, key: &str) -> Self {
        match (self, key) {
            (Self::Object, "metadata") => Self::Metadata,
            (Self::Object, "apiVersion") => Self::Name(0),
            (Self::Object, "kind") => Self::Name(1),
            (Self::Metadata, "namespace") => Self::Name(2),
            (Self::Metadata, "name") => Self::Name(3),
            _ => Self::Other,
        }
    }
}

/// Copies one value.
struct Part<'c, 't> {
    copy: &'c mut Copy<'t>,
    place: Place,
    depth: usize,
}

impl<'c, 't> Part<'c, 't> {
    fn root(copy: &'c mut Copy<'t>) -> Self {
        Self {
            copy,
            place: Place::Object,
            depth: DEPTH,
        }
    }

    fn inside<E: Error>(&mut self, place: Place) -> Result<Part<'_, 't>, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(left)?;
        Ok(Part {
            copy: self.copy,
            place,
            depth,
        })
    }

    /// Copies a value that is neither text nor a collection.
    fn plain<E: Error>(self, value: impl serde::Serialize) -> Result<(), E> {
        match self.place {
            Place::Other => write(&mut self.copy.text, value),
            _ => Err(left()),
        }
    }
}

/// Ends the copy of an object that is left to `manifest`.
fn left<E: Error>() -> E {
    E::custom("left")
}

fn write<E: Error>(text: &mut Vec<u8>, value: impl serde::Serialize) -> Result<(), E> {
    serde_json::to_writer(text, &value).map_err(|_| left())
}

/// Writes a text that has no escapes in its source, and needs none.
fn quote(text: &mut Vec<u8>, value: &str) {
    text.push(b'"');
    text.extend_from_slice(value.as_bytes());
    text.push(b'"');
}

impl<'t> DeserializeSeed<'t> for Part<'_, 't> {
    type Value = ();

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'t> Visitor<'t> for Part<'_, 't> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.plain(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.plain(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.plain(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.plain(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.plain(value)
    }

    fn visit_borrowed_str<E: Error>(self, value: &'t str) -> Result<(), E> {
        match self.place {
            Place::Object | Place::Metadata => return Err(left()),
            Place::Name(_) if value.is_empty() => return Err(left()),
            Place::Name(at) => self.copy.names[at] = Some(value),
            Place::Other => {}
        }
        quote(&mut self.copy.text, value);
        Ok(())
    }

    /// A text with escapes.
    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.plain(value)
    }

    fn visit_seq<A: SeqAccess<'t>>(mut self, mut items: A) -> Result<(), A::Error> {
        if !matches!(self.place, Place::Other) {
            return Err(left());
        }
        self.copy.text.push(b'[');
        let begin = self.copy.text.len();
        loop {
            let end = self.copy.text.len();
            if end > begin {
                self.copy.text.push(b',');
            }
            if items
                .next_element_seed(self.inside(Place::Other)?)?
                .is_none()
            {
                self.copy.text.truncate(end);
                self.copy.text.push(b']');
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'t>>(mut self, mut fields: A) -> Result<(), A::Error> {
        if matches!(self.place, Place::Name(_)) {
            return Err(left());
        }
        self.copy.text.push(b'{');
        let mut before: Option<&str> = None;
        while let Some(key) = fields.next_key::<&str>()? {
            if before.is_some_and(|before| before >= key) {
                return Err(left());
            }
            if before.is_some() {
                self.copy.text.push(b',');
            }
            quote(&mut self.copy.text, key);
            self.copy.text.push(b':');
            let place = self.place.of(key);
            fields.next_value_seed(self.inside(place)?)?;
            before = Some(key);
        }
        self.copy.text.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::SizeLimits;
    use crate::directory::manifest;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use transom_core::share::room;

    fn copied(text: &str) -> Option<FoundObject> {
        object(text, "local", 1 << 20)
    }

    /// The object of a text as `manifest` reads it alone.
    fn read(text: &str) -> FoundObject {
        let mut found = manifest::objects(text.as_bytes(), "local", SizeLimits::default()).unwrap();
        found.pop().unwrap()
    }

    fn thing() -> Value {
        json!({"apiVersion": "a/v1", "kind": "Thing", "metadata": {"name": "n", "namespace": "x"}})
    }

    #[test]
    fn leaves_everything_unusual_to_the_full_reader() {
        let with = |at: &str, value: Value| {
            let mut thing = thing();
            let (parent, key) = at.rsplit_once('/').unwrap();
            thing.pointer_mut(parent).unwrap()[key] = value;
            thing.to_string()
        };
        assert!(copied(&with("/metadata/labels", json!({"a": "b"}))).is_some());
        for text in [
            with("/metadata", json!(null)),
            with("/metadata", json!("n")),
            with("/metadata/name", json!("")),
            with("/metadata/name", json!(7)),
            with("/metadata/name", json!("a\nb")),
            with("/metadata/namespace", json!(null)),
            with("/kind", json!("ThingList")),
            with("/kind", json!(["Thing"])),
            with("/apiVersion", json!({})),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "n"}}).to_string(),
            json!({"kind": "Thing", "metadata": {"name": "n"}}).to_string(),
            json!([thing()]).to_string(),
            format!("{} {}", thing(), thing()),
            r#"{"kind": "Thing", "apiVersion": "v1", "metadata": {"name": "n"}}"#.to_owned(),
            r#"{"apiVersion": "v1", "kind": "A", "kind": "B", "metadata": {"name": "n"}}"#
                .to_owned(),
            r#"{"apiVersion": "v1", "k\u0069nd": "A", "metadata": {"name": "n"}}"#.to_owned(),
            r#"{apiVersion: v1, kind: A, metadata: {name: n}}"#.to_owned(),
            with("/spec", (0..80).fold(json!(1), |inner, _| json!([inner]))),
        ] {
            assert!(copied(&text).is_none(), "{text}");
        }
        let text = thing().to_string();
        assert!(object(&text, "local", text.len()).is_some());
        assert!(object(&text, "local", text.len() - 1).is_none());
    }

    /// Any JSON value.
    fn value() -> impl Strategy<Value = Value> {
        manifest::tests::values(any::<String>(), "[a-z]{0,3}")
    }

    proptest! {
        #[test]
        fn a_copy_is_what_the_full_reader_makes_of_it(spec in value(), status in value()) {
            let mut thing = thing();
            (thing["spec"], thing["status"]) = (spec, status);
            for text in [thing.to_string(), serde_json::to_string_pretty(&thing).unwrap()] {
                let (copied, read) = (copied(&text).unwrap(), read(&text));
                prop_assert_eq!(&copied.reference, &read.reference);
                prop_assert_eq!(&copied.text, &read.text);
                prop_assert_eq!(copied.weight, room::of_text(read.text.as_bytes()));
            }
        }

        #[test]
        fn any_text_is_copied_or_left(text in any::<String>(), cut in 0..200usize) {
            drop(copied(&text));
            let thing = thing().to_string();
            drop(copied(&thing.chars().take(cut).collect::<String>()));
        }
    }
}
