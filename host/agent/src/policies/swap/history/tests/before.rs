//! The revision before the active one, which is pulled after all else, while the active one is watched.

use super::handover::of_another_version;
use super::*;
use std::path::Path;
use transom_engine::Compiler;

/// A policy whose active revision is watched, and came from another registry than the revision before.
struct Watched {
    folder: TempDir,
    cluster: Arc<dyn Cluster>,
    active: Digest,
}

impl Watched {
    async fn new() -> Self {
        Self::of("1", Self::policies(), |loaded| loaded).await
    }

    /// The same with this component before, and another active revision, which is made of what is loaded.
    async fn of(
        before: &str,
        policies: FoundPolicies,
        becomes: impl Fn(Arc<LoadedPolicy>) -> Arc<LoadedPolicy>,
    ) -> Self {
        let (folder, cluster) = place();
        let builtin = Location::Builtin("kubeconfig".to_owned());
        let first = builtin.fetch(None, &GatheredComponents::default()).unwrap();
        let second = [&*first.bytes, &[0, 2, 1, b'x']].concat();
        let mut this = Self {
            folder,
            cluster,
            active: Digest::of_bytes(b""),
        };
        for (name, bytes) in [("1", &*first.bytes), ("2", &second)] {
            let head = json!({"manifest": format!("sha256:{}", name.repeat(64))});
            let head = format!("{head}\n");
            std::fs::write(this.file(name), [head.as_bytes(), bytes].concat()).unwrap();
        }
        let mut swap = this.start(&this.gives(before));
        swap.replace(with_component(&policy(), "oci:before.example/a:v1"));
        settle(&mut swap).await;
        swap.replace(policies);
        settle(&mut swap).await;
        let pending = swap.pending(&policy()).unwrap();
        pending.loaded = becomes(Arc::clone(&pending.loaded));
        this.active = pass(&mut swap);
        let passed = swap.pending(&policy()).unwrap().passed.as_mut().unwrap();
        let probation = Probation::new(BEGUN, 0, RollbackSpec::default());
        passed.record.probation = Some(probation);
        swap.note(&policy());
        swap.keep_notes().await;
        assert_eq!(works(&swap), Some(this.active));
        this
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// A command that gives a component.
    fn gives(&self, name: &str) -> String {
        format!("cat '{}'", self.file(name))
    }

    fn policies() -> FoundPolicies {
        with_component(&policy(), "oci:active.example/a:v1")
    }

    /// An agent that begins with an empty cache; this command answers for the registry of the revision before.
    fn start(&self, before: &str) -> Swap {
        asking(&self.cluster, &self.script(before))
    }

    fn script(&self, before: &str) -> String {
        format!(
            "case \"$*\" in *before*) {before};; *) {};; esac",
            self.gives("2")
        )
    }

    /// The same once it has all but the revision before.
    async fn started(&self, before: &str) -> Swap {
        self.restored(self.start(before)).await
    }

    /// An agent that was started, once it has all but the revision before.
    async fn restored(&self, mut after: Swap) -> Swap {
        after.replace(Self::policies());
        let given = tokio::time::timeout(SOON, after.next()).await;
        let Ok(given @ JobOutput::Restored(_)) = given else {
            panic!("it waits for the registry of the revision before");
        };
        after.finish(given);
        assert_eq!(works(&after), Some(self.active));
        // Nor do the newest components.
        let given = tokio::time::timeout(SOON, after.next()).await;
        let Ok(given @ JobOutput::Done(_)) = given else {
            panic!("the newest components wait for the registry of the revision before");
        };
        after.finish(given);
        let now = (works(&after), after.loads.count());
        assert_eq!(now, (Some(self.active), 0));
        after
    }
}

#[tokio::test]
async fn neither_what_was_active_nor_the_newest_waits_for_the_registry_of_the_revision_before() {
    let watched = Watched::new().await;
    watched.started("exec sleep 600").await;
    let mut after = watched.started(&watched.gives("1")).await;
    let given = after.next().await;
    assert!(matches!(given, JobOutput::PreviousRevision(_)));
    after.finish(given);
    assert_eq!(works(&after), Some(watched.active));
    assert!(after.probations.contains_key(&policy()));
}

/// Waits until the revision before is there.
pub(super) async fn is_watched(swap: &mut Swap) {
    let watched = async {
        while !swap.probations.contains_key(&policy()) {
            let given = swap.next().await;
            swap.finish(given);
        }
    };
    let watched = tokio::time::timeout(SOON, watched).await;
    watched.expect("the revision before is asked for no more");
}

#[tokio::test]
async fn the_revision_before_is_taken_under_an_agent_of_another_version_as_well() {
    let upgraded = || with_component(&policy(), "builtin:kubeconfig");
    // The first component is the builtin one.
    let becomes = |loaded: Arc<LoadedPolicy>| of_another_version(&loaded);
    let watched = Watched::of("2", upgraded(), becomes).await;
    let mut after = watched.start(&watched.gives("2"));
    after.replace(upgraded());
    is_watched(&mut after).await;
    assert_ne!(works(&after), Some(watched.active));
    assert_ne!(
        works(&after),
        Some(after.probations[&policy()].before.revision.id())
    );
}

#[tokio::test]
async fn another_manifest_does_not_end_the_wait_for_the_revision_before() {
    let watched = Watched::new().await;
    let gate = watched.file("gate");
    let gives = watched.gives("1");
    let waits = format!("while [ ! -e '{gate}' ]; do sleep 0.1; done; {gives}");
    for (field, value) in [
        ("resyncSeconds", json!(60)),
        ("resyncSeconds", json!("never")),
    ] {
        let mut after = watched.started(&waits).await;
        assert!(after.loads.follows(&policy()));
        let mut policies = Watched::policies();
        policies.policies[0].value["spec"][field] = value;
        after.replace(policies);
        std::fs::write(&gate, "").unwrap();
        is_watched(&mut after).await;
        assert_eq!(works(&after), Some(watched.active));
        std::fs::remove_file(&gate).unwrap();
    }
}

#[tokio::test]
async fn the_revision_before_is_asked_for_again_when_its_registry_did_not_answer() {
    let watched = Watched::new().await;
    let answer = json!({"reason": "RegistryUnavailable", "message": "no", "silent": true});
    let (asked, gives) = (watched.file("asked"), watched.gives("1"));
    let script =
        format!("[ -e '{asked}' ] || {{ touch '{asked}'; echo '{answer}'; exit; }}; {gives}");
    let mut after = watched.started(&script).await;
    let moment = Duration::from_millis(100);
    let given = async {
        loop {
            // The time until the next try passes.
            after.loads.hurry();
            if let Ok(given) = tokio::time::timeout(moment, after.next()).await {
                return given;
            }
        }
    };
    let given = tokio::time::timeout(SOON, given).await;
    after.finish(given.expect("it is not asked for again"));
    assert!(after.probations.contains_key(&policy()));
}

#[tokio::test]
async fn a_machine_that_is_too_busy_to_compile_the_revision_before_tries_it_again() {
    const SILENT: &str = "exec sleep 600";
    let watched = Watched::new().await;
    let (cache, code) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let start = |before: &str, options: EngineOptions| {
        let cache = ComponentCache::new(Some(cache.path()));
        let engine = Engine::new(options).unwrap();
        asking_by(engine, &watched.cluster, &watched.script(before), cache)
    };
    let coded = || EngineOptions {
        // A folder that the engine makes is this user's alone.
        code_cache: Some(code.path().join("code")),
        ..EngineOptions::default()
    };
    // The components of both are kept, and the code of the active one only.
    watched.restored(start(SILENT, coded())).await;
    let mut both = start(&watched.gives("1"), EngineOptions::default());
    both.replace(Watched::policies());
    is_watched(&mut both).await;
    let compiler = Compiler {
        program: Path::new("/no/such/program").to_owned(),
        words: Vec::new(),
        seconds: 60,
    };
    let busy = EngineOptions {
        compiler: Some(compiler),
        ..coded()
    };
    let mut after = start(SILENT, busy);
    after.replace(Watched::policies());
    while works(&after).is_none() || after.loads.count() > 0 {
        let given = tokio::time::timeout(SOON, after.next()).await;
        let given = given.expect("the active revision waits for the one before");
        after.finish(given);
    }
    assert_eq!(works(&after), Some(watched.active));
    assert!(after.loads.lacking(&policy()).is_some());
}
