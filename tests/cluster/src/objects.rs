//! Objects of any kind in one cluster, as JSON. Asks the API server for the kinds; takes the place of the namespace
//! controller, which does not run here: empties a deleted namespace and finalizes it.

use crate::cluster::Cluster;
use crate::wait;
use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Client;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
};
use kube::core::{ApiResource, GroupVersion, GroupVersionKind, Request};
use kube::discovery::{self, Discovery, Scope, verbs};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The field manager for objects that tests apply.
const OWNER: &str = "test";
/// The deadline for an object to be as it should be. It decides only about what never comes.
const PATIENCE: Duration = Duration::from_secs(600);

/// The objects of a cluster, as one user sees them.
pub struct Objects {
    client: Client,
    known: Mutex<BTreeMap<(String, String), (ApiResource, Scope)>>,
}

impl Objects {
    /// Starts without any known kind.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
        }
    }

    /// The client behind it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The objects of a kind; `api_version` is group and version, and no namespace means all namespaces.
    pub async fn api(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> Result<Api<DynamicObject>> {
        let (resource, scope) = self.resolve(api_version, kind).await?;
        Ok(match namespace {
            Some(namespace) if scope == Scope::Namespaced => {
                Api::namespaced_with(self.client.clone(), namespace, &resource)
            }
            _ => Api::all_with(self.client.clone(), &resource),
        })
    }

    /// Creates an object with its status: what the API server dropped from `status` is written through the subresource.
    pub async fn create(&self, object: Value) -> Result<DynamicObject> {
        let what = named(&object);
        let (api, object) = self.parsed(object).await?;
        let created = api.create(&PostParams::default(), &object).await;
        let created = created.with_context(|| format!("failed to create {what}"))?;
        let name = created.metadata.name.clone().unwrap_or_default();
        match object.data.get("status").filter(|status| !status.is_null()) {
            Some(status) if created.data.get("status") != Some(status) => {
                let written = self.write_status(&api, &name, status).await;
                written.with_context(|| format!("failed to write the status of {what}"))
            }
            _ => Ok(created),
        }
    }

    /// Replaces the status of an object as a JSON patch: a merge patch would drop every null, and some are required.
    pub async fn write_status(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        status: &Value,
    ) -> Result<DynamicObject> {
        let patch = Patch::Merge(json!([{"op": "add", "path": "/status", "value": status}]));
        let request = Request::new(api.resource_url());
        let mut request =
            request.patch_subresource("status", name, &PatchParams::default(), &patch)?;
        request
            .headers_mut()
            .insert("content-type", "application/json-patch+json".parse()?);
        Ok(self.client.request(request).await?)
    }

    /// Applies an object on the server side, with force, as `test`; does not write its `status`.
    pub async fn apply(&self, object: Value) -> Result<DynamicObject> {
        let what = named(&object);
        let (api, object) = self.parsed(object).await?;
        let name = object.metadata.name.clone().unwrap_or_default();
        let applied = api
            .patch(
                &name,
                &PatchParams::apply(OWNER).force(),
                &Patch::Apply(&object),
            )
            .await;
        applied.with_context(|| format!("failed to apply {what}"))
    }

    /// Applies every document of a manifest, one after the other.
    pub async fn apply_manifest(&self, text: &str) -> Result<()> {
        for object in documents(text)? {
            self.apply(object).await?;
        }
        Ok(())
    }

    /// Gives users the permissions of these rules in a namespace or, without one, in the whole cluster, by a role and a
    /// binding of this name.
    pub async fn allow(
        &self,
        users: &[&str],
        namespace: Option<&str>,
        name: &str,
        rules: Value,
    ) -> Result<()> {
        let group = "rbac.authorization.k8s.io";
        let scope = namespace.map_or("Cluster", |_| "");
        let metadata = json!({"name": name, "namespace": namespace});
        let object = |kind: &str| json!({"apiVersion": format!("{group}/v1"), "kind": format!("{scope}{kind}"), "metadata": metadata});
        let (mut role, mut binding) = (object("Role"), object("RoleBinding"));
        role["rules"] = rules;
        binding["roleRef"] = json!({"apiGroup": group, "kind": role["kind"], "name": name});
        let subject = |user: &&str| json!({"apiGroup": group, "kind": "User", "name": user});
        binding["subjects"] = users.iter().map(subject).collect();
        self.apply(role).await?;
        self.apply(binding).await.map(drop)
    }

    /// Creates a namespace unless it exists.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        match namespaces.create(&PostParams::default(), &namespace).await {
            // Applied again, it would lose the labels that a test gave it.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            made => made
                .map(drop)
                .with_context(|| format!("failed to create namespace `{name}`")),
        }
    }

    /// An object as JSON; null if it is not there.
    pub async fn get(&self, kind: (&str, &str), place: (Option<&str>, &str)) -> Result<Value> {
        let api = self.api(kind.0, kind.1, place.0).await?;
        let found = api.get_opt(place.1).await?;
        Ok(found
            .map(serde_json::to_value)
            .transpose()?
            .unwrap_or_default())
    }

    /// Waits until an object is as it should be, and returns it; null while it is not there.
    pub async fn wait_for(
        &self,
        kind: (&str, &str),
        place: (Option<&str>, &str),
        is_right: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let mut last = Value::Null;
        let came = wait::until("an object as it should be", PATIENCE, async || {
            last = self.get(kind, place).await?;
            Ok(is_right(&last).then_some(()))
        });
        let came = came.await;
        // Of a Secret nothing else is shown.
        let shown = match kind.1 {
            "Secret" => &last["metadata"],
            _ => &last,
        };
        came.with_context(|| format!("{} {place:?}: it is {shown:#}", kind.1))?;
        Ok(last)
    }

    /// A token of a service account; creates the account and its namespace if they are missing.
    pub(crate) async fn token(&self, namespace: &str, name: &str) -> Result<String> {
        self.namespace(namespace).await?;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}});
        self.apply(account).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(3600),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await;
        let answer = answer.with_context(|| {
            format!("failed to get a token of service account `{namespace}/{name}`")
        })?;
        answer
            .status
            .map(|status| status.token)
            .context("the API server answered a token request without a token")
    }

    async fn parsed(&self, object: Value) -> Result<(Api<DynamicObject>, DynamicObject)> {
        let what = named(&object);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let parsed: DynamicObject = serde_json::from_value(object)
            .ok()
            .with_context(|| format!("{what} is no object"))?;
        let api = self
            .api(&version, &kind, parsed.metadata.namespace.as_deref())
            .await?;
        Ok((api, parsed))
    }

    async fn resolve(&self, api_version: &str, kind: &str) -> Result<(ApiResource, Scope)> {
        let key = (api_version.to_owned(), kind.to_owned());
        let known = self
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let about = || format!("failed to find kind `{kind}` of `{api_version}` on the API server");
        let version: GroupVersion = api_version.parse().with_context(about)?;
        let full = GroupVersionKind::gvk(&version.group, &version.version, kind);
        let (resource, capabilities) = discovery::pinned_kind(&self.client, &full)
            .await
            .with_context(about)?;
        let found = (resource, capabilities.scope);
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, found.clone());
        Ok(found)
    }
}

/// The documents of a YAML text, without empty ones.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>> {
    use serde::Deserialize as _;
    let documents = serde_yaml::Deserializer::from_str(text).map(Value::deserialize);
    // The text of a parser's error may quote a value.
    let documents: Option<Vec<Value>> = documents.map(Result::ok).collect();
    let documents = documents.context("a manifest is not well-formed YAML")?;
    Ok(documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect())
}

/// Kind and name for an error message.
fn named(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let name = [text(&metadata["namespace"]), text(&metadata["name"])];
    format!(
        "{} `{}`",
        text(&object["kind"]),
        name.join("/").trim_start_matches('/')
    )
}

/// The deadline for a namespace to be gone.
const DEADLINE: Duration = Duration::from_secs(300);

impl Cluster {
    /// Deletes a namespace, so that it is Terminating and accepts no new objects until it is finalized.
    pub async fn delete_namespace(&self, name: &str) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.objects().client().clone());
        let deleted = namespaces.delete(name, &DeleteParams::default()).await;
        deleted.with_context(|| format!("failed to delete namespace `{name}`"))?;
        Ok(())
    }

    /// Deletes everything in a deleted namespace, finalizes it, and waits until it is gone.
    pub async fn finalize_namespace(&self, name: &str) -> Result<()> {
        self.empty(name).await?;
        let about = || format!("failed to finalise namespace `{name}`");
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}});
        let request = Request::new("/api/v1/namespaces").replace_subresource(
            "finalize",
            name,
            &PostParams::default(),
            body.to_string().into_bytes(),
        );
        let client = self.objects().client();
        client
            .request::<Value>(request.with_context(about)?)
            .await
            .with_context(about)?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        wait::until(
            &format!("the end of namespace `{name}`"),
            DEADLINE,
            async || {
                Ok(namespaces
                    .get_opt(name)
                    .await
                    .with_context(about)?
                    .is_none()
                    .then_some(()))
            },
        )
        .await
    }

    async fn empty(&self, namespace: &str) -> Result<()> {
        let about = || format!("failed to empty namespace `{namespace}`");
        let client = self.objects().client();
        let discovery = Discovery::new(client.clone())
            .run_aggregated()
            .await
            .with_context(about)?;
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let deletable = capabilities.supports_operation(verbs::DELETE_COLLECTION);
                if capabilities.scope == Scope::Namespaced && deletable {
                    let api: Api<DynamicObject> =
                        Api::namespaced_with(client.clone(), namespace, &resource);
                    let deleted = api
                        .delete_collection(&DeleteParams::default(), &ListParams::default())
                        .await;
                    deleted.with_context(about)?;
                }
            }
        }
        Ok(())
    }
}
