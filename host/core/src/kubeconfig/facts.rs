//! Reads the content of a kubeconfig once: entries by number, certificates by their facts. Keeps no decoded
//! credentials; they stay in the document.

use super::certificate::{self, CertificateFacts, Pair, PublicKey};
use super::{Bundle, ClientCertificate, DocumentPlace, KubeconfigError, SourceKubeconfig, url};
use crate::contract::credentials::{
    Authority, AuthoritySource, ClusterView, ContextEntry, Credential, Proxy, SourceView, Url,
    UserView,
};
use serde_json::{Map, Value};
use transom_api::KnownReason;

type Fields = Map<String, Value>;

/// Reads a document whose fields have the right types. As for clients, wrong base64 is a fault of the whole document,
/// and certificates that cannot be used are one of their entry, which counts only where the entry is used.
///
/// # Errors
/// The first fault of the document, or of an entry that current-context leads to.
pub(super) fn read(document: Fields) -> Result<SourceKubeconfig, KubeconfigError> {
    let mut source = SourceKubeconfig {
        view: SourceView {
            clusters: Vec::new(),
            users: Vec::new(),
            contexts: contexts(&document)?,
            current_context: text(&document, "current-context").to_owned(),
        },
        document: Fields::new(),
        bundles: Vec::new(),
        proxies: Vec::new(),
        certificates: Vec::new(),
        cluster_faults: Vec::new(),
        user_faults: Vec::new(),
    };
    let clusters = entries(&document, "clusters", "cluster")?;
    for (number, (name, fields)) in clusters.into_iter().enumerate() {
        let cluster = cluster(&mut source, number, name, fields)?;
        source.view.clusters.push(cluster);
    }
    if source.view.clusters.is_empty() {
        let place = DocumentPlace::ROOT.field("clusters");
        return Err(place.error(KnownReason::NoClusters, "it has no cluster"));
    }
    for (number, (name, fields)) in entries(&document, "users", "user")?.into_iter().enumerate() {
        let user = user(&mut source, number, name, fields)?;
        source.view.users.push(user);
    }
    fault_in_use(&source)?;
    source.document = document;
    Ok(source)
}

/// Raises the fault of the entries that current-context leads to, before a guest is asked.
fn fault_in_use(source: &SourceKubeconfig) -> Result<(), KubeconfigError> {
    let view = &source.view;
    let mut contexts = view.contexts.iter();
    let Some(context) = contexts.find(|context| context.name == view.current_context) else {
        return Ok(());
    };
    let mut clusters = view.clusters.iter().zip(&source.cluster_faults);
    let cluster = clusters.find(|(cluster, _)| cluster.name == context.cluster);
    let mut users = view.users.iter().zip(&source.user_faults);
    let user = users.find(|(user, _)| user.name == context.user);
    let faults = [
        cluster.map(|(_, fault)| fault),
        user.map(|(_, fault)| fault),
    ];
    match faults.into_iter().flatten().flatten().next() {
        Some(fault) => Err(fault.clone()),
        None => Ok(()),
    }
}

/// The entries of a list with their names.
fn entries<'d>(
    document: &'d Fields,
    list: &'static str,
    inner: &'static str,
) -> Result<Vec<(&'d str, &'d Fields)>, KubeconfigError> {
    let items = document.get(list).and_then(Value::as_array);
    let entry = |(at, item): (usize, &'d Value)| {
        let place = || DocumentPlace::ROOT.field(list).item(at);
        let name = item.get("name").and_then(Value::as_str);
        name.zip(item.get(inner).and_then(Value::as_object))
            .ok_or_else(|| place().error(KnownReason::KubeconfigInvalid, "not an entry"))
    };
    items.into_iter().flatten().enumerate().map(entry).collect()
}

fn contexts(document: &Fields) -> Result<Vec<ContextEntry>, KubeconfigError> {
    let context = |(number, (name, fields)): (usize, (&str, &Fields))| ContextEntry {
        entry: count(number),
        name: name.to_owned(),
        cluster: text(fields, "cluster").to_owned(),
        user: text(fields, "user").to_owned(),
        namespace: some_text(fields, "namespace").map(str::to_owned),
    };
    Ok(entries(document, "contexts", "context")?
        .into_iter()
        .enumerate()
        .map(context)
        .collect())
}

fn cluster(
    source: &mut SourceKubeconfig,
    number: usize,
    name: &str,
    fields: &Fields,
) -> Result<ClusterView, KubeconfigError> {
    let place = DocumentPlace::ROOT
        .field("clusters")
        .item(number)
        .field("cluster");
    let proxy = some_text(fields, "proxy-url").map(|text| {
        source.proxies.push(count(number));
        Proxy {
            reference: count(source.proxies.len() - 1),
            url: url::proxy(text).unwrap_or_default(),
        }
    });
    let server = server(text(fields, "server"), &place)?;
    let (authority, fault) = authority(source, number, fields, &place)?;
    source.cluster_faults.push(fault);
    Ok(ClusterView {
        entry: count(number),
        name: name.to_owned(),
        server,
        authority,
        insecure: fields
            .get("insecure-skip-tls-verify")
            .and_then(Value::as_bool)
            .unwrap_or_default(),
        proxy,
        tls_server_name: some_text(fields, "tls-server-name").map(str::to_owned),
    })
}

/// What a guest sees of a server: nothing of one that is not a URL, which is refused only where an answer keeps it.
fn server(text: &str, place: &DocumentPlace) -> Result<Url, KubeconfigError> {
    match url::server(text) {
        Err(message) if url::hides_more(text) => {
            let place = place.field("server");
            Err(place.error(KnownReason::InvalidUrl, message))
        }
        read => Ok(read.unwrap_or_default()),
    }
}

/// How an entry names its CA, and what is wrong with it.
fn authority(
    source: &mut SourceKubeconfig,
    number: usize,
    fields: &Fields,
    place: &DocumentPlace,
) -> Result<(AuthoritySource, Option<KubeconfigError>), KubeconfigError> {
    let file = some_text(fields, "certificate-authority").is_some();
    let at_file = place.field("certificate-authority");
    let place = place.field("certificate-authority-data");
    let Some(bytes) = data(fields, "certificate-authority-data", &place)? else {
        let authority = if file {
            AuthoritySource::File
        } else {
            AuthoritySource::None
        };
        return Ok((authority, None));
    };
    let read = authorities(&bytes);
    let beside = "a file in addition to certificate-authority-data, which clients reject";
    let fault = match &read {
        _ if file => Some(at_file.error(KnownReason::KubeconfigInvalid, beside)),
        Err(message) => Some(place.error(KnownReason::InvalidAuthority, message)),
        Ok(_) => None,
    };
    let bundle = Bundle {
        cluster: count(number),
        certificates: read.unwrap_or_default(),
    };
    let authority = summary(count(source.bundles.len()), &bundle.certificates);
    source.bundles.push(bundle);
    Ok((AuthoritySource::Data(authority), fault))
}

/// The certificates of CA data. As for clients, one is enough, and what is none is passed over; but a private key, even
/// a broken one, is a credential that nobody expects there.
fn authorities(bytes: &[u8]) -> Result<Vec<CertificateFacts>, &'static str> {
    const KEY: &[u8] = b"PRIVATE KEY-----";
    if bytes.windows(KEY.len()).any(|text| text == KEY) {
        return Err("a private key");
    }
    let blocks = certificate::readable(bytes).into_iter();
    let blocks = blocks.filter(|block| block.label == "CERTIFICATE" && !block.has_headers);
    let certificates: Vec<_> = blocks
        .filter_map(|block| Some(certificate::read(&block.der)?.0))
        .collect();
    match certificates.is_empty() {
        true => Err("without a certificate in PEM"),
        false => Ok(certificates),
    }
}

/// What a guest sees of CA data.
fn summary(reference: u32, certificates: &[CertificateFacts]) -> Authority {
    Authority {
        reference,
        fingerprints: certificates
            .iter()
            .map(|facts| facts.fingerprint.clone())
            .collect(),
        ends_seconds: certificates.iter().map(|facts| facts.ends_seconds).min(),
        is_ca: !certificates.is_empty() && certificates.iter().all(|facts| facts.is_ca),
    }
}

fn user(
    source: &mut SourceKubeconfig,
    number: usize,
    name: &str,
    fields: &Fields,
) -> Result<UserView, KubeconfigError> {
    let item = DocumentPlace::ROOT.field("users").item(number);
    let (certificate, fault) = match client_certificate(fields, &item.field("user")) {
        Ok(certificate) => (certificate, None),
        Err(fault) if fault.reason == KnownReason::InvalidCertificate => (None, Some(fault)),
        Err(error) => return Err(error),
    };
    let has = |field: &str| some_text(fields, field).is_some();
    let has_map = |field: &str| fields.get(field).is_some_and(|value| !value.is_null());
    let credential = Credential {
        reference: count(number),
        client_certificate: certificate.is_some() || fault.is_some(),
        token: has("token"),
        basic: has("username") || has("password"),
        exec: has_map("exec"),
        auth_provider: has_map("auth-provider"),
        file: has("client-certificate") || has("client-key") || has("tokenFile"),
        ends_seconds: certificate.as_ref().map(|(_, earliest)| *earliest),
    };
    source
        .certificates
        .push(certificate.map(|(certificate, _)| certificate));
    source.user_faults.push(fault);
    Ok(UserView {
        entry: count(number),
        name: name.to_owned(),
        credential,
    })
}

/// The client certificate of a user, compared with its key, and the earliest end of validity in its chain. Clients
/// ignore a key without a certificate, so it is not checked.
fn client_certificate(
    fields: &Fields,
    place: &DocumentPlace,
) -> Result<Option<(ClientCertificate, i64)>, KubeconfigError> {
    let (at_certificate, at_key) = (
        place.field("client-certificate-data"),
        place.field("client-key-data"),
    );
    let chain = data(fields, "client-certificate-data", &at_certificate)?;
    let key = data(fields, "client-key-data", &at_key)?;
    let Some(chain) = chain else { return Ok(None) };
    let wrong = |message| at_certificate.error(KnownReason::InvalidCertificate, message);
    let blocks = certificate::readable(&chain);
    let mut all = Vec::new();
    for block in blocks.iter().filter(|block| block.label == "CERTIFICATE") {
        all.push(certificate::read(&block.der).ok_or_else(|| wrong("not a certificate"))?);
    }
    let (leaf, public) = all
        .first()
        .ok_or_else(|| wrong("it contains no certificate"))?;
    let pair = match key {
        Some(key) => pair(&key, public).ok_or_else(|| {
            let message = "not a private key that clients can use";
            at_key.error(KnownReason::InvalidCertificate, message)
        })?,
        None if some_text(fields, "client-key").is_some() => Pair::Untold,
        None => {
            let message = "missing, although there is a client certificate";
            return Err(at_key.error(KnownReason::InvalidCertificate, message));
        }
    };
    let found = ClientCertificate {
        starts_seconds: leaf.starts_seconds,
        ends_seconds: leaf.ends_seconds,
        pair,
    };
    let ends = all.iter().map(|(facts, _)| facts.ends_seconds);
    let earliest = ends.min().unwrap_or(leaf.ends_seconds);
    Ok(Some((found, earliest)))
}

/// Compares the first private key of the text, as clients do.
fn pair(key: &[u8], public: &PublicKey) -> Option<Pair> {
    let mut blocks = certificate::readable(key).into_iter();
    let first = blocks.find(|block| block.label.ends_with("PRIVATE KEY"))?;
    certificate::compare(&first, public)
}

/// The bytes of a base64 field; `None` when it is absent or empty.
fn data(
    fields: &Fields,
    field: &str,
    place: &DocumentPlace,
) -> Result<Option<Vec<u8>>, KubeconfigError> {
    some_text(fields, field)
        .map(|text| {
            certificate::field(text)
                .ok_or_else(|| place.error(KnownReason::InvalidBase64, "not base64"))
        })
        .transpose()
}

/// A field that is text and not empty.
pub(super) fn some_text<'d>(fields: &'d Fields, field: &str) -> Option<&'d str> {
    fields
        .get(field)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

fn text<'d>(fields: &'d Fields, field: &str) -> &'d str {
    some_text(fields, field).unwrap_or_default()
}

/// The number of an entry. A document of one mebibyte cannot hold more entries than fit.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
