//! A plan as one page for a browser: no script, nothing from elsewhere, and every text of a cluster escaped.

use super::Told;
use super::show::{active, changes, counted, not_listed, reason, sentence};
use std::fmt::Write as _;
use transom_core::plan::fleet::{EffectCount, EffectGroup, FleetCounts, Refused};
use transom_core::redact::visible::visible;

/// The style of the page, in light and dark.
const STYLE: &str = include_str!("page.css");
/// Groups that are open when the page opens.
const OPEN: usize = 3;

/// The page.
pub(super) fn html(told: &Told) -> String {
    let plan = &told.plan;
    let mut page = head(&text(&plan.policy));
    overview(&mut page, told);
    section(&mut page, "Effects", &plan.effects, |page, effects| {
        page.push_str("<div class=\"card\">\n");
        for one in effects {
            effect(page, one, plan.primaries.total);
        }
        page.push_str("</div>\n");
    });
    more(
        &mut page,
        (plan.more_effects > 0).then(|| format!("and {} more kinds of effects", plan.more_effects)),
    );
    section(
        &mut page,
        "Refused or waiting",
        &plan.refusals,
        |page, refusals| {
            refusals.iter().for_each(|one| refused(page, told, one));
        },
    );
    more(&mut page, not_listed(&plan.more_refusals, "reasons"));
    section(
        &mut page,
        "Groups with the same effects",
        &plan.groups,
        |page, groups| {
            for (at, one) in groups.iter().enumerate() {
                group(page, one, at < OPEN);
            }
        },
    );
    more(&mut page, not_listed(&plan.more_groups, "groups"));
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// The begin of the page, up to the heading.
fn head(policy: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>Plan of {policy}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>Plan of {policy}</h1>\n<p class=\"soft\">What the policy would change on the fleet. Nothing was written.</p>\n"
    )
}

/// The counts, and what the plan is a plan of.
fn overview(page: &mut String, told: &Told) {
    let plan = &told.plan;
    counts(page, &plan.primaries);
    if let Some(beside) = &told.active {
        let _ = writeln!(
            page,
            "<p class=\"card\">For comparison: {}.</p>",
            text(&active(beside, told.not_active.as_deref()))
        );
    }
    if let Some(withheld) = &told.withheld {
        let _ = writeln!(page, "<p class=\"card\">Limits: {}.</p>", text(withheld));
    }
    page.push_str("<dl>\n");
    for (label, component) in told.components() {
        let _ = writeln!(
            page,
            "<dt>{label}</dt><dd><code>{}</code></dd>",
            text(&component)
        );
    }
    let _ = writeln!(
        page,
        "<dt>plan</dt><dd><code>{}</code></dd>\n</dl>",
        text(&plan.digest)
    );
    if !plan.would_change() {
        page.push_str("<p class=\"card\">Nothing would change.</p>\n");
    }
}

/// A text of a cluster or a guest, as content of an element: without markup and without hidden letters.
fn text(raw: &str) -> String {
    let mut safe = String::with_capacity(raw.len());
    for letter in visible(raw).chars() {
        match letter {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            letter => safe.push(letter),
        }
    }
    safe
}

fn counts(page: &mut String, counts: &FleetCounts) {
    page.push_str("<ul class=\"counts\">\n");
    for (class, count, label) in [
        ("change", counts.would_change, "would change"),
        ("unchanged", counts.unchanged, "unchanged"),
        ("held", counts.held, "held"),
        ("waiting", counts.waiting, "waiting"),
        ("failed", counts.failed, "failed"),
        ("total", counts.total, "primaries"),
    ] {
        let class = if count == 0 { "zero" } else { class };
        let _ = writeln!(page, "<li class=\"{class}\"><b>{count}</b>{label}</li>");
    }
    page.push_str("</ul>\n");
}

/// A heading with what is below it, if there is something.
fn section<T>(page: &mut String, heading: &str, items: &[T], fill: impl FnOnce(&mut String, &[T])) {
    if !items.is_empty() {
        let _ = writeln!(page, "<section>\n<h2>{heading}</h2>");
        fill(page, items);
        page.push_str("</section>\n");
    }
}

fn more(page: &mut String, what: Option<String>) {
    if let Some(what) = what {
        let _ = writeln!(page, "<p class=\"soft\">{}</p>", text(&what));
    }
}

fn effect(page: &mut String, effect: &EffectCount, all: usize) {
    let count = effect.primaries;
    let share = count * 100 / all.max(1);
    let _ = writeln!(
        page,
        "<div class=\"effect\"><div class=\"row\"><span>{}</span><span>{}</span></div>\
         <div class=\"bar\"><i style=\"width: {share}%\"></i></div>",
        code(&sentence(&effect.effect)),
        counted(count),
    );
    for (field, count) in &effect.fields {
        let field = text(field);
        let _ = writeln!(
            page,
            "<div class=\"row field\"><span><code>{field}</code></span><span>{count}</span></div>"
        );
    }
    if effect.more_fields > 0 {
        let _ = writeln!(
            page,
            "<div class=\"row field\"><span>and {} more fields</span></div>",
            effect.more_fields
        );
    }
    page.push_str("</div>\n");
}

/// A sentence in which what stands between two backticks is code.
fn code(sentence: &str) -> String {
    match sentence
        .split_once('`')
        .and_then(|(before, rest)| Some((before, rest.rsplit_once('`')?)))
    {
        Some((before, (name, after))) => {
            format!("{}<code>{}</code>{}", text(before), text(name), text(after))
        }
        None => text(sentence),
    }
}

fn group(page: &mut String, group: &EffectGroup, open: bool) {
    let open = if open { " open" } else { "" };
    let changes: Vec<String> = changes(group).iter().map(|change| code(change)).collect();
    let _ = writeln!(
        page,
        "<details class=\"card\"{open}><summary><b>{}</b>: {}</summary>",
        counted(group.primaries),
        changes.join("; ")
    );
    let names = group.first.iter().map(ToString::to_string);
    list(page, names, group.primaries);
    page.push_str("</details>\n");
}

fn refused(page: &mut String, told: &Told, refused: &Refused) {
    let _ = writeln!(
        page,
        "<details class=\"card\" open><summary><b>{}</b>: <span class=\"{}\">{}</span></summary>",
        counted(refused.primaries),
        refused.state.as_str(),
        text(&reason(refused))
    );
    if let Some(explained) = told.reasons.get(&refused.reason) {
        for words in [&explained.meaning, &explained.remedy] {
            if !words.is_empty() {
                let _ = writeln!(page, "<p class=\"soft\">{}</p>", text(words));
            }
        }
    }
    let first = refused.first.iter();
    let names = first.map(|one| format!("{}: {}", one.primary, one.message));
    list(page, names, refused.primaries);
    page.push_str("</details>\n");
}

fn list(page: &mut String, names: impl ExactSizeIterator<Item = String>, all: usize) {
    let more = all.saturating_sub(names.len());
    page.push_str("<ul class=\"names\">\n");
    for name in names {
        let _ = writeln!(page, "<li>{}</li>", text(&name));
    }
    if more > 0 {
        let _ = writeln!(page, "<li class=\"soft\">and {more} more</li>");
    }
    page.push_str("</ul>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_hold_no_markup_and_no_hidden_letters() {
        assert_eq!(
            text("<b a='x'>&\"\u{202e}\n"),
            "&lt;b a=&#39;x&#39;&gt;&amp;&quot;\\u202e\\n"
        );
        assert_eq!(code("x `<i>` added"), "x <code>&lt;i&gt;</code> added");
        assert_eq!(code("a ` b"), "a ` b");
        assert_eq!(code("x `a`b` y"), "x <code>a`b</code> y");
    }
}
