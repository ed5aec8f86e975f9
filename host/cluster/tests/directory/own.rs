//! Who owns the agent's folder; if another user created it, the agent touches nothing else on the disk.

use crate::support::{
    self, Folder, apply, create, delete, done, map, map_ref, read, secret_ref, taint, value,
};
use serde_json::json;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use transom_api::State;
use transom_api::status::PolicyStatus;
use transom_cluster::Cluster as _;
use transom_cluster::directory::{Directory, DirectoryOptions, OpenError};
use transom_core::failure::Class;
use transom_core::observation::Observation;
use transom_core::report::{End, Report};

const USERS: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: n}\nspec: {taints: [one]}\n";

/// Everything in the agent's folder; the agent must not follow any of it to the outside.
const LEVELS: [&str; 14] = [
    "",
    "tmp",
    "tmp/0",
    "objects",
    "objects/n",
    "objects/n/Secret.s.yaml",
    "patches",
    "patches/n",
    "patches/n/ConfigMap.a.yaml",
    "status",
    "status/p",
    "status/p/n.a.yaml",
    "status/p.yaml",
    "unreadable.yaml",
];

/// A fleet, and beside it a folder with files of another owner.
fn beside() -> (Folder, PathBuf) {
    let folder = Folder::new(&[
        ("fleet/a.yaml", USERS),
        ("fleet/broken.yaml", "{"),
        ("victim/p/0", "theirs"),
    ]);
    for name in [
        "0",
        "n.a.yaml",
        "Secret.s.yaml",
        "ConfigMap.a.yaml",
        "p.yaml",
    ] {
        folder.write(&format!("victim/{name}"), "theirs");
    }
    let victim = folder.path("victim");
    (folder, victim)
}

fn options(folder: &Folder) -> DirectoryOptions {
    DirectoryOptions {
        root: folder.path("fleet"),
        ..folder.options()
    }
}

/// Everything below a path: name, mode, owner, inode, and bytes.
fn contents(path: &Path) -> Vec<(PathBuf, u32, u32, u64, Vec<u8>)> {
    let about = std::fs::symlink_metadata(path).unwrap();
    let bytes = if about.is_file() {
        std::fs::read(path).unwrap()
    } else {
        Vec::new()
    };
    let mut all = vec![(
        path.to_owned(),
        about.mode(),
        about.uid(),
        about.ino(),
        bytes,
    )];
    if about.is_dir() {
        let mut inside: Vec<_> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        inside.sort();
        all.extend(inside.iter().flat_map(|path| contents(path)));
    }
    all
}

fn report(primary: &str) -> Report {
    support::report(primary, End::Ended(Class::Held), State::Held)
}

/// Everything that the agent ever does in its folder; failures must be errors without harm.
fn work(directory: &Directory) {
    drop(apply(directory, vec![create("s", "c2VjcmV0")]));
    drop(apply(
        directory,
        vec![taint(directory, json!(["one", "ours"]))],
    ));
    drop(directory.publish(&report("a"), ""));
    drop(directory.publish(&report("b"), ""));
    let gone = Report {
        end: End::Gone,
        ..report("b")
    };
    drop(directory.publish(&gone, ""));
    drop(directory.publish_policy("p", &PolicyStatus::default()));
    drop(directory.policy_status("p"));
    drop(directory.retain(&[("q".to_owned(), None)].into()));
    if let Some(made) = read(directory, &secret_ref("s")) {
        let gone = delete(made.reference, made.version);
        drop(apply(directory, vec![gone]));
    }
}

/// The error for a refused folder.
fn refusal(options: DirectoryOptions) -> String {
    match Directory::open(options).err() {
        Some(error @ OpenError::Own { .. }) => error.to_string(),
        other => panic!("not refused for the own folder: {other:?}"),
    }
}

/// The path of something in the agent's folder; the empty name is the folder itself.
fn own(folder: &Folder, level: &str) -> PathBuf {
    let own = folder.path("fleet/.transom");
    if level.is_empty() {
        own
    } else {
        own.join(level)
    }
}

/// Puts something at a path in the agent's folder.
fn put(folder: &Folder, level: &str, make: impl Fn(&Path)) {
    let at = own(folder, level);
    if !level.is_empty() {
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        let own = folder.path("fleet/.transom");
        std::fs::set_permissions(own, std::os::unix::fs::PermissionsExt::from_mode(0o1700))
            .unwrap();
    }
    make(&at);
}

#[test]
fn refuses_our_folder_from_a_clone_and_touches_nothing_outside() {
    for mask in ["022", "002", "077"] {
        let (folder, victim) = beside();
        put(&folder, "objects/klusterlet-a/x", |at| {
            std::fs::write(at, "").unwrap();
        });
        for level in ["tmp", "status", "patches"] {
            put(&folder, level, |at| symlink("../../victim", at).unwrap());
        }
        let script = format!(
            "umask {mask}; cd fleet && git init -q . && git add -A && \
             git -c user.name=a -c user.email=a@b commit -qm x && cd .. && git clone -q fleet clone"
        );
        let done = Command::new("sh")
            .arg("-c")
            .arg(script)
            .current_dir(folder.temp.path())
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        let before = (contents(&victim), contents(&folder.path("clone/.transom")));
        for writable in [true, false] {
            let why = refusal(DirectoryOptions {
                root: folder.path("clone"),
                writable,
                ..folder.options()
            });
            assert!(
                why.contains(".transom`: the agent did not create it here"),
                "{why}"
            );
        }
        assert_eq!(
            (contents(&victim), contents(&folder.path("clone/.transom"))),
            before
        );
    }
}

#[test]
fn refuses_a_link_at_any_level_by_name() {
    for level in LEVELS.into_iter().chain([".gitignore"]) {
        for target in [
            "../victim",
            "../../victim",
            "../../../victim",
            "victim/0",
            "/nowhere",
        ] {
            let (folder, victim) = beside();
            let end = if target.starts_with("..") {
                victim.clone()
            } else {
                folder.path(target)
            };
            put(&folder, level, |at| symlink(&end, at).unwrap());
            let before = contents(folder.temp.path());
            let why = refusal(options(&folder));
            assert!(
                why.contains("link") && why.contains(level),
                "{level}: {why}"
            );
            let after = contents(folder.temp.path());
            assert_eq!(after, before, "{level}");
        }
    }
}

/// A path in the agent's folder that is free for something else.
fn emptied(folder: &Folder, level: &str) -> PathBuf {
    let at = own(folder, level);
    if at.is_dir() {
        std::fs::rename(&at, folder.path("aside")).unwrap();
    }
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    drop(std::fs::remove_file(&at));
    at
}

#[test]
fn never_follows_a_link_that_is_created_later() {
    for level in LEVELS {
        let (folder, victim) = beside();
        let directory = Directory::open(options(&folder)).unwrap();
        let at = emptied(&folder, level);
        let end = if victim.join(at.file_name().unwrap()).is_file() {
            victim.join(at.file_name().unwrap())
        } else {
            victim.clone()
        };
        symlink(&end, &at).unwrap();
        let before = contents(&victim);
        work(&directory);
        assert_eq!(contents(&victim), before, "{level}");
        assert!(
            !folder.path("victim/n").exists() && !folder.path("victim/.gitignore").exists(),
            "{level}"
        );
    }
}

#[test]
fn a_pipe_or_file_in_place_of_our_folder_never_blocks() {
    let pipe = |at: &Path| {
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            at,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        );
        made.unwrap();
    };
    for level in LEVELS.into_iter().chain([".gitignore"]) {
        let (folder, _) = beside();
        put(&folder, level, pipe);
        let why = refusal(options(&folder));
        assert!(
            why.contains("not a regular file") || why.contains("not a folder"),
            "{level}: {why}"
        );
    }
    for level in ["", "tmp", "objects", "patches", "status"] {
        let (folder, _) = beside();
        put(&folder, level, |at| std::fs::write(at, "theirs").unwrap());
        let why = refusal(options(&folder));
        assert!(why.contains("not a folder"), "{level}: {why}");
    }
    for level in LEVELS {
        let (folder, _) = beside();
        let directory = Directory::open(options(&folder)).unwrap();
        let at = emptied(&folder, level);
        pipe(&at);
        work(&directory);
    }
}

#[test]
fn writing_never_changes_a_hard_linked_file() {
    let (folder, victim) = beside();
    let files = LEVELS
        .into_iter()
        .filter(|level| level.contains(".yaml") || *level == "tmp/0");
    for level in files.chain([".gitignore"]) {
        put(&folder, level, |at| {
            std::fs::hard_link(victim.join("0"), at).unwrap();
        });
    }
    let before = contents(&victim);
    let directory = Directory::open(options(&folder)).unwrap();
    work(&directory);
    drop(directory);
    assert_eq!(contents(&victim), before);
    assert_eq!(folder.text("fleet/.transom/.gitignore"), "*\n");
}

#[test]
fn refuses_a_folder_of_another_user() {
    let (folder, _) = beside();
    let own = match std::fs::metadata(folder.temp.path()).unwrap().uid() == 0 {
        true => {
            put(&folder, "objects", |at| std::fs::create_dir(at).unwrap());
            std::os::unix::fs::chown(folder.path("fleet/.transom"), Some(12_345), None).unwrap();
            folder.path("fleet/.transom")
        }
        // An ordinary user can find folders of the superuser.
        false => PathBuf::from("/usr"),
    };
    let before = std::fs::metadata(&own).unwrap().mode();
    let why = refusal(DirectoryOptions {
        own: Some(own.clone()),
        ..options(&folder)
    });
    assert!(why.contains("it belongs to the user "), "{why}");
    assert_eq!(std::fs::metadata(&own).unwrap().mode(), before);
}

#[test]
fn takes_an_empty_folder_and_recognises_its_own_after_a_move() {
    let (folder, _) = beside();
    put(&folder, "", |at| std::fs::create_dir(at).unwrap());
    let directory = Directory::open(options(&folder)).unwrap();
    done(&directory, create("s", "b25l"));
    drop(directory);
    assert_eq!(
        std::fs::metadata(folder.path("fleet/.transom"))
            .unwrap()
            .mode()
            & 0o7777,
        0o1700
    );
    std::fs::rename(folder.path("fleet"), folder.path("moved")).unwrap();
    let moved = Directory::open(DirectoryOptions {
        root: folder.path("moved"),
        ..folder.options()
    })
    .unwrap();
    assert_eq!(value(&moved, &secret_ref("s")), json!("b25l"));
}

#[test]
fn writes_nothing_while_another_agent_owns_the_folder() {
    let taken: [fn(&Path); 2] = [
        |own| std::fs::remove_dir_all(own).unwrap(),
        |own| std::fs::rename(own, own.with_file_name(".moved")).unwrap(),
    ];
    for take in taken {
        let (folder, _) = beside();
        let first = Directory::open(options(&folder)).unwrap();
        take(&folder.path("fleet/.transom"));
        let second = Directory::open(options(&folder)).unwrap();
        done(&second, create("s", "b25l"));
        let outcome = apply(&first, vec![create("s", "dHdv")]);
        let message = &outcome.failure().unwrap().1.message;
        assert!(
            message.contains("another agent is using the new one"),
            "{message}"
        );
        assert!(first.publish(&report("a"), "").is_err());
        assert!(
            folder
                .text("fleet/.transom/objects/n/Secret.s.yaml")
                .contains("b25l")
        );
        drop(second);
        // A child that another test starts holds the lock until it runs its program.
        let deadline = std::time::Duration::from_secs(60);
        let publish = || first.publish(&report("a"), "").ok();
        transom_support::wait::until("the lock of the folder", deadline, publish).unwrap();
        assert!(folder.path("fleet/.transom/status/p/n.a.yaml").exists());
        assert!(
            matches!(
                Directory::open(options(&folder)).err(),
                Some(OpenError::InUse { .. })
            ),
            "it has the lock again"
        );
    }
}

#[test]
fn a_damaged_patch_is_not_mistaken_for_a_user_change() {
    const FILE: &str = "fleet/.transom/patches/n/ConfigMap.a.yaml";
    let (folder, _) = beside();
    let directory = Directory::open(options(&folder)).unwrap();
    done(&directory, taint(&directory, json!(["one", "ours"])));
    drop(directory);
    let taints = || {
        let directory = Directory::open(DirectoryOptions {
            writable: false,
            ..options(&folder)
        })
        .unwrap();
        read(&directory, &map_ref("a")).unwrap().body["spec"]["taints"].clone()
    };
    let text = folder.text(FILE);
    assert_eq!(taints(), json!(["one", "ours"]));
    let damaged = |bytes: &[u8]| {
        folder.write(FILE, bytes);
        assert_eq!(
            taints(),
            json!(["one"]),
            "{}",
            String::from_utf8_lossy(bytes)
        );
    };
    for at in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[at] ^= 1;
        damaged(&bytes);
        damaged(&text.as_bytes()[..at]);
        bytes.remove(at);
        damaged(&bytes);
    }
    folder.write(FILE, &text);
    assert_eq!(taints(), json!(["one", "ours"]));
}

#[test]
fn a_pipe_that_repeatedly_replaces_a_file_never_blocks() {
    let folder = Folder::new(&[
        ("fleet/a.yaml", &map("a", "1")),
        ("fleet/r.yaml", &map("r", "1")),
    ]);
    let pipe = folder.path("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let settle = Duration::from_millis(2);
    let options = DirectoryOptions {
        watch: true,
        settle,
        ..options(&folder)
    };
    let directory = Directory::open(options).unwrap();
    let mut changes = directory.changes();
    let swap = || {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        let cwd = rustix::fs::CWD;
        rustix::fs::renameat_with(cwd, &pipe, cwd, folder.path("fleet/r.yaml"), flags).unwrap();
    };
    let mut seen = 0;
    for round in 2..40 {
        (0..500).for_each(|_| swap());
        folder.rename_in("fleet/a.yaml", &map("a", &round.to_string()));
        let found = transom_support::wait::until(
            "the change of another file",
            Duration::from_secs(60),
            || {
                swap();
                std::iter::from_fn(|| changes.try_next())
                .find(|news| matches!(news, Observation::Present(object) if object.body["data"]["x"] == round))
            },
        );
        seen += usize::from(found.is_ok());
    }
    assert_eq!(seen, 38);
}
