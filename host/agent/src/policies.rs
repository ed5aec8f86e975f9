//! Reads the policies that are written in a folder, a file or the binary itself.

pub(crate) mod active;
pub(crate) mod cases;
pub(crate) mod component_cache;
pub(crate) mod components;
pub(crate) mod files;
pub(crate) mod first_load;
mod follow;
mod found;
pub(crate) mod images;
pub(crate) mod load;
mod load_queue;
pub(crate) mod objects;
pub(crate) mod places;
pub(crate) mod revisions;
mod settling;
pub(crate) mod swap;
mod tags;
pub(crate) mod verify;
mod wanted;
pub(crate) mod watch;

use crate::input;
use anyhow::{Context as _, bail};
use files::PolicyFiles;
pub(crate) use found::FoundPolicies;
use serde::Deserialize as _;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use transom_api::labels;
use transom_api::policy::VerifySpec;
use transom_artifacts::{Base, Location};
use transom_cluster::kubernetes::User;
use transom_core::document::ParseLimits;
use transom_core::policy::manifest::without_nulls;
use transom_core::time::parse_rfc3339;

/// The policies that ship with the binary.
const BUILTIN: [(&str, &str); 2] = [
    (
        "builtin:built-in-taints",
        include_str!("../../../policies/built-in-taints/policy.yaml"),
    ),
    (
        "builtin:external-managed-kubeconfig",
        include_str!("../../../policies/external-managed-kubeconfig/policy.yaml"),
    ),
];

/// Limits of one file of policies.
const LIMITS: ParseLimits = ParseLimits {
    bytes: 1 << 20,
    nodes: 100_000,
    depth: 64,
};

/// Where policies come from.
#[derive(Clone, Debug)]
pub(crate) enum PolicySource {
    /// The binary itself.
    Builtin,
    /// A folder or a file.
    Path(PolicyFiles),
    /// Standard input, which was read.
    Input(FoundPolicies),
    /// Policies that were read before, such as objects of an API server.
    Given(FoundPolicies),
}

/// A manifest of kind `FleetPolicy`, as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Written {
    /// File, or object.
    pub(crate) place: String,
    /// The number of its document, if the file has several.
    pub(crate) document: Option<usize>,
    /// Where the component files lie that it may name.
    pub(crate) base: Base,
    /// The manifest.
    pub(crate) value: Value,
}

impl Written {
    /// The name of the policy, if the manifest has one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.text("/metadata/name")
    }

    /// Its place with the document, for people.
    pub(crate) fn shown_place(&self) -> String {
        match self.document {
            Some(number) => format!("{}, document {number}", self.place),
            None => self.place.clone(),
        }
    }

    /// Its uid, if it is an object.
    fn uid(&self) -> Option<&str> {
        self.text("/metadata/uid")
    }

    /// Whether it suspends the policy, whatever else it says.
    fn suspends(&self) -> bool {
        self.value.pointer("/spec/suspend") == Some(&true.into())
    }

    /// Whether it is in the mode `Shadow`, whatever else it says.
    fn shadows(&self) -> bool {
        self.value.pointer("/spec/rollout/mode") == Some(&"Shadow".into())
    }

    /// The signatures that it demands, whatever else it says; `None` when that is not understood.
    fn verify(&self) -> Option<Option<VerifySpec>> {
        let spec = self.verify_spec()?;
        let is_valid = |spec| transom_core::policy::verify::check(spec).is_ok();
        spec.as_ref().is_none_or(is_valid).then_some(spec)
    }

    /// `spec.verify`, also of a policy that is not valid otherwise; `None` when it cannot be read.
    fn verify_spec(&self) -> Option<Option<VerifySpec>> {
        match self.value.pointer("/spec/verify") {
            None | Some(Value::Null) => Some(None),
            Some(value) => Some(Some(VerifySpec::deserialize(without_nulls(value)).ok()?)),
        }
    }

    /// The approval that the policy has.
    pub(crate) fn approval(&self) -> Option<Approval> {
        let annotations = self.value.pointer("/metadata/annotations")?;
        let text = |label: &str| Some(annotations.get(label)?.as_str()?.to_owned());
        let groups = text(labels::APPROVED_GROUPS).unwrap_or_default();
        let groups = groups.split(',').filter(|group| !group.is_empty());
        Some(Approval {
            digest: text(labels::APPROVED)?,
            by: text(labels::APPROVED_BY).map(|name| User {
                name,
                groups: groups.map(str::to_owned).collect(),
            }),
        })
    }

    /// Whether both define the same policy: an approval does not change it.
    fn defines_same(&self, other: &Self) -> bool {
        (&self.place, &self.base) == (&other.place, &other.base)
            && self.without_approval() == other.without_approval()
    }

    fn without_approval(&self) -> Cow<'_, Value> {
        let mut value = Cow::Borrowed(&self.value);
        let annotations = self.value.pointer("/metadata/annotations");
        let has = |label: &&str| annotations.is_some_and(|all| all.get(*label).is_some());
        if labels::APPROVAL.iter().any(has)
            && let Some(metadata) = value.to_mut().pointer_mut("/metadata")
            && let Some(annotations) = metadata.get_mut("annotations")
            && let Some(annotations) = annotations.as_object_mut()
        {
            for label in labels::APPROVAL {
                annotations.remove(label);
            }
            let is_empty = annotations.is_empty();
            let metadata = metadata.as_object_mut().filter(|_| is_empty);
            metadata.map(|metadata| metadata.remove("annotations"));
        }
        value
    }

    /// When the policy was created, if it comes from an API server; in seconds since 1970.
    pub(crate) fn created_seconds(&self) -> Option<i64> {
        parse_rfc3339(self.text("/metadata/creationTimestamp")?)
    }

    /// The components that it names, even if the policy is not valid: that of the trigger guest first.
    pub(crate) fn components(&self) -> impl Iterator<Item = Location> {
        let guests = ["/spec/guests/trigger", "/spec/guests/decide"];
        let named = guests.map(|guest| self.text(&format!("{guest}/component")));
        let location = |text| Location::parse(text, &self.base).ok();
        named.into_iter().flatten().filter_map(location)
    }

    /// Everything that is read to load it, even if the policy is not valid: its components, the signatures beside them
    /// and the trusted keys.
    pub(crate) fn read_from(&self) -> BTreeSet<Location> {
        let spec = self.verify_spec().flatten();
        let mut all = wanted::companions(spec.as_ref(), self.components(), &self.base);
        all.extend(self.components());
        all
    }

    fn text(&self, pointer: &str) -> Option<&str> {
        self.value.pointer(pointer)?.as_str()
    }
}

/// The approval of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Approval {
    /// The digest that was approved.
    pub(crate) digest: String,
    /// Who approved it, where that is known.
    pub(crate) by: Option<User>,
}

impl PolicySource {
    /// The source that flags name; the binary itself when they name none. `components` is the folder of the components,
    /// if that is not the folder of the policies. Standard input (`-`) is read at once; it counts as a file in the
    /// current folder.
    ///
    /// # Errors
    /// When standard input cannot be read, is too large, or was read before.
    pub(crate) fn new(path: Option<&Path>, components: Option<&Path>) -> anyhow::Result<Self> {
        Ok(match path {
            None => Self::Builtin,
            Some(path) if input::is_meant(path) => {
                let text = input::read("the policies", LIMITS.bytes)?;
                let base = match components {
                    Some(folder) => Base::Components(folder.to_owned()),
                    None => Base::Beside {
                        root: PathBuf::from("."),
                        below: PathBuf::new(),
                    },
                };
                let mut found = FoundPolicies::default();
                found.take("standard input", &base, &text);
                Self::Input(found)
            }
            Some(path) => Self::Path(PolicyFiles::new(path, components)),
        })
    }

    /// What it is, for people.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Builtin => "builtin".to_owned(),
            Self::Path(files) => files.path().display().to_string(),
            Self::Input(_) => "standard input".to_owned(),
            Self::Given(_) => "the API server".to_owned(),
        }
    }

    /// Reads everything that is written there.
    ///
    /// # Errors
    /// When the path itself cannot be read, or it holds more than the limits allow.
    pub(crate) fn read(&self) -> io::Result<FoundPolicies> {
        match self {
            Self::Builtin => {
                let mut found = FoundPolicies::default();
                for (place, text) in BUILTIN {
                    found.take(place, &Base::Nowhere, text.as_bytes());
                }
                Ok(found)
            }
            Self::Input(found) | Self::Given(found) => Ok(found.clone()),
            Self::Path(files) => files.read_all(),
        }
    }
}

/// Reads the policies at a path, or else those of the binary, for a command.
///
/// # Errors
/// As for [`PolicySource::new`] and [`PolicySource::read`]; the error names the path.
pub(crate) fn read(
    path: Option<&Path>,
    components: Option<&Path>,
) -> anyhow::Result<FoundPolicies> {
    let source = PolicySource::new(path, components)?;
    let failed = || format!("failed to read the policies `{}`", source.place());
    source.read().with_context(failed)
}

/// The same for a path that must hold a manifest, readable or not.
///
/// # Errors
/// As for [`read`], and when there is none.
pub(crate) fn read_some(path: &Path, components: Option<&Path>) -> anyhow::Result<FoundPolicies> {
    let found = read(Some(path), components)?;
    if found.policies.is_empty() && found.broken.is_empty() {
        bail!(
            "failed to find a policy in {}: expected manifests of kind {} ({})",
            input::shown(path),
            transom_api::KIND,
            transom_api::API_VERSION
        );
    }
    Ok(found)
}

/// The folder that a path to a file lies in.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
        .to_owned()
}
