//! Baselines that are separate programs: the same parser and the same file calls, and nothing else. They decide nothing
//! and drop what they parse.

pub(crate) mod server;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use transom_core::document::{ParseLimits, parse_many};

/// The maximum cost of a file.
const LIMITS: ParseLimits = ParseLimits {
    bytes: 256 << 20,
    nodes: 10_000_000,
    depth: 100,
};
/// Bytes of one written file, about the size of a Secret with a kubeconfig.
const WRITTEN: usize = 8 << 10;

/// Which baseline.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    floor: Floor,
}

#[derive(Subcommand)]
enum Floor {
    /// Parse every manifest below folders
    Parse {
        /// Folders
        folders: Vec<PathBuf>,
        /// Then write this many files into a folder, each by rename
        #[arg(long, requires = "into", default_value_t = 0)]
        write: usize,
        /// That folder
        #[arg(long)]
        into: Option<PathBuf>,
    },
    /// Parse one file as JSON
    Json {
        /// The file
        file: PathBuf,
    },
    /// Work on an API server
    Server {
        /// Its kubeconfig
        #[arg(long)]
        kubeconfig: PathBuf,
        #[command(subcommand)]
        floor: server::Floor,
    },
}

/// Runs one.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.floor {
        Floor::Parse {
            folders,
            write,
            into,
        } => {
            let mut files = Vec::new();
            folders
                .iter()
                .try_for_each(|folder| walk(folder, &mut files))?;
            share(files.len(), &|index| {
                files.get(index).map_or(Ok(()), |file| parse(file))
            })?;
            into.as_ref()
                .map_or(Ok(()), |into| share(*write, &|index| put(into, index)))
        }
        Floor::Server { kubeconfig, floor } => server::run(kubeconfig, floor),
        Floor::Json { file } => {
            let bytes =
                fs::read(file).with_context(|| format!("failed to read `{}`", file.display()))?;
            let value: serde_json::Value = serde_json::from_slice(&bytes)?;
            drop(black_box(value));
            Ok(())
        }
    }
}

/// All files below a folder, with their metadata read.
fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in
        fs::read_dir(folder).with_context(|| format!("failed to list `{}`", folder.display()))?
    {
        let entry = entry?;
        if entry.metadata()?.is_dir() {
            walk(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn parse(file: &Path) -> Result<()> {
    let mut open =
        File::open(file).with_context(|| format!("failed to open `{}`", file.display()))?;
    let mut bytes = Vec::with_capacity(usize::try_from(open.metadata()?.len())?);
    open.read_to_end(&mut bytes)?;
    drop(black_box(parse_many(&bytes, LIMITS)));
    Ok(())
}

fn put(into: &Path, index: usize) -> Result<()> {
    let (unfinished, target) = (
        into.join(format!("{index}.tmp")),
        into.join(format!("{index}.yaml")),
    );
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(&[b'a'; WRITTEN])?;
    drop(file);
    fs::rename(unfinished, target)?;
    Ok(())
}

/// Does each of this many tasks once, on all cores, as the agent does.
fn share(many: usize, each: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= many {
                return Ok(());
            }
            each(index)?;
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..cores).map(|_| scope.spawn(work)).collect();
        work()?;
        others
            .into_iter()
            .try_for_each(|other| other.join().unwrap_or(Ok(())))
    })
}
