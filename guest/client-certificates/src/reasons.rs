//! The reasons of this guest.

use transom_guest::Reason;

/// All of them.
pub(crate) const ALL: [Reason; 3] = [NOT_RECOGNIZED, NOT_ALLOWED, APPROVED];

pub(crate) const NOT_RECOGNIZED: Reason = Reason {
    name: "RequestNotRecognized",
    meaning: "The request is not one that a registration agent makes for its own cluster.",
    remedy: "Look at what it asks for; a person may approve or deny it.",
};

pub(crate) const NOT_ALLOWED: Reason = Reason {
    name: "RequesterNotAllowed",
    meaning: "Who made the request may neither renew certificates nor register this cluster. Or the cluster was imported, and its ManagedCluster is not there or is being deleted.",
    remedy: "Accept the cluster, or name the requester in the settings; a person may approve or deny the request.",
};

/// In the condition of an approved request, as Open Cluster Management's own approver says it.
pub(crate) const APPROVED: Reason = Reason {
    name: "AutoApprovedByHubCSRApprovingController",
    meaning: "The request was approved without a person.",
    remedy: "Nothing.",
};
