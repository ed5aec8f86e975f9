//! The reasons of this guest.

use transom_guest::Reason;

/// All of them.
pub(crate) const ALL: [Reason; 4] = [STOPPED, NO_NAMESPACE, CLOCK_SYNCED, CLOCK_OUT_OF_SYNC];

pub(crate) const STOPPED: Reason = Reason {
    name: "ManagedClusterLeaseUpdateStopped",
    meaning: "The registration agent of the cluster stopped updating its lease.",
    remedy: "Look whether the cluster is up, whether its agent runs, and whether it reaches the hub.",
};

pub(crate) const NO_NAMESPACE: Reason = Reason {
    name: crate::decide::NAMESPACE_MISSING,
    meaning: "The namespace of the cluster is not there yet, so its lease cannot be made.",
    remedy: "Accept the cluster; its namespace is made then.",
};

pub(crate) const CLOCK_SYNCED: Reason = Reason {
    name: "ManagedClusterClockSynced",
    meaning: "The clock of the cluster agrees with that of the hub.",
    remedy: "Nothing.",
};

pub(crate) const CLOCK_OUT_OF_SYNC: Reason = Reason {
    name: "ManagedClusterClockOutOfSync",
    meaning: "The clock of the cluster is ahead of that of the hub, or behind it.",
    remedy: "Set the clock of the cluster right.",
};
