//! Inputs of a command, such as standard input where it says `-` for a file: read once, and never more than a limit.

use anyhow::{Context as _, bail};
use memchr::memmem;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::OnceLock;

/// As what standard input was read.
static TAKEN: OnceLock<&'static str> = OnceLock::new();

/// Whether a path of the command line means standard input.
pub(crate) fn is_meant(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// A path of the command line, for people.
pub(crate) fn shown(path: &Path) -> String {
    match is_meant(path) {
        true => "standard input".to_owned(),
        false => format!("`{}`", path.display()),
    }
}

/// Reads all of standard input. `what` names for people what it holds, such as `the settings`.
///
/// # Errors
/// When it cannot be read, has more than `most` bytes, or was read before: it cannot be two files.
pub(crate) fn read(what: &'static str, most: usize) -> anyhow::Result<Vec<u8>> {
    let failed = || format!("failed to read {what} from standard input");
    if TAKEN.set(what).is_err() {
        let first = TAKEN.get().copied().unwrap_or_default();
        bail!("{}: it was read before, as {first}", failed());
    }
    bounded(std::io::stdin().lock(), most).with_context(failed)
}

/// Reads all of a file.
///
/// # Errors
/// As for [`bounded`], and when it cannot be opened.
pub(crate) fn file(path: &Path, most: usize) -> anyhow::Result<Vec<u8>> {
    bounded(File::open(path)?, most)
}

/// Reads all of an input.
///
/// # Errors
/// When it cannot be read, or has more than `most` bytes.
pub(crate) fn bounded(input: impl Read, most: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    input.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        bail!("it has more than {most} bytes");
    }
    Ok(bytes)
}

/// Bytes that are read at a time.
const CHUNK: usize = 64 << 10;

/// Whether an input contains these bytes. Keeps no more than a chunk of it.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn holds(mut input: impl Read, wanted: &[u8]) -> io::Result<bool> {
    let finder = memmem::Finder::new(wanted);
    let (mut chunk, mut kept) = (vec![0; CHUNK + wanted.len()], 0);
    loop {
        let read = match input.read(chunk.get_mut(kept..).unwrap_or_default()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        let end = kept + read;
        if finder.find(chunk.get(..end).unwrap_or_default()).is_some() {
            return Ok(true);
        }
        if read == 0 {
            return Ok(false);
        }
        // The bytes may begin in this chunk and end in the next one.
        kept = end.min(wanted.len().saturating_sub(1));
        chunk.copy_within(end - kept..end, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// Gives a few bytes at a time.
    struct Drops(Cursor<Vec<u8>>, usize);

    impl Read for Drops {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = buffer.len().min(self.1);
            self.0.read(&mut buffer[..most])
        }
    }

    #[test]
    fn finds_bytes_wherever_chunks_end() {
        for step in [1, 2, 3, 5, CHUNK, usize::MAX] {
            for before in [0, 1, 7, CHUNK - 2, CHUNK, CHUNK + 2, 3 * CHUNK - 1] {
                let holds = |text: &[u8]| {
                    let input = [&vec![b'C'; before], text].concat();
                    holds(Drops(Cursor::new(input), step), b"Case").unwrap()
                };
                assert!(holds(b"Case") && holds(b"Cases."), "{step} {before}");
                assert!(!holds(b"Cas") && !holds(b"cAse Cas e"), "{step} {before}");
            }
        }
        assert!(!holds(&b""[..], b"Case").unwrap());
    }
}
