//! Numbers from a seed, the same on every machine and in every version. Not for secrets.

use rsa::rand_core::{CryptoRng, Error, RngCore, impls};

/// A stream of numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// The stream for a seed and a place in it, so that two things of one seed do not share numbers.
    pub fn new(seed: u64, place: u64) -> Self {
        let mut start = Self(seed);
        let mixed = start.take() ^ place.wrapping_mul(0xd1b5_4a32_d192_ed03);
        Self(mixed)
    }

    /// The next number.
    pub fn take(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A UUID of version 4.
    pub fn uuid(&mut self) -> String {
        let (high, low) = (self.take(), self.take());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | (low >> 48) & 0x3fff,
            low & 0xffff_ffff_ffff
        )
    }
}

impl RngCore for Numbers {
    fn next_u32(&mut self) -> u32 {
        (self.take() >> 32) as u32
    }

    fn next_u64(&mut self) -> u64 {
        self.take()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        impls::fill_bytes_via_next(self, bytes);
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

/// Implemented on purpose: the keys of a generated fleet must be the same in every run, so they protect nothing.
impl CryptoRng for Numbers {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_splitmix64() {
        let mut numbers = Numbers(0);
        assert_eq!(
            [numbers.take(), numbers.take()],
            [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]
        );
    }

    #[test]
    fn uuids_are_well_formed_and_differ_by_place() {
        let uuid = Numbers::new(1, 1).uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert!("89ab".contains(char::from(uuid.as_bytes()[19])), "{uuid}");
        assert_ne!(uuid, Numbers::new(1, 2).uuid());
        assert_eq!(uuid, Numbers::new(1, 1).uuid());
    }
}
