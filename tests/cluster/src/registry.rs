//! A real OCI registry on loopback, whose folder is removed when the value is dropped, and the clients that fill it.

use crate::certificates::Authority;
use crate::process::{Process, ProcessGroup};
use crate::{flags, servers};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use transom_support::wait;

/// The user and the password of a registry with a login; the password is a canary.
pub const LOGIN: (&str, &str) = ("tester", "canary-of-the-registry");
/// The password as the registry knows it: bcrypt at its lowest cost.
const HASH: &str = "$2a$04$4VjkC7K3AadXRKr5MCK7feDAnFbdLRX.dSW53eMEGEP852IpGVYEe";
/// The media type of the configuration of a component, also its artifact type.
pub const COMPONENT: &str = "application/vnd.wasm.config.v0+json";
/// The media type of the layer that is the component.
pub const WASM: &str = "application/wasm";
/// A configuration of a component.
const SETTINGS: &str = r#"{"architecture":"wasm","os":"wasip2"}"#;
/// The deadline for a registry to listen; far longer than needed on a busy machine.
const DEADLINE: Duration = Duration::from_secs(300);

/// How clients reach a registry; by default with plain HTTP and without a login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// TLS, with a certificate of a CA that only this registry has.
    pub tls: bool,
    /// Basic authentication as [`LOGIN`], also for pulls.
    pub login: bool,
}

impl Access {
    /// With TLS and a login.
    pub const PRIVATE: Self = Self {
        tls: true,
        login: true,
    };
}

/// A running registry. Ends when the value is dropped, and with the process, even if that is killed.
pub struct Registry {
    // Order matters: the group ends first, then the process is reaped, then the folder is removed.
    _group: ProcessGroup,
    process: Process,
    port: u16,
    access: Access,
    authority: Option<Authority>,
    folder: TempDir,
}

impl Registry {
    /// Starts the registry of distribution, which keeps everything in its folder and does not list referrers: clients
    /// use the tag `sha256-<digest>` instead.
    ///
    /// # Errors
    /// When it is not built, or does not listen.
    pub fn start(access: Access) -> Result<Self> {
        Self::launch(access, "registry", |folder, port| {
            let authority = access.tls.then(Authority::new).transpose()?;
            let config = config(folder, port, access, authority.as_ref())?;
            let file = folder.join("config.json");
            // JSON is YAML.
            write(&file, config.to_string())?;
            let flags = vec!["serve".to_owned(), file.display().to_string()];
            Ok((flags, authority))
        })
    }

    /// Starts a registry that lists referrers, with plain HTTP; it forgets everything when it stops.
    ///
    /// # Errors
    /// When it is not built, or does not listen.
    pub fn with_referrers() -> Result<Self> {
        Self::launch(Access::default(), "referrers", |_, port| {
            Ok((vec![port.to_string()], None))
        })
    }

    /// Starts a program with the flags that `prepare` makes of folder and port.
    fn launch(
        access: Access,
        name: &'static str,
        prepare: impl FnOnce(&Path, u16) -> Result<(Vec<String>, Option<Authority>)>,
    ) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("transom-registry-")
            .tempdir()
            .context("failed to make a folder for a registry")?;
        let port = flags::free_port()?;
        let (flags, authority) = prepare(folder.path(), port)?;
        let group = ProcessGroup::start(folder.path())?;
        let log = folder.path().join("registry.log");
        let process = Process::new(name, servers::beside(name)?, flags, log, group.group()?)
            // By default it sends traces to a port of this machine.
            .with_variable("OTEL_TRACES_EXPORTER", "none");
        if let Some(authority) = &authority {
            write(&folder.path().join("ca.crt"), authority.pem())?;
        }
        let registry = Self {
            _group: group,
            process,
            port,
            access,
            authority,
            folder,
        };
        registry.start_again()?;
        Ok(registry)
    }

    /// Where it listens, `127.0.0.1:<port>`; its certificate is also for `localhost`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The address with the scheme.
    pub fn server(&self) -> String {
        let scheme = if self.access.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address())
    }

    /// The certificate of the CA, PEM; none without TLS.
    pub fn authority(&self) -> Option<String> {
        self.authority.as_ref().map(Authority::pem)
    }

    /// The folder of log, configuration and content (`content/`); a test may put its own files there.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process, to freeze and thaw.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Kills it; its address refuses connections.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn stop(&self) -> Result<()> {
        self.process.kill()
    }

    /// Starts it at the same address with the same content, and waits until it listens.
    ///
    /// # Errors
    /// When it runs already, or does not listen.
    pub fn start_again(&self) -> Result<()> {
        self.process.start()?;
        let listens = || TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
        wait::until("a registry that listens", DEADLINE, || {
            match self.process.check() {
                Ok(()) => listens().then_some(Ok(())),
                ended => Some(ended),
            }
        })?
    }

    /// A name in this registry as clients write it: `<address>/<name>`.
    pub fn place(&self, name: &str) -> String {
        format!("{}/{name}", self.address())
    }

    /// Runs `oras` with these words, and with what it needs to reach this registry; returns its output.
    ///
    /// # Errors
    /// When it is not built, or fails; the error has all that it said.
    pub fn oras(&self, words: &[&str]) -> Result<String> {
        self.oras_with(self.access, words)
    }

    /// The same with what another access needs: without the login, or with plain HTTP.
    ///
    /// # Errors
    /// As for [`Registry::oras`].
    pub fn oras_with(&self, access: Access, words: &[&str]) -> Result<String> {
        let mut oras = self.client("oras", words)?;
        match access.tls {
            true => oras.arg("--ca-file").arg(self.folder().join("ca.crt")),
            false => oras.arg("--plain-http"),
        };
        if access.login {
            oras.args(["--username", LOGIN.0, "--password", LOGIN.1]);
        }
        run(oras)
    }

    /// Runs `cosign` with these words, and with what it needs to reach this registry and keys without a password;
    /// returns its output.
    ///
    /// # Errors
    /// As for [`Registry::oras`].
    pub fn cosign(&self, words: &[&str]) -> Result<String> {
        let mut cosign = self.client("cosign", words)?;
        match self.access.tls {
            true => cosign
                .arg("--registry-cacert")
                .arg(self.folder().join("ca.crt")),
            false => cosign.arg("--allow-http-registry"),
        };
        if self.access.login {
            let (user, password) = LOGIN;
            cosign.args(["--registry-username", user, "--registry-password", password]);
        }
        run(cosign)
    }

    /// A client in the folder, which finds no settings of the user.
    pub(crate) fn client(&self, name: &str, words: &[&str]) -> Result<Command> {
        let mut client = Command::new(servers::beside(name)?);
        client
            .args(words)
            .current_dir(self.folder())
            .env("HOME", self.folder())
            .env("DOCKER_CONFIG", self.folder())
            .env("COSIGN_PASSWORD", "");
        Ok(client)
    }

    /// Pushes a component as `<repository>:<tag>`, and returns its digest, `sha256:<hex>`. Each push has a digest of
    /// its own, because the manifest says when it was made.
    ///
    /// # Errors
    /// When it cannot be pushed.
    pub fn push(&self, name: &str, component: &[u8]) -> Result<String> {
        write(&self.folder().join("component.wasm"), component)?;
        write(&self.folder().join("component.json"), SETTINGS)?;
        let config = format!("component.json:{COMPONENT}");
        let layer = format!("component.wasm:{WASM}");
        let words = ["push", "--format", "json", "--artifact-type", COMPONENT];
        let more = ["--config", &config, &self.place(name), &layer];
        let told: Value = serde_json::from_str(&self.oras(&[&words[..], &more].concat())?)
            .context("the output of oras is no JSON")?;
        let digest = told["digest"].as_str().context("oras names no digest")?;
        Ok(digest.to_owned())
    }
}

/// The configuration of the registry; writes the files that it names.
fn config(
    folder: &Path,
    port: u16,
    access: Access,
    authority: Option<&Authority>,
) -> Result<Value> {
    let mut config = json!({
        "version": 0.1,
        "log": {"level": "info"},
        "storage": {"filesystem": {"rootdirectory": folder.join("content")}, "delete": {"enabled": true}},
        "http": {"addr": format!("127.0.0.1:{port}"), "secret": "not secret"},
    });
    if let Some(authority) = authority {
        let (certificate, key) = (folder.join("server.crt"), folder.join("server.key"));
        let pair = authority.server(&[])?;
        write(&certificate, &pair.certificate)?;
        write(&key, &pair.key)?;
        config["http"]["tls"] = json!({"certificate": certificate, "key": key});
    }
    if access.login {
        let users = folder.join("htpasswd");
        write(&users, format!("{}:{HASH}\n", LOGIN.0))?;
        config["auth"] = json!({"htpasswd": {"realm": "registry", "path": users}});
    }
    Ok(config)
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("failed to write `{}`", path.display()))
}

/// Runs a command to its end and returns its output; an error has all that it said.
pub(crate) fn run(mut command: Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output = command
        .output()
        .with_context(|| format!("failed to start `{program}`"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "`{program}` ended with {}:\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}
