//! Reads a component before it is compiled, or its kept code loaded. Refuses what no limit of a call would stop:
//! operations on whole ranges of memory or tables run to their end. Time is checked only where a function or a loop
//! begins, so a function may hold only so many of them. Refuses also declarations (exports, types, …) that would take
//! much memory for as long as the component is loaded, and names that a trap would copy.

use super::{at_most, invalid};
use crate::failure::LoadError;
use std::collections::BTreeMap;
use transom_core::policy::budget::MEMORY_BYTES;
use wasmparser::{
    BinaryReaderError, CustomSectionReader, FunctionBody, KnownCustom, Name, Operator, Parser,
    Payload,
};

/// Bytes that a slow machine fills or copies in a millisecond.
const BYTES_OF_A_MILLISECOND: u64 = 4 << 20;
/// How much later than its deadline a call may be stopped: about four times its default time, and four times that under
/// an agent that allows the largest memory.
const LATE_MS: u64 = 1_024;
/// The most range operations in one function; each may cover about all the memory that a call has.
const RANGES: u64 = LATE_MS * BYTES_OF_A_MILLISECOND / MEMORY_BYTES;
/// The most bytes of declarations of one kind: thirty times what a guest written in Rust has of the most frequent one,
/// types. Loaded, each byte takes up to sixty.
const DECLARED: u64 = 256 << 10;
/// The most segments of data, of which such a guest has one.
const SEGMENTS: u64 = 4_096;
/// The most bytes of a function's name. A trap copies the name of each function on the stack.
const NAME: u64 = 4_096;
/// How deeply components and modules may lie in each other; in such a guest modules lie in one component.
const DEPTH: u64 = 16;

/// Refuses a component that has too much of something. Leaves unreadable bytes to the compiler, which refuses them.
pub(super) fn vet(bytes: &[u8]) -> Result<(), LoadError> {
    is_component(bytes)?;
    let (mut depth, mut totals) = (0_u64, BTreeMap::new());
    for payload in Parser::new(0).parse_all(bytes) {
        let Ok(payload) = payload else { return Ok(()) };
        match &payload {
            Payload::Version { .. } => {
                depth += 1;
                at_most("the depth of its nested components", depth, DEPTH)?;
            }
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::CustomSection(section) => vet_names(section)?,
            Payload::CodeSectionEntry(body) => {
                let Ok(found) = ranges(body) else {
                    return Ok(());
                };
                at_most(
                    "the number of bulk memory operations in one of its functions",
                    found,
                    RANGES,
                )?;
            }
            _ => {}
        }
        if let Some((what, found, allowed)) = declared(&payload) {
            let total: &mut u64 = totals.entry(what).or_default();
            *total += found;
            at_most(what, *total, allowed)?;
        }
    }
    Ok(())
}

/// Refuses a long name of a function. Like wasmtime, ignores what follows something unreadable.
fn vet_names(section: &CustomSectionReader<'_>) -> Result<(), LoadError> {
    let KnownCustom::Name(kinds) = section.as_known() else {
        return Ok(());
    };
    for kind in kinds {
        let Ok(kind) = kind else { return Ok(()) };
        let Name::Function(functions) = kind else {
            continue;
        };
        for function in functions {
            let Ok(function) = function else {
                return Ok(());
            };
            let length = function.name.len() as u64;
            at_most("the length of a function's name in bytes", length, NAME)?;
        }
    }
    Ok(())
}

/// What a section declares, how much of it, and how much of it a component may have.
fn declared(payload: &Payload<'_>) -> Option<(&'static str, u64, u64)> {
    use Payload as P;
    let what = match payload {
        P::DataSection(segments) => {
            let what = "the number of its data segments";
            return Some((what, segments.count().into(), SEGMENTS));
        }
        P::TypeSection(_) | P::CoreTypeSection(_) | P::ComponentTypeSection(_) => {
            "the size of its types in bytes"
        }
        P::ImportSection(_) | P::ComponentImportSection(_) => "the size of its imports in bytes",
        P::ExportSection(_) | P::ComponentExportSection(_) => "the size of its exports in bytes",
        P::FunctionSection(_) | P::ComponentCanonicalSection(_) => {
            "the size of its list of functions in bytes"
        }
        P::GlobalSection(_) => "the size of its globals in bytes",
        P::TagSection(_) => "the size of its tags in bytes",
        P::TableSection(_) | P::ElementSection(_) => "the size of its tables in bytes",
        P::InstanceSection(_) | P::ComponentInstanceSection(_) => {
            "the size of its instances in bytes"
        }
        P::ComponentAliasSection(_) => "the size of its aliases in bytes",
        _ => return None,
    };
    let (_, section) = payload.as_section()?;
    Some((what, section.len() as u64, DECLARED))
}

fn ranges(body: &FunctionBody<'_>) -> Result<u64, BinaryReaderError> {
    let mut found = 0;
    for operator in body.get_operators_reader()? {
        let is_range = matches!(
            operator?,
            Operator::MemoryFill { .. }
                | Operator::MemoryCopy { .. }
                | Operator::MemoryInit { .. }
                | Operator::TableFill { .. }
                | Operator::TableCopy { .. }
                | Operator::TableInit { .. }
        );
        found += u64::from(is_range);
    }
    Ok(found)
}

/// Checks that the bytes begin like a component: the error of a compiler or parser for other files would help no user.
///
/// # Errors
/// When they do not.
pub fn is_component(bytes: &[u8]) -> Result<(), LoadError> {
    match bytes.split_at_checked(8) {
        Some((b"\0asm\x0d\0\x01\0", _)) => Ok(()),
        Some((b"\0asm\x01\0\0\0", _)) => Err(invalid(
            "it is a core module, not a component (`transom componentize` makes one)",
        )),
        Some((head, _)) if head.starts_with(b"\0asm") => Err(invalid(
            "it has an unsupported version of the WebAssembly format",
        )),
        _ => Err(invalid("it is not a WebAssembly component")),
    }
}
