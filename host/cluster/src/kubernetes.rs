//! A cluster behind the Kubernetes API: a cache filled by watches, and writes one step at a time.
//! The cache keeps only the fields of an object that the policies declare.

mod access;
mod approval;
mod cache;
mod cause;
mod connect;
mod counts;
mod decode;
mod events;
mod follow;
mod lease;
mod policy_status;
mod read;
mod requests;
mod resources;
mod send;
mod server;
mod shared;
mod store;
mod stream;
mod taint_times;
mod watched;
mod watching;
mod write;

pub use access::{Access, Reviews};
pub use approval::{Approvals, User};
pub use connect::{
    ConnectError, ConnectSettings, ConnectionStanding, KubeconfigProblem, KubernetesOptions,
};
pub use counts::{Purpose, RequestCounts, RequestVerb};
pub use events::Events;
pub use lease::{Leadership, Leading, LeaseOptions, Trouble};
pub use policy_status::{PolicyStatuses, SeenVersion};
pub use server::Server;
pub use shared::ServerObservations;
pub use watching::{Health, WatchHealth};
pub use write::Writer;

use resources::Resources;
use send::Sender;
use shared::SharedConnection;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use transom_core::observation::Unreadable;
use transom_core::watches::Watches;

/// One API server as a cluster. Safe to share between threads; dropping it ends its watches.
pub struct Kubernetes {
    shared: Arc<SharedConnection>,
    writer: Writer,
    _greeting: Task,
    patience: Duration,
    problem: watch::Receiver<Option<KubeconfigProblem>>,
}

/// A task that ends when this is dropped.
struct Task(AbortHandle);

impl Task {
    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work).abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Drop for Kubernetes {
    /// Ends the watches, whose tasks share the connection.
    fn drop(&mut self) {
        self.shared.change(|cache| {
            cache.watches.clear();
            Vec::new()
        });
    }
}

/// Whole milliseconds.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Kubernetes {
    /// Makes a client and waits for the first answer, so that a wrong address or credential is reported here.
    ///
    /// # Errors
    /// When there is no usable kubeconfig or identity, when no client can be made of it, when a credential plugin
    /// fails, or when the API server does not answer within 10 s.
    pub async fn connect(options: KubernetesOptions) -> Result<Self, ConnectError> {
        let server = Self::start(ConnectSettings::read(options).await?)?;
        let said = server
            .standing()
            .wait_for(Option::is_some)
            .await
            .map(|said| said.clone());
        said.ok().flatten().unwrap_or(Ok(())).map(|()| server)
    }

    /// Like [`Kubernetes::connect`], with settings that were already read, but returns at once. A background task asks
    /// the API server until it answers, however long that takes; watches are listed after its first answer. Must be
    /// called inside a tokio runtime.
    ///
    /// # Errors
    /// When no client can be made of the settings.
    pub fn start(settings: ConnectSettings) -> Result<Self, ConnectError> {
        let (tell_problem, problem) = watch::channel(None);
        let client = connect::client(&settings, tell_problem)?;
        let (tell, standing) = watch::channel(None);
        let sender = Sender::new(client.clone());
        let counts = Arc::clone(sender.counts());
        let resources = Resources::new(client.clone(), Arc::clone(&counts));
        let writer = Writer::new(sender, resources.clone(), settings.options.read_only);
        let shared = Arc::new(SharedConnection::new(
            &settings.options.name,
            client.clone(),
            resources,
            counts,
            standing,
        ));
        let patience = settings.patience();
        let greeting = Task::spawn(connect::greet(settings, client, tell));
        Ok(Self {
            shared,
            writer,
            _greeting: greeting,
            patience,
            problem,
        })
    }

    /// Whether the API server has answered since the start.
    pub fn standing(&self) -> watch::Receiver<ConnectionStanding> {
        self.shared.standing.clone()
    }

    /// Why the API server has not answered yet; `None` once it has answered, or while the first attempt is under way.
    pub fn trouble(&self) -> Option<ConnectError> {
        self.shared.standing.borrow().clone()?.err()
    }

    /// Why the kubeconfig, as it is now, is not used; `None` while it is.
    pub fn problem(&self) -> watch::Receiver<Option<KubeconfigProblem>> {
        self.problem.clone()
    }

    /// Waits until the API server has answered for the first time.
    pub async fn answered(&self) {
        // It fails only if the task that asks was aborted.
        drop(
            self.standing()
                .wait_for(|standing| matches!(standing, Some(Ok(()))))
                .await,
        );
    }

    /// How long the first answer may take. Longer with a credential plugin, because a person may have to sign in.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Name of the connection.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The writer of this connection; status and Events go through it, too.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Sets what is watched: starts and stops watches, and returns at once. What was listed stays readable until what
    /// replaces it was listed or is found unreadable. The objects of a watch that ends are not reported as gone, except
    /// those that another one takes over and does not find. Must be called inside a tokio runtime.
    pub fn watch(&self, wanted: Watches) {
        self.shared.wants(watching::aligned(wanted));
    }

    /// Waits until every wanted watch was listed completely, or is known to be unreadable.
    pub async fn synced(&self) {
        self.shared.settle().await;
    }

    /// Every change from now on. If an object changes several times before the change is taken, only its last state is
    /// reported.
    pub fn changes(&self) -> ServerObservations {
        ServerObservations {
            feed: self.shared.listen(),
            shared: Arc::clone(&self.shared),
        }
    }

    /// Every watch that cannot be followed now, and every object that cannot be used now.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        self.shared.cache().unreadable()
    }

    /// Reviews by this API server: who may get a path that the agent serves.
    pub fn reviews(&self) -> Reviews {
        Reviews::new(self.shared.client.clone())
    }

    /// Who approves plans, by this API server.
    pub fn approvals(&self) -> Approvals {
        Approvals::new(self.shared.client.clone())
    }

    /// Health of the watches.
    pub fn health(&self) -> Health {
        self.shared.health()
    }
}
