//! The guest `my-guest`: makes a namespace for each ManagedCluster, and in it a ConfigMap that says what the cluster
//! is.

use serde_json::json;
use transom_guest::kinds::{Kind, MANAGED_CLUSTER, ManagedCluster, NAMESPACE};
use transom_guest::make::Namespace;
use transom_guest::objects::{Answer, Input, Requirement};
use transom_guest::{
    About, Context, Failure, Grant, Guest, NoSettings, ObjectRef, Objects, Primary, WriteGrant,
    object,
};

/// The label of the namespace. The policy grants it.
const LABEL: &str = "example.com/my-guest";
/// A kind that is not among those of the SDK.
const CONFIG_MAP: Kind = Kind::new("v1", "ConfigMap");

pub struct MyGuest;

impl Guest for MyGuest {
    type Settings = NoSettings;

    const ABOUT: About = About {
        name: env!("CARGO_PKG_NAME"),
        version: env!("CARGO_PKG_VERSION"),
        // Only declared fields cross.
        reads: &[MANAGED_CLUSTER.read(&["metadata.labels.env"])],
        // For `transom policy init`; a policy grants it, or it does not.
        grant: Grant {
            write: &[
                WriteGrant::objects(
                    NAMESPACE.named("my-guest-{primary.name}"),
                    &[r#"metadata.labels["example.com/my-guest"]"#],
                    "The namespace of a cluster.",
                ),
                WriteGrant::objects(
                    CONFIG_MAP.within("my-guest-{primary.name}", "card"),
                    &["data"],
                    "What the cluster is.",
                ),
            ],
            ..Grant::NONE
        },
        ..About::EMPTY
    };
}

/// The namespace of a cluster.
fn namespace(primary: &Primary) -> ObjectRef {
    let name = ["my-guest-", &primary.reference.name].concat();
    NAMESPACE.beside(primary, name)
}

/// The ConfigMap in it.
fn card(primary: &Primary) -> ObjectRef {
    let card = CONFIG_MAP.beside(primary, "card");
    card.in_namespace(namespace(primary).name)
}

impl Objects for MyGuest {
    fn require(
        _: &Context<NoSettings>,
        primary: &Primary,
        _: &[Input],
    ) -> Result<Requirement, Failure> {
        Ok(Requirement {
            targets: vec![namespace(primary), card(primary)],
            needs: Vec::new(),
        })
    }

    fn reconcile(
        _: &Context<NoSettings>,
        primary: &Primary,
        _: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let cluster: ManagedCluster = primary.read()?;
        let name = &primary.reference.name;
        let mut data = json!({"cluster": name});
        if let Some(env) = cluster.metadata.labels.get("env") {
            data["env"] = json!(env);
        }
        let namespace = Namespace::of(&namespace(primary)).label(LABEL, name);
        let card = object!(&card(primary), {"data": data});
        // In the order in which they are written.
        Ok(Answer::from_iter([namespace.whole(), card.whole()]))
    }
}

transom_guest::register!(objects: MyGuest);
transom_guest::test_cases!(objects: MyGuest);
