//! The reasons of the guest `trigger`.

use transom_guest::Reason;

/// `ready`: the hosted cluster is being deleted.
pub(crate) const PRIMARY_DELETING: Reason = Reason {
    name: "PrimaryDeleting",
    meaning: "The hosted cluster is being deleted; what was made for it stays until it is gone.",
    remedy: "Nothing: it is removed when the hosted cluster is gone.",
};
/// `ready`: the hosted cluster is paused, for HyperShift, too.
pub(crate) const PRIMARY_PAUSED: Reason = Reason {
    name: "PrimaryPaused",
    meaning: "The hosted cluster is paused by spec.pausedUntil, and the policy honours that.",
    remedy: "Remove spec.pausedUntil from the hosted cluster, or wait until the time that it names.",
};
/// `ready`: the condition Available is not as wanted.
pub(crate) const NOT_AVAILABLE: Reason = Reason {
    name: "NotAvailable",
    meaning: "The condition Available of the hosted cluster is not True, or not for the reason that the policy asks for.",
    remedy: "Look at the conditions of the hosted cluster; the message names status and reason.",
};
/// `evaluate`: it is available now, and was not before.
pub(crate) const BECAME_AVAILABLE: Reason = Reason {
    name: "BecameAvailable",
    meaning: "The hosted cluster became available.",
    remedy: "Nothing: it is reconciled.",
};
/// `evaluate`: it was available before, and is not now.
pub(crate) const NO_LONGER_AVAILABLE: Reason = Reason {
    name: "NoLongerAvailable",
    meaning: "The hosted cluster was available and is not any more; what was made for it stays.",
    remedy: "Look at the conditions of the hosted cluster.",
};
/// `evaluate`: its deletion started.
pub(crate) const DELETION_STARTED: Reason = Reason {
    name: "DeletionStarted",
    meaning: "The deletion of the hosted cluster started.",
    remedy: "Nothing: it is reconciled, and held until it is gone.",
};
/// `evaluate`: its annotations differ.
pub(crate) const ANNOTATIONS_CHANGED: Reason = Reason {
    name: "AnnotationsChanged",
    meaning: "An annotation of the hosted cluster was added, changed or removed.",
    remedy: "Nothing: it is reconciled.",
};
/// `evaluate`: its labels differ.
pub(crate) const LABELS_CHANGED: Reason = Reason {
    name: "LabelsChanged",
    meaning: "A label of the hosted cluster was added, changed or removed, and the policy depends on labels.",
    remedy: "Nothing: it is reconciled.",
};
/// `evaluate`: the admin kubeconfig is another secret.
pub(crate) const KUBECONFIG_CHANGED: Reason = Reason {
    name: "KubeconfigChanged",
    meaning: "status.kubeconfig of the hosted cluster was set, unset or names another secret.",
    remedy: "Nothing: it is reconciled.",
};
/// `evaluate`: the password is another secret.
pub(crate) const KUBEADMIN_PASSWORD_CHANGED: Reason = Reason {
    name: "KubeadminPasswordChanged",
    meaning: "status.kubeadminPassword of the hosted cluster was set, unset or names another secret.",
    remedy: "Nothing: it is reconciled.",
};
/// `evaluate`: the version history differs.
pub(crate) const VERSION_HISTORY_CHANGED: Reason = Reason {
    name: "VersionHistoryChanged",
    meaning: "The version history of the hosted cluster changed, or is there for the first time.",
    remedy: "Nothing: it is reconciled.",
};
/// `evaluate`: `spec.pausedUntil` differs.
pub(crate) const PAUSED_UNTIL_CHANGED: Reason = Reason {
    name: "PausedUntilChanged",
    meaning: "spec.pausedUntil of the hosted cluster was set, changed or removed, and the policy honours it.",
    remedy: "Nothing: it is reconciled.",
};

/// All reasons.
pub(crate) const ALL: [Reason; 12] = [
    PRIMARY_DELETING,
    PRIMARY_PAUSED,
    NOT_AVAILABLE,
    BECAME_AVAILABLE,
    NO_LONGER_AVAILABLE,
    DELETION_STARTED,
    ANNOTATIONS_CHANGED,
    LABELS_CHANGED,
    KUBECONFIG_CHANGED,
    KUBEADMIN_PASSWORD_CHANGED,
    VERSION_HISTORY_CHANGED,
    PAUSED_UNTIL_CHANGED,
];
