//! The registries of the test kit, with real clients: what is pushed, who may read it, how cosign signs it, and what a
//! hostile registry answers.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;
use transom_test_cluster::{Access, Answer, COMPONENT, Form, Hostile, Keys, LOGIN, Registry, WASM};

/// An empty module.
const BYTES: &[u8] = b"\0asm\x01\0\0\0";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// The manifest of a name.
fn manifest(registry: &Registry, name: &str) -> Result<Value> {
    let text = registry.oras(&["manifest", "fetch", &registry.place(name)])?;
    Ok(serde_json::from_str(&text)?)
}

/// The only layer of a manifest in a repository, as bytes.
fn layer(registry: &Registry, repository: &str, manifest: &Value) -> Result<Vec<u8>> {
    let digest = manifest["layers"][0]["digest"].as_str();
    let name = format!("{repository}@{}", digest.context("no layer")?);
    registry.oras(&["blob", "fetch", "--output", "layer", &registry.place(&name)])?;
    Ok(std::fs::read(registry.folder().join("layer"))?)
}

#[test]
fn keeps_what_is_pushed_while_it_is_stopped() -> Result<()> {
    let registry = Registry::start(Access::default())?;
    let (address, digest) = (registry.address(), registry.push("team/taints:1", BYTES)?);
    registry.stop()?;
    ensure!(manifest(&registry, "team/taints:1").is_err(), "it answers");
    registry.start_again()?;
    ensure!(registry.address() == address, "it moved");
    for name in ["team/taints:1", &format!("team/taints@{digest}")] {
        let read = manifest(&registry, name)?;
        let types = [&read["artifactType"], &read["config"]["mediaType"]];
        ensure!(types == [COMPONENT, COMPONENT], "{read}");
        ensure!(read["layers"][0]["mediaType"] == WASM, "{read}");
        ensure!(layer(&registry, "team/taints", &read)? == BYTES);
    }
    ensure!(registry.folder().join("content").is_dir());
    Ok(())
}

#[test]
fn refuses_who_has_no_login_and_is_trusted_by_its_own_ca_only() -> Result<()> {
    let access = Access::PRIVATE;
    let registry = Registry::start(access)?;
    registry.push("taints:1", BYTES)?;
    let place = registry.place("taints:1");
    let fetch = ["manifest", "fetch", place.as_str()];
    ensure!(registry.oras(&fetch)?.contains(WASM));
    let anonymous = Access {
        login: false,
        ..access
    };
    let refused = registry.oras_with(anonymous, &fetch);
    let refused = refused.err().context("it serves anyone")?.to_string();
    ensure!(refused.contains("basic credential not found"), "{refused}");
    ensure!(!refused.contains(LOGIN.1), "it shows the password");
    // The words name this registry, the CA is that of another one.
    let other = Registry::start(access)?;
    ensure!(registry.authority() != other.authority());
    let refused = other.oras(&fetch).err().context("any CA will do")?;
    ensure!(refused.to_string().contains("x509"), "{refused}");
    Ok(())
}

#[test]
fn cosign_verifies_its_signatures_in_both_forms() -> Result<()> {
    let access = Access::PRIVATE;
    for registry in [Registry::start(access)?, Registry::with_referrers()?] {
        let digest = registry.push("taints:1", BYTES)?;
        let name = format!("taints@{digest}");
        let ours = Keys::generate(&registry, "ours")?;
        let others = Keys::generate(&registry, "others")?;
        for form in [Form::Bundle, Form::Tag] {
            let early = ours.verify(&registry, &name, form);
            ensure!(early.is_err(), "{form:?}: not signed yet");
            ours.sign(&registry, &name, form)?;
            let verified = ours.verify(&registry, &name, form)?;
            ensure!(verified.contains(&digest), "{form:?}: {verified}");
            let wrong = others.verify(&registry, &name, form);
            ensure!(wrong.is_err(), "{form:?}: a key that signed nothing");
        }
        ensure!(ours.public()?.starts_with("-----BEGIN PUBLIC KEY-----"));
    }
    Ok(())
}

#[test]
#[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
fn signatures_lie_where_readers_look_for_them() -> Result<()> {
    for (registry, lists) in [
        (Registry::start(Access::default())?, false),
        (Registry::with_referrers()?, true),
    ] {
        let digest = registry.push("taints:1", BYTES)?;
        let keys = Keys::generate(&registry, "keys")?;
        for form in [Form::Bundle, Form::Tag] {
            keys.sign(&registry, &format!("taints@{digest}"), form)?;
        }
        let fallback = digest.replace(':', "-");
        let tags = registry.oras(&["repo", "tags", &registry.place("taints")])?;
        let tags: Vec<&str> = tags.lines().collect();
        let signature = format!("{fallback}.sig");
        ensure!(tags.contains(&signature.as_str()), "{tags:?}");
        // The list of referrers is a tag only where the registry has none of its own.
        ensure!(tags.contains(&fallback.as_str()) != lists, "{tags:?}");

        let place = registry.place(&format!("taints@{digest}"));
        let found = registry.oras(&["discover", "--format", "json", &place])?;
        let found: Value = serde_json::from_str(&found)?;
        ensure!(
            found["referrers"].as_array().map(Vec::len) == Some(1),
            "{found}"
        );
        let referrer = &found["referrers"][0];
        ensure!(referrer["artifactType"] == BUNDLE, "{found}");
        let bundle = referrer["digest"].as_str().context("no digest")?;
        let bundle = manifest(&registry, &format!("taints@{bundle}"))?;
        ensure!(bundle["subject"]["digest"] == digest.as_str(), "{bundle}");
        ensure!(bundle["layers"][0]["mediaType"] == BUNDLE, "{bundle}");
        let content: Value = serde_json::from_slice(&layer(&registry, "taints", &bundle)?)?;
        let envelope = &content["dsseEnvelope"];
        ensure!(
            envelope["payloadType"] == "application/vnd.in-toto+json",
            "{content}"
        );
        ensure!(
            envelope["signatures"].as_array().map(Vec::len) == Some(1),
            "{content}"
        );

        let signature = manifest(&registry, &format!("taints:{signature}"))?;
        let layers = &signature["layers"][0];
        ensure!(
            layers["mediaType"] == "application/vnd.dev.cosign.simplesigning.v1+json",
            "{signature}"
        );
        ensure!(
            layers["annotations"]["dev.cosignproject.cosign/signature"].is_string(),
            "{signature}"
        );
        let payload: Value = serde_json::from_slice(&layer(&registry, "taints", &signature)?)?;
        ensure!(
            payload["critical"]["image"] == json!({"docker-manifest-digest": digest}),
            "{payload}"
        );
    }
    Ok(())
}

/// The head and at most so many bytes of the body of an answer.
fn get(address: &str, path: &str, most: u64) -> Result<(String, Vec<u8>)> {
    let mut stream = TcpStream::connect(address)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let (mut reader, mut head) = (BufReader::new(stream), String::new());
    while reader.read_line(&mut head)? > 2 {}
    let mut body = Vec::new();
    reader.take(most).read_to_end(&mut body)?;
    Ok((head, body))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_registry_answers_as_the_script_says() -> Result<()> {
    const MANY: u64 = 1 << 20;
    let hostile = Hostile::start(|asked| match asked.uri.path() {
        "/endless" => Answer::endless("more "),
        "/slow" => Answer::slow("slow", Duration::from_millis(1)),
        "/truncated" => Answer::truncated("half", 8),
        "/teapot" => Answer::new(418, "no").header("retry-after", 7),
        path => Answer::new(
            200,
            format!("{} {path} {:?}", asked.method, asked.uri.query()),
        ),
    })
    .await?;
    let address = hostile.address();
    let (_, body) = get(&address, "/endless", MANY)?;
    ensure!(u64::try_from(body.len())? == MANY, "it ended");
    let (head, body) = get(&address, "/slow", MANY)?;
    ensure!(
        head.contains("content-length: 4") && body == b"slow",
        "{head}"
    );
    let (head, body) = get(&address, "/truncated", MANY)?;
    ensure!(
        head.contains("content-length: 8") && body == b"half",
        "{head}"
    );
    let (head, body) = get(&address, "/teapot", MANY)?;
    ensure!(
        head.starts_with("HTTP/1.1 418") && head.contains("retry-after: 7"),
        "{head}"
    );
    ensure!(body == b"no");
    let (_, body) = get(&address, "/v2/?n=1", MANY)?;
    ensure!(body == b"GET /v2/ Some(\"n=1\")");
    ensure!((hostile.asked("/v2/"), hostile.asked("/v2/other")) == (1, 0));
    ensure!(hostile.counts().len() == 5, "{:?}", hostile.counts());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_follows_a_redirect_of_a_hostile_registry() -> Result<()> {
    let registry = Registry::start(Access::default())?;
    registry.push("taints:1", BYTES)?;
    let server = registry.server();
    let hostile = Hostile::start(move |asked| Answer::redirect(&format!("{server}{}", asked.uri)));
    let hostile = hostile.await?;
    let place = format!("{}/taints:1", hostile.address());
    registry.oras(&["pull", "--output", "pulled", &place])?;
    let pulled = std::fs::read(registry.folder().join("pulled/component.wasm"))?;
    ensure!(pulled == BYTES);
    ensure!(
        hostile.asked("/v2/taints/manifests/1") > 0,
        "{:?}",
        hostile.counts()
    );
    Ok(())
}
