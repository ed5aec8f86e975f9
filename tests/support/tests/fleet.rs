//! The generated fleet: manifests that parse, each object once, equal for equal seeds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_yaml::{Deserializer, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use transom_support::fleet::{self, Fleet};

const FLEET: Fleet = Fleet {
    clusters: 45,
    managed: 50,
    seed: 7,
};

/// Every object of the fleet, by the file it is in.
fn objects() -> Result<BTreeMap<String, Vec<Value>>, Box<dyn Error>> {
    let mut all = BTreeMap::new();
    for file in FLEET.files()? {
        assert!(
            !file.text.contains("{{"),
            "{} has a place that was not filled",
            file.path
        );
        let documents: Result<Vec<Value>, _> = Deserializer::from_str(&file.text)
            .map(serde::Deserialize::deserialize)
            .collect();
        let documents = documents?;
        assert_eq!(documents.len(), file.objects, "{}", file.path);
        all.insert(file.path, documents);
    }
    Ok(all)
}

#[test]
fn every_object_exists_once() -> Result<(), Box<dyn Error>> {
    let objects = objects()?;
    assert_eq!(objects.len(), FLEET.clusters + FLEET.managed);
    let mut seen = BTreeSet::new();
    let mut kinds = BTreeMap::<String, usize>::new();
    for object in objects.values().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = text(&object["kind"]);
        let key = (
            kind.clone(),
            text(&object["metadata"]["namespace"]),
            text(&object["metadata"]["name"]),
        );
        assert!(!text(&object["metadata"]["uid"]).is_empty(), "{key:?}");
        assert!(seen.insert(key.clone()), "{key:?} is there twice");
        *kinds.entry(kind).or_default() += 1;
    }
    let expected = [
        ("HostedCluster", 45),
        ("ManagedCluster", 50),
        ("Namespace", 89),
        ("Secret", 45),
        ("Service", 45),
    ];
    assert_eq!(
        kinds,
        expected
            .map(|(kind, count)| (kind.to_owned(), count))
            .into()
    );
    Ok(())
}

#[test]
fn admin_kubeconfigs_have_the_size_and_form_of_real_ones() -> Result<(), Box<dyn Error>> {
    for object in objects()?
        .values()
        .flatten()
        .filter(|object| object["kind"] == "Secret")
    {
        let bytes = STANDARD.decode(
            object["data"]["kubeconfig"]
                .as_str()
                .ok_or("no kubeconfig")?,
        )?;
        assert!(
            (5_000..7_000).contains(&bytes.len()),
            "{} bytes",
            bytes.len()
        );
        let config: Value = serde_yaml::from_slice(&bytes)?;
        assert_eq!(config["current-context"], "admin");
        let key = config["users"][0]["user"]["client-key-data"]
            .as_str()
            .ok_or("no key")?;
        assert!(
            STANDARD
                .decode(key)?
                .starts_with(b"-----BEGIN RSA PRIVATE KEY-----")
        );
    }
    Ok(())
}

#[test]
fn contains_every_kind_of_state_and_name() -> Result<(), Box<dyn Error>> {
    let objects = objects()?;
    let available = |path: &str, kind: &str, condition: &str| -> Option<String> {
        let object = objects
            .get(path)?
            .iter()
            .find(|object| object["kind"] == kind)?;
        let conditions = object["status"]["conditions"].as_sequence()?;
        let found = conditions.iter().find(|entry| entry["type"] == condition)?;
        Some(found["status"].as_str()?.to_owned())
    };
    let hosted = |index| {
        available(
            &format!("hosted/{}.yaml", fleet::hosted_name(index)),
            "HostedCluster",
            "Available",
        )
    };
    assert_eq!(
        [hosted(0).as_deref(), hosted(3).as_deref()],
        [Some("True"), Some("False")]
    );
    let managed = |index| {
        let path = format!("managed/{}.yaml", fleet::managed_name(index));
        available(&path, "ManagedCluster", "ManagedClusterConditionAvailable")
    };
    assert_eq!(
        [managed(0), managed(7), managed(8), managed(9)],
        [
            Some("True".into()),
            Some("False".into()),
            Some("Unknown".into()),
            None
        ]
    );
    assert!(fleet::hosted_name(8).contains('.') && !fleet::managed_name(8).contains('.'));
    assert!(objects.contains_key("managed/edge-00049.yaml"));
    Ok(())
}

#[test]
fn one_seed_gives_one_fleet() -> Result<(), Box<dyn Error>> {
    let small = Fleet {
        clusters: 2,
        managed: 1,
        seed: 7,
    };
    let first: Vec<String> = small.files()?.map(|file| file.text).collect();
    let again: Vec<String> = small.files()?.map(|file| file.text).collect();
    let other: Vec<String> = Fleet { seed: 8, ..small }
        .files()?
        .map(|file| file.text)
        .collect();
    assert!(first == again && first != other);
    Ok(())
}

#[test]
fn writes_the_fleet_below_a_folder() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let written = Fleet {
        clusters: 1,
        managed: 1,
        seed: 7,
    }
    .write(&folder.path().join("new"))?;
    assert_eq!((written.files, written.objects), (2, 6));
    let text = std::fs::read_to_string(folder.path().join("new/hosted/hosted-00000.yaml"))?;
    assert!(text.contains("kind: HostedCluster") && written.bytes > text.len());
    Ok(())
}
