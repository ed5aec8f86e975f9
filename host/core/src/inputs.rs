//! The inputs found for a guest's needs: absence, the form in which each crosses (a Service as a record), and their
//! digest. The digest covers neither credential bytes nor the time.

pub mod age;
pub mod kubeconfigs;
pub mod request;
pub mod secrets;
pub mod seen;
pub mod sets;
pub mod sightings;

use self::age::Freshness;
use self::secrets::Secrets;
use crate::catalogue::guest::GuestFacts;
use crate::contract::Primary;
use crate::contract::credentials::SourceView;
use crate::contract::decide::{Absence, Age, Form, Input, InputValue, Need};
use crate::contract::decide::{Protocol, Service, ServicePort};
use crate::digest::{Digest, DigestPart};
use crate::failure::{Class, Failure, InvalidField};
use crate::object::Object;
use crate::object::field::{self, FieldPlace};
use crate::projection::Declared;
use crate::projection::path::Path;
use serde_json::{Value, json};
use std::sync::Arc;
use transom_api::KnownReason;

/// What was found for one need.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The need.
    pub need: Need,
    /// The object, even when it is being deleted.
    pub object: Option<Arc<Object>>,
    /// The value, where it is not made of one object.
    pub value: Option<InputValue>,
    /// How long ago the agent saw a field of it change, where the need asks for that.
    pub observed: Option<Freshness>,
}

impl Found {
    /// One object, or its absence.
    pub fn one(need: Need, object: Option<Arc<Object>>) -> Self {
        Self {
            need,
            object,
            value: None,
            observed: None,
        }
    }

    /// The object, if the guest may see it: one that is being deleted only by an age, or in the form `object` if the
    /// guest declares `metadata.deletionTimestamp` of its kind.
    fn there(&self, guest: &GuestFacts) -> Option<&Arc<Object>> {
        let sees = |object: &Object| {
            let declared = guest.declared(&object.reference.api_version, &object.reference.kind);
            let mut fields = declared.fields.list().iter();
            let tells = |field: &Path| {
                let keys = field.keys();
                keys.is_some_and(|keys| keys == ["metadata", "deletionTimestamp"])
            };
            match self.need.form {
                Form::Age(_) | Form::Observed(_) => true,
                Form::Object => fields.any(tells),
                _ => false,
            }
        };
        let object = self.object.as_ref();
        object.filter(|object| !object.deleting() || sees(object))
    }
}

/// Checks absence: fails for the first need, in the guest's order, whose object is missing, unless the need goes on
/// without.
///
/// # Errors
/// `InputTerminating` for an object that is being deleted, else the need's reason for absence, as waiting or missing.
pub fn check_present(found: &[Found], guest: &GuestFacts) -> Result<(), Failure> {
    found
        .iter()
        .filter(|found| found.there(guest).is_none() && found.value.is_none())
        .try_for_each(|found| absent(found, guest))
}

fn absent(found: &Found, guest: &GuestFacts) -> Result<(), Failure> {
    let reference = &found.need.reference;
    let (class, word) = match &found.need.absence {
        Absence::Fine => return Ok(()),
        Absence::Wait(word) => (Class::Waiting, word),
        Absence::Fail(word) => (Class::Missing, word),
    };
    let failure = match found.object {
        Some(_) => Failure::known(
            KnownReason::InputTerminating,
            format!("{reference} is being deleted"),
        ),
        None => guest.absence(class, word, format!("{reference} does not exist")),
    };
    Err(failure.about([reference.clone()]))
}

/// The inputs as the guest sees them, in the order of its needs; takes the values that were found. `kubeconfig` makes
/// the view of the kubeconfig under a need's key of a Secret, and keeps the values that its references stand for;
/// `secrets` keeps the bytes of other keys.
///
/// # Errors
/// The errors of `kubeconfig`; `InvalidObject` for a Service or a declared field of another shape.
pub fn cross(
    found: &mut [Found],
    guest: &GuestFacts,
    now_seconds: i64,
    secrets: &mut Secrets,
    mut kubeconfig: impl FnMut(&Found, &Object, &str) -> Result<SourceView, Failure>,
) -> Result<Vec<Input>, Failure> {
    let mut inputs = Vec::with_capacity(found.len());
    for found in found {
        if let Some(value) = found.value.take() {
            let role = found.need.role.clone();
            inputs.push(Input { role, value });
            continue;
        }
        let value = match (found.there(guest), &found.need.form) {
            (None, _)
            | (_, Form::Every(_) | Form::Count(_) | Form::Access(_))
            | (_, Form::Outcome | Form::FailedWrite) => InputValue::Absent,
            (Some(object), Form::CertificateRequest) => {
                let read = request::read(object);
                let read = read.map_err(|invalid| Failure::invalid_object(object, &invalid))?;
                InputValue::CertificateRequest(read)
            }
            (Some(object), Form::Age(limit)) => age(object, limit, guest, |limit| {
                let freshness = Freshness::of(Some(object), limit, now_seconds);
                freshness.map_err(|invalid| Failure::invalid_object(object, &invalid))
            })?,
            (Some(object), Form::Observed(limit)) => age(object, limit, guest, |_| {
                Ok(found.observed.unwrap_or(Freshness::Absent))
            })?,
            (Some(object), Form::Secret(keys)) => {
                InputValue::Secret(secrets.hold(&found.need.role, object, keys)?)
            }
            (Some(object), Form::Certificate(keys)) => {
                InputValue::Certificate(self::secrets::certificate(object, keys)?)
            }
            (Some(_), Form::Presence) => InputValue::Present,
            (Some(object), Form::Object) => InputValue::Object(fields(object, guest)?),
            (Some(object), Form::Service) => {
                let service =
                    service(object).map_err(|invalid| Failure::invalid_object(object, &invalid))?;
                InputValue::Service(service)
            }
            (Some(object), Form::Kubeconfig(key)) => {
                InputValue::Kubeconfig(kubeconfig(found, object, key)?)
            }
        };
        inputs.push(Input {
            role: found.need.role.clone(),
            value,
        });
    }
    Ok(inputs)
}

/// On which side of its limit the age of a declared field is.
fn age(
    object: &Object,
    limit: &Age,
    guest: &GuestFacts,
    freshness: impl FnOnce(&Age) -> Result<Freshness, Failure>,
) -> Result<InputValue, Failure> {
    let declared = guest.declared(&object.reference.api_version, &object.reference.kind);
    let covered = Path::parse(&limit.field)
        .is_ok_and(|path| declared.fields.list().iter().any(|one| one.covers(&path)));
    if !covered {
        let message = format!(
            "the guest asks for the age of `{}` of {}, which its description does not declare",
            limit.field, object.reference
        );
        return Err(Failure::known(KnownReason::ContractBroken, message));
    }
    Ok(match freshness(limit)? {
        Freshness::Absent => InputValue::Absent,
        Freshness::Fresh { until } => InputValue::Fresh(until),
        Freshness::Stale { since } => InputValue::Stale(since),
        Freshness::Ahead { until } => InputValue::Ahead(until),
        Freshness::Behind { until } => InputValue::Behind(until),
        Freshness::Unsure { until } => InputValue::Unsure(until),
    })
}

/// The declared fields of an object.
fn fields(object: &Object, guest: &GuestFacts) -> Result<Value, Failure> {
    let declared = guest.declared(&object.reference.api_version, &object.reference.kind);
    shaped(object, declared)?;
    Ok(declared.fields.project(&object.body))
}

/// The primary as a guest sees it.
///
/// # Errors
/// `InvalidObject` when a declared path leads through something of another shape.
pub fn primary(object: &Object, guest: &GuestFacts) -> Result<Primary, Failure> {
    let declared = guest.declared(&object.reference.api_version, &object.reference.kind);
    shaped(object, declared)?;
    Ok(declared.primary(object))
}

fn shaped(object: &Object, declared: &Declared) -> Result<(), Failure> {
    match declared.misfit(object) {
        None => Ok(()),
        Some(path) => Err(Failure::invalid_object(object, &InvalidField::shape(path))),
    }
}

/// The digest of everything that a decision rests on: the primary and the inputs as the guest sees them, and their
/// references. Leaves out numbers that are valid for one call, the end of a `Fresh`, `Ahead`, `Behind` or `Unsure` age,
/// and the result of the last reconcile.
pub fn digest(primary: &Primary, found: &[Found], inputs: &[Input]) -> Digest {
    let inputs = found.iter().zip(inputs);
    let views = inputs.map(|(found, input)| part(found, input)).collect();
    let fields = DigestPart::There(&primary.fields);
    Digest::of_parts(&DigestPart::Map(vec![
        ("inputs", DigestPart::List(views)),
        (
            "primary",
            DigestPart::Map(vec![
                ("created", DigestPart::Made(json!(primary.created_seconds))),
                ("deleting", DigestPart::Made(json!(primary.deleting))),
                ("fields", fields),
                ("object", DigestPart::Made(json!(primary.reference))),
                ("uid", DigestPart::Made(json!(primary.uid))),
            ]),
        ),
    ]))
}

/// One input, as far as it counts.
fn part<'a>(found: &'a Found, input: &'a Input) -> DigestPart<'a> {
    let value = match &input.value {
        InputValue::Fresh(_) => DigestPart::Made(json!("Fresh")),
        InputValue::Ahead(_) => DigestPart::Made(json!("Ahead")),
        InputValue::Behind(_) => DigestPart::Made(json!("Behind")),
        InputValue::Unsure(_) => DigestPart::Made(json!("Unsure")),
        _ if found.need.form == Form::Outcome => DigestPart::Made(json!("Outcome")),
        _ if found.need.form == Form::FailedWrite => DigestPart::Made(json!("FailedWrite")),
        // As it is written otherwise, without a copy of the fields.
        InputValue::Object(fields) => DigestPart::Map(vec![("Object", DigestPart::There(fields))]),
        value => DigestPart::Made(json!(value)),
    };
    DigestPart::Map(vec![
        ("object", DigestPart::Made(json!(found.need.reference))),
        ("role", DigestPart::Made(json!(input.role))),
        ("value", value),
    ])
}

/// Reads a Service.
///
/// # Errors
/// At the first field of the wrong type or with an impossible value.
pub fn service(object: &Object) -> Result<Service, InvalidField> {
    let spec = FieldPlace::top(&object.body).map("spec")?;
    let addresses = match spec.get("clusterIPs").each(FieldPlace::required_text)? {
        none if none.is_empty() => spec.get("clusterIP").text()?.into_iter().collect(),
        listed => listed,
    };
    let kind = spec.get("type").text()?;
    Ok(Service {
        reference: object.reference.clone(),
        service_type: kind.unwrap_or_else(|| "ClusterIP".to_owned()),
        cluster_ips: addresses,
        external_name: some_text(&spec.get("externalName"))?,
        ingress: ingress(&FieldPlace::top(&object.body).map("status")?)?,
        ports: spec.get("ports").each(port)?,
    })
}

/// The text, if there is one and it is not empty.
fn some_text(place: &FieldPlace<'_>) -> Result<Option<String>, InvalidField> {
    Ok(place.text()?.filter(|text| !text.is_empty()))
}

/// Host names and addresses of the load balancer, in order.
fn ingress(status: &FieldPlace<'_>) -> Result<Vec<String>, InvalidField> {
    let mut all = Vec::new();
    for entry in status.map("loadBalancer")?.get("ingress").list()? {
        let entry = entry.as_map()?;
        for field in ["hostname", "ip"] {
            all.extend(some_text(&entry.get(field))?);
        }
    }
    Ok(all)
}

fn port(place: &FieldPlace<'_>) -> Result<ServicePort, InvalidField> {
    let place = place.as_map()?;
    let protocol = match place.get("protocol").text()?.as_deref() {
        None | Some("TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        Some(_) => return Err(place.get("protocol").not("TCP, UDP or SCTP")),
    };
    let number = place.get("port");
    Ok(ServicePort {
        name: some_text(&place.get("name"))?,
        port: field::port(&number)?.ok_or_else(|| number.not("a port"))?,
        target_port: target_port(&place.get("targetPort"))?,
        node_port: field::port(&place.get("nodePort"))?,
        protocol,
        app_protocol: some_text(&place.get("appProtocol"))?,
    })
}

/// A number or a name, as text; `None` for 0 or absent, which mean the port itself.
fn target_port(place: &FieldPlace<'_>) -> Result<Option<String>, InvalidField> {
    match place.value() {
        Some(Value::Number(_)) => Ok(field::port(place)?.map(|port| port.to_string())),
        _ => some_text(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::credentials::{Authority, AuthoritySource, ClusterView, Url};
    use crate::contract::decide::Wake;
    use crate::reference::ObjectRef;
    use crate::sample::{guest, hosted, object};

    fn found(absence: Absence, form: Form, body: Option<Value>) -> Found {
        let reference = ObjectRef::local("v1", "Namespace", None, "klusterlet-demo");
        let need = Need {
            role: "home".to_owned(),
            reference: reference.clone(),
            form,
            absence,
            wake: Wake::Change,
        };
        Found::one(need, body.map(|body| Arc::new(object(reference, body))))
    }

    #[test]
    fn the_digest_is_that_of_one_value() {
        let primary = Primary {
            reference: hosted("demo"),
            uid: "u".to_owned(),
            created_seconds: Some(7),
            deleting: false,
            fields: json!({"spec": {"b": 1, "a": [true]}}),
        };
        let object = found(Absence::Fine, Form::Object, Some(json!({})));
        let age = found(Absence::Fine, Form::Presence, None);
        let fields = json!({"spec": {"y": 1, "x": 2}});
        let input = |value| Input {
            role: "home".to_owned(),
            value,
        };
        let inputs = [
            input(InputValue::Object(fields.clone())),
            input(InputValue::Fresh(9)),
        ];
        let view =
            |value: Value| json!({"role": "home", "object": object.need.reference, "value": value});
        let whole = json!({
            "primary": {
                "object": primary.reference, "uid": "u", "created": 7, "deleting": false, "fields": primary.fields,
            },
            "inputs": [view(json!({"Object": fields})), view(json!("Fresh"))],
        });
        let parts = digest(&primary, &[object.clone(), age], &inputs);
        assert_eq!(parts, Digest::of(&whole));
    }

    #[test]
    fn what_is_being_deleted_is_there_for_a_guest_that_declares_it() {
        let home = |form, since: Option<&str>| {
            let body = json!({"metadata": {"deletionTimestamp": since}});
            found(Absence::Fine, form, Some(body))
        };
        let (told, plain) = (
            guest(&["metadata.deletionTimestamp"], &[]),
            guest(&["metadata.labels"], &[]),
        );
        let since = Some("2026-03-05T09:00:00Z");
        let limit = || Age {
            field: "spec.renewTime".to_owned(),
            seconds: 300,
        };
        for (form, deleted, guest, there) in [
            (Form::Object, None, &plain, true),
            (Form::Object, since, &plain, false),
            (Form::Object, since, &told, true),
            (Form::Presence, since, &told, false),
            (Form::Age(limit()), since, &plain, true),
            (Form::Observed(limit()), since, &plain, true),
        ] {
            let found = home(form.clone(), deleted);
            assert_eq!(found.there(guest).is_some(), there, "{form:?} {deleted:?}");
        }
    }

    #[test]
    fn a_requirement_decides_what_absence_means() {
        let (wait, fail) = (
            Absence::Wait("Told".to_owned()),
            Absence::Fail("Told".to_owned()),
        );
        let dying = Some(json!({"metadata": {"deletionTimestamp": "2026-11-21T08:15:30Z"}}));
        let dying = || dying.clone();
        let (untold, there) = (Absence::Wait("Untold".to_owned()), Some(json!({})));
        let terminating = Some((Class::Waiting, "InputTerminating"));
        for (absence, body, end) in [
            (&wait, there, None),
            (&wait, None, Some((Class::Waiting, "Told"))),
            (&wait, dying(), terminating),
            (&fail, None, Some((Class::Missing, "Told"))),
            (&fail, dying(), terminating),
            (&Absence::Fine, None, None),
            (&Absence::Fine, dying(), None),
            (&untold, None, Some((Class::Invalid, "ContractBroken"))),
        ] {
            let judged = check_present(
                &[found(absence.clone(), Form::Presence, body)],
                &guest(&[], &[]),
            );
            let failure = judged.err();
            let seen = failure
                .as_ref()
                .map(|failure| (failure.class, failure.reason.as_str()));
            assert_eq!(seen, end, "{absence:?}");
            assert!(failure.is_none_or(|failure| failure.objects.len() == 1));
        }
        let both = [
            found(wait, Form::Presence, None),
            found(fail, Form::Presence, None),
        ];
        let failure = check_present(&both, &guest(&[], &[])).unwrap_err();
        assert_eq!(failure.class, Class::Waiting, "the guest's order decides");
    }

    fn none(_: &Found, _: &Object, _: &str) -> Result<SourceView, Failure> {
        panic!("no kubeconfig is asked for")
    }

    #[test]
    fn inputs_reach_the_guest_in_the_requested_form() {
        let namespace = json!({"metadata": {"labels": {"a": "b"}, "name": "n"}, "status": "odd"});
        let cross_one = |guest: &GuestFacts, form, body| {
            let secrets = &mut Secrets::default();
            cross(
                &mut [found(Absence::Fine, form, body)],
                guest,
                0,
                secrets,
                none,
            )
        };
        let labels = guest(&["metadata.labels"], &[]);
        for (form, body, value) in [
            (Form::Presence, None, InputValue::Absent),
            (Form::Presence, Some(namespace.clone()), InputValue::Present),
            (
                Form::Presence,
                Some(json!({"metadata": {"deletionTimestamp": "x"}})),
                InputValue::Absent,
            ),
            (
                Form::Object,
                Some(namespace.clone()),
                InputValue::Object(json!({"metadata": {"labels": {"a": "b"}}})),
            ),
        ] {
            let inputs = cross_one(&labels, form, body).unwrap();
            assert_eq!(
                inputs,
                vec![Input {
                    role: "home".to_owned(),
                    value
                }]
            );
        }
        let failure = cross_one(
            &guest(&["status.phase"], &[]),
            Form::Object,
            Some(namespace),
        )
        .unwrap_err();
        assert_eq!(failure.reason, KnownReason::InvalidObject.into());
        assert!(
            failure.message.contains("`status`") && !failure.message.contains("odd"),
            "{failure}"
        );
    }

    fn view(reference: u32, server: &str) -> SourceView {
        let authority = Authority {
            reference,
            fingerprints: vec!["f".to_owned()],
            ends_seconds: Some(1),
            is_ca: true,
        };
        let server = Url {
            scheme: "https".to_owned(),
            host: server.to_owned(),
            ..Url::default()
        };
        let cluster = ClusterView {
            name: "c".to_owned(),
            server,
            authority: AuthoritySource::Data(authority),
            ..ClusterView::default()
        };
        SourceView {
            clusters: vec![cluster],
            ..SourceView::default()
        }
    }

    #[test]
    fn the_digest_covers_exactly_what_the_guest_receives() {
        let primary_of =
            |body: Value| primary(&object(hosted("demo"), body), &guest(&["spec"], &[])).unwrap();
        let primary = primary_of(json!({"spec": {"a": 1}, "metadata": {"uid": "u"}}));
        let found = [found(
            Absence::Fine,
            Form::Kubeconfig("kubeconfig".to_owned()),
            Some(json!({})),
        )];
        let of = |primary: &Primary, view| {
            let input = Input {
                role: "home".to_owned(),
                value: InputValue::Kubeconfig(view),
            };
            digest(primary, &found, &[input])
        };
        let reference = of(&primary, view(1, "a"));
        let numbered = of(&primary, view(99, "a"));
        assert_eq!(numbered, reference, "numbers of a call do not count");
        assert_ne!(of(&primary, view(1, "b")), reference);
        for (body, same) in [
            (
                json!({"spec": {"a": 1}, "metadata": {"uid": "u", "resourceVersion": "8"}}),
                true,
            ),
            (json!({"spec": {"a": 2}, "metadata": {"uid": "u"}}), false),
            (json!({"spec": {"a": 1}, "metadata": {"uid": "v"}}), false),
        ] {
            assert_eq!(of(&primary_of(body), view(1, "a")) == reference, same);
        }
        assert_ne!(digest(&primary, &[], &[]), reference);
    }

    fn read_service(spec: Value) -> Result<Service, InvalidField> {
        let reference = ObjectRef::local("v1", "Service", Some("clusters-demo"), "kube-apiserver");
        service(&object(reference, json!({"spec": spec})))
    }

    #[test]
    fn reads_an_entire_service() {
        let service = read_service(json!({
            "type": "NodePort", "clusterIPs": ["10.0.0.1", "fd00::1"], "clusterIP": "10.0.0.1",
            "ports": [
                {"name": "client", "port": 6443, "targetPort": "client", "nodePort": 31000, "appProtocol": "https"},
                {"port": 53, "targetPort": 5353, "protocol": "UDP", "nodePort": 0, "name": ""},
            ],
        }))
        .unwrap();
        assert_eq!(service.service_type, "NodePort");
        assert_eq!(service.cluster_ips, ["10.0.0.1", "fd00::1"]);
        let client = ServicePort {
            name: Some("client".to_owned()),
            port: 6443,
            target_port: Some("client".to_owned()),
            node_port: Some(31000),
            protocol: Protocol::Tcp,
            app_protocol: Some("https".to_owned()),
        };
        let dns = ServicePort {
            name: None,
            port: 53,
            target_port: Some("5353".to_owned()),
            node_port: None,
            protocol: Protocol::Udp,
            app_protocol: None,
        };
        assert_eq!(service.ports, [client, dns]);
    }

    #[test]
    fn absent_fields_have_defaults() {
        for spec in [
            json!(null),
            json!({}),
            json!({"ports": null, "clusterIP": null}),
        ] {
            let service = read_service(spec).unwrap();
            assert_eq!(
                (
                    service.service_type.as_str(),
                    service.ports.len(),
                    service.cluster_ips.len()
                ),
                ("ClusterIP", 0, 0)
            );
        }
        assert_eq!(
            read_service(json!({"clusterIP": "None"}))
                .unwrap()
                .cluster_ips,
            ["None"]
        );
    }

    #[test]
    fn a_load_balancer_has_names_and_addresses() {
        let reference = ObjectRef::local("v1", "Service", Some("clusters-demo"), "kube-apiserver");
        let ingress = |status: Value| {
            let found = service(&object(reference.clone(), json!({"status": status})));
            found
                .map(|service| service.ingress)
                .map_err(|invalid| invalid.path)
        };
        let both = json!({"loadBalancer": {"ingress": [{"hostname": "lb.example.com", "ip": ""}, {"ip": "192.0.2.1"}]}});
        assert_eq!(
            ingress(both),
            Ok(vec!["lb.example.com".to_owned(), "192.0.2.1".to_owned()])
        );
        for none in [
            json!(null),
            json!({}),
            json!({"loadBalancer": null}),
            json!({"loadBalancer": {"ingress": []}}),
        ] {
            assert_eq!(ingress(none), Ok(vec![]));
        }
        for (status, path) in [
            (json!([]), "status"),
            (json!({"loadBalancer": 1}), "status.loadBalancer"),
            (
                json!({"loadBalancer": {"ingress": ["x"]}}),
                "status.loadBalancer.ingress[0]",
            ),
            (
                json!({"loadBalancer": {"ingress": [{"ip": 1}]}}),
                "status.loadBalancer.ingress[0].ip",
            ),
        ] {
            assert_eq!(ingress(status), Err(path.to_owned()));
        }
    }

    #[test]
    fn wrong_types_are_named() {
        for (spec, path) in [
            (json!("x"), "spec"),
            (json!({"type": 1}), "spec.type"),
            (json!({"clusterIPs": "x"}), "spec.clusterIPs"),
            (json!({"clusterIPs": [1]}), "spec.clusterIPs[0]"),
            (json!({"ports": {}}), "spec.ports"),
            (json!({"ports": ["x"]}), "spec.ports[0]"),
            (json!({"ports": [{}]}), "spec.ports[0].port"),
            (json!({"ports": [{"port": 0}]}), "spec.ports[0].port"),
            (
                json!({"ports": [{"port": 1}, {"port": 65536}]}),
                "spec.ports[1].port",
            ),
            (json!({"ports": [{"port": "6443"}]}), "spec.ports[0].port"),
            (
                json!({"ports": [{"port": 1, "targetPort": true}]}),
                "spec.ports[0].targetPort",
            ),
            (
                json!({"ports": [{"port": 1, "protocol": "tcp"}]}),
                "spec.ports[0].protocol",
            ),
        ] {
            assert_eq!(
                read_service(spec.clone()).map_err(|invalid| invalid.path),
                Err(path.to_owned()),
                "{spec}"
            );
        }
    }
}
