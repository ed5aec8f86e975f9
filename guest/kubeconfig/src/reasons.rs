//! The reasons of the guest `kubeconfig`.

use transom_guest::Reason;
use transom_guest::naming::INVALID_TARGET_NAME;

pub(crate) const PRIMARY_WITHOUT_NAMESPACE: Reason = Reason {
    name: "PrimaryWithoutNamespace",
    meaning: "The hosted cluster names no namespace, so that its secret and its control plane cannot be found.",
    remedy: "Give the object a namespace.",
};

pub(crate) const SOURCE_MISSING: Reason = Reason {
    name: "SourceMissing",
    meaning: "The secret `<hosted cluster>-admin-kubeconfig` is not there.",
    remedy: "HyperShift makes it; look at the conditions of the hosted cluster.",
};

pub(crate) const SERVICE_MISSING: Reason = Reason {
    name: "ServiceMissing",
    meaning: "The Service kube-apiserver in the namespace of the control plane is not there.",
    remedy: "HyperShift makes it; look at the hosted control plane.",
};

pub(crate) const NAMESPACE_MISSING: Reason = Reason {
    name: "NamespaceMissing",
    meaning: "The namespace `klusterlet-<managed cluster>` is not there yet.",
    remedy: "Import the cluster; it goes on as soon as the namespace is there.",
};

pub(crate) const SERVICE_WITHOUT_PORTS: Reason = Reason {
    name: "ServiceWithoutPorts",
    meaning: "The Service kube-apiserver has no TCP port.",
    remedy: "Fix the Service.",
};

pub(crate) const SERVICE_PORT_MISSING: Reason = Reason {
    name: "ServicePortMissing",
    meaning: "The Service kube-apiserver has no TCP port of the name in the settings.",
    remedy: "Correct the setting port.name, or the Service.",
};

pub(crate) const SERVICE_PORT_AMBIGUOUS: Reason = Reason {
    name: "ServicePortAmbiguous",
    meaning: "The Service kube-apiserver has several ports, and which one is for clients cannot be told.",
    remedy: "Name it in the setting port.name.",
};

pub(crate) const NO_CLUSTERS: Reason = Reason {
    name: "NoClusters",
    meaning: "The admin kubeconfig has no cluster entry.",
    remedy: "Fix the secret, or delete it so that HyperShift recreates it.",
};

pub(crate) const CURRENT_CONTEXT_UNRESOLVED: Reason = Reason {
    name: "CurrentContextUnresolved",
    meaning: "The current-context of the admin kubeconfig does not lead to a cluster entry and a user entry.",
    remedy: "Fix the secret, or delete it so that HyperShift recreates it.",
};

pub(crate) const CURRENT_CONTEXT_ELSEWHERE: Reason = Reason {
    name: "CurrentContextElsewhere",
    meaning: "The settings ask for the cluster entry named `cluster`, and current-context leads to another one.",
    remedy: "Set entry to CurrentContext, or fix the secret.",
};

pub(crate) const NO_CERTIFICATE_AUTHORITY: Reason = Reason {
    name: "NoCertificateAuthority",
    meaning: "The admin kubeconfig carries no CA, so that a client could not verify the server.",
    remedy: "Put certificate-authority-data into the source.",
};

pub(crate) const FILE_AUTHORITY: Reason = Reason {
    name: "FileAuthority",
    meaning: "The CA of the admin kubeconfig is a path to a file, which means nothing where the result is used.",
    remedy: "Put certificate-authority-data into the source.",
};

pub(crate) const INSECURE_SERVER: Reason = Reason {
    name: "InsecureServer",
    meaning: "The admin kubeconfig says insecure-skip-tls-verify, and the settings refuse that.",
    remedy: "Take the flag out of the source, or set insecure to Drop.",
};

pub(crate) const EXEC_CREDENTIAL: Reason = Reason {
    name: "ExecCredential",
    meaning: "A user of the admin kubeconfig proves who it is by running a program.",
    remedy: "Use a client certificate or a token; or set exec to Allow.",
};

pub(crate) const AUTH_PROVIDER_CREDENTIAL: Reason = Reason {
    name: "AuthProviderCredential",
    meaning: "A user of the admin kubeconfig has a credential of a legacy auth provider.",
    remedy: "Use a client certificate or a token; or set authProvider to Allow.",
};

pub(crate) const FILE_CREDENTIAL: Reason = Reason {
    name: "FileCredential",
    meaning: "A user of the admin kubeconfig has a credential in a file, which is not there where the result is used.",
    remedy: "Put the data into the source; or set file to Allow.",
};

/// All reasons.
pub(crate) const ALL: [Reason; 17] = [
    PRIMARY_WITHOUT_NAMESPACE,
    INVALID_TARGET_NAME,
    SOURCE_MISSING,
    SERVICE_MISSING,
    NAMESPACE_MISSING,
    SERVICE_WITHOUT_PORTS,
    SERVICE_PORT_MISSING,
    SERVICE_PORT_AMBIGUOUS,
    NO_CLUSTERS,
    CURRENT_CONTEXT_UNRESOLVED,
    CURRENT_CONTEXT_ELSEWHERE,
    NO_CERTIFICATE_AUTHORITY,
    FILE_AUTHORITY,
    INSECURE_SERVER,
    EXEC_CREDENTIAL,
    AUTH_PROVIDER_CREDENTIAL,
    FILE_CREDENTIAL,
];
