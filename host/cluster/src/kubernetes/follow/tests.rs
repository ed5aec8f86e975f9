//! Watches of a server that a test scripts, on a clock that jumps to what happens next.

use super::*;
use crate::kubernetes::resources::Resources;
use http::{Request, Response};
use http_body_util::Channel;
use http_body_util::channel::Sender;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use std::io;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;
use tower::service_fn;
use transom_core::object::Object;
use transom_core::observation::Observation;
use transom_core::policy::selector::Selector;
use transom_core::reference::ObjectRef;
use transom_core::watches::{Keep, Scope, Watches};

/// What a server sends: pauses and texts, then the end of the body. If it is empty, the connection is refused.
type Script = Vec<(u64, String)>;

const HOUR: u64 = 3_600;
/// In place of a text: the connection breaks.
const CUT: &str = "cut";

/// A server of ConfigMaps, and a watch of them.
struct Scene {
    shared: Arc<SharedConnection>,
    /// The path and query of each request.
    asked: Arc<Mutex<Vec<String>>>,
    _standing: watch::Sender<super::super::connect::ConnectionStanding>,
}

impl Scene {
    /// The server answers lists and watches by this script; its seconds are pauses.
    fn new(script: impl Fn(&str) -> Script + Clone + Send + Sync + 'static) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let answer = move |request: Request<Body>| {
            let uri = request.uri().to_string();
            let script = match uri.as_str() {
                "/api/v1" => vec![(0, kinds())],
                _ => script(&uri),
            };
            noted.lock().unwrap().push(uri);
            async move {
                if script.is_empty() {
                    return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
                }
                let (sender, body) = Channel::new(1);
                tokio::spawn(sends(sender, script));
                Ok(Response::new(body))
            }
        };
        let client = Client::new(service_fn(answer), "default");
        let (standing, answers) = watch::channel(Some(Ok(())));
        let resources = Resources::new(client.clone(), Arc::default());
        let shared = SharedConnection::new("local", client, resources, Arc::default(), answers);
        let scope = Scope {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: None,
            name: None,
            fields: None,
            labels: None,
        };
        let shared = Arc::new(shared);
        shared.wants(Watches::from([(scope, Keep::default())]));
        Self {
            shared,
            asked,
            _standing: standing,
        }
    }

    fn failure(&self) -> Option<KnownReason> {
        let health = self.shared.health();
        health.watches[0].failure.as_ref().map(|failure| failure.0)
    }

    /// Whether what was listed counts.
    fn is_complete(&self) -> bool {
        let scope = self.shared.health().watches[0].scope.clone();
        self.shared.cache().complete(&scope).is_ok()
    }

    fn count(&self, what: impl Fn(&str) -> bool) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|uri| what(uri)).count()
    }
}

/// Sends a script.
async fn sends<D: From<String>>(mut sender: Sender<D, io::Error>, script: Script) {
    for (pause, text) in script {
        passes(pause).await;
        if text == CUT {
            return sender.abort(io::ErrorKind::ConnectionReset.into());
        }
        if sender.send_data(text.into()).await.is_err() {
            return;
        }
    }
}

/// Lets time pass on the paused clock: it jumps there when nothing else is left to do.
async fn passes(seconds: u64) {
    drop(timeout(Duration::from_secs(seconds), std::future::pending::<()>()).await);
}

fn kinds() -> String {
    let verbs = ["list", "watch"];
    let resources = json!([{"name": "configmaps", "singularName": "configmap", "namespaced": true, "kind": "ConfigMap", "verbs": verbs}]);
    json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": resources}).to_string()
}

fn is_watch(uri: &str) -> bool {
    uri.contains("watch=true")
}

fn is_list(uri: &str) -> bool {
    uri.contains("limit=")
}

fn page(next: &str) -> String {
    json!({"metadata": {"resourceVersion": "5", "continue": next}, "items": []}).to_string()
}

fn event(version: u64) -> String {
    let metadata = json!({"name": "m", "namespace": "n", "resourceVersion": version.to_string()});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    format!("{}\n", json!({"type": "MODIFIED", "object": object}))
}

/// The error of a stream whose version has expired.
fn expired() -> String {
    let status = json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"});
    format!("{}\n", json!({"type": "ERROR", "object": status}))
}

/// A pause after which the body ends.
fn end(after: u64) -> (u64, String) {
    (after, String::new())
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_opens_and_always_stays_silent_is_reported_until_it_works() {
    let buffers = Arc::new(Mutex::new(true));
    let still = Arc::clone(&buffers);
    let scene = Scene::new(move |uri| match is_watch(uri) {
        true if *still.lock().unwrap() => vec![end(HOUR)],
        true => (6..12).map(|version| (20, event(version))).collect(),
        false => vec![(0, page(""))],
    });
    passes(400).await;
    for _ in 0..60 {
        assert_eq!(scene.failure(), Some(KnownReason::ServerUnavailable));
        passes(10).await;
    }
    // What is listed every few minutes counts nevertheless.
    let mut counted = 0;
    for _ in 0..100 {
        counted += usize::from(scene.is_complete());
        passes(1).await;
    }
    assert!(counted > 80, "{counted} of 100 s");
    *buffers.lock().unwrap() = false;
    passes(150).await;
    assert_eq!(scene.failure(), None);
}

#[tokio::test(start_paused = true)]
async fn a_stream_with_gaps_after_its_first_event_backs_off() {
    let scene = Scene::new(|uri| match is_watch(uri) {
        true => vec![(0, event(5)), (0, "no event\n".to_owned())],
        false => vec![(0, page(""))],
    });
    passes(600).await;
    let lists = scene.count(is_list);
    assert!((10..40).contains(&lists), "{lists} lists in 10 minutes");
    assert_eq!(scene.failure(), Some(KnownReason::ReadFailed));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_the_server_ends_in_order_is_opened_again_at_once() {
    let scene = Scene::new(|uri| match is_watch(uri) {
        true => vec![end(60)],
        false => vec![(0, page(""))],
    });
    passes(601).await;
    assert_eq!((scene.count(is_list), scene.count(is_watch)), (1, 11));
    assert_eq!(scene.failure(), None);
}

#[tokio::test(start_paused = true)]
async fn pages_grow_again_after_a_slow_list() {
    let late = Arc::new(Mutex::new(true));
    let scene = Scene::new(move |uri| match is_watch(uri) {
        // The stream is broken each time, so that everything is listed anew.
        true => vec![(0, "no event\n".to_owned())],
        false if uri.contains("limit=500") && std::mem::take(&mut *late.lock().unwrap()) => {
            vec![(61, page(""))]
        }
        false => vec![(0, page(""))],
    });
    passes(1_800).await;
    let sizes = [500, 62, 124, 248, 496, 500].map(|size| format!("limit={size}&"));
    let asked = scene.asked.lock().unwrap().clone();
    let lists: Vec<&String> = asked.iter().filter(|uri| is_list(uri)).collect();
    for (uri, size) in lists.iter().zip(&sizes) {
        assert!(format!("{uri}&").contains(size), "{lists:?}");
    }
    assert!(lists.len() > sizes.len(), "{lists:?}");
}

#[tokio::test(start_paused = true)]
async fn objects_that_are_too_large_for_one_answer_are_listed_in_smaller_pages() {
    let map = |name: &str, next: &str| {
        let metadata = json!({"name": name, "namespace": "n", "resourceVersion": "4"});
        let items = json!([{"metadata": metadata, "data": {}}]);
        json!({"metadata": {"resourceVersion": "5", "continue": next}, "items": items}).to_string()
    };
    let scene = Scene::new(move |uri| match uri {
        _ if is_watch(uri) => vec![(HOUR, String::new())],
        _ if uri.contains("limit=500") => vec![(0, " ".repeat(20 << 20))],
        _ if uri.contains("continue=") => vec![(0, map("b", ""))],
        _ => vec![(0, map("a", "more"))],
    });
    let like = ObjectRef::local("v1", "ConfigMap", Some("n"), "");
    let listed = scene.shared.list_whole(&like, None).await.unwrap();
    let names: Vec<_> = listed.iter().map(|one| &*one.reference.name).collect();
    assert_eq!(names, ["a", "b"]);
    let every = Selector::default();
    let wanted = |object: &Object| object.reference.name == "b";
    let listed = scene.shared.list_metadata(&like, &every, &wanted).await;
    assert_eq!(listed.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_the_server_leaves_no_failure_at_a_quiet_watch() {
    let watches = Arc::new(Mutex::new(0));
    let scene = Scene::new(move |uri| {
        if is_list(uri) {
            return vec![(0, page(""))];
        }
        let mut watches = watches.lock().unwrap();
        *watches += 1;
        match *watches {
            1 => vec![(10, CUT.to_owned())],
            2..7 => vec![],
            7 => vec![(0, expired())],
            _ => vec![end(60)],
        }
    });
    let (mut failed, mut healthy) = (0, 0);
    for _ in 0..60 {
        passes(1).await;
        // From the answer that the version has expired on.
        if scene.count(is_watch) >= 7 {
            assert_eq!(scene.failure(), None, "{healthy} s");
            healthy += 1;
        } else {
            failed += u32::from(scene.failure().is_some());
        }
    }
    assert!(failed > 0 && healthy > 30, "{failed} s, {healthy} s");
    assert_eq!(scene.count(is_list), 2);
}

#[tokio::test(start_paused = true)]
async fn versions_that_expire_at_once_after_each_list_are_reported() {
    let scene = Scene::new(|uri| match is_watch(uri) {
        true => vec![(0, expired())],
        false => vec![(0, page(""))],
    });
    passes(60).await;
    for _ in 0..60 {
        passes(1).await;
        assert_eq!(scene.failure(), Some(KnownReason::ServerUnavailable));
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_whose_idle_connection_is_always_cut_works() {
    for (after, works) in [(50, true), (20, false)] {
        let scene = Scene::new(move |uri| match is_watch(uri) {
            true => vec![end(0), (after, CUT.to_owned())],
            false => vec![(0, page(""))],
        });
        passes(600).await;
        let reference = ObjectRef::local("v1", "ConfigMap", Some("n"), "m");
        let mut readable = 0;
        for _ in 0..100 {
            passes(1).await;
            assert_eq!(scene.failure().is_none(), works, "{after} s");
            readable += u32::from(scene.shared.unlisted(&reference).is_none());
        }
        // A read finds what was listed while a stream is open, also if the watch is in doubt.
        assert!(readable > 60, "{after} s: {readable} of 100 s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_in_doubt_tells_each_time_that_it_can_be_read_again() {
    let scene = Scene::new(|uri| match is_watch(uri) {
        true => vec![end(0), (20, CUT.to_owned())],
        false => vec![(0, page(""))],
    });
    let feed = scene.shared.listen();
    let reference = ObjectRef::local("v1", "ConfigMap", Some("n"), "m");
    let (mut was_readable, mut came_back, mut told) = (true, 0, 0);
    for _ in 0..600 {
        passes(1).await;
        let readable = scene.shared.unlisted(&reference).is_none();
        came_back += u32::from(readable && !was_readable);
        was_readable = readable;
        while let Some(news) = feed.pop() {
            let observation = scene.shared.observation(&news);
            told += u32::from(observation == Some(Observation::Answered));
        }
    }
    assert_eq!(scene.failure(), Some(KnownReason::ServerUnavailable));
    // It may be away for less than a second, too.
    assert!(came_back > 10 && told >= came_back, "{told} of {came_back}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_in_doubt_works_once_its_connection_stays_open_for_long() {
    let early = Arc::new(Mutex::new(8));
    let scene = Scene::new(move |uri| {
        if is_list(uri) {
            return vec![(0, page(""))];
        }
        let mut early = early.lock().unwrap();
        *early -= u64::from(*early > 0);
        let after = if *early > 0 { 2 } else { 50 };
        vec![(after, CUT.to_owned())]
    });
    passes(20).await;
    assert!(scene.failure().is_some());
    passes(100).await;
    for _ in 0..200 {
        passes(1).await;
        assert_eq!(scene.failure(), None);
    }
}
