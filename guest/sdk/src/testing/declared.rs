//! Cuts the input of a case to what a guest declares, by the rules of the host.
//! `tests/conformance` compares the two on generated paths and values.

mod path;

use crate::taints::{Condition, ManagedCluster, Pair};
use crate::trigger::Change;
use crate::{About, Primary};
use path::{Segment, parse};
use serde_json::{Map, Value};

/// Version and kind of the object that a taints guest gets.
const MANAGED_CLUSTER: (&str, &str) = ("cluster.open-cluster-management.io/v1", "ManagedCluster");
/// Seconds of a lease if a cluster does not set it.
pub(super) const LEASE_SECONDS: u32 = 60;

/// Every path that fills a field of the record of a ManagedCluster; [`fills`] decides which paths below them count.
const PLACES: [&str; 12] = [
    "metadata.name",
    "metadata.uid",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.labels",
    "metadata.annotations",
    "spec.hubAcceptsClient",
    "spec.leaseDurationSeconds",
    "spec.taints",
    "status.version.kubernetes",
    "status.clusterClaims",
    "status.conditions",
];

/// The declarations of a guest for one kind.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    fields: Vec<Vec<Segment>>,
    changes: Vec<Vec<Segment>>,
}

impl Declared {
    /// Parses the paths whose values the guest gets, and those of which it gets only changes.
    ///
    /// # Errors
    /// The first text that is no path.
    pub fn new(fields: &[&str], changes: &[&str]) -> Result<Self, String> {
        let read = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| parse(text))
                .collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            fields: read(fields)?,
            changes: read(changes)?,
        })
    }

    /// The declarations of a description for a kind; empty if it does not name the kind.
    pub(super) fn of(about: &About, (version, kind): (&str, &str)) -> Result<Self, String> {
        let read = about
            .reads
            .iter()
            .find(|read| (read.api_version, read.kind) == (version, kind));
        read.map_or_else(
            || Ok(Self::default()),
            |read| Self::new(read.fields, read.changes),
        )
    }

    /// The declared fields of a value, without those that are null.
    pub fn project(&self, value: &Value) -> Value {
        let all: Vec<&[Segment]> = self.fields.iter().map(Vec::as_slice).collect();
        select(&all, value).unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// A primary with only its declared fields.
    pub(super) fn primary(&self, primary: Primary) -> Result<Primary, String> {
        let fields = serde_json::from_str(&primary.fields)
            .map_err(|error| format!("failed to read `fields`: {error}"))?;
        Ok(Primary {
            fields: self.project(&fields).to_string(),
            ..primary
        })
    }

    /// A change with only declared fields, and the changed paths that are declared or lie below a declared one.
    pub(super) fn change(&self, change: Change) -> Result<Change, String> {
        let Change {
            before,
            after,
            mut changed,
        } = change;
        changed.retain(|text| {
            parse(text).is_ok_and(|path| covered(self.fields.iter().chain(&self.changes), &path))
        });
        Ok(Change {
            before: self.primary(before)?,
            after: self.primary(after)?,
            changed,
        })
    }

    /// A record with only declared fields.
    pub fn cluster(&self, given: ManagedCluster) -> ManagedCluster {
        let whole = |text: &str| parse(text).is_ok_and(|path| covered(&self.fields, &path));
        let list = |all: Vec<_>, text| if whole(text) { all } else { Vec::new() };
        ManagedCluster {
            accepted: given.accepted && whole("spec.hubAcceptsClient"),
            lease_duration_seconds: match whole("spec.leaseDurationSeconds") {
                true => given.lease_duration_seconds,
                false => LEASE_SECONDS,
            },
            kubernetes_version: given
                .kubernetes_version
                .filter(|_| whole("status.version.kubernetes")),
            labels: self.pairs(given.labels, "labels"),
            annotations: self.pairs(given.annotations, "annotations"),
            claims: list(given.claims, "status.clusterClaims"),
            conditions: given
                .conditions
                .into_iter()
                .filter_map(|one| self.condition(one))
                .collect(),
            taints: if whole("spec.taints") {
                given.taints
            } else {
                Vec::new()
            },
            ..given
        }
    }

    /// The declared entries of a map, sorted by key.
    fn pairs(&self, mut pairs: Vec<Pair>, map: &str) -> Vec<Pair> {
        pairs.retain(|pair| {
            covered(
                &self.fields,
                &["metadata", map, &pair.key].map(|key| Segment::Field(key.into())),
            )
        });
        pairs.sort_by(|one, other| (&one.key, &one.value).cmp(&(&other.key, &other.value)));
        pairs
    }

    /// A condition with its declared fields; `None` if no field is declared. Its type always stays.
    fn condition(&self, given: Condition) -> Option<Condition> {
        let at = |field: &str| {
            let [status, conditions, field] =
                ["status", "conditions", field].map(|key| Segment::Field(key.into()));
            [
                status,
                conditions,
                Segment::Element(given.kind.clone()),
                field,
            ]
        };
        let crosses = |field: &str| covered(&self.fields, &at(field));
        let declared = ["type", "status", "reason", "lastTransitionTime"]
            .into_iter()
            .any(crosses);
        declared.then(|| Condition {
            reason: if crosses("reason") {
                given.reason.clone()
            } else {
                String::new()
            },
            changed_seconds: given
                .changed_seconds
                .filter(|_| crosses("lastTransitionTime")),
            ..given.clone()
        })
    }
}

/// Whether a declared path is this path or lies above it.
fn covered<'a>(declared: impl IntoIterator<Item = &'a Vec<Segment>>, path: &[Segment]) -> bool {
    declared
        .into_iter()
        .any(|declared| path.starts_with(declared))
}

/// The part of a value that these paths select; `None` if they select nothing.
fn select(paths: &[&[Segment]], value: &Value) -> Option<Value> {
    if paths.iter().any(|path| path.is_empty()) {
        return (!value.is_null()).then(|| present(value));
    }
    let below = |wanted: &Segment| -> Vec<&[Segment]> {
        paths
            .iter()
            .filter_map(|path| path.split_first().filter(|(first, _)| *first == wanted))
            .map(|(_, rest)| rest)
            .collect()
    };
    match value {
        Value::Object(map) => {
            let keep = |(key, value): (&String, _)| {
                Some((
                    key.clone(),
                    select(&below(&Segment::Field(key.clone())), value)?,
                ))
            };
            let kept: Map<_, _> = map.iter().filter_map(keep).collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => {
            let keep = |item: &Value| {
                let kind = item.get("type")?.as_str()?;
                let paths = below(&Segment::Element(kind.into()));
                let nothing = || Value::Object(Map::new());
                let mut kept =
                    (!paths.is_empty()).then(|| select(&paths, item).unwrap_or_else(nothing))?;
                kept.as_object_mut()?.insert("type".into(), kind.into());
                Some(kept)
            };
            let kept: Vec<_> = items.iter().filter_map(keep).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        _ => None,
    }
}

/// A copy of a value without the fields that are null, at any depth; in a list null keeps its place.
fn present(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(present).collect(),
        Value::Object(map) => {
            let fields = map.iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(key, value)| (key.clone(), present(value)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

/// Checks the declarations of a taints guest; the host refuses to load a guest for the same causes.
///
/// # Errors
/// For a kind other than ManagedCluster, a path that fills no field, or a condition without its status.
pub fn check(about: &About) -> Result<(), String> {
    let (version, kind) = MANAGED_CLUSTER;
    for read in about.reads {
        if (read.api_version, read.kind) != MANAGED_CLUSTER {
            let other = format!("{} {}", read.api_version, read.kind);
            return Err(format!(
                "it reads {other}, but a taints guest is only given a {kind} of {version}"
            ));
        }
        let declared = Declared::new(read.fields, read.changes)?;
        for (path, text) in declared.fields.iter().zip(read.fields) {
            if !fills(path) {
                let nearest = nearest(text);
                return Err(format!(
                    "`{text}` does not fill any field of the record of a {kind}; the nearest path that does is `{nearest}`"
                ));
            }
            let [at @ .., Segment::Field(_)] = path.as_slice() else {
                continue;
            };
            let status = [at, &[Segment::Field("status".into())]].concat();
            if matches!(at, [_, _, Segment::Element(_)]) && !covered(&declared.fields, &status) {
                return Err(format!(
                    "`{text}` is declared without `status`, which every condition of the record must have"
                ));
            }
        }
    }
    Ok(())
}

/// Whether a path leads to a field of the record, or lies above one.
fn fills(path: &[Segment]) -> bool {
    PLACES.iter().any(|text| {
        let place = parse(text).unwrap_or_default();
        if place.starts_with(path) {
            return true;
        }
        match (*text, path.strip_prefix(place.as_slice())) {
            ("metadata.labels" | "metadata.annotations", Some([Segment::Field(_)])) => true,
            ("status.conditions", Some([Segment::Element(_)])) => true,
            ("status.conditions", Some([Segment::Element(_), Segment::Field(field)])) => {
                ["type", "status", "reason", "lastTransitionTime"].contains(&field.as_str())
            }
            _ => false,
        }
    })
}

/// The place with the most similar text.
fn nearest(text: &str) -> &'static str {
    let plain = text.split('[').next().unwrap_or_default().to_lowercase();
    let likeness = |place: &&&str| strsim::sorensen_dice(&plain, &place.to_lowercase());
    PLACES
        .iter()
        .max_by(|one, other| likeness(one).total_cmp(&likeness(other)))
        .copied()
        .unwrap_or_default()
}
