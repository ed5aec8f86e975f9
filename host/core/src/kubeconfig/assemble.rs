//! Assembles a new kubeconfig from a guest's answer: every entry starts from its entry in the source. Refuses
//! references that were not given, and contexts that join what the source does not join.

use super::difference::Parts;
use super::{Bundle, SourceKubeconfig, certificate, check, destination, url};
use super::{DocumentPlace, KubeconfigError};
use crate::contract::credentials::{ContextEntry, Proposal, ProposedCluster, ProposedUser};
use crate::document::client_go;
use destination::Terms;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;
use transom_api::KnownReason;

/// A kubeconfig that was checked against the grant and for soundness.
pub struct Assembled {
    pub(super) document: Value,
    pub(super) text: String,
}

impl Assembled {
    /// Its text as client-go writes it, always the same for the same content. It holds credentials.
    pub fn to_yaml(&self) -> &str {
        &self.text
    }

    /// What it says beside credentials and names, for a plan.
    pub(crate) fn open(&self) -> Option<Value> {
        Some(Parts::of(self.document.as_object()?).open())
    }
}

impl fmt::Debug for Assembled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Assembled({} bytes)", self.text.len())
    }
}

impl SourceKubeconfig {
    /// Makes the kubeconfig that an answer describes and checks it against the terms.
    ///
    /// A context keeps the pair of its source context: its cluster and its user must come from the entries that are
    /// joined there, or be left out. A credential stays with its user entry, a proxy with its cluster entry; CA data
    /// may move. Fields that the contract does not name stay with their entry.
    ///
    /// # Errors
    /// References that were never given, anything that is not granted, and an unsound result.
    pub fn assemble(
        &self,
        answer: &Proposal,
        terms: &Terms<'_>,
    ) -> Result<Assembled, KubeconfigError> {
        few(answer)?;
        references(self, answer)?;
        let most = terms.limits.bytes;
        let too_large =
            |what: &str| Err(DocumentPlace::ROOT.proposed(KnownReason::KubeconfigTooLarge, what));
        if check::exceeds(self, answer, most) {
            return too_large(&format!(
                "a kubeconfig of more than {most} bytes, or of too many values"
            ));
        }
        destination::check(self, answer, terms)?;
        let reached = check::reached(answer)?;
        check::soundness(self, &reached, terms.grant.insecure, terms.now_seconds)?;
        let document = document(self, answer)?;
        let text = client_go::to_yaml(&document);
        if text.len() > most {
            return too_large(&format!(
                "a kubeconfig of {} bytes, more than {most}",
                text.len()
            ));
        }
        Ok(Assembled { document, text })
    }
}

/// The most entries of one list. There is a bound because each entry is compared with others.
const ENTRIES: usize = 1_000;

fn few(answer: &Proposal) -> Result<(), KubeconfigError> {
    let lists = [
        ("clusters", answer.clusters.len()),
        ("users", answer.users.len()),
        ("contexts", answer.contexts.len()),
    ];
    match lists.into_iter().find(|(_, entries)| *entries > ENTRIES) {
        Some((list, _)) => Err(DocumentPlace::ROOT
            .field(list)
            .proposed(KnownReason::KubeconfigTooLarge, "more than 1,000 entries")),
        None => Ok(()),
    }
}

/// Checks every reference and name of an answer.
fn references(source: &SourceKubeconfig, answer: &Proposal) -> Result<(), KubeconfigError> {
    let view = &source.view;
    let (mut clusters, mut users, mut contexts) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (at, cluster) in answer.clusters.iter().enumerate() {
        let authorities = &cluster.authorities;
        let known = (cluster.entry as usize) < view.clusters.len()
            && authorities
                .iter()
                .all(|one| (*one as usize) < source.bundles.len())
            && cluster
                .proxy
                .is_none_or(|proxy| (proxy as usize) < source.proxies.len());
        judge("clusters", at, known, clusters.insert(&cluster.name))?;
        if authorities.iter().collect::<BTreeSet<_>>().len() < authorities.len() {
            let place = DocumentPlace::ROOT.field("clusters").item(at);
            return Err(place.proposed(KnownReason::ContractBroken, "the same CA data twice"));
        }
    }
    for (at, user) in answer.users.iter().enumerate() {
        let known = (user.entry as usize) < view.users.len() && user.credential == user.entry;
        judge("users", at, known, users.insert(&user.name))?;
    }
    for (at, context) in answer.contexts.iter().enumerate() {
        let known = (context.entry as usize) < view.contexts.len();
        judge("contexts", at, known, contexts.insert(&context.name))?;
        if !joins_as_source(source, answer, context) {
            let what = "a user and a cluster that no context of the source combines";
            let place = DocumentPlace::ROOT.field("contexts").item(at);
            return Err(place.proposed(KnownReason::ServerNotGranted, what));
        }
    }
    Ok(())
}

fn judge(list: &'static str, at: usize, known: bool, is_new: bool) -> Result<(), KubeconfigError> {
    let place = DocumentPlace::ROOT.field(list).item(at);
    if !known {
        let what = "a reference that it was not given";
        return Err(place.proposed(KnownReason::UnknownReference, what));
    }
    if !is_new {
        let what = "a name that another entry already has";
        return Err(place
            .field("name")
            .proposed(KnownReason::ContractBroken, what));
    }
    Ok(())
}

/// Whether a context's cluster and user come from those of its source context, or are left out.
fn joins_as_source(source: &SourceKubeconfig, answer: &Proposal, context: &ContextEntry) -> bool {
    let view = &source.view;
    let Some(origin) = view.contexts.get(context.entry as usize) else {
        return false;
    };
    let mut clusters = answer.clusters.iter();
    let cluster = clusters.find(|cluster| cluster.name == context.cluster);
    let user = answer.users.iter().find(|user| user.name == context.user);
    let of_cluster = |entry: u32| view.clusters.get(entry as usize).map(|from| &from.name);
    let of_user = |entry: u32| view.users.get(entry as usize).map(|from| &from.name);
    cluster.is_none_or(|cluster| of_cluster(cluster.entry) == Some(&origin.cluster))
        && user.is_none_or(|user| of_user(user.entry) == Some(&origin.user))
}

/// The document of an answer whose references were checked.
fn document(source: &SourceKubeconfig, answer: &Proposal) -> Result<Value, KubeconfigError> {
    let lists = ["clusters", "users", "contexts"];
    let others = source.document.iter();
    let others = others.filter(|(key, _)| !lists.contains(&key.as_str()));
    let mut document: Map<_, _> = others
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    set(&mut document, "apiVersion", Some("v1".into()));
    set(&mut document, "kind", Some("Config".into()));
    let current = answer.current_context.as_str();
    set(&mut document, "current-context", Some(current.into()));
    let clusters = answer.clusters.iter().enumerate();
    let clusters = clusters.map(|(at, wanted)| cluster(source, at, wanted));
    set(
        &mut document,
        "clusters",
        Some(clusters.collect::<Result<_, _>>()?),
    );
    let users = answer.users.iter();
    let users =
        users.map(|wanted: &ProposedUser| entry(source, "users", wanted.entry, &wanted.name));
    set(&mut document, "users", Some(users.collect()));
    let contexts = answer.contexts.iter().map(|wanted| context(source, wanted));
    set(&mut document, "contexts", Some(contexts.collect()));
    Ok(Value::Object(document))
}

/// A copy of an entry of the source under a name.
fn entry(source: &SourceKubeconfig, list: &str, number: u32, name: &str) -> Value {
    let items = source.document.get(list);
    let origin = items.and_then(|items| items.get(number as usize)?.as_object());
    let mut entry = origin.cloned().unwrap_or_default();
    set(&mut entry, "name", Some(name.into()));
    Value::Object(entry)
}

fn cluster(
    source: &SourceKubeconfig,
    at: usize,
    wanted: &ProposedCluster,
) -> Result<Value, KubeconfigError> {
    let mut entry = entry(source, "clusters", wanted.entry, &wanted.name);
    let origin = source.view.clusters.get(wanted.entry as usize);
    let fields = entry.get_mut("cluster").and_then(Value::as_object_mut);
    let (Some(origin), Some(fields)) = (origin, fields) else {
        return Ok(entry);
    };
    if destination::is_kept(wanted, origin) {
        return Ok(entry);
    }
    if wanted.server != origin.server {
        let server = url::write(&wanted.server).map_err(|_| {
            let place = DocumentPlace::ROOT.field("clusters").item(at);
            let place = place.field("cluster").field("server");
            place.proposed(KnownReason::ContractBroken, "a server that is not a URL")
        })?;
        set(fields, "server", Some(server.into()));
    }
    authorities(source, fields, wanted);
    if wanted.insecure != origin.insecure {
        let skips = wanted.insecure.then_some(Value::Bool(true));
        set(fields, "insecure-skip-tls-verify", skips);
    }
    if wanted.proxy.is_none() {
        fields.remove("proxy-url");
    } else if let Some(text) = proxy(source, wanted) {
        set(fields, "proxy-url", Some(text.into()));
    }
    let name = wanted.tls_server_name.as_deref().map(Value::from);
    set(fields, "tls-server-name", name);
    Ok(entry)
}

/// Sets the CA data of an entry, which replaces a file: several bundles are joined, the entry's own stays as in the
/// source.
fn authorities(
    source: &SourceKubeconfig,
    fields: &mut Map<String, Value>,
    wanted: &ProposedCluster,
) {
    const FIELD: &str = "certificate-authority-data";
    let found: Vec<&Bundle> = wanted
        .authorities
        .iter()
        .filter_map(|reference| source.bundles.get(*reference as usize))
        .collect();
    match found.as_slice() {
        [] => {
            set(fields, FIELD, None);
            return;
        }
        [own] if own.cluster == wanted.entry => {}
        [other] => set(fields, FIELD, text_of(source, other).map(Value::from)),
        several => {
            let mut joined = Vec::new();
            for bytes in several
                .iter()
                .filter_map(|bundle| certificate::field(text_of(source, bundle)?))
            {
                joined.extend_from_slice(&bytes);
                if !bytes.ends_with(b"\n") {
                    joined.push(b'\n');
                }
            }
            set(fields, FIELD, Some(certificate::to_field(&joined).into()));
        }
    }
    // Clients refuse a file beside data.
    fields.remove("certificate-authority");
}

pub(super) fn text_of<'s>(source: &'s SourceKubeconfig, bundle: &Bundle) -> Option<&'s str> {
    field_of_cluster(source, bundle.cluster, "certificate-authority-data")
}

/// The proxy of a reference, as the source spells it.
fn proxy<'s>(source: &'s SourceKubeconfig, wanted: &ProposedCluster) -> Option<&'s str> {
    let cluster = source.proxies.get(wanted.proxy? as usize)?;
    field_of_cluster(source, *cluster, "proxy-url")
}

pub(super) fn field_of_cluster<'s>(
    source: &'s SourceKubeconfig,
    cluster: u32,
    field: &str,
) -> Option<&'s str> {
    source
        .document
        .get("clusters")?
        .get(cluster as usize)?
        .get("cluster")?
        .get(field)?
        .as_str()
}

fn context(source: &SourceKubeconfig, wanted: &ContextEntry) -> Value {
    let mut entry = entry(source, "contexts", wanted.entry, &wanted.name);
    if let Some(fields) = entry.get_mut("context").and_then(Value::as_object_mut) {
        set(fields, "cluster", Some(wanted.cluster.as_str().into()));
        set(fields, "user", Some(wanted.user.as_str().into()));
        let namespace = wanted.namespace.as_deref().map(Value::from);
        set(fields, "namespace", namespace);
    }
    entry
}

/// Sets or removes a field.
fn set(fields: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => fields.insert(field.to_owned(), value),
        None => fields.remove(field),
    };
}
