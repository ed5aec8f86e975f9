//! Converts between the Lease of the API and that of `core::lease`. Keeps the fields that other programs set.

use k8s_openapi::api::coordination::v1::{Lease as Body, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use transom_core::lease::{Lease, Record, Write};

/// The fields of a Lease that the election uses.
pub(super) fn read(body: &Body) -> Lease {
    let spec = body.spec.clone().unwrap_or_default();
    let micros = |time: Option<MicroTime>| time.map(|MicroTime(time)| time.as_microsecond());
    let record = Record {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        acquired_us: micros(spec.acquire_time),
        renewed_us: micros(spec.renew_time),
        seconds: spec.lease_duration_seconds,
        transitions: spec.lease_transitions,
    };
    Lease {
        version: body.metadata.resource_version.clone().unwrap_or_default(),
        record,
    }
}

/// The whole Lease to write, based on the one that was read; `before` is `None` if there is no Lease.
pub(super) fn write(name: &str, before: Option<&Body>, write: &Write) -> Body {
    let mut body = before.cloned().unwrap_or_default();
    let time = |micros: Option<i64>| {
        micros
            .and_then(|micros| Timestamp::from_microsecond(micros).ok())
            .map(MicroTime)
    };
    body.metadata.name = Some(name.to_owned());
    body.metadata.resource_version.clone_from(&write.version);
    let Record {
        holder,
        acquired_us,
        renewed_us,
        seconds,
        transitions,
    } = write.record.clone();
    body.spec = Some(LeaseSpec {
        holder_identity: holder,
        acquire_time: time(acquired_us),
        renew_time: time(renewed_us),
        lease_duration_seconds: seconds,
        lease_transitions: transitions,
        ..body.spec.unwrap_or_default()
    });
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn reads_back_what_it_writes_and_keeps_fields_of_others() {
        let before: Body = serde_json::from_value(json!({
            "metadata": {"name": "n", "namespace": "ns", "resourceVersion": "6", "labels": {"a": "b"}},
            "spec": {"holderIdentity": "other", "strategy": "OldestEmulationVersion"},
        }))
        .unwrap();
        let record = Record {
            holder: Some("me".to_owned()),
            acquired_us: Some(1_000_001),
            renewed_us: Some(-1),
            seconds: Some(15),
            transitions: Some(4),
        };
        let wanted = Write {
            version: Some("7".to_owned()),
            record: record.clone(),
        };
        let sent: Value = serde_json::to_value(write("n", Some(&before), &wanted)).unwrap();
        assert_eq!(sent["metadata"]["labels"]["a"], "b");
        assert_eq!(sent["spec"]["strategy"], "OldestEmulationVersion");
        assert_eq!(sent["spec"]["acquireTime"], "1970-01-01T00:00:01.000001Z");
        let back: Body = serde_json::from_value(sent).unwrap();
        assert_eq!(
            read(&back),
            Lease {
                version: "7".to_owned(),
                record
            }
        );
    }

    #[test]
    fn a_new_or_released_lease_has_no_holder() {
        for body in [
            json!({}),
            json!({"spec": {}}),
            json!({"spec": {"holderIdentity": ""}}),
        ] {
            let body: Body = serde_json::from_value(body).unwrap();
            assert_eq!(read(&body).record, Record::default());
        }
        let released = Write {
            version: None,
            record: Record {
                seconds: Some(1),
                ..Record::default()
            },
        };
        let sent = serde_json::to_value(write("n", None, &released)).unwrap();
        assert_eq!(sent["spec"], json!({"leaseDurationSeconds": 1}));
    }
}
