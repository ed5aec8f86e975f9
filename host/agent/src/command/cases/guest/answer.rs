//! Answers of a component in the words of `wit/`, as `expected.yaml` has them. No field is left out.

use serde_json::{Value, json};
use transom_core::contract::credentials::{
    ContextEntry, Proposal, ProposedCluster, ProposedUser, Url,
};
use transom_core::contract::decide::{Absence, Form, KubeconfigAnswer, Need, Requirement};
use transom_core::contract::taints::{Decision, Effect, Wanted};
use transom_core::contract::{Problem, Readiness, Refusal, Timed, Verdict};
use transom_core::reference::ObjectRef;

/// `ok` or `err`.
pub(super) fn result<T>(result: &Result<T, Refusal>, say: impl FnOnce(&T) -> Value) -> Value {
    match result {
        Ok(answer) => json!({"ok": say(answer)}),
        Err(refusal) => json!({"err": failure(refusal)}),
    }
}

fn failure(refusal: &Refusal) -> Value {
    match refusal {
        Refusal::Waiting(why, objects) => {
            json!({"waiting": {"problem": problem(why), "objects": list(objects, reference)}})
        }
        Refusal::Missing(why) => json!({"missing": problem(why)}),
        Refusal::Invalid(why) => json!({"invalid": problem(why)}),
    }
}

pub(super) fn problem(
    Problem {
        reason,
        message,
        field,
    }: &Problem,
) -> Value {
    json!({"reason": reason, "message": message, "field": field})
}

pub(super) fn readiness(
    Timed {
        answer,
        ask_again_at,
    }: &Timed<Readiness>,
) -> Value {
    let readiness = match answer {
        Readiness::Ready => json!("ready"),
        Readiness::NotReady(why) => json!({"not-ready": problem(why)}),
    };
    json!({"readiness": readiness, "ask-again-at": ask_again_at})
}

pub(super) fn verdict(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Run(reasons) => json!({"run": reasons}),
        Verdict::Ignore => json!("ignore"),
    }
}

pub(super) fn taints(
    Timed {
        answer,
        ask_again_at,
    }: &Timed<Decision>,
) -> Value {
    let decision = match answer {
        Decision::Own(taints) => json!({"own": list(taints, wanted)}),
        Decision::Hold(why) => json!({"hold": problem(why)}),
    };
    json!({"decision": decision, "ask-again-at": ask_again_at})
}

fn wanted(Wanted { key, value, effect }: &Wanted) -> Value {
    let effect = match effect {
        Effect::NoSelect => "no-select",
        Effect::PreferNoSelect => "prefer-no-select",
        Effect::NoSelectIfNew => "no-select-if-new",
    };
    json!({"key": key, "value": value, "effect": effect})
}

pub(super) fn requirement(Requirement { target, needs }: &Requirement) -> Value {
    json!({"target": reference(target), "needs": list(needs, need)})
}

fn need(need: &Need) -> Value {
    let form = match &need.form {
        Form::Presence => json!("presence"),
        Form::Object => json!("object"),
        Form::Service => json!("service"),
        Form::Kubeconfig(key) => json!({"kubeconfig": key}),
    };
    let absence = match &need.absence {
        Absence::Wait(reason) => json!({"wait": reason}),
        Absence::Fail(reason) => json!({"fail": reason}),
        Absence::Fine => json!("fine"),
    };
    json!({"role": need.role, "reference": reference(&need.reference), "form": form, "absence": absence})
}

fn reference(
    ObjectRef {
        cluster,
        api_version,
        kind,
        namespace,
        name,
    }: &ObjectRef,
) -> Value {
    json!({"cluster": cluster, "api-version": api_version, "kind": kind, "namespace": namespace, "name": name})
}

pub(super) fn kubeconfig(
    Timed {
        answer,
        ask_again_at,
    }: &KubeconfigAnswer,
) -> Value {
    let Proposal {
        clusters,
        users,
        contexts,
        current_context,
    } = answer;
    let kubeconfig = json!({
        "clusters": list(clusters, cluster),
        "users": list(users, user),
        "contexts": list(contexts, context),
        "current-context": current_context,
    });
    json!({"kubeconfig": kubeconfig, "ask-again-at": ask_again_at})
}

fn cluster(cluster: &ProposedCluster) -> Value {
    let ProposedCluster {
        entry,
        name,
        server,
        authorities,
        insecure,
        proxy,
        tls_server_name,
    } = cluster;
    json!({
        "entry": entry,
        "name": name,
        "server": url(server),
        "authorities": authorities,
        "insecure": insecure,
        "proxy": proxy,
        "tls-server-name": tls_server_name,
    })
}

fn url(
    Url {
        scheme,
        host,
        port,
        path,
    }: &Url,
) -> Value {
    json!({"scheme": scheme, "host": host, "port": port, "path": path})
}

fn user(
    ProposedUser {
        entry,
        name,
        credential,
    }: &ProposedUser,
) -> Value {
    json!({"entry": entry, "name": name, "credential": credential})
}

fn context(
    ContextEntry {
        entry,
        name,
        cluster,
        user,
        namespace,
    }: &ContextEntry,
) -> Value {
    json!({"entry": entry, "name": name, "cluster": cluster, "user": user, "namespace": namespace})
}

fn list<T>(items: &[T], say: impl Fn(&T) -> Value) -> Value {
    items.iter().map(say).collect()
}
