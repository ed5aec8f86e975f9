//! Texts that must never be shown, and the search for them. Reports where a text was planted, not the text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Texts that must not be found, each with the place where it was planted.
#[derive(Default)]
pub struct Canaries {
    planted: Vec<(String, String)>,
}

impl Canaries {
    /// Creates a text for a place and searches for it from now on: raw, and in base64 at any offset.
    pub fn plant(&mut self, place: &str) -> String {
        let number = self.planted.len();
        let text = format!("canary{number:05}{}", "qZ7xW2vK9".repeat(3));
        self.look_for(place, &text);
        text
    }

    /// Searches for an existing text in the same ways.
    pub fn look_for(&mut self, place: &str, text: &str) {
        self.planted.push((place.to_owned(), text.to_owned()));
        for skipped in 0..3 {
            let rest = text.as_bytes().get(skipped..).unwrap_or_default();
            let whole = rest.get(..rest.len() / 3 * 3).unwrap_or_default();
            self.planted
                .push((format!("{place}, in base64"), STANDARD.encode(whole)));
        }
    }

    /// The number of texts in the search.
    pub fn count(&self) -> usize {
        self.planted.len()
    }

    /// The places whose texts appear in some output.
    pub fn found_in(&self, output: &[u8]) -> Vec<&str> {
        let output = String::from_utf8_lossy(output);
        self.planted
            .iter()
            .filter(|(_, text)| output.contains(text.as_str()))
            .map(|(place, _)| place.as_str())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_canary_raw_and_in_base64_at_any_offset() {
        let mut canaries = Canaries::default();
        let text = canaries.plant("token");
        assert_eq!(
            canaries.found_in(b"nothing of the kind"),
            Vec::<&str>::new()
        );
        assert_eq!(canaries.found_in(format!("x{text}y").as_bytes()), ["token"]);
        for before in ["", "a", "ab", "abc"] {
            let encoded = STANDARD.encode(format!("{before}{text}after"));
            assert_eq!(canaries.found_in(encoded.as_bytes()), ["token, in base64"]);
        }
    }
}
