//! What a file of the fleet costs the agent: at most eight times its bytes, whatever is in it.

use anyhow::{Result, ensure};
use serde_json::json;
use transom_e2e::agent::DEADLINE;
use transom_e2e::stage::{Stage, put};
use transom_support::wait;

/// Bytes of each file.
const BYTES: usize = 12 << 20;

fn lines(line: &str) -> String {
    line.repeat(BYTES / line.len())
}

/// Files that only cost, and what is in a fleet: a List of so many bytes, in both languages. More shapes stand beside the
/// reader of manifests, where they are only refused.
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
    let yaml = format!("apiVersion: v1\nitems:\n{}kind: List\n", yaml.collect::<String>());
    vec![
        ("lines.yaml", lines("- a\n"), refused),
        ("long.yaml", format!("? {}\n: a\n", lines("long key ")), refused),
        ("maps.json", format!("[{}1]", lines("{\"a\":1},")), refused),
        ("many.json", lines("{} "), refused),
        ("fleet.json", json, ""),
        ("fleet.yaml", yaml, ""),
    ]
}

#[test]
fn no_file_costs_more_than_eight_times_its_bytes() -> Result<()> {
    let stage = Stage::new(1, 1)?;
    let agent = stage.watch()?;
    let done = |name: &str, said: &str| {
        wait::until(name, DEADLINE, || {
            agent.log().ok()?.lines().any(|line| line.contains(name) && line.contains(said)).then_some(())
        })
    };
    // A file that cannot be read, and can again, tells that what was put before it was read.
    let mut marks = 0;
    let mut settled = |what: &str| {
        marks += 1;
        let mark = format!("mark-{marks}.yaml");
        put(&stage.fleet.join(&mark), b"{")?;
        done(&mark, "ManifestInvalid").map_err(|late| anyhow::anyhow!("{what}: {late}"))
    };
    settled("the start")?;
    let before = agent.peak_bytes()?;
    for (name, text, said) in files() {
        ensure!(text.len() <= 2 * BYTES, "{name} has {}", text.len());
        put(&stage.fleet.join(name), text.as_bytes())?;
        match said {
            "" => settled(name)?,
            said => done(name, said)?,
        }
        let (cost, most) = (agent.peak_bytes()? - before, 8 * text.len().max(BYTES) as u64);
        println!("{name}: {} MiB for {} MiB", cost >> 20, text.len() >> 20);
        ensure!(cost <= most, "{name}: {} MiB for {} MiB", cost >> 20, text.len() >> 20);
        std::fs::remove_file(stage.fleet.join(name))?;
        settled(name)?;
    }
    agent.stop()?;
    Ok(())
}
