//! One run of the binary, with a deadline, and whether its exit is allowed.

use crate::canary::Canaries;
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use transom_support::wait;

/// The deadline of one run, which takes well below a second.
const DEADLINE: Duration = Duration::from_secs(180);
/// The shortest run of letters that is decoded as base64.
const ENCODED: usize = 24;

/// The binary with a folder for its input.
pub(super) struct Transom {
    folder: PathBuf,
}

/// How a run ended.
pub(super) struct Ended {
    /// None if it was killed.
    pub(super) code: Option<i32>,
    /// Whether it was still running at the deadline.
    pub(super) hangs: bool,
    /// Standard output and standard error.
    pub(super) output: Vec<u8>,
}

/// Which exit codes a run may end with.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// 0, 1 and 2.
    Render,
    /// 0 and 1: the usage is correct.
    Run,
}

impl Transom {
    pub(super) fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder.join("input"))?;
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// Writes an input file.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.folder.join("input").join(name);
        fs::write(&path, bytes).with_context(|| format!("failed to write `{}`", path.display()))?;
        Ok(path)
    }

    /// Runs the binary with these arguments to its end or the deadline.
    pub(super) fn run(&self, words: &[OsString]) -> Result<Ended> {
        let (output, errors) = (self.folder.join("output"), self.folder.join("errors"));
        let mut child = Command::new(crate::program::binary()?)
            .args(words)
            .current_dir(&self.folder)
            .env_clear()
            .env("XDG_CACHE_HOME", self.folder.join("cache"))
            .stdin(Stdio::null())
            .stdout(File::create(&output)?)
            .stderr(File::create(&errors)?)
            .spawn()?;
        let status = wait::until("the end of a run", DEADLINE, || {
            child.try_wait().ok().flatten()
        });
        if status.is_err() {
            child.kill()?;
            child.wait()?;
        }
        let output = [fs::read(output)?, fs::read(errors)?].concat();
        Ok(Ended {
            hangs: status.is_err(),
            code: status.ok().and_then(|status| status.code()),
            output,
        })
    }
}

impl Ended {
    /// What is wrong with the run, if anything.
    pub(super) fn wrong(&self, kind: Kind, canaries: &Canaries) -> Option<String> {
        let most = match kind {
            Kind::Render => 2,
            Kind::Run => 1,
        };
        let text = String::from_utf8_lossy(&self.output);
        if self.hangs {
            return Some(format!("it hangs: no end within {} s", DEADLINE.as_secs()));
        }
        if ["panicked", "AgentFailed", "bug in the agent"]
            .iter()
            .any(|word| text.contains(word))
        {
            return Some("it panicked".to_owned());
        }
        if !self.code.is_some_and(|code| (0..=most).contains(&code)) {
            return Some(format!("it ended with {:?}", self.code));
        }
        let found = canaries.found_in(&decoded(&self.output));
        found.first().map(|place| format!("it shows {place}"))
    }
}

/// Some output, and everything in it that is base64 at any offset, including double encoding.
pub(super) fn decoded(output: &[u8]) -> Vec<u8> {
    let lenient = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let engine = GeneralPurpose::new(&STANDARD, lenient);
    let (mut all, mut last) = (output.to_vec(), output.to_vec());
    for _ in 0..2 {
        let mut next = Vec::new();
        let is_encoded = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
        for word in last
            .split(|byte| !is_encoded(byte))
            .filter(|word| word.len() >= ENCODED)
        {
            for skipped in 0..4 {
                let rest = word.get(skipped..).unwrap_or_default();
                let whole = rest.get(..rest.len() / 4 * 4).unwrap_or_default();
                next.extend(engine.decode(whole).unwrap_or_default());
                next.push(b'\n');
            }
        }
        all.push(b'\n');
        all.extend(&next);
        last = next;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose;

    #[test]
    fn finds_a_canary_however_often_it_is_encoded() {
        let mut canaries = Canaries::default();
        let text = canaries.plant("token");
        let once = general_purpose::STANDARD.encode(format!("before {text} after"));
        let twice = general_purpose::STANDARD.encode(format!("kubeconfig: {once}\n"));
        for output in [text, once, twice] {
            let found = canaries
                .found_in(&decoded(format!("- {output}\n").as_bytes()))
                .len();
            assert!(found > 0, "{output}");
        }
        assert!(
            canaries
                .found_in(&decoded(b"nothing of the kind"))
                .is_empty()
        );
    }

    #[test]
    fn names_each_kind_of_wrong_exit() {
        let none = Canaries::default();
        let ended = |code, hangs, output: &str| Ended {
            code,
            hangs,
            output: output.as_bytes().to_vec(),
        };
        for (end, wrong) in [
            (ended(Some(0), false, "fine"), None),
            (ended(Some(2), false, "wrong use"), None),
            (ended(Some(101), false, ""), Some("101")),
            (ended(None, false, ""), Some("None")),
            (ended(None, true, ""), Some("hangs")),
            (
                ended(Some(1), false, "thread 'main' panicked at"),
                Some("panicked"),
            ),
            (ended(Some(1), false, "AgentFailed"), Some("panicked")),
        ] {
            let told = end.wrong(Kind::Render, &none);
            assert_eq!(told.is_some(), wrong.is_some(), "{told:?}");
            assert!(told.unwrap_or_default().contains(wrong.unwrap_or_default()));
        }
        assert!(ended(Some(2), false, "").wrong(Kind::Run, &none).is_some());
    }
}
