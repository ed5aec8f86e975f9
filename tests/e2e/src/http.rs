//! One request over plain HTTP, for the agent's admin server and for Prometheus. Keeps no connection.

use anyhow::{Context as _, Result};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use transom_core::share::lock::MutexExt as _;

/// The deadline for one response.
const PATIENCE: Duration = Duration::from_secs(180);

/// A complete response.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// Gets a path.
///
/// # Errors
/// When there is no response, or it is not HTTP.
pub fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    send(address, "GET", path)
}

/// The sum of a metric of the agent over its lines that contain a text.
///
/// # Errors
/// As for [`get`].
pub fn metric(admin: SocketAddr, name: &str, holding: &str) -> Result<f64> {
    Ok(sum(&get(admin, "/metrics")?.body, name, holding))
}

fn sum(metrics: &str, name: &str, holding: &str) -> f64 {
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with(name) && line.contains(holding));
    let values = lines.filter_map(|line| line.rsplit_once(' '));
    values
        .filter_map(|(_, value)| value.parse::<f64>().ok())
        .sum()
}

/// The metrics of an agent for several who look all the time: read a few times in a second, because the agent counts
/// all its primaries each time.
pub struct Meter {
    admin: SocketAddr,
    last: Mutex<Option<(Instant, String)>>,
}

/// How old metrics get.
const OLD: Duration = Duration::from_millis(250);

impl Meter {
    /// For an admin server.
    pub fn new(admin: SocketAddr) -> Self {
        Self {
            admin,
            last: Mutex::default(),
        }
    }

    /// As [`metric`], of a moment ago.
    ///
    /// # Errors
    /// As for [`get`].
    pub fn metric(&self, name: &str, holding: &str) -> Result<f64> {
        let mut last = self.last.locked();
        if last.as_ref().is_none_or(|(at, _)| at.elapsed() > OLD) {
            *last = Some((Instant::now(), get(self.admin, "/metrics")?.body));
        }
        let (_, text) = last.as_ref().context("no metrics")?;
        Ok(sum(text, name, holding))
    }
}

/// Gets a path with a token.
///
/// # Errors
/// As for [`get`].
pub fn get_as(address: SocketAddr, path: &str, token: &str) -> Result<Answer> {
    ask(
        address,
        "GET",
        path,
        &format!("Authorization: Bearer {token}\r\n"),
    )
}

/// Sends a request without a body.
///
/// # Errors
/// As for [`get`].
pub fn send(address: SocketAddr, method: &str, path: &str) -> Result<Answer> {
    ask(address, method, path, "")
}

/// HTTP/1.0: the response ends with the connection.
fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(
        format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\n{headers}\r\n").as_bytes(),
    )?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes).context("the answer is no text")?;
    let (head, body) = text
        .split_once("\r\n\r\n")
        .context("the answer has no head")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .context("the answer has no status")?;
    Ok(Answer {
        status,
        body: body.to_owned(),
    })
}

/// A text, escaped for a query.
pub fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_everything_except_plain_letters() {
        assert_eq!(
            escaped("rate(a_b{c=\"d\"}[5m])"),
            "rate%28a_b%7Bc%3D%22d%22%7D%5B5m%5D%29"
        );
    }
}
