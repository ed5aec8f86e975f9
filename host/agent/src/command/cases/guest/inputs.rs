//! Reads the inputs by role in a case: objects, Services, kubeconfigs by reference. There is no credential among them.

use super::arguments::reference;
use super::words::Words;
use anyhow::bail;
use transom_core::contract::credentials::{
    Authority, AuthoritySource, ClusterView, ContextEntry, Credential, Proxy, SourceView, Url,
    UserView,
};
use transom_core::contract::decide::{Input, InputValue, Protocol, Service, ServicePort};

pub(super) fn input(words: &mut Words) -> anyhow::Result<Input> {
    Ok(Input {
        role: words.plain("role")?,
        value: value(words)?,
    })
}

fn value(words: &mut Words) -> anyhow::Result<InputValue> {
    let Some((name, held)) = words.variant("value")? else {
        return Ok(InputValue::Absent);
    };
    let place = words.below("value");
    Ok(match name.as_str() {
        "absent" if held.is_null() => InputValue::Absent,
        "present" if held.is_null() => InputValue::Present,
        "object" => InputValue::Object(held),
        "service" => InputValue::Service(Words::inside(&place, held, service)?),
        "kubeconfig" => InputValue::Kubeconfig(Words::inside(&place, held, kubeconfig)?),
        _ => bail!(words.wrong(
            "value",
            "expected absent, present, object, service or kubeconfig"
        )),
    })
}

fn service(words: &mut Words) -> anyhow::Result<Service> {
    Ok(Service {
        reference: words.map("reference", reference)?,
        service_type: words.plain("service-type")?,
        cluster_ips: words.plain("cluster-ips")?,
        external_name: words.plain("external-name")?,
        ingress: words.plain("ingress")?,
        ports: words.each("ports", port)?,
    })
}

fn port(words: &mut Words) -> anyhow::Result<ServicePort> {
    let all = [
        ("tcp", Protocol::Tcp),
        ("udp", Protocol::Udp),
        ("sctp", Protocol::Sctp),
    ];
    Ok(ServicePort {
        name: words.plain("name")?,
        port: words.plain("port")?,
        target_port: words.plain("target-port")?,
        node_port: words.plain("node-port")?,
        protocol: words.one_of("protocol", &all, Protocol::Tcp)?,
        app_protocol: words.plain("app-protocol")?,
    })
}

fn kubeconfig(words: &mut Words) -> anyhow::Result<SourceView> {
    Ok(SourceView {
        clusters: words.each("clusters", cluster)?,
        users: words.each("users", user)?,
        contexts: words.each("contexts", context)?,
        current_context: words.plain("current-context")?,
    })
}

fn cluster(words: &mut Words) -> anyhow::Result<ClusterView> {
    Ok(ClusterView {
        entry: words.plain("entry")?,
        name: words.plain("name")?,
        server: words.map("server", url)?,
        authority: authority_source(words)?,
        insecure: words.plain("insecure")?,
        proxy: words.maybe("proxy", proxy)?,
        tls_server_name: words.plain("tls-server-name")?,
    })
}

fn authority_source(words: &mut Words) -> anyhow::Result<AuthoritySource> {
    let Some((name, held)) = words.variant("authority")? else {
        return Ok(AuthoritySource::None);
    };
    Ok(match name.as_str() {
        "none" if held.is_null() => AuthoritySource::None,
        "file" if held.is_null() => AuthoritySource::File,
        "data" => AuthoritySource::Data(Words::inside(&words.below("authority"), held, authority)?),
        _ => bail!(words.wrong("authority", "expected none, data or file")),
    })
}

fn authority(words: &mut Words) -> anyhow::Result<Authority> {
    Ok(Authority {
        reference: words.plain("reference")?,
        fingerprints: words.plain("fingerprints")?,
        ends_seconds: words.plain("ends-seconds")?,
        is_ca: words.plain("is-ca")?,
    })
}

fn url(words: &mut Words) -> anyhow::Result<Url> {
    Ok(Url {
        scheme: words.plain("scheme")?,
        host: words.plain("host")?,
        port: words.plain("port")?,
        path: words.plain("path")?,
    })
}

fn proxy(words: &mut Words) -> anyhow::Result<Proxy> {
    Ok(Proxy {
        reference: words.plain("reference")?,
        url: words.map("url", url)?,
    })
}

fn user(words: &mut Words) -> anyhow::Result<UserView> {
    Ok(UserView {
        entry: words.plain("entry")?,
        name: words.plain("name")?,
        credential: words.map("credential", credential)?,
    })
}

fn credential(words: &mut Words) -> anyhow::Result<Credential> {
    Ok(Credential {
        reference: words.plain("reference")?,
        client_certificate: words.plain("client-certificate")?,
        token: words.plain("token")?,
        basic: words.plain("basic")?,
        exec: words.plain("exec")?,
        auth_provider: words.plain("auth-provider")?,
        file: words.plain("file")?,
        ends_seconds: words.plain("ends-seconds")?,
    })
}

fn context(words: &mut Words) -> anyhow::Result<ContextEntry> {
    Ok(ContextEntry {
        entry: words.plain("entry")?,
        name: words.plain("name")?,
        cluster: words.plain("cluster")?,
        user: words.plain("user")?,
        namespace: words.plain("namespace")?,
    })
}
