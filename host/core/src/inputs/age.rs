//! How old a time in a field of an object is, or how long ago the field changed, against a limit. A heartbeat moves
//! such a field, and only when it gets to another side of the limit is there something new to say.

use crate::contract::decide::Age;
use crate::failure::InvalidField;
use crate::object::Object;
use crate::projection::path::Path;
use crate::time::WholeSeconds;
use serde_json::Value;

/// On which side of its limit a time is; all times in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// There is no such time: the object or the field is not there.
    Absent,
    /// It is younger than the limit.
    Fresh {
        /// From when on it is stale.
        until: i64,
    },
    /// It is as old as the limit, or older.
    Stale {
        /// Since when.
        since: i64,
    },
    /// It lies at least the limit in the future: the clock that it comes from is ahead.
    Ahead {
        /// From when on it does not.
        until: i64,
    },
    /// It moves, and what it said when it moved last lay at least the limit in the past: the clock that it comes from
    /// is behind.
    Behind {
        /// From when on it is stale.
        until: i64,
    },
    /// It has not moved since the agent looks, and it does not say that it is fresh.
    Unsure {
        /// From when on it is stale.
        until: i64,
    },
}

/// What the agent saw of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    /// The time that it says, if it says one.
    pub(super) told: Option<WholeSeconds>,
    /// When it was first seen to say so.
    pub(super) at_seconds: i64,
    /// Whether it said something else before.
    pub(super) moved: bool,
}

impl Freshness {
    /// The side on which a time is now. A fraction of a second makes neither side begin early.
    ///
    /// # Errors
    /// When the field is there and not a time.
    pub fn of(object: Option<&Object>, age: &Age, now_seconds: i64) -> Result<Self, InvalidField> {
        let Some(value) = object.and_then(|object| field(object, &age.field)) else {
            return Ok(Self::Absent);
        };
        let time = value.as_str().and_then(WholeSeconds::of);
        let time = time.ok_or_else(|| InvalidField {
            path: age.field.clone(),
            expected: "a time like 2026-11-21T08:15:30Z",
        })?;
        let seconds = i64::from(age.seconds);
        let ends = time.up.saturating_add(seconds);
        let begins = time.down.saturating_sub(seconds);
        Ok(match now_seconds {
            now if now >= ends => Self::Stale { since: ends },
            now if now <= begins => Self::Ahead {
                until: begins.saturating_add(1),
            },
            _ => Self::Fresh { until: ends },
        })
    }

    /// The side on which a field is now, by what the agent saw of it.
    pub(super) fn observed(sight: Sight, age: &Age, now_seconds: i64) -> Self {
        let seconds = i64::from(age.seconds);
        let at_seconds = sight.at_seconds;
        let until = at_seconds.saturating_add(seconds);
        match sight.told {
            _ if now_seconds >= until => Self::Stale { since: until },
            Some(told) if at_seconds <= told.down.saturating_sub(seconds) => Self::Ahead { until },
            Some(told) if at_seconds < told.up.saturating_add(seconds) => Self::Fresh { until },
            Some(_) if sight.moved => Self::Behind { until },
            None if sight.moved => Self::Fresh { until },
            _ => Self::Unsure { until },
        }
    }

    /// When time alone changes it.
    pub fn until(self) -> Option<i64> {
        match self {
            Self::Fresh { until }
            | Self::Ahead { until }
            | Self::Behind { until }
            | Self::Unsure { until } => Some(until),
            Self::Absent | Self::Stale { .. } => None,
        }
    }

    /// Whether it says something new to who saw it before: it is on another side, or a newer time is stale as well.
    pub fn is_news(self, before: Self) -> bool {
        match (before, self) {
            (Self::Fresh { .. }, Self::Fresh { .. })
            | (Self::Ahead { .. }, Self::Ahead { .. })
            | (Self::Behind { .. }, Self::Behind { .. })
            | (Self::Unsure { .. }, Self::Unsure { .. }) => false,
            (before, now) => before != now,
        }
    }
}

/// What a field of an object says. One that is being deleted counts as it stands: whoever keeps it by a finalizer must
/// not hide its age.
pub(super) fn field<'a>(object: &'a Object, path: &str) -> Option<&'a Value> {
    let path = Path::parse(path).ok()?;
    let mut keys = path.keys()?.into_iter();
    let value = keys.try_fold(&object.body, |value, key| value.get(key))?;
    (!value.is_null()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{hosted, object};
    use serde_json::json;

    fn age(renewed: Value, now_seconds: i64) -> Result<Freshness, String> {
        let lease = object(hosted("x"), json!({"spec": {"renewTime": renewed}}));
        let limit = Age {
            field: "spec.renewTime".to_owned(),
            seconds: 300,
        };
        Freshness::of(Some(&lease), &limit, now_seconds).map_err(|invalid| invalid.path)
    }

    #[test]
    fn a_time_is_on_one_side_of_its_limit() {
        let renewed = || json!("1970-01-01T00:16:40.500000Z");
        for (now, side) in [
            (700, Freshness::Ahead { until: 701 }),
            (701, Freshness::Fresh { until: 1_301 }),
            (1_300, Freshness::Fresh { until: 1_301 }),
            (1_301, Freshness::Stale { since: 1_301 }),
            (i64::MAX, Freshness::Stale { since: 1_301 }),
        ] {
            assert_eq!(age(renewed(), now), Ok(side), "{now}");
        }
        assert_eq!(age(Value::Null, 0), Ok(Freshness::Absent));
        assert_eq!(age(json!("soon"), 0), Err("spec.renewTime".to_owned()));
        assert_eq!(age(json!(5), 0), Err("spec.renewTime".to_owned()));
        let limit = Age {
            field: "spec.renewTime".to_owned(),
            seconds: 1,
        };
        assert_eq!(Freshness::of(None, &limit, 0), Ok(Freshness::Absent));
    }

    /// Rows of `availability`: L09, L10, L11, L16, with a limit of 300 seconds.
    #[test]
    fn what_is_young_is_looked_at_when_it_gets_too_old_and_what_is_too_old_never_again() {
        let at = 1_000;
        let renewed = || json!("1970-01-01T00:16:40Z");
        for (now, until) in [(at + 30, 270), (at + 240, 60), (at + 299, 1)] {
            let side = age(renewed(), now).map(Freshness::until);
            assert_eq!(side, Ok(Some(now + until)), "{now}");
        }
        for now in [at + 300, at + 301] {
            assert_eq!(age(renewed(), now).map(Freshness::until), Ok(None), "{now}");
        }
    }

    #[test]
    fn a_heartbeat_is_no_news_while_it_comes_in_time() {
        let (fresh, stale) = (
            |until| Freshness::Fresh { until },
            |since| Freshness::Stale { since },
        );
        assert!(!fresh(2).is_news(fresh(1)));
        assert!(!Freshness::Ahead { until: 2 }.is_news(Freshness::Ahead { until: 1 }));
        assert!(!stale(1).is_news(stale(1)) && !Freshness::Absent.is_news(Freshness::Absent));
        assert!(stale(1).is_news(fresh(1)) && fresh(1).is_news(stale(1)));
        assert!(
            stale(2).is_news(stale(1)),
            "a heartbeat that was too late when it came"
        );
        assert!(
            fresh(1).is_news(Freshness::Absent) && fresh(1).is_news(Freshness::Ahead { until: 1 })
        );
    }
}
