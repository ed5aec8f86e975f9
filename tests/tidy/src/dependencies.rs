//! Which package may depend on which: arrows point to core and api, only the agent uses two adapters together, and host
//! and guest share only wit. Versions do not matter.

use crate::packages::{Dependency, Package};

/// The workspace packages that a package may use, and the external ones that it must not use.
struct Border {
    ours: &'static [&'static str],
    never: &'static [&'static str],
}

/// The cluster's client, which only `host/cluster` knows.
const KUBE: [&str; 3] = ["kube", "kube-client", "kube-runtime"];

/// The rule for a package of the host, by folder.
fn border(folder: &str) -> Option<Border> {
    Some(match folder {
        "host/api" => Border {
            ours: &[],
            never: &["tokio", "tracing", "wasmtime"],
        },
        "host/core" => Border {
            ours: &["transom-api"],
            never: &["tokio", "tracing", "wasmtime", "notify", "anyhow"],
        },
        "host/engine" => Border {
            ours: &["transom-core"],
            never: &[],
        },
        "host/cluster" => Border {
            ours: &["transom-core", "transom-api"],
            never: &["wasmtime"],
        },
        "host/artifacts" => Border {
            ours: &["transom-core", "transom-api"],
            never: &["wasmtime"],
        },
        "host/agent" => Border {
            ours: &[
                "transom-api",
                "transom-core",
                "transom-engine",
                "transom-cluster",
                "transom-artifacts",
            ],
            never: &["wasmtime", "wit-bindgen"],
        },
        "guest/sdk" => Border {
            ours: &[],
            never: &["tokio", "wasmtime", "anyhow"],
        },
        _ if folder.starts_with("guest/") || folder.starts_with("tests/fixtures/") => Border {
            ours: &["transom-guest"],
            never: &["tokio", "wasmtime"],
        },
        _ => return None,
    })
}

/// Dependencies that break a rule.
pub fn check(packages: &[Package]) -> Vec<String> {
    packages
        .iter()
        .flat_map(|package| of_package(package, packages))
        .collect()
}

fn of_package(package: &Package, packages: &[Package]) -> Vec<String> {
    // Tools and tests may use everything; nothing that ships may use them.
    if package.folder == "host/xtask"
        || (package.folder.starts_with("tests/") && !is_fixture(package))
    {
        return Vec::new();
    }
    let Some(border) = border(&package.folder) else {
        return vec![finding(
            package,
            "has no border yet: add its folder to `border` in tests/tidy/src/dependencies.rs",
        )];
    };
    package
        .dependencies
        .iter()
        .filter_map(|dependency| crossing(package, dependency, &border, packages))
        .collect()
}

fn crossing(
    package: &Package,
    dependency: &Dependency,
    border: &Border,
    packages: &[Package],
) -> Option<String> {
    let name = dependency.name.as_str();
    if let Some(ours) = packages.iter().find(|ours| ours.name == name) {
        let for_tests = dependency.dev && ours.folder.starts_with("tests/");
        let itself = ours.name == package.name;
        return (!border.ours.contains(&name) && !for_tests && !itself).then(|| {
            finding(package, &format!("must not depend on `{name}`; move what both need to where the arrows point (host/README.md, dependency rule)"))
        });
    }
    let kube = KUBE.contains(&name) && package.folder != "host/cluster";
    (border.never.contains(&name) && !dependency.dev || kube).then(|| {
        finding(package, &format!("must not depend on `{name}`; give that work to the crate that owns it (host/README.md, dependency rule)"))
    })
}

fn is_fixture(package: &Package) -> bool {
    package.folder.starts_with("tests/fixtures/")
}

fn finding(package: &Package, sentence: &str) -> String {
    format!("`{}`: {sentence}", package.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small workspace in which this package has these dependencies (`dev:` in front for tests only).
    fn findings(folder: &str, on: &[&str]) -> Vec<String> {
        let known = [
            ("transom-api", "host/api"),
            ("transom-core", "host/core"),
            ("transom-engine", "host/engine"),
            ("transom-cluster", "host/cluster"),
            ("transom-guest", "guest/sdk"),
            ("transom-taints", "guest/taints"),
            ("transom-support", "tests/support"),
        ];
        let mut packages: Vec<Package> = known
            .map(|(name, folder)| package(name, folder, &[]))
            .into();
        packages.push(package("probe", folder, on));
        check(&packages)
    }

    fn package(name: &str, folder: &str, on: &[&str]) -> Package {
        let dependencies = on.iter().map(|name| match name.strip_prefix("dev:") {
            Some(name) => Dependency {
                name: name.to_owned(),
                dev: true,
            },
            None => Dependency {
                name: (*name).to_owned(),
                dev: false,
            },
        });
        Package {
            name: name.to_owned(),
            folder: folder.to_owned(),
            dependencies: dependencies.collect(),
        }
    }

    #[test]
    fn accepts_what_the_table_allows() {
        assert!(
            findings(
                "host/core",
                &[
                    "transom-api",
                    "serde",
                    "dev:transom-support",
                    "dev:proptest"
                ]
            )
            .is_empty()
        );
        assert!(
            findings(
                "host/agent",
                &["transom-engine", "transom-cluster", "tokio"]
            )
            .is_empty()
        );
        assert!(findings("host/engine", &["transom-core", "wasmtime", "tracing"]).is_empty());
        assert!(findings("host/cluster", &["transom-core", "kube"]).is_empty());
        assert!(findings("guest/new", &["transom-guest", "serde_json"]).is_empty());
        assert!(
            findings(
                "tests/conformance",
                &["transom-engine", "wasmtime", "transom-taints"]
            )
            .is_empty()
        );
    }

    #[test]
    fn finds_each_forbidden_dependency_between_packages() {
        for (folder, on) in [
            ("host/api", "transom-core"),
            ("host/core", "transom-engine"),
            ("host/engine", "transom-cluster"),
            ("host/cluster", "transom-engine"),
            ("host/agent", "transom-taints"),
            ("host/core", "transom-support"),
            ("guest/sdk", "transom-core"),
            ("guest/new", "transom-core"),
            ("guest/new", "transom-taints"),
            ("guest/new", "dev:transom-core"),
            ("tests/fixtures/loops", "transom-core"),
        ] {
            assert_eq!(findings(folder, &[on]).len(), 1, "{folder} on {on}");
        }
    }

    #[test]
    fn finds_each_forbidden_external_dependency() {
        for (folder, on) in [
            ("host/core", "tokio"),
            ("host/core", "tracing"),
            ("host/core", "wasmtime"),
            ("host/core", "kube"),
            ("host/cluster", "wasmtime"),
            ("host/artifacts", "wasmtime"),
            ("host/engine", "kube"),
            ("host/agent", "wasmtime"),
            ("guest/new", "kube-client"),
            ("host/api", "kube-runtime"),
        ] {
            assert_eq!(findings(folder, &[on]).len(), 1, "{folder} on {on}");
        }
    }

    #[test]
    fn finds_a_package_without_a_rule() {
        assert_eq!(
            findings("host/new", &[]),
            [
                "`probe`: has no border yet: add its folder to `border` in tests/tidy/src/dependencies.rs"
            ]
        );
    }
}
