//! A lower bound for the size of the result, computed before it is built: an answer names source entries by number,
//! and a number is much shorter than its entry.

use super::assemble::text_of;
use super::{NODES, Source};
use crate::contract::credentials::{Proposal, ProposedCluster};
use serde_json::Value;
use std::iter::Sum;

/// Bytes of text, and the number of values.
#[derive(Clone, Copy, Default)]
struct Size {
    bytes: usize,
    values: usize,
}

/// Whether the kubeconfig of an answer is certain to have more than so many bytes, or more values than a kubeconfig
/// may have.
pub(super) fn exceeds(source: &Source, answer: &Proposal, bytes: usize) -> bool {
    let authorities: Vec<Size> = source
        .bundles
        .iter()
        .map(|bundle| text(text_of(source, bundle)))
        .collect();
    let [clusters, users, contexts] =
        ["clusters", "users", "contexts"].map(|list| entries(source, list));
    let one = |sizes: &[Size], at: u32| sizes.get(at as usize).copied().unwrap_or_default();
    let of_cluster = |wanted: &ProposedCluster| {
        let joined = wanted
            .authorities
            .iter()
            .map(|reference| one(&authorities, *reference));
        joined.chain([one(&clusters, wanted.entry)]).sum()
    };
    let of_users = answer.users.iter().map(|wanted| one(&users, wanted.entry));
    let of_contexts = answer
        .contexts
        .iter()
        .map(|wanted| one(&contexts, wanted.entry));
    let all: Size = answer
        .clusters
        .iter()
        .map(of_cluster)
        .chain(of_users)
        .chain(of_contexts)
        .sum();
    all.bytes > bytes || all.values > NODES
}

/// The size of each entry of a list.
fn entries(source: &Source, list: &str) -> Vec<Size> {
    let entries = source
        .document
        .get(list)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    entries.iter().map(size).collect()
}

/// Fields that an answer replaces or leaves out; their size in the source does not count.
const REPLACED: [&str; 8] = [
    "name",
    "server",
    "cluster",
    "user",
    "namespace",
    "proxy-url",
    "tls-server-name",
    "certificate-authority-data",
];

fn size(value: &Value) -> Size {
    match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| field(key, value)).sum(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::String(held) => text(Some(held)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Size {
            bytes: 1,
            values: 1,
        },
    }
}

fn field(key: &str, value: &Value) -> Size {
    match value {
        Value::String(_) if REPLACED.contains(&key) => Size::default(),
        value => [
            Size {
                bytes: key.len(),
                values: 0,
            },
            size(value),
        ]
        .into_iter()
        .sum(),
    }
}

fn text(held: Option<&str>) -> Size {
    Size {
        bytes: held.map_or(0, str::len),
        values: 1,
    }
}

impl Sum for Size {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::default(), |sum, size| Self {
            bytes: sum.bytes.saturating_add(size.bytes),
            values: sum.values.saturating_add(size.values),
        })
    }
}
