//! Compiled code cached on disk: the next engine uses it, but never code that others could have written. Asserts no
//! compile times.

use crate::support::{compute, engine_with, no_taints, unlimited};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;
use transom_conformance::fixture::hostile;
use transom_core::contract::description::Role;
use transom_core::world::TAINTS;
use transom_engine::{Capabilities, Capability, Engine, EngineOptions, LoadError};

/// How many compilations a new engine needs for one good guest.
fn compilations(folder: &Path, options: EngineOptions) -> u64 {
    let engine = engine_with(EngineOptions {
        code_cache: Some(folder.to_owned()),
        ..options
    });
    let bytes = hostile("log-lines").unwrap();
    let guest = engine
        .load(
            &bytes,
            Role::Decide(TAINTS),
            &Capabilities::of([Capability::Log]),
        )
        .unwrap();
    assert_eq!(compute(&guest, &unlimited()).result.unwrap(), no_taints());
    engine.compilations()
}

/// A private folder with the compiled code of one guest.
fn kept() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("below").join("code");
    assert_eq!(compilations(&folder, EngineOptions::default()), 1);
    let files: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let [file] = &*files else {
        panic!("one file of code, no probe and no part: {files:?}")
    };
    let file = file.clone();
    (temp, folder, file)
}

#[test]
fn the_next_engine_uses_the_compiled_code() {
    let (_temp, folder, file) = kept();
    assert_eq!(
        fs::metadata(&folder).unwrap().permissions().mode() & 0o777,
        0o700
    );
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(compilations(&folder, EngineOptions::default()), 0);
}

#[test]
fn recompiles_and_replaces_damaged_code() {
    let (_temp, folder, file) = kept();
    let whole = fs::read(&file).unwrap();
    for damage in [0, 40, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[damage] ^= 1;
        fs::write(&file, bytes).unwrap();
        assert_eq!(
            compilations(&folder, EngineOptions::default()),
            1,
            "byte {damage}"
        );
        assert_eq!(compilations(&folder, EngineOptions::default()), 0);
    }
    for length in [0, 31, 32, whole.len() / 2] {
        fs::write(&file, &whole[..length]).unwrap();
        assert_eq!(
            compilations(&folder, EngineOptions::default()),
            1,
            "{length} bytes"
        );
    }
}

#[test]
fn rejects_cached_code_that_others_can_write() {
    let (temp, folder, file) = kept();
    let mode = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&folder, 0o770);
    assert_eq!(compilations(&folder, EngineOptions::default()), 1);
    mode(&folder, 0o700);
    assert_eq!(compilations(&folder, EngineOptions::default()), 0);
    mode(&file, 0o602);
    assert_eq!(compilations(&folder, EngineOptions::default()), 1);
    let elsewhere = temp.path().join("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert_eq!(compilations(&folder, EngineOptions::default()), 1);
    let link = temp.path().join("link");
    symlink(&folder, &link).unwrap();
    assert_eq!(compilations(&link, EngineOptions::default()), 1);
}

#[test]
fn each_engine_has_its_own_code_and_a_missing_folder_is_fine() {
    let (temp, folder, _) = kept();
    let small = EngineOptions {
        allocate: transom_engine::Allocate::OnDemand,
        ..EngineOptions::default()
    };
    // With on-demand allocation the same code may or may not fit; the guest must answer.
    assert!(compilations(&folder, small) <= 1);
    fs::write(temp.path().join("file"), "").unwrap();
    assert_eq!(
        compilations(
            &temp.path().join("file").join("code"),
            EngineOptions::default()
        ),
        1
    );
}

#[test]
fn rejects_cached_code_of_another_component() {
    let (_temp, folder, file) = kept();
    let engine = engine_with(EngineOptions {
        code_cache: Some(folder.clone()),
        ..EngineOptions::default()
    });
    let other = engine
        .load(
            &hostile("good").unwrap(),
            Role::Decide(TAINTS),
            &Capabilities::default(),
        )
        .unwrap();
    let name = other.digest().trim_start_matches("sha256:").to_owned();
    let files = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let of_other = files
        .into_iter()
        .find(|path| path.to_string_lossy().contains(&name))
        .unwrap();
    fs::copy(of_other, &file).unwrap();
    assert_eq!(
        compilations(&folder, EngineOptions::default()),
        1,
        "the code of another component ran"
    );
    assert_eq!(compilations(&folder, EngineOptions::default()), 0);
}

#[test]
fn a_pipe_in_place_of_cached_code_never_blocks() {
    let (_temp, folder, file) = kept();
    fs::remove_file(&file).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .args(["-m", "600"])
            .arg(&file)
            .status()
            .unwrap()
            .success()
    );
    let (told, heard) = mpsc::channel();
    thread::spawn(move || {
        let twice = [(); 2].map(|()| compilations(&folder, EngineOptions::default()));
        told.send(twice).unwrap();
    });
    // Compiled code replaces the pipe.
    assert_eq!(
        heard.recv_timeout(Duration::from_secs(300)),
        Ok([1, 0]),
        "whoever opens the pipe waits for ever"
    );
}

#[test]
fn threads_that_read_the_same_code_at_once_share_one_copy() {
    let (_temp, folder, _file) = kept();
    let bytes = hostile("log-lines").unwrap();
    let engine = |max_code_bytes| {
        engine_with(EngineOptions {
            code_cache: Some(folder.clone()),
            max_code_bytes,
            ..EngineOptions::default()
        })
    };
    let load = |engine: &Engine| {
        let granted = Capabilities::of([Capability::Log]);
        engine.load(&bytes, Role::Decide(TAINTS), &granted)
    };
    let Err(LoadError::TooLarge { found, .. }) = load(&engine(1)) else {
        panic!("one byte is enough")
    };
    for _ in 0..20 {
        let engine = engine(found);
        let begin = Barrier::new(8);
        let load = || {
            begin.wait();
            load(&engine)
        };
        thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
            let all: Vec<_> = all.into_iter().map(|one| one.join().unwrap()).collect();
            let failed = all.iter().find_map(|one| one.as_ref().err());
            assert_eq!(failed, None, "there is room for one copy");
        });
        assert_eq!(engine.compilations(), 0);
    }
}
