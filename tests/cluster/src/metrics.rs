//! The API server's own counters, as it prints them; each look reads them again.

use crate::cluster::Cluster;
use anyhow::{Context as _, Result};
use kube::api::GetParams;
use kube::core::Request;
use std::collections::BTreeMap;

/// What the API server printed at `/metrics`, once. Counters restart from zero with the API server.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Vec<Sample>);

#[derive(Clone, Debug, PartialEq)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Number of answered requests by verb (`LIST`, `GET`, `APPLY`, `PATCH`, `POST`, ...) and resource with its group and
/// subresource (`secrets`, `managedclusters.cluster.open-cluster-management.io/status`). A watch counts when it ends.
pub type Requests = BTreeMap<(String, String), u64>;

impl Cluster {
    /// The API server's current counters.
    pub async fn metrics(&self) -> Result<Metrics> {
        let about = "failed to read the metrics of the API server";
        let look = Request::new("")
            .get("metrics", &GetParams::default())
            .context(about)?;
        Ok(Metrics(
            self.objects()
                .client()
                .request_text(look)
                .await
                .context(about)?
                .lines()
                .filter_map(sample)
                .collect(),
        ))
    }
}

impl Metrics {
    /// The sum over all samples of a name that have these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &Sample| {
            labels
                .iter()
                .all(|(key, value)| sample.labels.get(*key).is_some_and(|v| v == value))
        };
        self.0
            .iter()
            .filter(|sample| sample.name == name && has(sample))
            .map(|sample| sample.value)
            .sum()
    }

    /// Requests by verb and resource, all users together.
    pub fn requests(&self) -> Requests {
        let mut requests = Requests::new();
        for sample in self
            .0
            .iter()
            .filter(|sample| sample.name == "apiserver_request_total")
        {
            let label = |key: &str| sample.labels.get(key).map_or("", String::as_str);
            let mut resource = label("resource").to_owned();
            for (before, key) in [('.', "group"), ('/', "subresource")] {
                if !label(key).is_empty() {
                    resource.push(before);
                    resource.push_str(label(key));
                }
            }
            // A counter is an integer, far below the precision limit of f64.
            *requests
                .entry((label("verb").to_owned(), resource))
                .or_default() += sample.value as u64;
        }
        requests
    }

    /// Seconds of CPU that the API server has used since its start.
    pub fn cpu_seconds(&self) -> f64 {
        self.sum("process_cpu_seconds_total", &[])
    }
}

/// One line of the text format; none for a comment.
fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ').filter(|_| !line.starts_with('#'))?;
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let mut rest = labels.strip_suffix('}')?;
    let mut labels = BTreeMap::new();
    while let Some((key, after)) = rest.split_once("=\"") {
        let end = closing(after)?;
        labels.insert(
            key.trim_start_matches(',').to_owned(),
            after[..end].to_owned(),
        );
        rest = &after[end + 1..];
    }
    Some(Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().ok()?,
    })
}

/// Where the quoted value ends; an escaped quote is part of it.
fn closing(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut index = 0;
    while bytes.get(index)? != &b'"' {
        index += if bytes[index] == b'\\' { 2 } else { 1 };
    }
    Some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_requests_by_verb_and_resource() {
        let text = "# TYPE apiserver_request_total counter\n\
            apiserver_request_total{code=\"200\",group=\"\",resource=\"secrets\",subresource=\"\",verb=\"GET\"} 2\n\
            apiserver_request_total{code=\"404\",group=\"\",resource=\"secrets\",subresource=\"\",verb=\"GET\"} 1\n\
            apiserver_request_total{code=\"200\",group=\"a.b\",resource=\"c\",subresource=\"status\",verb=\"PATCH\"} 4\n\
            process_cpu_seconds_total 1.5\n";
        let metrics = Metrics(text.lines().filter_map(sample).collect());
        let of = |verb: &str, resource: &str| {
            metrics.requests()[&(verb.to_owned(), resource.to_owned())]
        };
        assert_eq!((of("GET", "secrets"), of("PATCH", "c.a.b/status")), (3, 4));
        assert_eq!(metrics.cpu_seconds(), 1.5);
        assert_eq!(
            metrics.sum("apiserver_request_total", &[("code", "404")]),
            1.0
        );
    }

    #[test]
    fn label_values_may_contain_quotes_and_braces() {
        let found = sample(r#"x{a="b\"c,d=}",e="f"} 3"#).unwrap();
        assert_eq!(
            (found.labels["a"].as_str(), found.labels["e"].as_str()),
            (r#"b\"c,d=}"#, "f")
        );
    }
}
