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
    /// Checks that a guest may ask a question. No grant is about a name that is longer than any.
    ///
    /// # Errors
    /// `ReadNotGranted`.
    pub fn may_ask(&self, review: &Review, data: &TemplateData<'_>) -> Result<(), Failure> {
        let mut names = review.namespace.iter().chain(&review.name);
        let short = names.all(|name| name.len() <= dns::MAX_NAME);
        if short && self.asks.iter().any(|rule| rule.admits(review, data)) {
            return Ok(());
        }
        let Review { verb, resource, .. } = review;
        let message = format!(
            "the policy does not grant asking whether {resource} may be `{verb}`: grant.ask"
        );
        Err(Failure::known(KnownReason::ReadNotGranted, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::ObjectRef;
    use crate::sample::{agent, object, objects_manifest, policy, with};
    use serde_json::json;

    #[test]
    fn no_question_names_what_is_longer_than_a_name() {
        let review = json!({"as": "Agent", "verb": "get", "resource": "pods", "namespace": "*", "name": "*"});
        let ask = ("/spec/grant/ask", json!([{"accessReview": review}]));
        let policy = policy(&with(objects_manifest(), &[ask]));
        let primary = object(ObjectRef::local("v1", "X", None, "x"), json!({}));
        let agent = agent("local", true);
        let data = TemplateData {
            object: &primary,
            agent: &agent,
        };
        let may = |namespace: &str, name: &str| {
            let review = Review {
                who: Who::Agent,
                verb: "get".to_owned(),
                group: String::new(),
                resource: "pods".to_owned(),
                subresource: None,
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
            };
            policy.may_ask(&review, &data).is_ok()
        };
        let (longest, long) = ("a".repeat(253), "a".repeat(254));
        assert!(may("n", &longest) && !may("n", &long) && !may(&long, "x"));
    }
}
