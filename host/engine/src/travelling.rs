//! The cases that travel with a component, in a custom section of its binary: put there, and read again.

use crate::compile::is_component;
use crate::failure::LoadError;
use crate::limits::printable;
use transom_core::cases::{self, GuestCase, SECTION};
use wasm_encoder::{ComponentSection as _, CustomSection};
use wasmparser::{Parser, Payload};

/// The cases that travel with a component; none when it has no section for them. Bounded: does not run it.
///
/// # Errors
/// When it is no component, or the section cannot be read.
pub fn travelling_cases(component: &[u8]) -> Result<Vec<GuestCase>, LoadError> {
    is_component(component)?;
    let invalid = |why: String| LoadError::CasesInvalid(printable(&why));
    match section(component).map_err(invalid)? {
        Some(section) => cases::decode(section).map_err(invalid),
        None => Ok(Vec::new()),
    }
}

/// The component with these cases in it; without cases it stays as it is.
///
/// # Errors
/// When they are too many or too large, when two have one name, or when it has cases already.
pub fn with_cases(mut component: Vec<u8>, cases: Vec<GuestCase>) -> Result<Vec<u8>, String> {
    if section(&component)?.is_some() {
        return Err("the component has cases already".to_owned());
    }
    if !cases.is_empty() {
        let data = cases::encode(cases)?.into();
        let name = SECTION.into();
        CustomSection { name, data }.append_to_component(&mut component);
    }
    Ok(component)
}

/// The section with the cases. Those of components and modules inside of it do not count.
fn section(component: &[u8]) -> Result<Option<&[u8]>, String> {
    let (mut depth, mut found) = (0_usize, Vec::new());
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload.map_err(|error| error.to_string())?;
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::CustomSection(section) if depth == 0 && section.name() == SECTION => {
                found.push(section.data());
            }
            _ => {}
        }
    }
    match *found.as_slice() {
        [] => Ok(None),
        [section] => Ok(Some(section)),
        _ => {
            let count = found.len();
            Err(format!("there are {count} sections `{SECTION}`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// An empty component.
    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    fn case() -> GuestCase {
        GuestCase {
            name: "a".to_owned(),
            given: json!({"validate": {}}),
            expected: json!([]),
        }
    }

    /// A custom section with this content; its declared length may be another one.
    fn custom(name: &str, content: &[u8], declared: u8) -> Vec<u8> {
        let length = u8::try_from(name.len()).unwrap();
        [&[0, declared, length], name.as_bytes(), content].concat()
    }

    #[test]
    fn cases_travel_in_a_section_of_the_component() {
        let component = with_cases(EMPTY.to_vec(), vec![case()]).unwrap();
        assert_eq!(travelling_cases(&component).unwrap(), [case()]);
        assert_eq!(travelling_cases(EMPTY).unwrap(), []);
        assert_eq!(with_cases(EMPTY.to_vec(), Vec::new()).unwrap(), EMPTY);
        assert!(with_cases(component, vec![case()]).is_err());
    }

    #[test]
    fn cases_of_a_component_inside_do_not_count() {
        let inner = with_cases(EMPTY.to_vec(), vec![case()]).unwrap();
        let mut outer = EMPTY.to_vec();
        wasm_encoder::RawSection {
            id: 4,
            data: &inner,
        }
        .append_to_component(&mut outer);
        assert_eq!(travelling_cases(&outer).unwrap(), []);
        let outer = with_cases(outer, vec![case()]).unwrap();
        assert_eq!(travelling_cases(&outer).unwrap(), [case()]);
    }

    #[test]
    fn a_hostile_section_is_refused() {
        let good = custom(SECTION, br#"{"version":1,"cases":[]}"#, 14 + 24);
        let with = |section: &[u8]| [EMPTY, section].concat();
        assert_eq!(travelling_cases(&with(&good)).unwrap(), []);
        for (what, component) in [
            ("truncated", with(&good[..good.len() - 1])),
            ("longer than the file", with(&custom(SECTION, b"{}", 127))),
            ("twice", with(&[good.clone(), good.clone()].concat())),
            ("empty", with(&custom(SECTION, b"", 14))),
            ("no text", with(&custom(SECTION, &[0xff; 9], 14 + 9))),
            (
                "endless length",
                with(&[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            ),
        ] {
            let error = travelling_cases(&component).unwrap_err();
            assert_eq!(error.reason(), "CasesInvalid", "{what}: {error}");
        }
    }
}
