//! The admin server of the real binary: what each client from another machine may see, with and without TLS, and when
//! readiness is reported. Uses a non-loopback address wherever the client's identity matters.

use crate::stage::{DEADLINE, HOME, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::api::{Api, GetParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use kube::{Client, Config};
use serde_json::{Value, json};
use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use transom_e2e::agent::Agent;
use transom_e2e::http;
use transom_test_cluster::{Proxy, User, wait};

/// Permission to read the metrics, and nothing else.
const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scraper}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scraper}
subjects: [{kind: ServiceAccount, name: scraper, namespace: transom}]
";

/// An address of this machine that is not loopback. Sends nothing to find it.
fn own_address() -> Result<IpAddr> {
    let about = "this machine has no address but its own: it cannot ask as another one would";
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect("198.51.100.1:9").context(about)?;
    Ok(socket.local_addr()?.ip())
}

/// The agent's admin server, at an address that counts as another machine.
pub(crate) fn from_afar(agent: &Agent) -> Result<SocketAddr> {
    Ok(SocketAddr::new(own_address()?, agent.listening()?.port()))
}

impl Stage {
    /// The token of a service account.
    pub(crate) fn token(&self, user: &User) -> Result<String> {
        let kubeconfig: Value = serde_yaml::from_str(&self.cluster.kubeconfig(user)?)?;
        let token = kubeconfig["users"][0]["user"]["token"]
            .as_str()
            .context("the user has no token")?;
        Ok(token.to_owned())
    }

    /// A user who may read the metrics, once the API server knows that, and one who may not.
    async fn scrapers(&self) -> Result<(User, User)> {
        let scraper = self.cluster.service_account(HOME, "scraper").await?;
        let other = self.cluster.service_account(HOME, "other").await?;
        self.objects().apply_manifest(RIGHTS).await?;
        let client = self.cluster.client(&scraper).await?;
        wait::until("the right to get the metrics", DEADLINE, async || {
            let attributes = json!({"path": "/metrics", "verb": "get"});
            let review: SelfSubjectAccessReview =
                serde_json::from_value(json!({"spec": {"nonResourceAttributes": attributes}}))?;
            let answer = Api::all(client.clone())
                .create(&PostParams::default(), &review)
                .await?;
            Ok(answer.status.filter(|status| status.allowed).map(drop))
        })
        .await?;
        Ok((scraper, other))
    }

    /// The status code that an admin server with TLS gives to a user who trusts the CA of the API server.
    async fn over_tls(&self, admin: SocketAddr, user: &User, path: &str) -> Result<u16> {
        let kubeconfig = Kubeconfig::from_yaml(
            &self
                .cluster
                .kubeconfig_at(user, &format!("https://{admin}"))?,
        )?;
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        // The certificate is for this name. The address is not loopback, so the user's permissions matter.
        config.tls_server_name = Some("localhost".to_owned());
        let request = Request::new("").get(path.trim_start_matches('/'), &GetParams::default())?;
        match Client::try_from(config)?.request_text(request).await {
            Ok(_) => Ok(200),
            Err(kube::Error::Api(status)) => Ok(status.code),
            Err(error) => Err(error).context("no answer over TLS"),
        }
    }
}

#[test]
fn remote_clients_need_a_token_except_for_health() -> Result<()> {
    on_stage(async |stage| {
        let (scraper, other) = stage.scrapers().await?;
        let agent = stage.start_agent(&["--admin-address", "0.0.0.0:0"])?;
        let afar = from_afar(&agent)?;
        let (scraper, other) = (stage.token(&scraper)?, stage.token(&other)?);
        let nobody = scraper.replace('.', "-");
        for (path, token, status) in [
            ("/healthz", None, 200),
            ("/metrics", None, 401),
            ("/debug/state", None, 401),
            ("/metrics", Some(&nobody), 401),
            ("/metrics", Some(&other), 403),
            ("/metrics", Some(&scraper), 200),
            ("/debug/state", Some(&scraper), 403),
        ] {
            let answer = match token {
                Some(token) => http::get_as(afar, path, token),
                None => http::get(afar, path),
            };
            let answer = answer?;
            ensure!(
                answer.status == status,
                "{path} with a token: {}: {answer:?}",
                token.is_some()
            );
            let shown = answer.body.contains("transom_build_info");
            ensure!(
                shown == (path == "/metrics" && status == 200),
                "{path}: {answer:?}"
            );
        }
        let here = SocketAddr::from(([127, 0, 0, 1], afar.port()));
        ensure!(
            http::get(here, "/debug/state")?.status == 200,
            "this machine is not let in"
        );
        let said = agent.stop()?;
        ensure!(
            ![&scraper, &other, &nobody]
                .iter()
                .any(|token| said.contains(token.as_str())),
            "the log shows a token"
        );
        Ok(())
    })
}

#[test]
fn serves_tls_only_when_given_a_certificate() -> Result<()> {
    on_stage(async |stage| {
        let (scraper, other) = stage.scrapers().await?;
        let pair = stage.cluster.serving_certificate()?;
        let [certificate, key] =
            ["admin.crt", "admin.key"].map(|name| stage.cluster.folder().join(name));
        fs::write(&certificate, pair.certificate)?;
        fs::write(&key, pair.key)?;
        let files = [certificate, key].map(|path| path.display().to_string());
        let words = [
            "--admin-address",
            "0.0.0.0:0",
            "--admin-tls-cert",
            &files[0],
            "--admin-tls-key",
            &files[1],
        ];
        let agent = stage.start_agent(&words)?;
        let afar = from_afar(&agent)?;
        for (user, path, code) in [
            (&scraper, "/metrics", 200),
            (&other, "/metrics", 403),
            (&other, "/healthz", 200),
            (stage.cluster.admin(), "/metrics", 401),
        ] {
            let answered = stage.over_tls(afar, user, path).await?;
            ensure!(answered == code, "{path} as {user:?}: {answered}");
        }
        for path in ["/healthz", "/metrics"] {
            let plain = http::get_as(afar, path, &stage.token(&scraper)?);
            ensure!(plain.is_err(), "{path} was answered without TLS: {plain:?}");
        }
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn is_alive_at_once_and_ready_after_the_initial_lists() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("listed", true).await?;
        let proxy = Proxy::start(&stage.cluster).await?;
        proxy.hold(Some("/hostedclusters"));
        let agent = stage.start_agent_at(&proxy.server(), &["--admin-address", "127.0.0.1:0"])?;
        let admin = agent.listening()?;
        let ready = http::get(admin, "/readyz")?;
        ensure!(
            ready.status == 503 && ready.body.contains("listed"),
            "{ready:?}"
        );
        ensure!(
            http::get(admin, "/healthz")?.status == 200,
            "it is not alive"
        );
        proxy.hold(None);
        wait::until("readiness", DEADLINE, async || {
            ensure!(
                http::get(admin, "/healthz")?.status == 200,
                "it is alive no more"
            );
            Ok((http::get(admin, "/readyz")?.status == 200).then_some(()))
        })
        .await?;
        stage.wait_for_right("listed", 6443).await?;
        agent.stop()?;
        Ok(())
    })
}
