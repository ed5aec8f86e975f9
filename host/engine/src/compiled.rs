//! Compiled code on disk, so that the next start need not compile. Runs only code that no other user could have
//! written; when anything is wrong with a file, the component is compiled instead.

use crate::private::PrivateFolder;
use sha2::{Digest as _, Sha256};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use wasmtime::component::Component;

/// How many files are kept, and how many bytes; beyond that those are removed that were not used for longest. The chart
/// gives 320 MiB to all caches.
const FILES: usize = 256;
const BYTES: u64 = 128 << 20;
/// Bytes of the checksum in front of the code.
const CHECKSUM: usize = 32;

/// The section of code that wasmtime decodes when it loads the code: types, exports, globals, tables and the like.
const DECODED: &[u8] = b".wasmtime.info\0";
/// About how many bytes of memory one byte of that section takes once it is decoded: 4 to 23 by what it is, and 6 of a
/// guest written in Rust.
const TIMES: u64 = 16;

/// Code that was loaded.
pub(crate) struct LoadedCode {
    pub(crate) component: Component,
    /// Bytes of memory that it takes.
    pub(crate) bytes: u64,
}

/// About how many bytes of memory code takes when it is loaded: its own, and what is decoded of it.
pub(crate) fn held(code: &[u8]) -> u64 {
    let all = code.len() as u64;
    // Without the section all of it may be decoded.
    all + TIMES * decoded(code).unwrap_or(all)
}

/// The size of the section that is decoded. The code is an ELF file of 64 bits.
fn decoded(code: &[u8]) -> Option<u64> {
    let number = |at: usize, length: usize| {
        let mut bytes = [0; 8];
        bytes
            .get_mut(..length)?
            .copy_from_slice(code.get(at..at.checked_add(length)?)?);
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let (sections, names) = (number(60, 2)?, number(62, 2)?);
    let header = |section| Some(number(40, 8)?.saturating_add(number(58, 2)? * section));
    let names = number(header(names)?.saturating_add(24), 8)?;
    (0..sections).find_map(|section| {
        let header = header(section)?;
        let name = code.get(names.checked_add(number(header, 4)?)?..)?;
        let size = number(header.saturating_add(32), 8)?;
        name.starts_with(DECODED).then_some(size as u64)
    })
}

/// Loads code that this program compiled: from a file that only this user can have written, complete and of the right
/// component, or just received from a child process.
#[expect(
    unsafe_code,
    reason = "deserialising trusts its bytes: whoever calls this knows that we made them"
)]
pub(crate) fn believe(wasm: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<LoadedCode> {
    // SAFETY: no other user can have written these bytes, and wasmtime itself compares version and settings.
    let component = unsafe { Component::deserialize(wasm, code) }?;
    let bytes = held(code);
    Ok(LoadedCode { component, bytes })
}

/// A checksum that binds code to its component.
fn checksum(digest: &str, code: &[u8]) -> Vec<u8> {
    Sha256::new()
        .chain_update(digest)
        .chain_update(code)
        .finalize()
        .to_vec()
}

/// A folder of compiled code.
pub(crate) struct CodeCache {
    folder: PrivateFolder,
    tell: fn(&str),
    /// Whether it was told that some code could not be kept.
    told: AtomicBool,
}

impl CodeCache {
    /// The cache in a folder; `None`, and that is told, when it cannot be used or other users have access.
    pub(crate) fn open(folder: &Path, tell: fn(&str)) -> Option<Self> {
        let opened = PrivateFolder::open(folder);
        let failed = |error: &io::Error| {
            let why = format!("failed to use `{}`: {error}", folder.display());
            tell(&why);
        };
        let folder = opened.inspect_err(failed).ok()?;
        Some(Self {
            folder,
            tell,
            told: AtomicBool::new(false),
        })
    }

    /// The code of the component with this digest, if an engine with the same version and settings kept it, and loaded
    /// it takes at most so many bytes.
    pub(crate) fn read(
        &self,
        wasm: &wasmtime::Engine,
        digest: &str,
        most: u64,
    ) -> Option<LoadedCode> {
        let name = name(wasm, digest);
        let bytes = self.folder.read(&name, u64::MAX).ok()?;
        self.folder.touch(&name);
        let (kept, code) = bytes.split_at_checked(CHECKSUM)?;
        if checksum(digest, code) != kept || held(code) > most {
            return None;
        }
        believe(wasm, code).ok()
    }

    /// Keeps the code of a component, after making room for it. Code that cannot be kept is compiled again the next
    /// time.
    pub(crate) fn write(&self, wasm: &wasmtime::Engine, digest: &str, code: &[u8]) {
        let (name, checksum) = (name(wasm, digest), checksum(digest, code));
        let left = BYTES.saturating_sub((CHECKSUM + code.len()) as u64);
        self.folder.prune(FILES - 1, left, |_| false);
        if let Err(error) = self.folder.write(&name, &[&checksum, code])
            && !self.told.swap(true, Ordering::Relaxed)
        {
            let why =
                format!("failed to keep the code of the component with digest {digest}: {error}");
            (self.tell)(&why);
        }
    }
}

/// One file per component and engine: another version or other settings of wasmtime have their own.
fn name(wasm: &wasmtime::Engine, digest: &str) -> String {
    let mut hasher = DefaultHasher::new();
    wasm.precompile_compatibility_hash().hash(&mut hasher);
    let digest = digest.trim_start_matches("sha256:");
    format!("{digest}-{:016x}.code", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::Mutex;
    use std::time::{Duration, SystemTime};
    use transom_core::share::lock::MutexExt as _;

    #[test]
    fn code_never_takes_more_room_than_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CodeCache::open(&folder.path().join("code"), |_| {}).unwrap();
        let wasm = wasmtime::Engine::default();
        // All others seem newer, as after the clock was set back.
        let later = SystemTime::now() + Duration::from_secs(3_600);
        for at in 0..FILES {
            cache.write(&wasm, &at.to_string(), b"code");
            let path = folder
                .path()
                .join("code")
                .join(name(&wasm, &at.to_string()));
            let file = fs::File::open(path).unwrap();
            file.set_modified(later).unwrap();
        }
        cache.write(&wasm, "newest", b"code");
        assert!(cache.folder.has(&name(&wasm, "newest")));
        let files = fs::read_dir(folder.path().join("code")).unwrap();
        assert_eq!(files.count(), FILES);
    }

    #[test]
    fn code_that_cannot_be_kept_is_told_once() {
        static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let tell = |why: &str| TOLD.locked().push(why.to_owned());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(CodeCache::open(&file, tell).is_none());
        let cache = CodeCache::open(&folder.path().join("code"), tell).unwrap();
        let wasm = wasmtime::Engine::default();
        for digest in ["kept", "a", "b"] {
            // No file takes the place of a folder.
            let place = folder.path().join("code").join(name(&wasm, digest));
            if digest != "kept" {
                fs::create_dir(place).unwrap();
            }
            cache.write(&wasm, digest, b"code");
        }
        let told = TOLD.locked();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains(&file.display().to_string()), "{told:?}");
        assert!(told[1].contains("digest a:"), "{told:?}");
    }
}
