//! The guest `my-guest`: copies the admin kubeconfig of a HostedCluster into the Secret `<hosted cluster>-my-guest`.
//! It gets no byte of a credential, only numbers that are valid for one call.

use transom_guest::kubeconfig::{Absence, Answer, Form, Input, Need, Requirement, Value};
use transom_guest::{
    About, Context, Failure, Grant, Guest, Kubeconfig, NoSettings, ObjectPattern, ObjectRef,
    Primary, Read, ReadGrant, Reason, WriteGrant,
};

/// The role of the admin kubeconfig. The policy grants what may be read under it.
const SOURCE: &str = "source";

const SOURCE_MISSING: Reason = Reason {
    name: "SourceMissing",
    meaning: "The HostedCluster has no admin kubeconfig yet.",
    remedy: "Wait until its control plane is there.",
};

pub struct MyGuest;

impl Guest for MyGuest {
    type Settings = NoSettings;

    const ABOUT: About = About {
        name: env!("CARGO_PKG_NAME"),
        version: env!("CARGO_PKG_VERSION"),
        // Name and namespace of the primary always cross; this guest needs no field of it.
        reads: &[Read {
            api_version: "hypershift.openshift.io/v1beta1",
            kind: "HostedCluster",
            fields: &[],
            changes: &[],
        }],
        reasons: &[SOURCE_MISSING],
        // For `transom policy init`; a policy grants it, or it does not.
        grant: Grant {
            read: &[ReadGrant::secret(
                SOURCE,
                secret("{primary.name}-admin-kubeconfig"),
                &["kubeconfig"],
                "The admin kubeconfig, which is copied.",
            )],
            write: &[WriteGrant::kubeconfig(
                secret("{primary.name}-my-guest"),
                &[SOURCE],
                &[SOURCE],
                "The copy.",
            )],
            ..Grant::NONE
        },
        ..About::EMPTY
    };
}

/// Secrets in the namespace of the HostedCluster.
const fn secret(name: &'static str) -> ObjectPattern {
    ObjectPattern {
        api_version: "v1",
        kind: "Secret",
        namespace: Some("{primary.namespace}"),
        name,
    }
}

impl Kubeconfig for MyGuest {
    fn require(
        _: &Context<NoSettings>,
        primary: &Primary,
        _: &[Input],
    ) -> Result<Requirement, Failure> {
        let hosted = &primary.reference;
        let secret = |end| {
            let name = [&hosted.name, "-", end].concat();
            let namespace = hosted.namespace.as_deref().unwrap_or_default();
            ObjectRef::new(&hosted.cluster, "v1", "Secret", name).in_namespace(namespace)
        };
        Ok(Requirement {
            target: secret("my-guest"),
            needs: vec![Need {
                role: SOURCE.into(),
                reference: secret("admin-kubeconfig"),
                form: Form::Kubeconfig("kubeconfig".into()),
                absence: Absence::Wait(SOURCE_MISSING.name.into()),
            }],
        })
    }

    fn transform(
        _: &Context<NoSettings>,
        _: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let found = inputs.into_iter().find_map(|input| match input.value {
            Value::Kubeconfig(source) if input.role == SOURCE => Some(source),
            _ => None,
        });
        let missing = || Failure::Missing(SOURCE_MISSING.problem("there is no admin kubeconfig"));
        Ok(Answer {
            // The source as it is, without proxies.
            kubeconfig: found.ok_or_else(missing)?.into(),
            ask_again_at: None,
        })
    }
}

transom_guest::register!(kubeconfig: MyGuest);
transom_guest::test_cases!(kubeconfig: MyGuest);
