//! What a file of the fleet costs the agent in memory: at most eight times its size, for any content.

use anyhow::{Result, ensure};
use serde_json::json;
use transom_e2e::stage::{Stage, put};

/// The size of each file.
const BYTES: usize = 12 << 20;
/// The size of a small object; files with more and smaller objects are refused.
const SMALL: usize = 96;

fn lines(line: &str) -> String {
    line.repeat(BYTES / line.len())
}

/// Files that are merely expensive, and the content of a fleet: a List of this size, in both formats. More shapes are
/// tested beside the reader of manifests, which refuses them.
fn files() -> Vec<(&'static str, String, &'static str)> {
    let refused = "ManifestInvalid";
    let item = |index: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c-{index}")}, "data": {"a": "b".repeat(40), "c": "d"}});
    let items: Vec<_> = (0..BYTES / 160).map(item).collect();
    let json = json!({"apiVersion": "v1", "items": items, "kind": "List"}).to_string();
    let yaml = items.iter().map(|item| {
        format!(
            "- apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    name: y{}\n  data:\n    a: b\n    c: {}\n",
            &item["metadata"]["name"].as_str().unwrap_or_default(),
            "d".repeat(60)
        )
    });
    let yaml = format!(
        "apiVersion: v1\nitems:\n{}kind: List\n",
        yaml.collect::<String>()
    );
    // The smallest objects that are not refused for their number, and one of them in all places.
    let documents = |name: &dyn Fn(usize) -> String| -> String {
        let document = |at| {
            format!(
                "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {}}}}}",
                name(at)
            )
        };
        (0..BYTES / SMALL)
            .map(|at| format!("---\n{:<1$}\n", document(at), SMALL - 5))
            .collect()
    };
    let typed = |at| {
        format!(
            "{:<1$}",
            json!({"metadata": {"name": format!("t{at}")}}).to_string(),
            SMALL - 1
        )
    };
    let typed = (0..BYTES / SMALL).map(typed).collect::<Vec<_>>().join(",");
    vec![
        ("small.yaml", documents(&|at| format!("s{at}")), ""),
        (
            "typed.json",
            format!("{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"items\":[{typed}]}}"),
            "",
        ),
        (
            "again.yaml",
            documents(&|_| "a".to_owned()),
            "DuplicateObject",
        ),
        ("lines.yaml", lines("- a\n"), refused),
        (
            "commas.json",
            format!("{{\"kind\":\"List\",\"items\":[{}]}}", lines(",")),
            refused,
        ),
        (
            "open.json",
            format!("{{\"kind\":\"List\",\"items\":[{}", lines(",")),
            refused,
        ),
        (
            "ones.json",
            format!("{{\"kind\":\"List\",\"items\":[{}1]}}", lines("1,")),
            refused,
        ),
        (
            "long.yaml",
            format!("? {}\n: a\n", lines("long key ")),
            refused,
        ),
        ("maps.json", format!("[{}1]", lines("{\"a\":1},")), refused),
        ("many.json", lines("{} "), refused),
        ("fleet.json", json, ""),
        ("fleet.yaml", yaml, ""),
    ]
}

#[test]
fn no_file_costs_more_memory_than_eight_times_its_size() -> Result<()> {
    for (name, text, said) in files() {
        ensure!(text.len() <= 2 * BYTES, "{name} has {}", text.len());
        // Each gets a new agent, so that remains of an earlier one do not count.
        let stage = Stage::new(1, 1)?;
        let agent = stage.watch()?;
        // An unreadable file shows that the agent has read the earlier ones.
        let settled = |mark: &str| -> Result<()> {
            put(&stage.fleet.join(mark), b"{")?;
            agent.wait_for_lines(1, &[mark, "ManifestInvalid"])
        };
        settled("before.yaml")?;
        let before = agent.peak_bytes()?;
        put(&stage.fleet.join(name), text.as_bytes())?;
        match said {
            "" => settled("after.yaml")?,
            said => agent.wait_for_lines(1, &[name, said])?,
        }
        let refused = agent
            .log()?
            .lines()
            .any(|line| line.contains(name) && line.contains("ManifestInvalid"));
        ensure!(
            refused == (said == "ManifestInvalid"),
            "{name} is taken for what it is not"
        );
        let (cost, most) = (
            agent.peak_bytes()? - before,
            8 * text.len().max(BYTES) as u64,
        );
        println!("{name}: {} MiB for {} MiB", cost >> 20, text.len() >> 20);
        ensure!(
            cost <= most,
            "{name}: {} MiB for {} MiB",
            cost >> 20,
            text.len() >> 20
        );
        agent.stop()?;
    }
    Ok(())
}
