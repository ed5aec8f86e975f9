//! What no limit of a call would stop: operations on whole ranges of memory or tables, which run to their end.
//! The time is looked at where a function begins and where a loop does; so a function may hold only so many in between.

use crate::failure::LoadError;
use wasmparser::{BinaryReaderError, FunctionBody, Operator, Parser, Payload};

/// The most of them in one function: with the largest memory less than a second.
const RANGES: u64 = 256;

/// Refuses a component with a function that could not be stopped in time. What cannot be read is left to the compiler,
/// which refuses it.
pub(crate) fn vet(bytes: &[u8]) -> Result<(), LoadError> {
    for payload in Parser::new(0).parse_all(bytes) {
        let Ok(payload) = payload else { return Ok(()) };
        let Payload::CodeSectionEntry(body) = payload else { continue };
        let Ok(found) = ranges(&body) else { return Ok(()) };
        if found > RANGES {
            let what = "the number of memory operations on ranges in one of its functions";
            return Err(LoadError::TooLarge { what, found, allowed: RANGES });
        }
    }
    Ok(())
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
