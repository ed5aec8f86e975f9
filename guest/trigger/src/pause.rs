//! Reads `spec.pausedUntil` of a HostedCluster as HyperShift reads it.

use crate::reasons;
use transom_guest::time::parse_rfc3339;
use transom_guest::trigger::ReadyAnswer;

/// The meaning of `spec.pausedUntil`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Not paused: absent, false, over, or a text that HyperShift does not understand.
    None,
    /// Paused until the field is removed.
    Open,
    /// Paused until a time, in seconds since 1970.
    Until(i64),
}

impl Pause {
    /// Reads a true value of Go's `strconv.ParseBool`, or a time in RFC 3339; any other text is no pause.
    pub(crate) fn read(text: &str, now_seconds: i64) -> Self {
        match text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Self::Open,
            _ => match parse_rfc3339(text) {
                Some(until) if until > now_seconds => Self::Until(until),
                _ => Self::None,
            },
        }
    }

    /// The answer of a paused cluster, with the time at which the pause ends, if it has one.
    pub(crate) fn not_ready(self) -> ReadyAnswer {
        let (message, until) = match self {
            Self::Until(until) => ("spec.pausedUntil is a time to come", Some(until)),
            Self::Open | Self::None => ("spec.pausedUntil is true", None),
        };
        let answer = ReadyAnswer::not_ready(reasons::PRIMARY_PAUSED.problem(message));
        ReadyAnswer {
            ask_again_at: until,
            ..answer
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_follow_go() {
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(Pause::read(text, 0), Pause::Open, "{text}");
        }
        for text in [
            "",
            "0",
            "f",
            "false",
            "False",
            "tRUE",
            "yes",
            "on",
            " true",
            "4h",
            "2022-02-21",
        ] {
            assert_eq!(Pause::read(text, 0), Pause::None, "{text}");
        }
        let read = |now| Pause::read("2022-02-21T08:11:54Z", now);
        assert_eq!(read(1_645_431_113), Pause::Until(1_645_431_114));
        assert_eq!(
            read(1_645_431_114),
            Pause::None,
            "a pause is over at its time"
        );
    }
}
