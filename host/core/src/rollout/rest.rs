//! Whether a candidate comes to rest when it sees what it wrote.

use crate::plan::effect::EffectVerb;
use crate::plan::fleet::Writes;
use crate::work::Key;
use std::collections::BTreeMap;

/// How often a candidate may write for a primary, without a removal, until it comes to rest.
const WRITES: usize = 5;

/// How often a candidate wrote for each primary, without a removal.
#[derive(Default)]
pub struct Rest(BTreeMap<Key, usize>);

/// What one more answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It writes nothing any more.
    AtRest,
    /// It writes, and may come to rest.
    GoesOn,
    /// It writes again and again.
    Restless,
}

impl Rest {
    /// Counts an answer, unless it removes an object: objects may go one after the other, each with a new status.
    pub fn count(&mut self, key: &Key, writes: &Writes) -> Pace {
        if writes.changes.is_empty() {
            return Pace::AtRest;
        }
        if writes
            .changes
            .iter()
            .any(|one| one.effect.verb == EffectVerb::Deleted)
        {
            return Pace::GoesOn;
        }
        let times = self.0.entry(key.clone()).or_default();
        *times += 1;
        match *times > WRITES {
            true => Pace::Restless,
            false => Pace::GoesOn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::effect::Effect;
    use crate::plan::fleet::PlannedChange;
    use crate::sample::key;

    fn writes(verbs: &[EffectVerb]) -> Writes {
        let change = |verb: &EffectVerb| PlannedChange {
            effect: Effect {
                kind: "ManifestWork".to_owned(),
                path: String::new(),
                element: String::new(),
                verb: *verb,
            },
            fields: Vec::new(),
        };
        Writes {
            changes: verbs.iter().map(change).collect(),
            ..Writes::default()
        }
    }

    fn last(answers: &[Writes]) -> Pace {
        let mut rest = Rest::default();
        let paces = answers.iter().map(|writes| rest.count(&key("a"), writes));
        paces.last().unwrap()
    }

    #[test]
    fn what_removes_one_object_after_the_other_is_not_restless() {
        let removes = [
            writes(&[EffectVerb::Set, EffectVerb::Deleted]),
            writes(&[EffectVerb::Set]),
        ];
        let mut answers = vec![removes[0].clone(); 50];
        assert_eq!(last(&answers), Pace::GoesOn);
        answers.push(removes[1].clone());
        assert_eq!(last(&answers), Pace::GoesOn);
        answers.push(writes(&[]));
        assert_eq!(last(&answers), Pace::AtRest);
    }

    #[test]
    fn what_is_taken_back_again_and_again_is_restless() {
        for turns in [
            vec![EffectVerb::Set],
            vec![EffectVerb::Added, EffectVerb::Removed],
            vec![EffectVerb::Created, EffectVerb::Deleted],
        ] {
            let answers = turns.iter().cycle().map(|verb| writes(&[*verb]));
            let answers: Vec<_> = answers.take(2 * WRITES + 1).collect();
            assert_eq!(last(&answers), Pace::Restless, "{turns:?}");
        }
    }
}
