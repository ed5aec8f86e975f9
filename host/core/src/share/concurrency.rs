//! How many requests to one API server run at once: a few more while it answers, half as many when it pushes back.
//! The caller waits, and passes the time.

use crate::backoff;

/// The limit at the start.
const FIRST: u64 = 16;
/// The highest limit: on two cores more requests make an API server slower, not faster.
const MOST: u64 = 64;
/// The unit of the limit, so that it can grow by less than one.
const ONE: u64 = 1_000;
/// The pause in milliseconds when a server asks for one without a length.
const PAUSE_MS: u64 = 1_000;
/// The longest pause that is obeyed, in milliseconds: a proxy in between may ask for nonsense.
const LONGEST_PAUSE_MS: u64 = 60_000;

/// The limit of all requests to one API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConcurrencyLimit {
    limit: u64,
    in_flight: u64,
    round: u64,
    closed_until_ms: u64,
}

/// Whether a request may start now.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may start; pass the ticket to [`ConcurrencyLimit::ended`].
    Go(Ticket),
    /// As many requests as the limit allows are running.
    Full,
    /// The server asked for a pause; ask again after so many milliseconds.
    Closed(u64),
}

/// One running request.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    round: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// The server answered, even if it refused.
    Answered,
    /// The server is overloaded, and may ask for a pause of so many milliseconds.
    PushedBack(Option<u64>),
    /// No answer came, or none that tells how loaded the server is.
    Lost,
}

impl Default for ConcurrencyLimit {
    fn default() -> Self {
        Self {
            limit: FIRST * ONE,
            in_flight: 0,
            round: 0,
            closed_until_ms: 0,
        }
    }
}

impl ConcurrencyLimit {
    /// Asks to start a request. The seed spreads waiting requests over another quarter of the pause.
    pub fn admit(&mut self, now_ms: u64, seed: u64) -> Admission {
        if let Some(left) = self
            .closed_until_ms
            .checked_sub(now_ms)
            .filter(|left| *left > 0)
        {
            return Admission::Closed(left + backoff::spread(seed, left / 4));
        }
        if self.in_flight >= self.limit() {
            return Admission::Full;
        }
        self.in_flight += 1;
        Admission::Go(Ticket { round: self.round })
    }

    /// Reports the end of a request. Answers to requests that began before the limit was last halved do not halve it
    /// again.
    pub fn ended(&mut self, ticket: Ticket, ending: RequestEnd, now_ms: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match ending {
            RequestEnd::Answered => {
                self.limit = (self.limit + ONE * ONE / self.limit).min(MOST * ONE);
            }
            RequestEnd::PushedBack(pause_ms) => {
                let pause_ms = pause_ms.unwrap_or(PAUSE_MS).min(LONGEST_PAUSE_MS);
                self.closed_until_ms = self.closed_until_ms.max(now_ms.saturating_add(pause_ms));
                if ticket.round == self.round {
                    self.round += 1;
                    self.limit = (self.limit / 2).max(ONE);
                }
            }
            RequestEnd::Lost => {}
        }
    }

    /// How many requests may run at once.
    pub fn limit(&self) -> u64 {
        self.limit / ONE
    }

    /// Whether another request could start, pauses aside.
    pub fn has_room(&self) -> bool {
        self.in_flight < self.limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn go(limit: &mut ConcurrencyLimit, now_ms: u64) -> Ticket {
        match limit.admit(now_ms, 0) {
            Admission::Go(ticket) => ticket,
            other => panic!("{other:?}"),
        }
    }

    /// Sends this many requests, one after the other, each answered.
    fn answered(limit: &mut ConcurrencyLimit, times: usize) {
        for _ in 0..times {
            let ticket = go(limit, u64::MAX);
            limit.ended(ticket, RequestEnd::Answered, u64::MAX);
        }
    }

    #[test]
    fn no_more_than_the_limit_go_on() {
        let mut limit = ConcurrencyLimit::default();
        let mut tickets: Vec<Ticket> = (0..16).map(|_| go(&mut limit, 0)).collect();
        assert_eq!(limit.admit(0, 0), Admission::Full);
        assert!(!limit.has_room());
        limit.ended(tickets.pop().unwrap(), RequestEnd::Lost, 0);
        assert!(limit.has_room());
        go(&mut limit, 0);
        assert_eq!(limit.admit(0, 0), Admission::Full);
    }

    #[test]
    fn a_round_of_answers_raises_the_limit_by_one_up_to_the_maximum() {
        let mut limit = ConcurrencyLimit::default();
        answered(&mut limit, 17);
        assert_eq!(limit.limit(), 17);
        answered(&mut limit, 10_000);
        assert_eq!(limit.limit(), 64);
    }

    #[test]
    fn throttling_halves_the_limit_once_for_all_requests_in_flight() {
        let mut limit = ConcurrencyLimit::default();
        let tickets: Vec<Ticket> = (0..16).map(|_| go(&mut limit, 0)).collect();
        for ticket in tickets {
            limit.ended(ticket, RequestEnd::PushedBack(Some(2_000)), 100);
        }
        assert_eq!(limit.limit(), 8);
        for seed in 0..50 {
            let Admission::Closed(wait) = limit.admit(100, seed) else {
                panic!("it is closed")
            };
            assert!((2_000..=2_500).contains(&wait), "{wait}");
        }
        let ticket = go(&mut limit, 2_100);
        limit.ended(ticket, RequestEnd::PushedBack(None), 2_100);
        assert_eq!(
            (limit.limit(), limit.admit(3_099, 0)),
            (4, Admission::Closed(1))
        );
    }

    #[test]
    fn never_stops_for_good_and_recovers() {
        let mut limit = ConcurrencyLimit::default();
        let mut now = 0;
        for _ in 0..20 {
            let ticket = go(&mut limit, now);
            limit.ended(ticket, RequestEnd::PushedBack(Some(u64::MAX)), now);
            now += 60_000;
        }
        assert_eq!(limit.limit(), 1);
        answered(&mut limit, 200);
        assert!(limit.limit() > 15, "{}", limit.limit());
    }
}
