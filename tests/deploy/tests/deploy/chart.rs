//! The chart is valid, gives the same objects as the base, and refuses invalid values. Needs no cluster.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use transom_e2e::program;
use transom_test_cluster::{helm, kubectl};
use transom_test_deploy::generated;
use transom_test_deploy::rendered::{self, chart, folder, kustomization, said};

/// Objects by kind and name.
pub(crate) fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    objects
        .into_iter()
        .map(|object| (rendered::name(&object), object))
        .collect()
}

fn same(base: Vec<Value>, chart: Vec<Value>) -> Result<()> {
    let (mut base, chart) = (by_name(base), by_name(chart));
    base.remove("Namespace transom")
        .context("the base has no Namespace; helm makes it by a flag")?;
    assert_eq!(
        base.keys().collect::<Vec<_>>(),
        chart.keys().collect::<Vec<_>>()
    );
    for (name, object) in &base {
        assert_eq!(Some(object), chart.get(name), "{name}");
    }
    Ok(())
}

/// The base with components on top.
fn with(components: &[&str]) -> Result<Vec<Value>> {
    let overlay = rendered::overlay(components)?;
    rendered::objects(&said(kubectl()?.arg("kustomize").arg(overlay.path()))?)
}

#[test]
fn chart_and_base_give_the_same_objects() -> Result<()> {
    same(kustomization("base")?, chart(&[])?)
}

#[test]
fn chart_and_component_configure_strict_reads_alike() -> Result<()> {
    same(with(&["strict"])?, chart(&["--set", "secretReads=strict"])?)
}

#[test]
fn chart_and_component_give_the_same_monitoring() -> Result<()> {
    let values = "serviceMonitor.enabled=true,prometheusRule.enabled=true";
    same(with(&["monitoring"])?, chart(&["--set", values])?)
}

#[test]
fn prometheus_may_authenticate_without_a_file() -> Result<()> {
    let endpoint = |more: &str| -> Result<Value> {
        let objects = chart(&["--set", &format!("serviceMonitor.enabled=true{more}")])?;
        let mut objects = objects.iter();
        let monitor = objects.find(|object| object["kind"] == "ServiceMonitor");
        Ok(monitor.context("no ServiceMonitor")?["spec"]["endpoints"][0].clone())
    };
    let mut expected = endpoint("")?;
    let fields = expected.as_object_mut().context("no endpoint")?;
    assert!(fields.remove("bearerTokenFile").is_some());
    let credentials = json!({"name": "scraper", "key": "token"});
    fields.insert(
        "authorization".to_owned(),
        json!({"credentials": credentials}),
    );
    let set = "serviceMonitor.authorization.credentials";
    let given = endpoint(&format!(",{set}.name=scraper,{set}.key=token"))?;
    assert_eq!(given, expected);
    Ok(())
}

#[test]
fn chart_and_component_give_the_same_dashboards() -> Result<()> {
    let objects = chart(&["--set", "dashboards.enabled=true"])?;
    let found: Vec<&Value> = objects
        .iter()
        .filter(|object| object["kind"] == "ConfigMap")
        .collect();
    assert_eq!(found.len(), generated::dashboards()?.len(), "{found:?}");
    for object in found {
        assert_eq!(
            object.pointer("/metadata/labels/grafana_dashboard"),
            Some(&"1".into())
        );
        for (name, text) in object["data"].as_object().context("no data")? {
            let committed = fs::read_to_string(folder("monitoring/dashboards").join(name))?;
            assert_eq!(text.as_str(), Some(committed.as_str()), "{name}");
        }
    }
    same(with(&["monitoring/dashboards"])?, objects)
}

#[test]
fn operator_rules_match_those_tested_by_promtool() -> Result<()> {
    let committed: Value =
        serde_yaml::from_str(&fs::read_to_string(folder("monitoring/rules.yaml"))?)?;
    let labels = "prometheusRule.enabled=true,prometheusRule.labels.release=prometheus";
    let objects = chart(&["--set", labels])?;
    let rule = objects
        .iter()
        .find(|object| object["kind"] == "PrometheusRule")
        .context("no PrometheusRule")?;
    assert_eq!(rule["spec"], committed);
    assert_eq!(
        rule.pointer("/metadata/labels/release"),
        Some(&"prometheus".into())
    );
    Ok(())
}

#[test]
fn the_chart_lints_clean() -> Result<()> {
    let told = said(helm()?.args(["lint", "--strict"]).arg(folder("chart")))?;
    assert!(
        !told.contains("[WARNING]") && !told.contains("[ERROR]"),
        "{told}"
    );
    Ok(())
}

#[test]
fn refuses_invalid_values() -> Result<()> {
    for values in [
        "replica=3",
        "replicas=0",
        "replicas=two",
        "image.repository=",
        "image.pullPolicy=Sometimes",
        "secretReads=all",
        "readOnly=maybe",
        "clusterName=",
        "clusterName=My_Cluster",
        "selfManagedCluster=hub.example",
        "policies.other=true",
        "policySettings.other.decide.x=1",
        "policySettings.builtInTaints.trigger.x=1",
        "policySettings.builtInTaints.decide=1",
        "args={no-flag}",
        "admin.port=80",
        "networkPolicy.egressPorts={0}",
        "cache.size=1Gi",
        "cache.volume.emptyDir.medium=Memory,cache.volume.hostPath.path=/x",
        "serviceMonitor.interval=often",
        "serviceMonitor.authorization=token",
        "prometheusRule.enabled=maybe",
        "dashboards.folder=x",
    ] {
        match chart(&["--set", values]) {
            Ok(_) => bail!("`--set {values}` was taken"),
            Err(error) => assert!(
                format!("{error:#}").contains("schema"),
                "`--set {values}`: {error:#}"
            ),
        }
    }
    Ok(())
}

/// A policy that the chart renders with these values.
pub(crate) fn policy(objects: &[Value], name: &str) -> Result<Value> {
    let is =
        |object: &&Value| object["kind"] == "FleetPolicy" && object["metadata"]["name"] == name;
    objects
        .iter()
        .find(is)
        .cloned()
        .with_context(|| format!("no policy {name}"))
}

#[test]
fn settings_of_bundled_policies_are_values() -> Result<()> {
    let name = "external-managed-kubeconfig";
    let set = "policySettings.externalManagedKubeconfig.decide.naming.precedence=Discovery,policySettings.externalManagedKubeconfig.trigger.availableReason=AsExpected,policySettings.builtInTaints.decide.unreachable.effect=NoSelectIfNew";
    let (before, after) = (chart(&[])?, chart(&["--set", set])?);
    let mut expected = policy(&before, name)?;
    let guests = &mut expected["spec"]["guests"];
    assert_eq!(
        guests["decide"]["settings"]["clusterDomain"], "cluster.local",
        "nothing would be kept"
    );
    guests["decide"]["settings"]["naming"]["precedence"] = "Discovery".into();
    guests["trigger"]["settings"]["availableReason"] = "AsExpected".into();
    assert_eq!(policy(&after, name)?, expected);
    let mut expected = policy(&before, "built-in-taints")?;
    expected["spec"]["guests"]["decide"]["settings"] =
        serde_json::json!({"unreachable": {"effect": "NoSelectIfNew"}});
    assert_eq!(policy(&after, "built-in-taints")?, expected);
    Ok(())
}

#[test]
fn runbook_urls_use_the_repository_address() -> Result<()> {
    let links = |objects: &[Value]| -> Vec<String> {
        let rule = objects
            .iter()
            .filter(|object| object["kind"] == "PrometheusRule");
        let rules = rule.flat_map(|rule| rule["spec"]["groups"].as_array().into_iter().flatten());
        let alerts = rules.flat_map(|group| group["rules"].as_array().into_iter().flatten());
        alerts
            .filter_map(|alert| {
                Some(
                    alert
                        .pointer("/annotations/runbook_url")?
                        .as_str()?
                        .to_owned(),
                )
            })
            .collect()
    };
    let plain = links(&chart(&["--set", "prometheusRule.enabled=true"])?);
    let address = "https://git.example/transom/";
    let linked = links(&chart(&[
        "--set",
        &format!("prometheusRule.enabled=true,prometheusRule.runbooks={address}"),
    ])?);
    assert!(
        plain.len() > 10
            && plain
                .iter()
                .all(|link| link.starts_with("host/docs/metrics.md#")),
        "{plain:?}"
    );
    assert_eq!(
        linked,
        plain
            .iter()
            .map(|link| format!("{address}{link}"))
            .collect::<Vec<_>>()
    );
    Ok(())
}

#[test]
fn permissions_follow_the_installed_policies() -> Result<()> {
    let resources = |objects: &[Value]| -> String {
        let roles = objects
            .iter()
            .filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role");
        roles.map(|role| role["rules"].to_string()).collect()
    };
    let hub = chart(&["--set", "policies.externalManagedKubeconfig=false"])?;
    let hosting = chart(&[
        "--set",
        "policies.builtInTaints=false",
        "--namespace",
        "elsewhere",
    ])?;
    assert!(
        resources(&hub).contains("managedclusters") && !resources(&hub).contains("secrets"),
        "{hub:?}"
    );
    assert!(
        resources(&hosting).contains("secrets") && !resources(&hosting).contains("managedclusters"),
        "{hosting:?}"
    );
    let none = chart(&["--set", "rbac.create=false"])?;
    assert!(!none.iter().any(|object| {
        object["kind"]
            .as_str()
            .is_some_and(|kind| kind.contains("Role"))
    }));
    for object in hosting
        .iter()
        .filter(|object| object["kind"] == "ClusterRoleBinding")
    {
        assert_eq!(
            object.pointer("/subjects/0/namespace"),
            Some(&"elsewhere".into())
        );
    }
    Ok(())
}

#[test]
fn names_are_unique_and_bindings_find_their_roles_in_every_namespace() -> Result<()> {
    for (namespace, policies) in ["transom", "default", "elsewhere"]
        .map(|namespace| generated::INSTALLS.map(|policies| (namespace, policies)))
        .as_flattened()
    {
        let [taints, kubeconfigs] = ["built-in-taints", "external-managed-kubeconfig"]
            .map(|policy| [policy, "both"].contains(policies));
        let set = format!(
            "policies.builtInTaints={taints},policies.externalManagedKubeconfig={kubeconfigs}"
        );
        let objects = chart(&["--namespace", namespace, "--set", &set])?;
        let count = objects.len();
        let objects = by_name(objects);
        assert_eq!(objects.len(), count, "{namespace}, {set}");
        for (name, binding) in &objects {
            let Some(role) = binding.get("roleRef") else {
                continue;
            };
            let mut wanted = binding.clone();
            wanted["kind"] = role["kind"].clone();
            wanted["metadata"]["name"] = role["name"].clone();
            let wanted = rendered::name(&wanted);
            assert!(
                objects.contains_key(&wanted),
                "{namespace}: {name}: {wanted}"
            );
            let account =
                json!([{"kind": "ServiceAccount", "name": "transom", "namespace": namespace}]);
            assert_eq!(binding["subjects"], account, "{namespace}: {name}");
        }
    }
    Ok(())
}

#[test]
fn permissions_for_strict_reads_are_those_that_the_agent_prints() -> Result<()> {
    let of_rbac = |mut objects: Vec<Value>| {
        objects.retain(|object| object["apiVersion"] == "rbac.authorization.k8s.io/v1");
        by_name(objects)
    };
    for (installed, read_only) in generated::INSTALLS
        .map(|one| [(one, false), (one, true)])
        .as_flattened()
    {
        let [taints, kubeconfigs] = ["built-in-taints", "external-managed-kubeconfig"]
            .map(|policy| [policy, "both"].contains(installed));
        let set = format!(
            "secretReads=strict,readOnly={read_only},policies.builtInTaints={taints},policies.externalManagedKubeconfig={kubeconfigs}"
        );
        let printed = rendered::objects(&generated::rbac(installed, "strict", *read_only)?)?;
        assert_eq!(of_rbac(chart(&["--set", &set])?), of_rbac(printed), "{set}");
    }
    Ok(())
}

#[test]
fn refuses_an_api_server_that_cannot_check_who_approves() -> Result<()> {
    let error = chart(&["--kube-version", "1.29.9"]).err();
    assert!(format!("{error:?}").contains("kubeVersion"), "{error:?}");
    chart(&["--kube-version", "1.30.0"])?;
    let page = fs::read_to_string(program::root().join("host/docs/install.md"))?;
    assert!(page.contains("Kubernetes 1.30 or later, "));
    Ok(())
}

/// Every `verb group/resource` that is granted.
fn granted(objects: &[Value]) -> BTreeSet<String> {
    let roles = objects
        .iter()
        .filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role");
    let rules = roles.flat_map(|role| role["rules"].as_array().into_iter().flatten());
    let words = |rule: &Value, field: &str| -> Vec<String> {
        rule[field]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|word| Some(word.as_str()?.to_owned()))
            .collect()
    };
    let one = |rule: &Value| -> Vec<String> {
        let what = format!(
            "{}/{}",
            words(rule, "apiGroups").concat(),
            words(rule, "resources").concat()
        );
        words(rule, "verbs")
            .iter()
            .map(|verb| format!("{verb} {what}"))
            .collect()
    };
    rules.flat_map(one).collect()
}

/// What it may do beside, unless it is read-only: it records limits and revisions, and reports the former.
const RECORDS: [&str; 7] = [
    "create /configmaps",
    "create apps/controllerrevisions",
    "create events.k8s.io/events",
    "delete apps/controllerrevisions",
    "patch /configmaps",
    "patch apps/controllerrevisions",
    "patch events.k8s.io/events",
];

/// The agent's own permissions, independent of its policies.
const OWN: [&str; 11] = [
    "create authentication.k8s.io/tokenreviews",
    "create authorization.k8s.io/subjectaccessreviews",
    "create coordination.k8s.io/leases",
    "get coordination.k8s.io/leases",
    "list /configmaps",
    "list apps/controllerrevisions",
    "list transom.dev/fleetpolicies",
    "patch transom.dev/fleetpolicies/status",
    "update coordination.k8s.io/leases",
    "watch /configmaps",
    "watch transom.dev/fleetpolicies",
];

#[test]
fn the_operator_bounds_the_sources_of_components() -> Result<()> {
    let reads = |objects: &[Value]| granted(objects).contains("watch /configmaps");
    let sources = |objects: &[Value]| {
        let text = Value::Array(objects.to_vec()).to_string();
        let flag = text.split("\"--sources=").nth(1);
        flag.and_then(|rest| rest.split('"').next().map(str::to_owned))
    };
    let default = chart(&["--namespace", "other"])?;
    let expected = Some("builtin,file,configmap:other/*".to_owned());
    assert_eq!((sources(&default), reads(&default)), (expected, true));
    for (value, readable) in [
        ("builtin", false),
        ("builtin,configmap:elsewhere/*", false),
        ("configmap:other/*", true),
    ] {
        let objects = chart(&[
            "--namespace",
            "other",
            "--set",
            &format!("sources={{{value}}}"),
        ])?;
        let expected = (Some(value.to_owned()), readable);
        assert_eq!((sources(&objects), reads(&objects)), expected);
        // Nothing else is lost with the rule.
        assert!(granted(&objects).contains("create coordination.k8s.io/leases"));
    }
    Ok(())
}

#[test]
fn the_operator_raises_what_one_call_may_use() -> Result<()> {
    let flags = |objects: &[Value]| Value::Array(objects.to_vec()).to_string();
    assert!(!flags(&chart(&[])?).contains("--call-limit"));
    let limits = "callLimits.timeMilliseconds=1000,callLimits.memoryBytes=33554432";
    let raised = flags(&chart(&["--set", limits])?);
    for flag in ["timeMilliseconds=1000", "memoryBytes=33554432"] {
        assert!(raised.contains(&format!("\"--call-limit={flag}\"")));
    }
    for wrong in ["callLimits.timeMilliseconds=0", "callLimits.patience=1"] {
        assert!(chart(&["--set", wrong]).is_err(), "{wrong}");
    }
    Ok(())
}

#[test]
fn without_bundled_policies_the_agent_keeps_its_own_permissions() -> Result<()> {
    let neither = "policies.builtInTaints=false,policies.externalManagedKubeconfig=false";
    for reads in ["watch", "strict"] {
        let objects = chart(&["--set", neither, "--set", &format!("secretReads={reads}")])?;
        let own = OWN.iter().chain(&RECORDS);
        let own = own.map(|right| (*right).to_owned()).collect();
        assert_eq!(granted(&objects), own, "{reads}");
    }
    Ok(())
}

#[test]
fn a_read_only_agent_may_write_only_its_lease() -> Result<()> {
    for policies in [
        "",
        ",policies.builtInTaints=false",
        ",policies.externalManagedKubeconfig=false",
    ] {
        for reads in ["watch", "strict"] {
            let all = granted(&chart(&[
                "--set",
                &format!("secretReads={reads}{policies}"),
            ])?);
            let read = granted(&chart(&[
                "--set",
                &format!("readOnly=true,secretReads={reads}{policies}"),
            ])?);
            assert!(read.is_subset(&all) && read.len() < all.len(), "{read:?}");
            let writes = read.iter().filter(|right| {
                !["get ", "list ", "watch "]
                    .iter()
                    .any(|verb| right.starts_with(verb))
            });
            // Reviews are only questions.
            let wanted = OWN
                .iter()
                .filter(|right| right.starts_with("create ") || right.starts_with("update "));
            assert!(writes.eq(wanted), "{reads}{policies}: {read:?}");
        }
    }
    Ok(())
}

#[test]
fn the_cache_may_lie_on_a_volume_that_outlives_its_pod() -> Result<()> {
    let pod = |values: &str| -> Result<Value> {
        let objects = chart(&["--set", values])?;
        let mut objects = objects.iter();
        let deployment = objects.find(|object| object["kind"] == "Deployment");
        let deployment = deployment.context("no Deployment")?;
        Ok(deployment["spec"]["template"]["spec"].clone())
    };
    let claim = "cache.volume.persistentVolumeClaim.claimName=transom-cache";
    let mut expected = pod("replicas=2")?;
    let volume = expected["volumes"].as_array_mut().context("no volumes")?;
    let is_cache = |volume: &&mut Value| volume["name"] == "cache";
    let cache = volume.iter_mut().find(is_cache).context("no cache")?;
    *cache = json!({"name": "cache", "persistentVolumeClaim": {"claimName": "transom-cache"}});
    // OpenShift adds a group of its own.
    expected["securityContext"]["fsGroupChangePolicy"] = json!("OnRootMismatch");
    assert_eq!(pod(claim)?, expected);
    expected["securityContext"]["fsGroup"] = json!(65532);
    assert_eq!(pod(&format!("{claim},cache.fsGroup=65532"))?, expected);
    Ok(())
}

#[test]
fn no_sidecar_makes_every_client_local() -> Result<()> {
    for objects in [chart(&[])?, kustomization("base")?] {
        let mut objects = objects.iter();
        let deployment = objects.find(|object| object["kind"] == "Deployment");
        let pod = &deployment.context("no Deployment")?["spec"]["template"]["metadata"];
        assert_eq!(pod["labels"]["sidecar.istio.io/inject"], "false");
        assert_eq!(pod["annotations"]["linkerd.io/inject"], "disabled");
    }
    Ok(())
}

#[test]
fn every_option_affects_the_rendered_output() -> Result<()> {
    let values = [
        "admin.tlsSecret=certificate",
        "admin.compatibilityMetrics=true",
        "readOnly=true",
        "selfManagedCluster=hub",
        "args={--max-object-bytes=1}",
        "image.pullPolicy=Always",
        "imagePullSecrets[0].name=registry",
        "nodeSelector.disk=fast",
        "tolerations[0].operator=Exists",
        "priorityClassName=system-cluster-critical",
        "env[0].name=HTTPS_PROXY,env[0].value=http://proxy:3128",
    ];
    let objects = chart(&["--set", &values.join(",")])?;
    let deployment = objects
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .context("no Deployment")?
        .to_string();
    for wanted in [
        "--admin-tls-cert=/tls/tls.crt",
        "--admin-tls-key=/tls/tls.key",
        "\"scheme\":\"HTTPS\"",
        "--compatibility-metrics",
        "--read-only",
        "--self-managed-cluster=hub",
        "--max-object-bytes=1",
        "\"imagePullPolicy\":\"Always\"",
        "\"imagePullSecrets\":[{\"name\":\"registry\"}]",
        "\"disk\":\"fast\"",
        "\"operator\":\"Exists\"",
        "\"priorityClassName\":\"system-cluster-critical\"",
        "http://proxy:3128",
        "\"secretName\":\"certificate\"",
    ] {
        assert!(
            deployment.contains(wanted),
            "{wanted} is not in {deployment}"
        );
    }
    let fewer = chart(&[
        "--set",
        "podDisruptionBudget.enabled=false,networkPolicy.enabled=false",
    ])?;
    for left_out in ["NetworkPolicy", "PodDisruptionBudget"] {
        assert!(!fewer.iter().any(|object| object["kind"] == left_out));
    }
    Ok(())
}
