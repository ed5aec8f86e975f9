//! Whatever happens to a fleet: no interval changes more than its limit and what was approved.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn no_interval_changes_more_than_its_limit(
        steps in proptest::collection::vec((0..14_u8, 0..30_u32, 0..4_usize), 1..400),
        primaries in 1..30_u32, count in 0..10_u32, percent in 0..60_u32,
    ) {
        let limit = json!({"count": count, "percent": percent});
        let limits = json!({"intervalSeconds": 9, "elementsAdded": limit, "elementsRemoved": limit, "objectsChanged": limit, "objectsPruned": limit});
        let mut fleet = Fleet::new(primaries, limits);
        let mut approved: BTreeMap<(i64, u32, Limited), u32> = BTreeMap::new();
        for (what, primary, kind) in steps {
            let (name, kind) = (primary.min(primaries - 1).to_string(), Limited::ALL[kind]);
            match what {
                0 => fleet.now += i64::from(primary),
                1 => fleet.restart(),
                9 => drop(fleet.end()),
                2 => drop(fleet.look(None)),
                3 => {
                    let status = fleet.ledger.status().cloned();
                    let since = fleet.ledger.record().map_or(0, |record| record.started_seconds);
                    let looked = fleet.look(status.as_ref().map(|status| status.approve.as_str()));
                    if looked.approved.is_some() {
                        for one in status.unwrap().changes {
                            *approved.entry((since, of(&fleet.ended, one.limit), one.limit)).or_default() += one.withheld;
                        }
                    }
                }
                8 => drop(fleet.swap(&[u8::from(primary % 2 == 0)])),
                4 => drop(fleet.ask(&name, &[])),
                5 => drop(fleet.ask(&name, &Limited::ALL)),
                _ => drop(fleet.ask(&name, &[kind])),
            }
            if let Ok(counted) = fleet.ask(&name, &[kind]) && what == 7 {
                // A conflict.
                fleet.ledger.give_back(&Arc::new(hosted(&name)), &counted);
                let since = fleet.ledger.record().map_or(0, |record| record.started_seconds);
                for kind in counted {
                    fleet.changed.remove(&(since, of(&fleet.ended, kind), kind, name.clone()));
                }
            }
        }
        let most = fleet.limits.share(ADDED, primaries);
        let mut sums: BTreeMap<(i64, u32, Limited), u32> = BTreeMap::new();
        for (since, ended, kind, _) in &fleet.changed {
            *sums.entry((*since, *ended, *kind)).or_default() += 1;
        }
        for (interval, sum) in sums {
            let more = approved.get(&interval).copied().unwrap_or_default();
            prop_assert!(sum <= most + more, "{interval:?}: {sum} of {most} and {more}");
        }
    }
}
