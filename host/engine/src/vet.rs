//! What no limit of a call would stop: operations on whole ranges of memory or tables, which run to their end.
//! The time is looked at where a function begins and where a loop does; so a function may hold only so many in between.

use crate::failure::LoadError;
use crate::limits::MEMORY_BYTES;
use wasmparser::{BinaryReaderError, FunctionBody, Operator, Parser, Payload};

/// Bytes that a slow machine fills or copies in a millisecond.
const BYTES_OF_A_MILLISECOND: u64 = 4 << 20;
/// How much later than its time a call may be stopped: four times what it has.
const LATE_MS: u64 = 1_024;
/// The most of them in one function, each of which may be about all the memory that a call has.
const MOST: u64 = LATE_MS * BYTES_OF_A_MILLISECOND / MEMORY_BYTES;
/// What a function with more of them has too many of.
pub(crate) const RANGES: &str = "the number of memory operations on ranges in one of its functions";

/// Refuses a component with a function that could not be stopped in time. What cannot be read is left to the compiler,
/// which refuses it.
pub(crate) fn vet(bytes: &[u8]) -> Result<(), LoadError> {
    for payload in Parser::new(0).parse_all(bytes) {
        let Ok(payload) = payload else { return Ok(()) };
        let Payload::CodeSectionEntry(body) = payload else { continue };
        let Ok(found) = ranges(&body) else { return Ok(()) };
        if found > MOST {
            return Err(LoadError::TooLarge { what: RANGES, found, allowed: MOST });
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
