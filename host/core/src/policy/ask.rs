//! What a policy lets its guest ask the API server: who may do what.

use super::Policy;
use super::check::{Checked, at_most, pattern, wrong};
use crate::contract::decide::{Review, Who};
use crate::failure::Failure;
use crate::inputs::request;
use crate::pattern::template::TemplateNames;
use crate::pattern::{Pattern, TemplateData};
use crate::reference::dns;
use transom_api::KnownReason;
use transom_api::policy::bounds::FEW;
use transom_api::policy::{AskAs, AskGrantSpec, PrimarySpec};

/// Questions that a guest may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskRule {
    /// About whom.
    pub who: Who,
    verb: String,
    group: String,
    resource: String,
    subresource: Option<String>,
    /// Absent: a question names no namespace.
    namespace: Option<Pattern>,
    /// Absent: a question names no object.
    name: Option<Pattern>,
}

/// Checks what may be asked.
pub(super) fn rules(
    asks: &[AskGrantSpec],
    primary: &PrimarySpec,
    names: &TemplateNames,
) -> Checked<Vec<AskRule>> {
    at_most("spec.grant.ask", asks, FEW)?;
    let rule = |(index, ask): (usize, &AskGrantSpec)| {
        let field = format!("spec.grant.ask[{index}].accessReview");
        rule(&field, ask, primary, names)
    };
    asks.iter().enumerate().map(rule).collect()
}

fn rule(
    field: &str,
    ask: &AskGrantSpec,
    primary: &PrimarySpec,
    names: &TemplateNames,
) -> Checked<AskRule> {
    let review = &ask.access_review;
    if !dns::is_label(&review.verb) {
        return wrong(format!("{field}.verb"), "is not a verb");
    }
    if !review.group.is_empty() && !dns::is_subdomain(&review.group) {
        return wrong(format!("{field}.group"), "is not an API group");
    }
    let (resource, subresource) = match review.resource.split_once('/') {
        Some((resource, sub)) => (resource, Some(sub.to_owned())),
        None => (review.resource.as_str(), None),
    };
    if !dns::is_subdomain(resource) || !subresource.as_deref().is_none_or(dns::is_label) {
        let why = "is not a resource, or a resource and a subresource";
        return wrong(format!("{field}.resource"), why);
    }
    let who = match review.of {
        AskAs::Agent => Who::Agent,
        AskAs::Requester => Who::Requester,
    };
    if who == Who::Requester && !request::is_request(&primary.api_version, &primary.kind) {
        let why = "is Requester, and only a CertificateSigningRequest says who made it";
        return wrong(format!("{field}.as"), why);
    }
    let named = |name: &str, text: &Option<String>| {
        let text = text.as_ref();
        let parsed = text.map(|text| pattern(&format!("{field}.{name}"), text, names));
        parsed.transpose()
    };
    Ok(AskRule {
        who,
        verb: review.verb.clone(),
        group: review.group.clone(),
        resource: resource.to_owned(),
        subresource,
        namespace: named("namespace", &review.namespace)?,
        name: named("name", &review.name)?,
    })
}

impl AskRule {
    fn admits(&self, review: &Review, data: &TemplateData<'_>) -> bool {
        let named = |pattern: &Option<Pattern>, name: &Option<String>| match (pattern, name) {
            (_, None) => true,
            (Some(pattern), Some(name)) => pattern.matches(name, data),
            (None, Some(_)) => false,
        };
        let same = (self.who, &self.verb, &self.group) == (review.who, &review.verb, &review.group);
        same && (&self.resource, &self.subresource) == (&review.resource, &review.subresource)
            && named(&self.namespace, &review.namespace)
            && named(&self.name, &review.name)
    }
}

impl Policy {
    /// Checks that a guest may ask a question.
    ///
    /// # Errors
    /// `ReadNotGranted`.
    pub fn may_ask(&self, review: &Review, data: &TemplateData<'_>) -> Result<(), Failure> {
        if self.asks.iter().any(|rule| rule.admits(review, data)) {
            return Ok(());
        }
        let Review { verb, resource, .. } = review;
        let message = format!(
            "the policy does not grant asking whether {resource} may be `{verb}`: grant.ask"
        );
        Err(Failure::known(KnownReason::ReadNotGranted, message))
    }
}
