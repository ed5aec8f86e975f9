//! The input of a case: its objects, and what is given beside objects.

pub(crate) mod settings;

use crate::input;
use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::Path;
use transom_cluster::directory::Directory;
use transom_core::document::{ParseLimits, flatten_list, parse_many};
use transom_core::policy::manifest;
use transom_core::reference::ObjectRef;
use transom_core::stamp::Stamp;

/// Limits of one file of a case.
pub(crate) const LIMITS: ParseLimits = ParseLimits {
    bytes: 64 << 20,
    nodes: 4_000_000,
    depth: 100,
};

/// The time of a case that names none.
pub(crate) const NOW: &str = "2026-11-21T08:00:00Z";

/// What stands between file and number in the place of an object.
pub(crate) const DOCUMENT: &str = ", document ";

/// One object of a file.
#[derive(Debug)]
pub(crate) struct GivenObject {
    /// File and document, for people; another one for each object.
    pub(crate) place: String,
    /// The object.
    pub(crate) body: Value,
}

/// The objects of a file, and the `Case` among them.
#[derive(Debug, Default)]
pub(crate) struct GivenFile {
    /// Everything but the case.
    pub(crate) objects: Vec<GivenObject>,
    /// The case, when there is one.
    pub(crate) case: Option<CaseSpec>,
}

/// What is given beside objects: time, facts about the agent, settings and names laid over the policy's.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CaseSpec {
    /// The time, as Kubernetes writes it.
    pub(crate) now: Option<String>,
    /// Facts about the agent.
    pub(crate) agent: AgentSpec,
    /// Settings by role of the guest.
    pub(crate) settings: CaseSettings,
    /// Templates of `grant.names`, for what the settings go beyond; they replace the policy's one by one.
    pub(crate) names: Map<String, Value>,
    /// Objects that vanish in the change, with `then.yaml`.
    pub(crate) gone: Vec<CaseReference>,
}

/// Facts about the agent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AgentSpec {
    /// Name of the cluster that the agent works for.
    pub(crate) cluster_name: Option<String>,
    /// Name of the hub's own cluster.
    pub(crate) self_managed_cluster: Option<String>,
}

/// Settings by role of the guest; they replace the policy's key by key.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CaseSettings {
    /// Of the trigger guest.
    pub(crate) trigger: Map<String, Value>,
    /// Of the decide guest.
    pub(crate) decide: Map<String, Value>,
}

/// An object by name, as cases write it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CaseReference {
    /// Group and version; not needed where the kind says enough.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) api_version: String,
    /// Kind.
    pub(crate) kind: String,
    /// Absent for what is cluster-scoped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    /// Name.
    pub(crate) name: String,
}

impl CaseSpec {
    /// Removes from a directory in memory what vanishes in the change.
    ///
    /// # Errors
    /// When it is not there: a misspelt name would make a case that shows nothing.
    pub(crate) fn remove_gone(&self, directory: &Directory) -> anyhow::Result<()> {
        for (index, gone) in self.gone.iter().enumerate() {
            let removed = gone.remove(directory);
            removed.with_context(|| format!("spec.gone[{index}]"))?;
        }
        Ok(())
    }
}

/// That a case cannot be used, and not only a document beside it.
#[derive(Debug)]
struct InvalidCase(String);

impl fmt::Display for InvalidCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl GivenFile {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or a document of it cannot be parsed.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let failed = || format!("failed to read `{}`", path.display());
        let file = File::open(path).with_context(failed)?;
        let bytes = input::bounded(file, LIMITS.bytes).with_context(failed)?;
        Self::parse(&bytes, path)
    }

    /// Reads standard input.
    ///
    /// # Errors
    /// When it cannot be read, is too large, or a document of it cannot be parsed.
    pub(crate) fn from_input() -> anyhow::Result<Self> {
        let bytes = input::read("the manifests", LIMITS.bytes)?;
        Self::parse(&bytes, Path::new("standard input"))
    }

    /// Reads a regular file that holds a case. `None` when there is no such file, no case in it, or a document that
    /// cannot be read: then the directory reports errors document by document.
    ///
    /// # Errors
    /// When the case itself cannot be used: to a directory it would be an object without a name.
    pub(crate) fn with_case(path: &Path) -> anyhow::Result<Option<Self>> {
        // A large file is neither kept nor parsed only to find no case in it.
        let holds = File::open(path).and_then(|file| input::holds(file, b"Case"));
        if !holds.unwrap_or(false) {
            return Ok(None);
        }
        match Self::read(path) {
            Ok(given) => Ok(Some(given).filter(|given| given.case.is_some())),
            Err(error) if error.is::<InvalidCase>() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Takes the objects from the bytes of a file.
    ///
    /// # Errors
    /// When a document cannot be parsed.
    pub(crate) fn parse(bytes: &[u8], path: &Path) -> anyhow::Result<Self> {
        let (mut given, path) = (Self::default(), path.display());
        for document in parse_many(bytes, LIMITS) {
            let number = document.number;
            let failed = || format!("failed to read document {number} of `{path}`");
            let bodies = flatten_list(document.value.with_context(failed)?);
            let several = bodies.len() > 1;
            for (index, body) in bodies.into_iter().enumerate() {
                if !is_case(&body) {
                    let item = several.then(|| format!(", items[{index}]"));
                    let item = item.unwrap_or_default();
                    let place = format!("{path}{DOCUMENT}{number}{item}");
                    given.objects.push(GivenObject { place, body });
                    continue;
                }
                let spec = body.get("spec").cloned().unwrap_or_else(|| json!({}));
                let failed = || InvalidCase(format!("failed to read the case in `{path}`"));
                let case = manifest::typed("spec", spec).with_context(failed)?;
                if given.case.replace(case).is_some() {
                    let two = format!("failed to read `{path}`: it contains two cases");
                    return Err(anyhow::Error::msg(InvalidCase(two)));
                }
            }
        }
        Ok(given)
    }
}

/// Whether a value is a case.
fn is_case(value: &Value) -> bool {
    let text = |key| value.get(key).and_then(Value::as_str);
    text("kind") == Some(manifest::CASE)
        && text("apiVersion").is_some_and(|version| version.starts_with("transom.dev/"))
}

/// Puts objects into a directory in memory, each at a place. Those that bear the agent's stamp are put there as if the
/// agent had written them. Of two that are the same object the directory uses neither, as in a folder.
pub(crate) fn put(
    directory: &Directory,
    objects: &[GivenObject],
    at: impl Fn(&GivenObject) -> String,
) {
    let mut counts = BTreeMap::<String, usize>::new();
    let place = |object: &GivenObject| {
        let place = at(object);
        let same = counts.entry(place.clone()).or_default();
        *same += 1;
        match *same {
            1 => place,
            same => format!("{place} (copy {same})"),
        }
    };
    let places: Vec<_> = objects.iter().map(place).collect();
    for (object, place) in objects.iter().zip(&places) {
        directory.take(place, object.body.to_string().as_bytes());
    }
    for (object, place) in objects.iter().zip(&places) {
        let reference = reference(&object.body);
        let mut read = directory.read(std::slice::from_ref(&reference));
        let read = read.pop().and_then(Result::ok).flatten();
        if let Some(ours) = read.filter(|read| Stamp::read(read).is_some()) {
            directory.take(place, b"");
            directory.take_made(&reference, ours.body.to_string().as_bytes());
        }
    }
}

/// The path of an object in a directory in memory, by what it is: the next object of that name takes its place.
pub(crate) fn by_name(object: &GivenObject) -> String {
    place(&reference(&object.body))
}

/// The reference to an object; `-` stands for what it does not say.
fn reference(object: &Value) -> ObjectRef {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let [version, kind, name] =
        ["/apiVersion", "/kind", "/metadata/name"].map(|pointer| text(pointer).unwrap_or("-"));
    ObjectRef::local(version, kind, text("/metadata/namespace"), name)
}

/// The path of an object in a directory in memory: one file for each object.
fn place(object: &ObjectRef) -> String {
    let version = object.api_version.replace('/', "_");
    let namespace = object.namespace.as_deref().unwrap_or("-");
    format!("{version}/{}/{namespace}/{}.json", object.kind, object.name)
}

impl CaseReference {
    /// The reference to an object whose kind implies its group and version.
    pub(crate) fn of(object: &ObjectRef) -> Self {
        Self {
            api_version: String::new(),
            kind: object.kind.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        }
    }

    /// Whether it is about an object, whose group and version need not be given.
    pub(crate) fn names(&self, object: &ObjectRef) -> bool {
        (&self.kind, &self.namespace, &self.name) == (&object.kind, &object.namespace, &object.name)
    }

    /// Removes the object from a directory in memory, also when the agent made it.
    ///
    /// # Errors
    /// When there is no such object, or there are several.
    fn remove(&self, directory: &Directory) -> anyhow::Result<()> {
        let mut found = directory.find(&self.kind, self.namespace.as_deref(), &self.name);
        found.retain(|one| self.api_version.is_empty() || self.api_version == one.api_version);
        match found.as_slice() {
            [object] => {
                directory.take(&place(object), b"");
                directory.take_made(object, b"");
                Ok(())
            }
            [] => bail!("no such object: {self}"),
            _ => bail!("several objects, of which `apiVersion` can name one: {self}"),
        }
    }
}

impl fmt::Display for CaseReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}
