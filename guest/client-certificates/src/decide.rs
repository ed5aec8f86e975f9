//! Asks for what a request is judged by, and judges it. Pure functions.

use crate::ClientCertificates;
use crate::reasons::{APPROVED, NOT_ALLOWED, NOT_RECOGNIZED};
use crate::request::{self, Kind};
use crate::settings::Settings;
use serde::Deserialize;
use transom_guest::kinds::{MANAGED_CLUSTER, Metadata, ObservedCondition};
use transom_guest::objects::{
    Answer, Condition, Desired, Input, Need, Objects, Requirement, Review, Value, Who, found,
};
use transom_guest::{Context, Failure, ObjectRef, Primary, Problem, Reason};

/// Role of the request itself.
pub(crate) const REQUEST: &str = "request";
/// Role of the question whether the requester may renew certificates.
const ACCESS: &str = "access";
/// Role of the ManagedCluster.
pub(crate) const CLUSTER: &str = "cluster";
/// The label with the name of the cluster.
const CLUSTER_NAME: &str = "open-cluster-management.io/cluster-name";
/// The label of a request of an add-on, whose certificates its manager approves.
const ADDON_NAME: &str = "open-cluster-management.io/addon-name";

/// The conditions that judge a request. Those of other types are notes of others.
const JUDGEMENTS: [&str; 3] = ["Approved", "Denied", "Failed"];

/// What is read of a request.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields {
    metadata: Metadata,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<ObservedCondition>,
}

/// The cluster that a request is for; `None` when the request is not the guest's to judge: it is judged already, or it
/// is not from a registration agent.
fn cluster(primary: &Primary) -> Result<Option<String>, Problem> {
    let Fields {
        mut metadata,
        status,
    } = primary.read()?;
    let mut conditions = status.conditions.iter();
    let judged = conditions.any(|one| JUDGEMENTS.contains(&one.kind.as_str()));
    if primary.deleting || judged || metadata.labels.contains_key(ADDON_NAME) {
        return Ok(None);
    }
    let name = metadata.labels.remove(CLUSTER_NAME);
    Ok(name.filter(|name| !name.is_empty()))
}

/// What the request is, once it is read.
fn kind(settings: &Settings, cluster: &str, inputs: &[Input]) -> Option<Kind> {
    match found(inputs, REQUEST) {
        Value::CertificateRequest(request) => {
            Some(request::kind(&settings.bootstrap, cluster, request))
        }
        _ => None,
    }
}

impl Objects for ClientCertificates {
    /// First the request, then what its kind is judged by.
    fn require(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: &[Input],
    ) -> Result<Requirement, Failure> {
        let Some(cluster) = cluster(primary)? else {
            return Ok(Requirement::default());
        };
        let mut needs = vec![Need::certificate_request(
            REQUEST,
            primary.reference.clone(),
        )];
        match kind(&context.settings, &cluster, inputs) {
            Some(Kind::Renewal) => needs.push(Need::access(ACCESS, primary, may_renew())),
            Some(Kind::Imported) => {
                let cluster = MANAGED_CLUSTER.beside(primary, cluster);
                needs.push(Need::presence(CLUSTER, cluster));
            }
            _ => {}
        }
        Ok(needs.into_iter().collect())
    }

    /// Approves the request, or waits for a person.
    fn reconcile(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let Some(cluster) = cluster(primary)? else {
            return Ok(Answer::default());
        };
        let Some(kind) = kind(&context.settings, &cluster, &inputs) else {
            return Ok(Answer::default());
        };
        Ok(match kind {
            Kind::Foreign(why) => left(NOT_RECOGNIZED, why, Vec::new()),
            Kind::Listed => approved(primary, "The settings name who made the request."),
            Kind::Renewal => match found(&inputs, ACCESS) {
                Value::Allowed => approved(primary, "The agent may renew its certificate."),
                _ => left(
                    NOT_ALLOWED,
                    "The agent may not renew certificates.",
                    Vec::new(),
                ),
            },
            Kind::Imported => match found(&inputs, CLUSTER) {
                Value::Present => approved(primary, "The cluster was imported."),
                _ => {
                    let awaited = vec![MANAGED_CLUSTER.beside(primary, cluster)];
                    let why = "The ManagedCluster is not there, or it is being deleted.";
                    left(NOT_ALLOWED, why, awaited)
                }
            },
            Kind::Stranger => {
                let why = "Who made the request is neither the agent nor named in the settings.";
                left(NOT_ALLOWED, why, Vec::new())
            }
        })
    }
}

/// Whether the requester may renew certificates: acceptance gives that right, and denial takes it away.
fn may_renew() -> Review {
    Review {
        who: Who::Requester,
        verb: "renew".to_owned(),
        group: "register.open-cluster-management.io".to_owned(),
        resource: "managedclusters".to_owned(),
        subresource: Some("clientcertificates".to_owned()),
        namespace: None,
        name: None,
    }
}

fn approved(primary: &Primary, message: &str) -> Answer {
    let condition = Condition::true_("Approved", &APPROVED, message);
    Desired::conditions(primary, &[condition]).into()
}

fn left(reason: Reason, why: &str, objects: Vec<ObjectRef>) -> Answer {
    Answer {
        wait: Some(reason.problem(why).waiting(objects)),
        ..Answer::default()
    }
}
