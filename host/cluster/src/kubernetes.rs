//! A cluster behind the Kubernetes API: watched into a cache, written one step at a time.
//! Never decides what should be written; never holds more of an object than the policies declared.

mod access;
mod apply;
mod cache;
mod cause;
mod connect;
mod counts;
mod decode;
mod events;
mod feed;
mod follow;
mod health;
mod lease;
mod pace;
mod pacer;
mod policy_status;
mod read;
mod resources;
mod selector;
mod send;
mod shared;
mod shelf;
mod stream;
mod taint_times;
mod watched;
mod watching;
mod write;

pub use access::{Access, Reviews};
pub use connect::{ConnectError, KubernetesOptions, Settings, Standing};
pub use counts::{Counts, Purpose, Verb};
pub use events::Events;
pub use feed::Observations;
pub use health::{Health, WatchHealth};
pub use lease::{Leadership, Leading, LeaseOptions, Trouble};
pub use policy_status::PolicyStatuses;
pub use write::Writer;

use crate::ReadFailure;
use follow::Follow;
use resources::Resources;
use shared::Shared;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use transom_core::object::Object;
use transom_core::observation::Unreadable;
use transom_core::reference::ObjectRef;
use transom_core::stamp::Stamp;
use transom_core::watches::{Keep, Scope, Watches};

/// How long a read waits for the list of what it is about.
const LISTING: Duration = Duration::from_secs(30);

/// One API server as a cluster. Safe to use from many threads; its watches end with it.
pub struct Kubernetes {
    shared: Arc<Shared>,
    following: Mutex<BTreeMap<Arc<Scope>, Following>>,
    writer: Writer,
    greeting: AbortHandle,
    patience: Duration,
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        self.greeting.abort();
    }
}

/// The task of one watch; ends when this is dropped.
struct Following {
    keep: Keep,
    task: AbortHandle,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Kubernetes {
    /// Makes a client and waits for the first answer, so that a wrong address or credential is found here.
    ///
    /// # Errors
    /// When there is no usable kubeconfig or identity, as of [`Kubernetes::start`], or when a credential plugin fails or the
    /// API server does not answer within 10 s.
    pub async fn connect(options: KubernetesOptions) -> Result<Self, ConnectError> {
        let server = Self::start(Settings::read(options).await?)?;
        let said = server.standing().wait_for(Option::is_some).await.map(|said| said.clone());
        said.ok().flatten().unwrap_or(Ok(())).map(|()| server)
    }

    /// The same with settings that were read, without waiting: the API server is asked in the background until it answers,
    /// however long it is away, and what is watched meanwhile is listed then. Must be called inside of a tokio runtime.
    ///
    /// # Errors
    /// When no client can be made of the settings.
    pub fn start(settings: Settings) -> Result<Self, ConnectError> {
        let client = connect::client(&settings)?;
        let (tell, standing) = watch::channel(None);
        let resources = Resources::new(client.clone());
        let writer = Writer::new(client.clone(), resources.clone(), settings.options.read_only);
        let counts = Arc::clone(writer.counts());
        let shared = Arc::new(Shared::new(&settings.options.name, client.clone(), resources, counts, standing));
        let patience = settings.patience();
        let greeting = tokio::spawn(connect::greet(settings, client, tell)).abort_handle();
        Ok(Self { shared, following: Mutex::default(), writer, greeting, patience })
    }

    /// Whether the API server has answered since the start.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.shared.standing.clone()
    }

    /// Why the API server has never answered; nothing once it has, or while its first answer is waited for.
    pub fn trouble(&self) -> Option<ConnectError> {
        self.shared.standing.borrow().clone()?.err()
    }

    /// Waits until the API server has answered for the first time.
    pub async fn answered(&self) {
        // It fails only when nobody asks any more.
        drop(self.standing().wait_for(|standing| matches!(standing, Some(Ok(())))).await);
    }

    /// How long a first answer may take: a person may have to sign in before it.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Name of the connection.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Whoever writes on this connection, to publish through the same path.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// What is watched from now on: starts, stops and restarts watches, and returns at once. Of an object that is
    /// watched no longer nothing is told. Must be called inside of a tokio runtime.
    pub fn watch(&self, wanted: Watches) {
        let mut following = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = watching::aligned(wanted);
        following.retain(|scope, _| {
            let still = wanted.contains_key(&**scope);
            if !still {
                self.shared.wants_no_more(scope);
            }
            still
        });
        for (scope, keep) in wanted {
            let scope = Arc::new(scope);
            if following.get(&scope).is_some_and(|running| running.keep == keep) {
                continue;
            }
            let number = self.shared.wants(&scope, &keep);
            let follow =
                Follow { shared: Arc::clone(&self.shared), number, scope: Arc::clone(&scope), keep: keep.clone() };
            let task = tokio::spawn(follow.run()).abort_handle();
            following.insert(scope, Following { keep, task });
        }
    }

    /// Waits until every wanted watch was listed whole, or is known to be unreadable.
    pub async fn synced(&self) {
        self.shared.settle().await;
    }

    /// Every change from now on. Of an object that changes several times before it is taken, only the last state is told.
    pub fn changes(&self) -> Observations {
        Observations { feed: self.shared.listen(), shared: Arc::clone(&self.shared) }
    }

    /// An object: from the cache where a watch that was listed whole covers it, else asked for. What a watch covers is
    /// never asked for, which takes a right that the watch does without: it is waited for while the watch is being listed.
    /// Nothing when there is none, or its kind is not served.
    ///
    /// # Errors
    /// `InvalidObject` or `ObjectTooLarge` when it cannot be used; `ReadForbidden`, `ServerUnavailable` or `ReadFailed`
    /// when it cannot be asked for.
    pub async fn read(&self, reference: &ObjectRef) -> Result<Option<Object>, ReadFailure> {
        if let Some(known) = self.shared.known(reference) {
            return known;
        }
        let listed = timeout(LISTING, self.shared.listed_about(reference)).await;
        if let Some(known) = self.shared.known(reference) {
            return known;
        }
        match self.shared.unlisted(reference) {
            Some(failure) => Err(failure),
            None if listed.is_err() => Err(shared::late(reference, LISTING)),
            None => self.shared.ask(reference).await,
        }
    }

    /// Bytes that an object takes at most once it is read; nothing where it must be asked for.
    pub fn weigh(&self, reference: &ObjectRef) -> Option<usize> {
        self.shared.weigh(reference)
    }

    /// An object, asked for; the cache learns what is answered.
    ///
    /// # Errors
    /// As of [`Kubernetes::read`].
    pub async fn read_fresh(&self, reference: &ObjectRef) -> Result<Option<Object>, ReadFailure> {
        let asking = self.shared.asking(reference);
        let read = self.shared.ask(reference).await?;
        self.shared.learnt(reference, read.as_ref(), &asking);
        Ok(read)
    }

    /// An object as the API server has it now, for what cannot be taken back: a watch may not have told of it yet. Asked by
    /// a list of the one name, to which a watch has the right anyway; the cache learns what is answered.
    ///
    /// # Errors
    /// As of [`Kubernetes::read`], and `KindMissing` when its kind is not served now: that is no absence of the object.
    pub async fn confirm(&self, reference: &ObjectRef) -> Result<Option<Object>, ReadFailure> {
        let asking = self.shared.asking(reference);
        let read = self.shared.confirm(reference).await?;
        self.shared.learnt(reference, read.as_ref(), &asking);
        Ok(read)
    }

    /// An object for a resync: what only an answer to us has told, and no watch has confirmed, is asked for anew.
    ///
    /// # Errors
    /// As of [`Kubernetes::read`].
    pub async fn read_confirmed(&self, reference: &ObjectRef) -> Result<Option<Object>, ReadFailure> {
        let unconfirmed = self.shared.cache().is_unconfirmed(reference);
        if unconfirmed { self.confirm(reference).await } else { self.read(reference).await }
    }

    /// The objects of a kind that are watched, in a namespace or in all; sorted.
    pub fn list(&self, api_version: &str, kind: &str, namespace: Option<&str>) -> Vec<ObjectRef> {
        self.shared.cache().list(api_version, kind, namespace)
    }

    /// The objects that are watched and bear our stamp.
    pub fn stamped(&self) -> Vec<Object> {
        let ours = self.shared.cache().ours();
        ours.iter().filter_map(|reference| self.stamped_one(reference)).collect()
    }

    /// Those objects of a kind that the agent made whole.
    pub fn made(&self, api_version: &str, kind: &str) -> BTreeSet<ObjectRef> {
        let mut ours = self.shared.cache().ours();
        ours.retain(|reference| reference.api_version == api_version && reference.kind == kind);
        ours.into_iter().filter(|reference| self.stamped_one(reference).is_some()).collect()
    }

    fn stamped_one(&self, reference: &ObjectRef) -> Option<Object> {
        let object = self.shared.last_heard(reference)?;
        Stamp::read(&object).is_some().then_some(object)
    }

    /// Everything that cannot be followed or used now.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        self.shared.cache().unreadable()
    }

    /// Questions to this API server about who may get a path of ours.
    pub fn reviews(&self) -> Reviews {
        Reviews::new(self.shared.client.clone())
    }

    /// How the watches do.
    pub fn health(&self) -> Health {
        self.shared.health()
    }
}
