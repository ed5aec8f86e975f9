//! Traces, with the feature `otel`: what a collector receives from a run, decoded without the crates that encoded it.
//! Needs built guests (`cargo xtask guests`).
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::mpsc::{self, Receiver};
use std::thread;

const CASE: &str = "../../policies/external-managed-kubeconfig/cases/T01-port-443/given.yaml";
/// Content of the case's Secret, and of the guest's answer.
const CREDENTIALS: [&str; 2] = ["LS0tLS1CRUdJTi", "-----BEGIN"];

/// One run over a folder with the objects of a case.
fn run(endpoint: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(
        Path::new(env!("CARGO_MANIFEST_DIR")).join(CASE),
        folder.path().join("given.yaml"),
    )
    .unwrap();
    let mut transom = Command::new(env!("CARGO_BIN_EXE_transom"));
    transom
        .args(["run", "--once", "--now", "2026-11-21T08:00:00Z", "--dir"])
        .arg(folder.path());
    transom
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        .env("RUST_LOG", "info")
        .output()
        .unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A collector: its address, and the bodies of the requests to `/v1/traces`.
fn collector() -> (String, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, bodies) = mpsc::channel();
    // It ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            sender.send(take(stream.unwrap())).unwrap();
        }
    });
    (address, bodies)
}

/// Reads one request and answers it with an empty message.
fn take(stream: TcpStream) -> Vec<u8> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let head = head.to_lowercase();
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(
        head.contains("\r\ncontent-type: application/x-protobuf\r\n"),
        "{head}"
    );
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let answer =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
    reader.into_inner().write_all(answer).unwrap();
    body
}

/// The fields of a protobuf message that are bytes: texts and messages, by number.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = number(&mut bytes);
        let length = match key & 7 {
            0 => {
                number(&mut bytes);
                continue;
            }
            1 => 8,
            5 => 4,
            _ => usize::try_from(number(&mut bytes)).unwrap(),
        };
        let (value, rest) = bytes.split_at(length);
        fields.push((key >> 3, value));
        bytes = rest;
    }
    fields
}

fn number(bytes: &mut &[u8]) -> u64 {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    let (digits, rest) = bytes.split_at(end);
    *bytes = rest;
    digits
        .iter()
        .rev()
        .fold(0, |sum, digit| sum << 7 | u64::from(digit & 0x7f))
}

/// All messages at a path of field numbers.
fn under<'a>(bytes: &'a [u8], path: &[u64]) -> Vec<&'a [u8]> {
    path.iter().fold(vec![bytes], |at, number| {
        let inner = at.into_iter().flat_map(fields);
        inner
            .filter(|(found, _)| found == number)
            .map(|(_, value)| value)
            .collect()
    })
}

fn text(bytes: &[u8], path: &[u64]) -> String {
    under(bytes, path)
        .first()
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .unwrap_or_default()
}

/// Attributes with text values, at a field.
fn attributes(bytes: &[u8], field: u64) -> BTreeMap<String, String> {
    under(bytes, &[field])
        .into_iter()
        .map(|pair| (text(pair, &[1]), text(pair, &[2, 1])))
        .collect()
}

/// A span, with the field numbers of the protocol.
struct Span {
    trace: Vec<u8>,
    id: Vec<u8>,
    parent: Vec<u8>,
    name: String,
    attributes: BTreeMap<String, String>,
}

fn span(bytes: &[u8]) -> Span {
    let of = |field| {
        under(bytes, &[field])
            .first()
            .map(|bytes| bytes.to_vec())
            .unwrap_or_default()
    };
    Span {
        trace: of(1),
        id: of(2),
        parent: of(4),
        name: text(bytes, &[5]),
        attributes: attributes(bytes, 9),
    }
}

#[test]
fn exports_a_span_for_each_reconcile_and_each_part() {
    let (endpoint, bodies) = collector();
    let output = run(&endpoint);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let bodies: Vec<Vec<u8>> = bodies.try_iter().collect();
    let resources = bodies.iter().flat_map(|body| under(body, &[1, 1]));
    let services: BTreeSet<_> = resources
        .filter_map(|found| attributes(found, 1).remove("service.name"))
        .collect();
    assert_eq!(services, BTreeSet::from(["transom".to_owned()]));
    let spans: Vec<Span> = bodies
        .iter()
        .flat_map(|body| under(body, &[1, 2, 2]))
        .map(span)
        .collect();
    let (roots, parts): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span.parent.is_empty());
    let root = roots
        .iter()
        .find(|root| root.attributes["transom.policy"] == "external-managed-kubeconfig")
        .unwrap();
    assert_eq!(root.name, "reconcile");
    for (key, value) in [
        ("primary.kind", "HostedCluster"),
        ("state", "Applied"),
        ("reason", "InSync"),
    ] {
        assert_eq!(root.attributes[&format!("transom.{key}")], value);
    }
    let told = |part: &&Span| {
        (
            part.name.clone(),
            part.attributes.values().cloned().collect::<String>(),
        )
    };
    let parts = parts
        .iter()
        .filter(|part| part.parent == root.id && part.trace == root.trace);
    let parts: BTreeSet<_> = parts.map(told).collect();
    for (name, about) in [
        ("gather", "Secret"),
        ("gather", "Service"),
        ("invoke", "require"),
        ("invoke", "transform"),
        ("apply", ""),
    ] {
        assert!(
            parts.contains(&(name.to_owned(), about.to_owned())),
            "{name} {about} is not in {parts:?}"
        );
    }
    let all = bodies.concat();
    let all = String::from_utf8_lossy(&all);
    assert!(
        !CREDENTIALS
            .iter()
            .any(|credential| all.contains(credential)),
        "a credential is in a trace"
    );
    assert!(!all.contains("demo"), "the name of an object is in a trace");
}

#[test]
fn a_missing_collector_is_reported_and_changes_nothing() {
    // The discard port, where no process listens.
    let output = run("http://127.0.0.1:9");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(
        errors(&output).matches("failed to send traces").count(),
        1,
        "{}",
        errors(&output)
    );
}

#[test]
fn refuses_an_invalid_endpoint_without_showing_it() {
    for endpoint in [
        "https://collector:4318",
        "collector",
        "http://user:canary@ x",
    ] {
        let output = run(endpoint);
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        assert!(
            errors(&output).contains("OTEL_EXPORTER_OTLP_ENDPOINT is not a URL like"),
            "{}",
            errors(&output)
        );
        assert!(!errors(&output).contains("canary"), "the value is told");
    }
}
