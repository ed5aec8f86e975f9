//! The page host/docs/own-guest.md, followed command by command: a signed guest comes to a running agent, is replaced
//! and put back, and then comes from a registry. What the page shows is compared. `--nocapture` prints what each
//! command said.

use crate::applied::{install_chart, with_fleet};
use crate::deployed::Deployed;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::Path;
use transom_core::digest::Digest;
use transom_e2e::program;
use transom_support::fleet::Fleet;
use transom_test_cluster::{Access, LOGIN, Registry};
use transom_test_deploy::page::{Page, shell};
use transom_test_deploy::rendered::said;

const PAGE: &str = "own-guest.md";
const FLEET: Fleet = Fleet {
    clusters: 0,
    managed: 3,
    seed: 13,
};

/// The versions of the guest that the reader builds: a bundled fixture, with a custom section that tells them apart.
fn version(number: u8) -> Result<Vec<u8>> {
    program::variant("calm", number)
}

/// Makes the folders that the reader has, and the variables of a shell that reaches a registry.
fn prepare(top: &Path, page: &Page, registry: &Registry) -> Result<String> {
    let (work, docker) = (top.join("work"), top.join("docker"));
    for folder in [&work, &docker, &top.join("maintenance/target/guests")] {
        fs::create_dir_all(folder)?;
    }
    std::os::unix::fs::symlink(program::root().canonicalize()?, top.join("transom"))?;
    for (name, text) in ["maintenance.yaml", "registry.yaml"]
        .iter()
        .zip(page.manifests())
    {
        let here = text.replace("registry.example", &registry.address());
        fs::write(work.join(name), here)?;
    }
    let (user, password) = LOGIN;
    let auths = serde_json::json!({"auths": {registry.address(): {"username": user, "password": password}}});
    fs::write(docker.join("config.json"), auths.to_string())?;
    let ca = work.join("ca.crt");
    fs::write(&ca, registry.authority().context("no CA")?)?;
    let transom = program::binary()?.parent().context("no folder")?.display();
    Ok(format!(
        "cd {} && export PATH={transom}:$PATH SSL_CERT_FILE={} DOCKER_CONFIG={} COSIGN_PASSWORD= \
         PULL_USER={user} PULL_PASSWORD={password} && ",
        work.display(),
        ca.display(),
        docker.display()
    ))
}

#[tokio::test]
async fn a_signed_guest_comes_to_the_cluster_as_the_page_says() -> Result<()> {
    let cluster = with_fleet(FLEET).await?;
    let registry = Registry::start(Access::PRIVATE)?;
    install_chart(&cluster, &[])?;
    let top = cluster.folder().join("page");
    let page = Page::read(PAGE)?;
    let begin = prepare(&top, &page, &registry)?;
    let (mut agent, mut built, mut told) = (None::<Deployed>, 0, String::new());
    for (command, shown) in page.all_shown() {
        if command.starts_with("cp ") {
            built += 1;
            let to = top.join("maintenance/target/guests/maintenance.wasm");
            fs::write(to, version(built)?)?;
        }
        let here = command.replace("registry.example", &registry.address());
        let output = said(&mut shell(&cluster, &format!("{begin}{here}"))?);
        let output = output.with_context(|| format!("`{command}`"))?;
        println!("$ {command}\n{output}");
        told.push_str(&format!("$ {command}\n{output}\n"));
        let compared = shown.is_in(&output);
        compared.with_context(|| format!("`{command}`\n{output}"))?;
        if command.starts_with("helm upgrade") {
            // As the Deployment replaces its pods.
            agent.take().map(|agent| agent.stop(&cluster)).transpose()?;
            agent = Some(Deployed::start(&cluster).await?);
        }
    }
    page.is_followed()?;
    let digest = Digest::of_bytes(&version(1)?).to_string();
    for words in [
        format!("component {digest}\nsigned by release.pub"),
        format!("{digest} is signed by release"),
        "signed by cosign.pub".to_owned(),
        format!("{} is signed by cosign", Digest::of_bytes(&version(2)?)),
    ] {
        ensure!(told.contains(&words), "no command said `{words}`:\n{told}");
    }
    let agent = agent.context("the page does not set up the agent")?;
    agent.stop(&cluster).map(drop)
}
