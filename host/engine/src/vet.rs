//! Refuses components that no limit of a call would stop: operations on whole ranges of memory or tables run to their
//! end. Time is checked only where a function or a loop begins, so a function may hold only so many of them.

use crate::failure::LoadError;
use crate::limits::MEMORY_BYTES;
use wasmparser::{BinaryReaderError, FunctionBody, Operator, Parser, Payload};

/// Bytes that a slow machine fills or copies in a millisecond.
const BYTES_OF_A_MILLISECOND: u64 = 4 << 20;
/// How much later than its deadline a call may be stopped: about four times its default time.
const LATE_MS: u64 = 1_024;
/// The most range operations in one function; each may cover about all the memory that a call has.
const MOST: u64 = LATE_MS * BYTES_OF_A_MILLISECOND / MEMORY_BYTES;
/// The name of this limit in errors.
pub(crate) const RANGES: &str = "the number of bulk memory operations in one of its functions";

/// Refuses a component with a function that could not be stopped in time. Leaves unreadable bytes to the compiler,
/// which refuses them.
pub(crate) fn vet(bytes: &[u8]) -> Result<(), LoadError> {
    for payload in Parser::new(0).parse_all(bytes) {
        let Ok(payload) = payload else { return Ok(()) };
        let Payload::CodeSectionEntry(body) = payload else {
            continue;
        };
        let Ok(found) = ranges(&body) else {
            return Ok(());
        };
        if found > MOST {
            return Err(LoadError::TooLarge {
                what: RANGES,
                found,
                allowed: MOST,
            });
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
