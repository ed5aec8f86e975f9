//! Converts the values with which an answer fills fields of Secrets.

use super::wit_objects as wit;
use crate::measure::Lift;
use transom_core::contract::objects::{
    CredentialRef, Filled, FilledWithin, Hole, MadeKubeconfig, ObjectManifest,
};

impl Lift<'_> {
    pub(super) fn filled(&mut self, filled: wit::Filled) -> Filled {
        Filled {
            path: self.text(filled.path),
            hole: match filled.hole {
                wit::Hole::Bytes(reference) => Hole::Credential(CredentialRef::Bytes(reference)),
                wit::Hole::Kubeconfig(made) => {
                    Hole::Credential(CredentialRef::Kubeconfig(self.made_kubeconfig(made)))
                }
                wit::Hole::Manifests(all) => Hole::Manifests(self.list(all, Self::manifest)),
            },
        }
    }

    fn made_kubeconfig(&mut self, made: wit::MadeKubeconfig) -> MadeKubeconfig {
        MadeKubeconfig {
            source: self.text(made.source),
            proposal: self.proposal(made.proposal),
        }
    }

    fn manifest(&mut self, manifest: wit::Manifest) -> ObjectManifest {
        ObjectManifest {
            content: self.text(manifest.content),
            holes: self.list(manifest.holes, |lift, filled| FilledWithin {
                path: lift.text(filled.path),
                hole: match filled.hole {
                    wit::HoleWithin::Bytes(reference) => CredentialRef::Bytes(reference),
                    wit::HoleWithin::Kubeconfig(made) => {
                        CredentialRef::Kubeconfig(lift.made_kubeconfig(made))
                    }
                },
            }),
        }
    }
}
