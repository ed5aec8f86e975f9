//! The two versions of each component, and which of them wrote a secret.

use super::{ALIKE, Component, POLICY, Place};
use crate::agent::DEADLINE;
use crate::http::Meter;
use crate::load::ready;
use crate::program;
use crate::secret::Secret;
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use transom_support::wait;

/// The two versions of a component, each with the end of the server's host name that only it writes.
const VERSIONS: [(&str, &str); 2] = [
    ("kubeconfig", ".svc.cluster.local"),
    ("fixture-second", ".svc"),
];
/// The annotation of each secret with the number of the swap whose revision wrote it.
const ROUND: &str = "example.com/round";

/// The components, and the digests that the agent writes as an annotation.
pub(super) struct Versions<'a> {
    pub(super) place: &'a dyn Place,
    resync_seconds: u32,
    bytes: [Vec<u8>; 2],
    alike: [Vec<u8>; 2],
    digests: Mutex<BTreeMap<String, usize>>,
}

impl<'a> Versions<'a> {
    pub(super) fn read(place: &'a dyn Place, resync_seconds: u32) -> Result<Self> {
        let [(first, _), (second, _)] = VERSIONS;
        let taints = program::component("taints")?;
        let mut other = taints.clone();
        // A custom section with an empty name: other bytes, the same answers.
        other.extend([0, 1, 0]);
        Ok(Self {
            place,
            resync_seconds,
            bytes: [program::component(first)?, program::component(second)?],
            alike: [taints, other],
            digests: Mutex::default(),
        })
    }

    /// Writes the revisions of a round: each policy names the component of the round's version, and the secrets bear
    /// the round.
    pub(super) fn put(&self, round: usize) -> Result<()> {
        let version = round % 2;
        let component = |all| of_version(all, version);
        let own = json!({"own": {"annotations": {ROUND: round.to_string()}}});
        let resync = json!({"resyncSeconds": self.resync_seconds});
        self.place
            .put_revision(POLICY, component(&self.bytes), &own)?;
        self.place
            .put_revision(ALIKE, component(&self.alike), &resync)
    }

    /// The round whose revision wrote a secret, by its annotation. Its content must be of that round's version, and
    /// equal digests must always mean the same version.
    pub(super) fn round_of(&self, text: &str) -> Result<usize> {
        let secret = Secret::parse(text)?;
        let host = secret.server.rsplit_once(':').map_or("", |(host, _)| host);
        let version = VERSIONS
            .iter()
            .position(|(_, end)| host.ends_with(end))
            .context("the server is of no version")?;
        let mut digests = self
            .digests
            .lock()
            .map_err(|_| anyhow::anyhow!("a thread panicked"))?;
        let known = *digests.entry(secret.component.clone()).or_insert(version);
        ensure!(
            known == version,
            "{} wrote as version {known} and as version {version}",
            secret.component
        );
        ensure!(
            digests.len() <= 2,
            "more than two components wrote: {:?}",
            digests.keys()
        );
        let round = text.split_once(ROUND).context("there is no round")?.1;
        let digits = round.trim_start_matches(|char: char| !char.is_ascii_digit());
        let end = digits.find(|char: char| !char.is_ascii_digit());
        let round: usize = digits
            .get(..end.unwrap_or(digits.len()))
            .unwrap_or_default()
            .parse()?;
        ensure!(
            round % 2 == version,
            "the round {round} bears the content of version {version}"
        );
        Ok(round)
    }

    /// Waits until every secret was written by the revision of a round from the latest state of its Service.
    pub(super) fn wait_for_all(&self, clusters: usize, round: usize) -> Result<()> {
        for index in ready(clusters) {
            let (source, port) = self.place.source(index)?;
            let port = format!(":{port}");
            let right = || {
                let text = self.place.made(index).ok()??;
                let secret = Secret::parse(&text).ok()?;
                let right = secret.server.ends_with(&port) && secret.carries(&source);
                (right && self.round_of(&text).ok()? == round).then_some(())
            };
            wait::until(&format!("the last state of {index}"), DEADLINE, right)?;
        }
        Ok(())
    }

    /// Follows every secret until it is over; each must come from one version, and from no earlier round than before.
    pub(super) fn follow(
        &self,
        meter: &Meter,
        over: &AtomicBool,
        read: &AtomicUsize,
    ) -> Result<()> {
        let mut rounds = BTreeMap::<String, usize>::new();
        self.place.follow(meter, over, &mut |name, text| {
            let round = self.round_of(text)?;
            let before = rounds.insert(name.to_owned(), round).unwrap_or_default();
            ensure!(
                before <= round,
                "`{name}`: written in round {before}, then in round {round}"
            );
            read.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    }
}

fn of_version(all: &[Vec<u8>; 2], version: usize) -> Component<'_> {
    Component {
        version,
        bytes: &all[version],
    }
}
