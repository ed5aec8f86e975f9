//! Which changes of what a plan rests on make another question, and what is kept of the answers.

use super::*;
use crate::contract::decide::{Absence, Form, InputValue, Need, Wake};
use crate::ownership::{Ownership, Rivals};
use crate::plan::Step;
use crate::plan::desired::Open;
use crate::sample::{hosted, key, object, target};
use std::sync::Arc;

fn facts() -> AgentFacts {
    AgentFacts::new("hub", None)
}

fn primary(version: &str) -> Object {
    Object {
        version: version.to_owned(),
        ..object(hosted("demo"), json!({"metadata": {"uid": "u"}}))
    }
}

fn secret(version: &str, bytes: &str) -> Arc<Object> {
    let body = json!({"metadata": {"uid": "s"}, "data": {"kubeconfig": bytes}});
    Arc::new(Object {
        version: version.to_owned(),
        ..object(target("demo"), body)
    })
}

fn input(object: Option<Arc<Object>>, value: InputValue) -> Digest {
    let need = Need {
        role: "a".to_owned(),
        reference: target("demo"),
        form: Form::Presence,
        absence: Absence::Fine,
        wake: Wake::Change,
    };
    let input = Input {
        role: "a".to_owned(),
        value,
    };
    inputs(&[Found::one(need, object)], &[input])
}

#[test]
fn a_question_is_another_one_when_anything_but_the_time_differs_that_a_plan_rests_on() {
    let (key, other_key) = (key("demo"), key("other"));
    let (facts, other_facts) = (facts(), AgentFacts::new("spoke", Some("hub")));
    let (before, after) = (primary("1"), primary("2"));
    let one = input(None, InputValue::Absent);
    let claimed = |existing, rivals| TargetState {
        object: target("demo"),
        existing,
        ownership: Ownership::Owner { rivals },
        withheld: None,
    };
    let targets = [claimed(Some(secret("1", "x")), Rivals::None)];
    let others = [Other {
        object: hosted("x"),
        existing: None,
    }];
    let question = PlanQuestion {
        key: &key,
        facts: &facts,
        primary: &before,
        inputs: Some(&one),
        targets: &targets,
        others: &others,
    };
    let there = [Other {
        object: hosted("x"),
        existing: Some(Arc::new(primary("3"))),
    }];
    let contested = [claimed(Some(secret("1", "x")), Rivals::OfPolicy)];
    let written = [claimed(Some(secret("2", "x")), Rivals::None)];
    let changed = [
        // How a need was met: something appeared, a heartbeat goes on, a right was given.
        PlanQuestion {
            inputs: Some(&input(Some(secret("1", "x")), InputValue::Present)),
            ..question
        }
        .asked(),
        PlanQuestion {
            inputs: Some(&input(None, InputValue::Fresh(7))),
            ..question
        }
        .asked(),
        PlanQuestion {
            inputs: Some(&input(None, InputValue::Fresh(8))),
            ..question
        }
        .asked(),
        PlanQuestion {
            inputs: Some(&input(None, InputValue::Allowed)),
            ..question
        }
        .asked(),
        // An input at another version, whatever is in it: no bytes of a Secret are part of the digest.
        PlanQuestion {
            inputs: Some(&input(Some(secret("2", "x")), InputValue::Present)),
            ..question
        }
        .asked(),
        PlanQuestion {
            inputs: None,
            ..question
        }
        .asked(),
        PlanQuestion {
            key: &other_key,
            ..question
        }
        .asked(),
        PlanQuestion {
            facts: &other_facts,
            ..question
        }
        .asked(),
        PlanQuestion {
            primary: &after,
            ..question
        }
        .asked(),
        PlanQuestion {
            targets: &contested,
            ..question
        }
        .asked(),
        PlanQuestion {
            targets: &written,
            ..question
        }
        .asked(),
        PlanQuestion {
            targets: &[],
            ..question
        }
        .asked(),
        PlanQuestion {
            others: &there,
            ..question
        }
        .asked(),
    ];
    let mut all: Vec<u64> = changed.into_iter().chain([question.asked()]).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), changed.len() + 1, "two questions are the same");
    let again = [claimed(Some(secret("1", "hunter2")), Rivals::None)];
    let again = PlanQuestion {
        targets: &again,
        ..question
    };
    assert_eq!(again.asked(), question.asked());
}

fn writes(text: &str) -> Writes {
    let step = Step::Patch {
        reference: hosted("demo"),
        version: String::new(),
        fields: vec![("spec.phase".to_owned(), json!(text))],
    };
    let mut writes = Writes::default();
    writes.add([(&step, None)], &Open::default());
    writes
}

#[test]
fn the_same_plan_has_the_same_mark_at_any_time() {
    assert_eq!(planned(&Writes::default()), 0);
    assert_ne!(planned(&writes("a")), planned(&writes("b")));
    let times = ["2026-03-02T09:10:00Z", "2026-03-02T09:10:01Z"];
    let [one, other] = times.map(|time| planned(&writes(time)));
    assert_eq!(one, other);
}

#[test]
fn what_is_kept_of_ten_thousand_primaries_fits_into_the_annotations_of_an_object() {
    let mark = |at: usize| Mark {
        asked: Digest::of(&json!(at)).head(),
        planned: u32::try_from(at).unwrap(),
    };
    let expected = Expected::of(1_000, (0..MOST + 5).map(mark));
    let text = expected.text().unwrap();
    assert!(text.len() < 161_000, "{}", text.len());
    assert_eq!(Expected::read(&text), Some(expected.clone()));
    assert_eq!(expected.planned(mark(9_999).asked), Some(9_999));
    assert_eq!(expected.planned(mark(10_000).asked), None);
    assert_eq!(Expected::of(0, [].into_iter()).text(), None);
    for broken in [
        "",
        "{}",
        "{\"atSeconds\":1,\"marks\":\"AAAA\"}",
        "{\"atSeconds\":1,\"marks\":\"?\"}",
    ] {
        assert_eq!(Expected::read(broken), None, "{broken}");
    }
}
