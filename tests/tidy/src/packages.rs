//! The packages of the workspace and what each depends on, read from `cargo metadata`. Direct dependencies only: others
//! cannot be imported.

use serde_json::Value;
use std::path::Path;

/// A member of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its folder from the root, with `/`.
    pub folder: String,
    /// What it depends on directly.
    pub dependencies: Vec<Dependency>,
}

/// A direct dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Name of the package.
    pub name: String,
    /// Whether it is only for tests and examples.
    pub dev: bool,
}

/// Reads the output of `cargo metadata --no-deps`; skips entries of another form.
pub fn read(metadata: &Value) -> Vec<Package> {
    let root = Path::new(metadata["workspace_root"].as_str().unwrap_or_default());
    list(&metadata["packages"])
        .filter_map(|package| read_package(package, root))
        .collect()
}

fn read_package(package: &Value, root: &Path) -> Option<Package> {
    let manifest = Path::new(package["manifest_path"].as_str()?);
    let folder = manifest
        .parent()?
        .strip_prefix(root)
        .ok()?
        .to_string_lossy()
        .into_owned();
    let dependencies = list(&package["dependencies"]).filter_map(|dependency| {
        Some(Dependency {
            name: dependency["name"].as_str()?.to_owned(),
            dev: dependency["kind"] == "dev",
        })
    });
    Some(Package {
        name: package["name"].as_str()?.to_owned(),
        folder,
        dependencies: dependencies.collect(),
    })
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_packages_with_folder_and_kinds() {
        let metadata = json!({"workspace_root": "/w", "packages": [{
            "name": "a", "manifest_path": "/w/host/a/Cargo.toml",
            "dependencies": [{"name": "b", "kind": null}, {"name": "c", "kind": "dev"}],
        }]});
        let dependency = |name: &str, dev| Dependency {
            name: name.to_owned(),
            dev,
        };
        assert_eq!(
            read(&metadata),
            [Package {
                name: "a".to_owned(),
                folder: "host/a".to_owned(),
                dependencies: vec![dependency("b", false), dependency("c", true)],
            }]
        );
    }
}
