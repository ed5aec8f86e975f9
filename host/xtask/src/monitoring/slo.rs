//! Alerts on the objective of the service: kubeconfigs that are right. No single failure fires one: each wants so many
//! attempts that one failure stays below its ratio, and what pages at once wants two failing primaries.

use super::alert::{Alert, Page, sum};
use super::objective::{BUDGET, BURNS, Burn, fewest_attempts};
use super::rules::{SOUND, attempts, error_ratio};
use transom_core::metrics::PRIMARIES;

/// The label of alerts on the objective, as in the original specification.
const SLO: &str = "slo";

/// The alerts of the group, in the order of the page.
pub(super) fn alerts() -> Vec<Alert> {
    let mut alerts = vec![breach(), escalation()];
    alerts.extend(BURNS.iter().map(burning));
    alerts.extend([
        success("critical", 0.95, "5m"),
        success("warning", 0.99, "10m"),
        errors("critical", 0.05, "3m"),
        errors("warning", 0.01, "5m"),
    ]);
    alerts
}

/// What the page says of these alerts.
pub(super) const PAGES: [Page; 5] = [
    Page {
        name: "KubeconfigGenerationAvailabilitySLOBreach",
        cause: "Over 30 days more than one attempt in 200 failed. The alert fires until the availability of 30 days is above 99.5 % again, even if nothing fails any more.",
        cure: "Find out what failed: `transom_primaries{state=\"Failed\"}` shows how many fail now and why, the dashboard External-Managed-Kubeconfig SLOs shows on which days. With fewer than 200 attempts in 30 days the alert does not fire.",
    },
    Page {
        name: "KubeconfigGenerationAvailabilitySLOEscalation",
        cause: "For a day the availability of 30 days has been below 99 %: twice the error budget is used up.",
        cure: "As KubeconfigGenerationAvailabilitySLOBreach; also inform the owner of the service.",
    },
    Page {
        name: "KubeconfigGenerationErrorBudgetBurnRate",
        cause: "At this error rate the budget of 30 days will not last; `window` says which share of it is used in which time. The critical alerts require two primaries that fail now.",
        cure: "`kubectl describe fleetpolicies.transom.dev external-managed-kubeconfig` names the top failures with their reasons; [reasons.md](reasons.md) has the fix for each. Many primaries with one reason usually have one cause: check that first.",
    },
    Page {
        name: "TransomSuccessLow",
        cause: "More than 5 % (critical) or 1 % (warning) of the primaries of the policy fail, and at least two. TransomPrimariesFailed reports a single failing primary.",
        cure: "As KubeconfigGenerationErrorBudgetBurnRate, for the policy named in the alert.",
    },
    Page {
        name: "TransomCopyErrorsHigh",
        cause: "More than 5 % (critical) or 1 % (warning) of the attempts of the last five minutes failed, there were enough attempts, and at least two primaries fail.",
        cure: "As KubeconfigGenerationErrorBudgetBurnRate. With few clusters or rare resyncs there are too few attempts for this alert; TransomSuccessLow fires instead.",
    },
];

/// The condition that a window has more attempts than a single failure needs to exceed a ratio.
fn enough(window: &str, ratio: f64) -> String {
    format!("{} > {}", attempts(window), fewest_attempts(ratio))
}

/// The condition that more than one primary fails now.
fn several(more: &str) -> String {
    format!(
        "{} > 1",
        sum(more, &format!("{}{{state=\"Failed\"}}", PRIMARIES.name))
    )
}

fn breach() -> Alert {
    Alert {
        name: "KubeconfigGenerationAvailabilitySLOBreach",
        expression: format!(
            "100 * (1 - {}) < {} and {}",
            error_ratio("30d"),
            round(100.0 * (1.0 - BUDGET)),
            enough("30d", BUDGET)
        ),
        lasting: "1h",
        severity: "critical",
        labels: vec![(SLO, "availability")],
        summary: "External-managed-kubeconfig generation availability SLO breached".to_owned(),
        description: "30-day availability is {{ $value | printf \"%.2f\" }}%, below 99.5% SLO target",
    }
}

fn escalation() -> Alert {
    Alert {
        name: "KubeconfigGenerationAvailabilitySLOEscalation",
        expression: format!(
            "100 * (1 - {}) < 99 and {}",
            error_ratio("30d"),
            enough("30d", 0.01)
        ),
        lasting: "24h",
        severity: "critical",
        labels: vec![(SLO, "availability")],
        summary: "External-managed-kubeconfig generation availability has been below 99% for a day"
            .to_owned(),
        description: "30-day availability is {{ $value | printf \"%.2f\" }}%, below 99% for 24 hours",
    }
}

fn burning(burn: &Burn) -> Alert {
    let Burn {
        share,
        long,
        short,
        severity,
        window,
    } = burn;
    let ratio = burn.ratio();
    let percent = round(ratio * 100.0);
    let over = |window: &str| format!("100 * {} > {percent}", error_ratio(window));
    let mut expression = format!(
        "{} and {} and {}",
        over(long.name),
        over(short),
        enough(long.name, ratio)
    );
    if *severity == "critical" {
        expression.push_str(&format!(" and {}", several("")));
    }
    let summary = format!(
        "External-managed-kubeconfig generation fails {} times faster than its error budget allows: it uses {} % of the budget in {}, all of it in {} h",
        round(burn.rate()),
        round(share * 100.0),
        long.name,
        round(burn.hours_left()),
    );
    let alert = Alert {
        name: "KubeconfigGenerationErrorBudgetBurnRate",
        expression,
        lasting: "5m",
        severity,
        labels: vec![(SLO, "error-budget")],
        summary,
        description: "Error rate is {{ $value | printf \"%.2f\" }}% of the attempts",
    };
    alert.with("window", window)
}

/// Too few primaries are right. It uses their share, so that it also works for fleets with hardly any attempts.
fn success(severity: &'static str, share: f64, lasting: &'static str) -> Alert {
    Alert {
        name: "TransomSuccessLow",
        expression: format!("{SOUND} < {share} and {}", several(", policy")),
        lasting,
        severity,
        labels: Vec::new(),
        summary: format!(
            "More than {} % of the primaries of {{{{ $labels.policy }}}} fail.",
            round(100.0 - share * 100.0)
        ),
        description: "{{ $value | humanizePercentage }} of the primaries of {{ $labels.policy }} do not fail.",
    }
}

fn errors(severity: &'static str, ratio: f64, lasting: &'static str) -> Alert {
    let percent = round(ratio * 100.0);
    Alert {
        name: "TransomCopyErrorsHigh",
        expression: format!(
            "{} > {ratio} and {} and {}",
            error_ratio("5m"),
            enough("5m", ratio),
            several("")
        ),
        lasting,
        severity,
        labels: Vec::new(),
        summary: format!("More than {percent} % of the attempts to deliver a kubeconfig fail."),
        description: "{{ $value | humanizePercentage }} of the attempts of the last five minutes failed.",
    }
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
