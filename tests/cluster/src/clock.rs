//! A wall clock for one process, which a test sets and moves while the process runs; the monotonic clock is unaffected,
//! and so is the clock of the machine.

use crate::servers;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The clock of the processes that use it.
#[derive(Debug)]
pub struct Clock {
    file: PathBuf,
}

impl Clock {
    /// A clock that shows a time, written `2026-11-21 08:00:00`, when its process starts.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn at(file: &Path, time: &str) -> Result<Self> {
        Self::showing(file, &format!("@{time}"))
    }

    /// A clock that is away from that of the machine, by a time as for [`Clock::shift`]; ` i5` after it adds five
    /// seconds each time that a process looks at it.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn shifted(file: &Path, by: &str) -> Result<Self> {
        Self::showing(file, by)
    }

    fn showing(file: &Path, text: &str) -> Result<Self> {
        let clock = Self {
            file: file.to_owned(),
        };
        clock.write(text)?;
        Ok(clock)
    }

    /// Makes a program use this clock.
    ///
    /// # Errors
    /// When `cargo xtask servers` has not prepared the required library.
    pub fn wear<'a>(&self, command: &'a mut Command) -> Result<&'a mut Command> {
        let library = servers::beside("libfaketimeMT.so.1")?;
        Ok(command
            .env("LD_PRELOAD", library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("TZ", "UTC"))
    }

    /// Moves the clock, as if it had shown this time when its process started.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn set(&self, time: &str) -> Result<()> {
        self.write(&format!("@{time}"))
    }

    /// Moves the clock away from that of the machine, by a time such as `+1d`, `-2h` or `+0`.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn shift(&self, by: &str) -> Result<()> {
        self.write(by)
    }

    /// Stops the clock at this time until it is moved.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn hold(&self, time: &str) -> Result<()> {
        self.write(time)
    }

    fn write(&self, text: &str) -> Result<()> {
        // Renamed into place: the process reads the file whenever it reads the clock.
        let fresh = self.file.with_extension("new");
        let moved = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &self.file));
        moved.with_context(|| format!("failed to write `{}`", self.file.display()))
    }
}
