//! `transom plan` on a folder: what a changed policy would change, in every form, and nothing written. Hostile
//! components end as refusals; the page is opened in a real browser.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::process::Output;
use transom_conformance::fixture::hostile;
use transom_e2e::browser::{Browser, Look};
use transom_e2e::program::{self, code, stderr, stdout};
use transom_e2e::stage::{NOW, Stage, put};
use transom_e2e::tree;

const TAINTS: &str = "built-in-taints";
const KUBECONFIG: &str = "external-managed-kubeconfig";

/// The plan of a candidate; standard input holds a policy.
fn plan(stage: &Stage, words: &[&str]) -> Result<Output> {
    let mut transom = stage.transom()?;
    transom.stdin(File::open(program::policy("built-in-taints"))?);
    let transom = transom.arg("plan").arg("--dir").arg(&stage.fleet);
    Ok(transom.args(["--now", NOW]).args(words).output()?)
}

fn data(stage: &Stage, words: &[&str]) -> Result<Value> {
    let output = plan(stage, &[words, &["-o", "json"]].concat())?;
    serde_json::from_slice(&output.stdout).with_context(|| stderr(&output))
}

/// A fleet on which everything was written.
fn settled() -> Result<Stage> {
    let stage = Stage::new(6, 9)?;
    ensure!(code(&stage.once()?) == Some(0));
    Ok(stage)
}

/// Puts a component beside the fleet, outside every folder that a policy may name.
fn component(stage: &Stage, bytes: &[u8]) -> Result<String> {
    let path = stage.path("candidate.wasm");
    put(&path, bytes)?;
    Ok(path.display().to_string())
}

#[test]
fn another_component_is_planned_against_what_is_there_and_nothing_is_written() -> Result<()> {
    let stage = settled()?;
    let before = tree::contents(&stage.fleet)?;
    let idle = plan(&stage, &[KUBECONFIG, "--exit-code"])?;
    ensure!(
        code(&idle) == Some(0) && stdout(&idle).contains("Nothing would change."),
        "{}",
        stdout(&idle)
    );
    let second = component(&stage, &program::component("fixture-second")?)?;
    let words = [KUBECONFIG, "--component", &second];
    let output = plan(&stage, &[&words[..], &["--exit-code"]].concat())?;
    ensure!(code(&output) == Some(3), "{}", stderr(&output));
    let shown = stdout(&output);
    for wanted in [
        "Secret updated",
        "data.kubeconfig.server",
        "6: 4 would change, 1 held, 1 waiting",
        "the active revision would write nothing; the change makes a difference for 4 primaries",
        "HostedCluster clusters/hosted-00000\n",
        "Waiting NamespaceMissing",
    ] {
        ensure!(shown.contains(wanted), "`{wanted}` is not told: {shown}");
    }
    let told = data(&stage, &words)?;
    ensure!(
        told["active"] == json!({"pending": 0, "same": 0, "different": 4, "newlyRefused": 0}),
        "{told:#}"
    );
    let effect = json!([{"kind": "Secret", "verb": "updated", "primaries": 4, "fields": {"data.kubeconfig.server": 4}}]);
    ensure!(told["effects"] == effect, "{:#}", told["effects"]);
    ensure!(
        told["groups"][0]["primaries"] == 4
            && told["groups"][0]["first"]
                .as_array()
                .is_some_and(|first| first.len() == 4)
    );
    let yaml = stdout(&plan(&stage, &[&words[..], &["-o", "yaml"]].concat())?);
    let again: Value = serde_yaml::from_str(&yaml)?;
    ensure!(again == told, "YAML and JSON differ: {yaml} {told:#}");
    ensure!(yaml.starts_with("policy: "), "{yaml}");
    let fewer = data(&stage, &[&words[..], &["--limit", "1"]].concat())?;
    ensure!(
        fewer["groups"][0]["first"]
            .as_array()
            .is_some_and(|first| first.len() == 1)
    );
    ensure!(
        fewer["digest"] == told["digest"],
        "the digest depends on what is listed"
    );
    ensure!(
        tree::contents(&stage.fleet)? == before,
        "something was written"
    );
    Ok(())
}

#[test]
fn settings_and_a_manifest_are_planned_beside_the_other_policies() -> Result<()> {
    let stage = settled()?;
    put(
        &stage.path("settings.yaml"),
        b"unavailable: {effect: PreferNoSelect}\n",
    )?;
    let settings = stage.path("settings.yaml").display().to_string();
    let changed = data(&stage, &[TAINTS, "--settings", &settings])?;
    let element = "cluster.open-cluster-management.io/unavailable";
    ensure!(
        changed["effects"][0]["element"] == element && changed["effects"][0]["verb"] == "replaced",
        "{changed:#}"
    );
    ensure!(
        changed["active"]["pending"] == 0 && changed["primaries"]["failed"] == 0,
        "{changed:#}"
    );
    // The same in a manifest, which takes the place of the policy of its name.
    let policy = fs::read_to_string(program::policy(TAINTS))?;
    let with = "component: builtin:taints\n      settings: {unavailable: {effect: PreferNoSelect}}";
    let policy = policy.replace("component: builtin:taints", with);
    put(&stage.path("new.yaml"), policy.as_bytes())?;
    let file = stage.path("new.yaml").display().to_string();
    let of_file = data(&stage, &[&file])?;
    ensure!(
        of_file["digest"] == changed["digest"] && of_file["active"] == changed["active"],
        "{of_file:#}"
    );
    // Under another name it wants the taints of another policy, and only one of them can have them.
    put(
        &stage.path("new.yaml"),
        policy
            .replace("name: built-in-taints", "name: mine")
            .as_bytes(),
    )?;
    let overlapping = plan(&stage, &[&file])?;
    ensure!(
        code(&overlapping) == Some(1) && stderr(&overlapping).contains("mine"),
        "{}",
        stderr(&overlapping)
    );
    Ok(())
}

#[test]
fn a_manifest_that_says_the_same_is_planned_as_the_policy_is() -> Result<()> {
    let stage = Stage::new(6, 9)?;
    let same = program::root().join("policies/built-in-taints/policy.yaml");
    let same = same.display().to_string();
    let (found, expected) = (data(&stage, &[&same])?, data(&stage, &[TAINTS])?);
    ensure!(expected["groups"] != json!([]), "{expected}");
    ensure!(found == expected, "{found}");
    Ok(())
}

#[test]
fn pending_writes_of_the_active_revision_are_told_apart() -> Result<()> {
    let stage = Stage::new(6, 9)?;
    let second = component(&stage, &program::component("fixture-second")?)?;
    let told = data(&stage, &[KUBECONFIG, "--component", &second])?;
    // Both create the same secrets, with another server.
    ensure!(
        told["active"] == json!({"pending": 4, "same": 0, "different": 4, "newlyRefused": 0}),
        "{told:#}"
    );
    put(
        &stage.path("settings.yaml"),
        b"unavailable: {effect: PreferNoSelect}\n",
    )?;
    let settings = stage.path("settings.yaml").display().to_string();
    let told = data(&stage, &[TAINTS, "--settings", &settings])?;
    let count = |name: &str| told["active"][name].as_u64().unwrap_or_default();
    ensure!(
        count("pending") > count("different") && count("same") > 0,
        "{told:#}"
    );
    ensure!(!stage.own().exists(), "something was written");
    Ok(())
}

#[test]
fn what_the_limits_would_withhold_is_told() -> Result<()> {
    let stage = Stage::new(0, 9)?;
    let mut manifest = program::manifest(TAINTS)?;
    manifest["spec"]["limits"] = json!({"elementsAdded": {"count": 0}});
    put(
        &stage.policies.join("policy.yaml"),
        manifest.to_string().as_bytes(),
    )?;
    let policies = stage.policies.display().to_string();
    let words = [TAINTS, "--policies", &policies];
    let told = data(&stage, &words)?;
    let withheld = told["withheld"].as_str().unwrap_or_default();
    ensure!(withheld.contains("elementsAdded for 0 of "), "{told:#}");
    for form in ["table", "yaml", "html"] {
        let shown = stdout(&plan(&stage, &[&words[..], &["-o", form]].concat())?);
        ensure!(shown.contains(withheld), "{form}: {shown}");
    }
    manifest["spec"]["limits"] = json!({"elementsAdded": {"count": 9}});
    put(
        &stage.policies.join("policy.yaml"),
        manifest.to_string().as_bytes(),
    )?;
    ensure!(data(&stage, &words)?["withheld"].is_null());
    Ok(())
}

#[test]
fn errors_name_the_policy_the_flag_and_the_field() -> Result<()> {
    let stage = Stage::new(1, 1)?;
    put(&stage.path("bad.yaml"), b"unknown: 1\n")?;
    put(&stage.path("list.yaml"), b"[]\n")?;
    let path = |name: &str| stage.path(name).display().to_string();
    for (words, exit, said) in [
        (
            vec!["nobody".to_owned()],
            2,
            "failed to find the policy `nobody`: there are `built-in-taints`",
        ),
        (
            vec![TAINTS.to_owned(), "--component".to_owned(), path("no.wasm")],
            2,
            "--component: there is no file",
        ),
        (
            vec![
                TAINTS.to_owned(),
                "--component".to_owned(),
                "builtin:no".to_owned(),
            ],
            1,
            "builtin component `no`",
        ),
        (
            vec![
                TAINTS.to_owned(),
                "--component".to_owned(),
                "builtin:kubeconfig".to_owned(),
            ],
            1,
            "WorldMismatch",
        ),
        (
            vec![TAINTS.to_owned(), "--settings".to_owned(), path("bad.yaml")],
            1,
            "settings.unknown",
        ),
        (
            vec![
                TAINTS.to_owned(),
                "--settings".to_owned(),
                path("list.yaml"),
            ],
            2,
            "not a map",
        ),
        (
            vec!["-".to_owned(), "--settings".to_owned(), "-".to_owned()],
            2,
            "standard input",
        ),
        (
            vec![path("list.yaml")],
            2,
            "it holds 0 policies, expected one",
        ),
    ] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = plan(&stage, &words)?;
        ensure!(
            code(&output) == Some(exit),
            "{words:?}: {:?}: {}",
            code(&output),
            stderr(&output)
        );
        ensure!(
            stderr(&output).contains(said) && output.stdout.is_empty(),
            "{words:?}: {}",
            stderr(&output)
        );
    }
    Ok(())
}

#[test]
fn a_change_that_repairs_a_refused_policy_is_compared_with_nothing() -> Result<()> {
    let stage = Stage::new(1, 3)?;
    let broken = "component: builtin:taints\n      settings: {unknown: 1}";
    stage.put_policy(TAINTS, &[("component: builtin:taints", broken)])?;
    put(&stage.path("settings.yaml"), b"{}\n")?;
    let path = |name: &str| stage.path(name).display().to_string();
    let (policies, settings) = (path("policies"), path("settings.yaml"));
    let words = [TAINTS, "--policies", &policies];
    let refused = plan(&stage, &words)?;
    let said = stderr(&refused);
    ensure!(
        code(&refused) == Some(1) && refused.stdout.is_empty(),
        "{said}"
    );
    ensure!(
        said.contains("SettingsRefused") && said.contains("there is no plan"),
        "{said}"
    );
    let repaired = data(&stage, &[&words[..], &["--settings", &settings]].concat())?;
    ensure!(
        repaired["primaries"]["total"] == 3 && repaired.get("active").is_none(),
        "{repaired:#}"
    );
    Ok(())
}

#[test]
fn hostile_components_end_as_refusals_by_reason() -> Result<()> {
    let stage = settled()?;
    let before = tree::contents(&stage.fleet)?;
    for (fixture, reason) in [
        ("endless-loop", "GuestTimedOut"),
        ("trap", "GuestTrapped"),
        ("giant-answer", "AnswerTooLarge"),
        ("foreign-taint", "TaintKeyNotGranted"),
    ] {
        let path = component(&stage, &hostile(fixture)?)?;
        let words = [TAINTS, "--component", &path];
        let output = plan(&stage, &words)?;
        ensure!(code(&output) == Some(1), "{fixture}: {}", stderr(&output));
        let told = data(&stage, &words)?;
        ensure!(
            told["refusals"][0]["reason"] == reason && told["refusals"][0]["primaries"] == 9,
            "{fixture}: {told:#}"
        );
        ensure!(
            told["primaries"]["failed"] == 9 && told["primaries"]["wouldChange"] == 0,
            "{fixture}: {told:#}"
        );
        ensure!(told["active"]["newlyRefused"] == 9, "{fixture}: {told:#}");
        ensure!(
            stdout(&output).contains(reason) && stdout(&output).contains("to do"),
            "{}",
            stdout(&output)
        );
    }
    ensure!(
        tree::contents(&stage.fleet)? == before,
        "something was written"
    );
    Ok(())
}

/// How readable a page is: the lowest contrast of any text with its background, whether it is wider than the window,
/// the elements that it should not have, and its background.
const READABLE: &str = r"(() => {
    const parts = color => color.match(/[\d.]+/g).map(Number);
    const light = color => { const [r, g, b] = parts(color).map(c => c / 255).map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
    const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if ((parts(c)[3] ?? 1) > 0) return c; } return 'rgb(255, 255, 255)'; };
    const texts = [...document.body.querySelectorAll('*')].filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()));
    const contrast = e => { const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x); return (a + .05) / (b + .05); };
    return { contrast: Math.min(...texts.map(contrast)), wide: document.documentElement.scrollWidth > innerWidth,
        foreign: document.querySelectorAll('img, script, iframe, a, object, form, [onerror]').length, background: getComputedStyle(document.body).backgroundColor };
})()";

#[test]
fn the_page_is_readable_in_a_real_browser_and_asks_for_nothing() -> Result<()> {
    let stage = Stage::new(8, 8)?;
    let evil = "<img src=http://evil.example/x onerror=alert(1)>&amp;<script>alert(1)</script>";
    stage.edit(
        &stage.hosted(3),
        "WaitingForAvailable",
        &format!("'{evil}'"),
    )?;
    let second = component(&stage, &program::component("fixture-second")?)?;
    let words = [KUBECONFIG, "--component", &second, "-o", "html"];
    let output = plan(&stage, &words)?;
    ensure!(code(&output) == Some(0), "{}", stderr(&output));
    let page = stage.path("plan.html");
    fs::write(&page, &output.stdout)?;
    let url = format!("file://{}", page.display());
    let pictures = program::binary()?.with_file_name("pictures");
    fs::create_dir_all(&pictures)?;
    let mut browser = Browser::start(stage.path("").as_path())?;
    let mut backgrounds = Vec::new();
    for (name, width, dark) in [
        ("light", 1200, false),
        ("dark", 1200, true),
        ("phone", 360, true),
    ] {
        let picture = pictures.join(format!("plan-{name}.png"));
        let seen = browser.look(&url, Look { width, dark }, READABLE, &picture)?;
        for wanted in [
            "Plan of external-managed-kubeconfig",
            "would change",
            "Secret created",
            "hosted-00000",
            "NamespaceMissing",
            evil,
        ] {
            ensure!(
                seen.text.contains(wanted),
                "{name}: `{wanted}` cannot be seen: {}",
                seen.text
            );
        }
        ensure!(seen.console.is_empty(), "{name}: {:?}", seen.console);
        let beyond = seen
            .requests
            .iter()
            .find(|asked| **asked != url && !asked.starts_with("data:"));
        ensure!(
            beyond.is_none() && !seen.requests.is_empty(),
            "{name}: it asked for {:?}",
            seen.requests
        );
        ensure!(
            seen.value["contrast"]
                .as_f64()
                .is_some_and(|contrast| contrast >= 4.5),
            "{name}: {}",
            seen.value
        );
        ensure!(
            seen.value["wide"] == false && seen.value["foreign"] == 0,
            "{name}: {}",
            seen.value
        );
        ensure!(
            fs::metadata(&picture)?.len() > 10_000,
            "{name}: the picture is empty"
        );
        backgrounds.push(seen.value["background"].clone());
    }
    ensure!(
        backgrounds[0] != backgrounds[1],
        "dark is as light: {backgrounds:?}"
    );
    Ok(())
}
