//! Admission policies that make the server refuse the writes a test names. A successful test leaves none behind.

use crate::stage::Stage;
use anyhow::Result;

const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// A policy that refuses, with its binding.
pub(crate) struct Refusal {
    /// Name of both; the message contains it, too.
    pub(crate) name: &'static str,
    /// The rule of resources and operations.
    pub(crate) rule: &'static str,
    /// What it allows, as an expression.
    pub(crate) unless: &'static str,
    /// The resources to which it is bound.
    pub(crate) within: &'static str,
}

impl Refusal {
    /// Creates it; the server needs a moment to enforce it.
    pub(crate) async fn begin(&self, stage: &Stage) -> Result<()> {
        let Self {
            name,
            rule,
            unless,
            within,
        } = self;
        let manifest = format!(
            "
apiVersion: {ADMISSION}
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  failurePolicy: Fail
  matchConstraints: {{resourceRules: [{rule}]}}
  validations: [{{expression: \"{unless}\", message: {name} here}}]
---
apiVersion: {ADMISSION}
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}, validationActions: [Deny], matchResources: {within}}}
"
        );
        stage.objects().apply_manifest(&manifest).await
    }

    /// Removes it.
    pub(crate) async fn end(&self, stage: &Stage) -> Result<()> {
        for kind in [
            "ValidatingAdmissionPolicyBinding",
            "ValidatingAdmissionPolicy",
        ] {
            stage.delete((ADMISSION, kind), None, self.name).await?;
        }
        Ok(())
    }
}
