//! Divides the memory that an agent may use for its work, before any of it is used. Does not count the cached
//! objects: they grow with the fleet, not with guests.

/// The most that each part of the work costs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// One call of a guest: its memories, its arguments, its answer.
    pub call: u64,
    /// Compiling, for all concurrent compilations together.
    pub compilation: u64,
    /// The largest document with credentials, parsed.
    pub document: u64,
}

/// The shares of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Concurrent calls of guests.
    pub calls: usize,
    /// Decoded bytes of what reconciles read at the same time.
    pub documents: u64,
}

/// The fewest concurrent calls with which an agent starts: one to load a guest, two to work.
const FEWEST_CALLS: u64 = 3;

/// More concurrent calls make no machine faster, and each takes address space.
const MOST_CALLS: u64 = 64;

/// The default budget, in MiB: half of the memory that an installation allows a replica.
pub const DEFAULT_MIB: u64 = 256;

impl Default for Budget {
    /// For a process that lives for one command.
    fn default() -> Self {
        Self {
            calls: 6,
            documents: 48 << 20,
        }
    }
}

impl Budget {
    /// Divides so many bytes. Documents get a quarter of what compiling leaves, but at least enough for the largest
    /// one, and the remainder that is too small for a call; calls get the rest.
    ///
    /// # Errors
    /// The least that is enough.
    pub fn share(bytes: u64, costs: &Costs) -> Result<Self, u64> {
        let left = bytes.saturating_sub(costs.compilation);
        let (documents, call) = ((left / 4).max(costs.document), costs.call.max(1));
        let rest = left.saturating_sub(documents);
        let calls = rest / call;
        if calls < FEWEST_CALLS {
            let for_calls = costs.call.saturating_mul(FEWEST_CALLS);
            let for_documents = costs.document.max(for_calls.div_ceil(3));
            return Err(costs
                .compilation
                .saturating_add(for_calls)
                .saturating_add(for_documents));
        }
        // The remainder is too small for a call, so documents get it.
        let documents = documents + rest % call;
        Ok(Self {
            calls: usize::try_from(calls.min(MOST_CALLS)).unwrap_or(usize::MAX),
            documents,
        })
    }

    /// Threads for reconciles: one call stays free for loading a guest.
    pub fn threads(&self) -> usize {
        self.calls - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const COSTS: Costs = Costs {
        call: 20 * MIB,
        compilation: 64 * MIB,
        document: 16 * MIB,
    };

    #[test]
    fn everything_together_stays_within_the_budget() {
        for bytes in (0..2_000).map(|mib| mib * MIB) {
            match Budget::share(bytes, &COSTS) {
                Ok(budget) => {
                    let calls = budget.calls as u64;
                    assert!(COSTS.compilation + calls * COSTS.call + budget.documents <= bytes);
                    assert!(calls >= FEWEST_CALLS && budget.documents >= COSTS.document);
                    assert_eq!(budget.threads() as u64, calls - 1);
                }
                Err(least) => assert!(
                    least > bytes && Budget::share(least, &COSTS).is_ok(),
                    "{bytes} {least}"
                ),
            }
        }
    }

    #[test]
    fn a_larger_budget_allows_more_concurrent_calls() {
        for (mib, calls, documents) in [(256, 7, 52), (512, 16, 128), (1_024, 36, 240)] {
            let budget = Budget::share(mib * MIB, &COSTS).unwrap();
            assert_eq!((budget.calls, budget.documents), (calls, documents * MIB));
        }
    }

    #[test]
    fn refuses_too_small_a_budget_and_names_a_sufficient_one() {
        assert_eq!(Budget::share(100 * MIB, &COSTS), Err(144 * MIB));
    }
}
