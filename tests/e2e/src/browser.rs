//! A real Chromium without a window, driven through two named pipes: what a page shows, what it asks for, and a picture
//! of it. It ends when its handle is dropped.

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The names under which distributions install it.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// How long it may run, in seconds: it decides only about what never ends.
const SECONDS: &str = "300";
/// Ends a message.
const END: u8 = 0;

/// How a page is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Width of the window in CSS pixels.
    pub width: u32,
    /// Whether the user prefers dark pages.
    pub dark: bool,
}

/// What became of a page.
#[derive(Debug)]
pub struct Seen {
    /// The text that a user can see.
    pub text: String,
    /// Every address that it asked for.
    pub requests: Vec<String>,
    /// Messages and errors of its console.
    pub console: Vec<String>,
    /// What the expression gave.
    pub value: Value,
}

/// A running browser.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    number: u64,
    events: Vec<Value>,
}

impl Browser {
    /// Starts one; it keeps its files in this folder.
    ///
    /// # Errors
    /// When none is installed, or it does not start.
    pub fn start(folder: &Path) -> Result<Self> {
        let program = program()?;
        let pipes = [folder.join("to-browser"), folder.join("from-browser")];
        let made = Command::new("mkfifo").args(&pipes).status()?;
        ensure!(made.success(), "failed to make named pipes");
        // It reads messages from descriptor 3 and writes them to descriptor 4.
        let child = Command::new("sh")
            .args([
                "-c",
                "to=$1 from=$2; shift 2; exec timeout \"$@\" 3<\"$to\" 4>\"$from\"",
                "sh",
            ])
            .args(&pipes)
            .arg(SECONDS)
            .arg(program)
            .args([
                "--headless=new",
                "--remote-debugging-pipe",
                "--disable-gpu",
                "--no-first-run",
            ])
            // Its own sandbox does not work for root, nor in most containers.
            .args([
                "--no-sandbox",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
            ])
            .arg(format!(
                "--user-data-dir={}",
                folder.join("browser").display()
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("browser.log"))?)
            .spawn()
            .context("failed to start a browser")?;
        let [to, from] = &pipes;
        Ok(Self {
            child,
            to: fs::OpenOptions::new().write(true).open(to)?,
            from: BufReader::new(File::open(from)?),
            number: 0,
            events: Vec::new(),
        })
    }

    /// Opens a page, evaluates an expression in it, and writes a picture of all of it.
    ///
    /// # Errors
    /// When the browser ends, or refuses something.
    pub fn look(
        &mut self,
        url: &str,
        look: Look,
        expression: &str,
        picture: &Path,
    ) -> Result<Seen> {
        let target = self.call(None, "Target.createTarget", &json!({"url": "about:blank"}))?;
        let session = self.attach(&target["targetId"], look)?;
        let session = Some(session.as_str());
        self.events.clear();
        let gone = self.call(session, "Page.navigate", &json!({"url": url}))?;
        ensure!(gone.get("errorText").is_none(), "{gone}");
        while !self
            .events
            .iter()
            .any(|event| event["method"] == "Page.loadEventFired")
        {
            let event = self.message()?;
            self.events.push(event);
        }
        let text = self.evaluate(session, "document.body.innerText")?;
        let value = self.evaluate(session, expression)?;
        let whole = json!({"captureBeyondViewport": true});
        let shot = self.call(session, "Page.captureScreenshot", &whole)?;
        fs::write(
            picture,
            STANDARD.decode(shot["data"].as_str().context("no picture")?)?,
        )?;
        self.call(
            None,
            "Target.closeTarget",
            &json!({"targetId": target["targetId"]}),
        )?;
        let requests = self.events_of(&["Network.requestWillBeSent"]);
        let request = |event: &Value| Some(event["params"]["request"]["url"].as_str()?.to_owned());
        let console = self.events_of(&[
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
        ]);
        Ok(Seen {
            text: text.as_str().unwrap_or_default().to_owned(),
            requests: requests.filter_map(request).collect(),
            console: console.map(|event| event["params"].to_string()).collect(),
            value,
        })
    }

    /// Attaches to a target in the given size and colours; returns the session.
    fn attach(&mut self, target: &Value, look: Look) -> Result<String> {
        let attach = json!({"targetId": target, "flatten": true});
        let session = self.call(None, "Target.attachToTarget", &attach)?;
        let session = session["sessionId"].as_str().context("no session")?;
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(Some(session), &format!("{domain}.enable"), &json!({}))?;
        }
        let scheme = if look.dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call(Some(session), "Emulation.setEmulatedMedia", &media)?;
        let size = json!({"width": look.width, "height": 900, "deviceScaleFactor": 1, "mobile": look.width < 600});
        self.call(Some(session), "Emulation.setDeviceMetricsOverride", &size)?;
        Ok(session.to_owned())
    }

    fn events_of(&self, methods: &[&str]) -> impl Iterator<Item = &Value> {
        let wanted = |event: &&Value| methods.iter().any(|method| event["method"] == *method);
        self.events.iter().filter(wanted)
    }

    fn evaluate(&mut self, session: Option<&str>, expression: &str) -> Result<Value> {
        let params = json!({"expression": expression, "returnByValue": true});
        let mut answer = self.call(session, "Runtime.evaluate", &params)?;
        ensure!(answer.get("exceptionDetails").is_none(), "{answer}");
        Ok(answer["result"]["value"].take())
    }

    /// Sends a command and waits for its answer; keeps the events in between.
    fn call(&mut self, session: Option<&str>, method: &str, params: &Value) -> Result<Value> {
        self.number += 1;
        let mut command = json!({"id": self.number, "method": method, "params": params});
        if let Some(session) = session {
            command["sessionId"] = session.into();
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(END);
        self.to.write_all(&bytes)?;
        loop {
            let mut message = self.message()?;
            if message["id"] == self.number {
                ensure!(message.get("error").is_none(), "{method}: {message}");
                return Ok(message["result"].take());
            }
            self.events.push(message);
        }
    }

    fn message(&mut self) -> Result<Value> {
        let mut bytes = Vec::new();
        self.from.read_until(END, &mut bytes)?;
        if bytes.pop() != Some(END) {
            bail!("the browser ended; its log is `browser.log`");
        }
        Ok(serde_json::from_slice(&bytes)?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends by itself; `timeout` passes the signal on if it does not.
        let _ = self.call(None, "Browser.close", &json!({}));
        let _ = self.child.wait();
    }
}

/// The browser of this machine.
fn program() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files =
        std::env::split_paths(&path).flat_map(|folder| NAMES.map(|name| folder.join(name)));
    let found = files.find(|file| file.is_file());
    found.context("no Chromium is installed; install the package `chromium`")
}
