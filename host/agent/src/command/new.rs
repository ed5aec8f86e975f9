//! `transom new`: makes the crate of a guest, with its cases and a policy, from the files in `guest/templates`.

use crate::args::{NewArgs, NewGuest};
use crate::output::{CommandEnd, Screen};
use anyhow::{Context as _, bail};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// What stands in the files of a template for the name of the guest.
const NAME: &str = "my-guest";
/// What stands in the manifest for the folder of the SDK, which lies beside the crate.
const SDK: &str = "\"../transom/guest/sdk\"";

/// The files of a template: where each lies in the crate, and its text.
type TemplateFiles = &'static [(&'static str, &'static str)];

/// Takes files from a folder of `guest/templates`, each with its place in the crate.
macro_rules! files {
    ($folder:literal: $($place:literal = $file:literal),* $(,)?) => {
        &[$(($place, include_str!(concat!("../../../../guest/templates/", $folder, $file)))),*]
    };
}

/// The same for every guest.
const COMMON: TemplateFiles = files!("":
    "Cargo.toml" = "manifest.toml",
    "build.rs" = "build.rs",
    ".gitignore" = "gitignore",
);

const TAINTS: TemplateFiles = files!("taints/":
    "src/lib.rs" = "lib.rs",
    "policy.yaml" = "policy.yaml",
    "given.yaml" = "given.yaml",
    "cases/labelled/given.yaml" = "cases/labelled/given.yaml",
    "cases/labelled/expected.yaml" = "cases/labelled/expected.yaml",
    "cases/not-labelled/given.yaml" = "cases/not-labelled/given.yaml",
    "cases/not-labelled/expected.yaml" = "cases/not-labelled/expected.yaml",
    "cases/deleting/given.yaml" = "cases/deleting/given.yaml",
    "cases/deleting/expected.yaml" = "cases/deleting/expected.yaml",
    "cases/wrong-setting/given.yaml" = "cases/wrong-setting/given.yaml",
    "cases/wrong-setting/expected.yaml" = "cases/wrong-setting/expected.yaml",
);

const KUBECONFIG: TemplateFiles = files!("kubeconfig/":
    "src/lib.rs" = "lib.rs",
    "policy.yaml" = "policy.yaml",
    "cases/needs/given.yaml" = "cases/needs/given.yaml",
    "cases/needs/expected.yaml" = "cases/needs/expected.yaml",
    "cases/copied/given.yaml" = "cases/copied/given.yaml",
    "cases/copied/expected.yaml" = "cases/copied/expected.yaml",
    "cases/source-missing/given.yaml" = "cases/source-missing/given.yaml",
    "cases/source-missing/expected.yaml" = "cases/source-missing/expected.yaml",
);

const TRIGGER: TemplateFiles = files!("trigger/":
    "src/lib.rs" = "lib.rs",
    "policy.yaml" = "policy.yaml",
    "given.yaml" = "given.yaml",
    "cases/ready/given.yaml" = "cases/ready/given.yaml",
    "cases/ready/expected.yaml" = "cases/ready/expected.yaml",
    "cases/held/given.yaml" = "cases/held/given.yaml",
    "cases/held/expected.yaml" = "cases/held/expected.yaml",
    "cases/hold-ends/given.yaml" = "cases/hold-ends/given.yaml",
    "cases/hold-ends/expected.yaml" = "cases/hold-ends/expected.yaml",
    "cases/labels-change/given.yaml" = "cases/labels-change/given.yaml",
    "cases/labels-change/expected.yaml" = "cases/labels-change/expected.yaml",
    "cases/becomes-available/given.yaml" = "cases/becomes-available/given.yaml",
    "cases/becomes-available/expected.yaml" = "cases/becomes-available/expected.yaml",
);

const OBJECTS: TemplateFiles = files!("objects/":
    "src/lib.rs" = "lib.rs",
    "policy.yaml" = "policy.yaml",
    "given.yaml" = "given.yaml",
    "cases/targets/given.yaml" = "cases/targets/given.yaml",
    "cases/targets/expected.yaml" = "cases/targets/expected.yaml",
    "cases/made/given.yaml" = "cases/made/given.yaml",
    "cases/made/expected.yaml" = "cases/made/expected.yaml",
    "cases/without-env/given.yaml" = "cases/without-env/given.yaml",
    "cases/without-env/expected.yaml" = "cases/without-env/expected.yaml",
);

fn template(guest: NewGuest) -> TemplateFiles {
    match guest {
        NewGuest::Taints => TAINTS,
        NewGuest::Kubeconfig => KUBECONFIG,
        NewGuest::Trigger => TRIGGER,
        NewGuest::Objects => OBJECTS,
    }
}

/// Makes the crate in a new folder, and says what comes next. An existing folder is left as it is.
///
/// # Errors
/// When the SDK is not there, and when the folder exists or cannot be written.
pub(crate) fn new(args: &NewArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let (name, sdk) = (args.name.as_str(), sdk(&args.sdk)?);
    let folder = Path::new(name);
    fs::create_dir(folder).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            anyhow::anyhow!("failed to create the folder `{name}`: it exists, and is left as it is")
        }
        _ => anyhow::Error::new(error).context(format!("failed to create the folder `{name}`")),
    })?;
    let files = || COMMON.iter().chain(template(args.guest));
    for (place, text) in files() {
        let text = text.replace(NAME, name).replace(SDK, &sdk);
        if let Err(error) = write(&folder.join(place), &text) {
            // Half a crate would only be in the way of the next attempt.
            drop(fs::remove_dir_all(folder));
            return Err(error.context(format!("failed to write `{name}/{place}`")));
        }
    }
    for (place, _) in files() {
        screen.line(format_args!("{name}/{place}"));
    }
    screen.text(&format!(
        "\nNext:\n  cd {name}\n  cargo test\n  transom build\n  transom test .\n  transom validate policy.yaml\n"
    ));
    Ok(CommandEnd::Right)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    Ok(fs::write(path, text)?)
}

/// The folder of the SDK as it stands in the manifest of the crate, which lies one folder deeper than where the command
/// runs.
fn sdk(folder: &Path) -> anyhow::Result<String> {
    let shown = folder.display();
    if !folder.join("Cargo.toml").is_file() {
        bail!(
            "failed to find the SDK in `{shown}`: clone the repository of Transom to `transom`, or name its folder `guest/sdk` with --sdk"
        );
    }
    let path = Path::new("..").join(folder);
    let path = path.to_str();
    let path =
        path.with_context(|| format!("failed to name `{shown}` in Cargo.toml: not UTF-8"))?;
    // A string of JSON is one of TOML.
    Ok(serde_json::to_string(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;
    use std::collections::BTreeSet;

    /// The files below a folder, by their paths from it.
    fn below(folder: &Path, top: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => below(&path, top, found),
                false => {
                    let place = path.strip_prefix(top).unwrap();
                    found.insert(place.to_str().unwrap().to_owned());
                }
            }
        }
    }

    #[test]
    fn every_file_of_a_template_is_in_the_crate() {
        let top = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../guest/templates"
        ));
        for guest in NewGuest::value_variants() {
            let folder = top.join(guest.to_possible_value().unwrap().get_name());
            let mut found = BTreeSet::new();
            below(&folder, &folder, &mut found);
            let places = template(*guest).iter().map(|(place, _)| *place);
            let places: BTreeSet<_> = places.map(|place| place.replace("src/", "")).collect();
            assert_eq!(found, places, "{guest:?}");
        }
    }

    #[test]
    fn the_sdk_is_named_from_the_folder_of_the_crate() {
        let error = sdk(Path::new("no/sdk")).unwrap_err().to_string();
        assert!(
            error.contains("`no/sdk`") && error.contains("--sdk"),
            "{error}"
        );
        let absolute = concat!(env!("CARGO_MANIFEST_DIR"), "/../../guest/sdk");
        assert_eq!(sdk(Path::new(absolute)).unwrap(), format!("\"{absolute}\""));
        assert!(
            COMMON
                .iter()
                .all(|(place, text)| *place != "Cargo.toml" || text.contains(SDK))
        );
    }
}
