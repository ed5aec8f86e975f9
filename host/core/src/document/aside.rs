//! Replaces the long words of a YAML text by short marks while it is parsed: base64 certificates are nine tenths of a
//! kubeconfig, and the parser looks at every character many times. Parsed values and the places of errors stay the
//! same.

use std::borrow::Cow;

/// A mark is this, the number of the word, and the end.
const MARK: &str = "aside~";
const END: char = '~';

/// Shorter words cost little.
const LONG: usize = 256;

/// A text with marks instead of its long words, and these words.
pub(super) struct Aside<'t> {
    /// The text with marks. It has the same lines.
    pub(super) text: Cow<'t, str>,
    words: Vec<&'t str>,
}

impl<'t> Aside<'t> {
    /// Puts nothing aside.
    pub(super) fn nothing(text: &'t str) -> Self {
        Self {
            text: Cow::Borrowed(text),
            words: Vec::new(),
        }
    }

    /// Replaces every long word that ends its line. `None` when there is none, or when the text holds a mark or a
    /// backslash: an escape could spell a mark that shows only after parsing.
    pub(super) fn of(text: &'t str) -> Option<Self> {
        if text.len() < LONG || text.contains('\\') || text.contains(MARK) {
            return None;
        }
        let mut words = Vec::new();
        let mut short = String::new();
        let mut copied = 0;
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let end = start + line.trim_end_matches(['\n', '\r']).len();
            if let Some(word) = last_word(text.get(start..end).unwrap_or_default()) {
                short.push_str(text.get(copied..end - word.len()).unwrap_or_default());
                short.push_str(&format!("{MARK}{}{END}", words.len()));
                words.push(word);
                copied = end;
            }
            start += line.len();
        }
        short.push_str(text.get(copied..).unwrap_or_default());
        (!words.is_empty()).then_some(Self {
            text: Cow::Owned(short),
            words,
        })
    }

    /// Puts the words back into a text that the parser gave.
    pub(super) fn whole<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.words.is_empty() || !text.contains(MARK) {
            return Cow::Borrowed(text);
        }
        let mut parts = text.split(MARK);
        let mut whole = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (number, rest) = part.split_once(END).unwrap_or_default();
            let word = number
                .parse::<usize>()
                .ok()
                .and_then(|number| self.words.get(number));
            whole.push_str(word.copied().unwrap_or_default());
            whole.push_str(rest);
        }
        Cow::Owned(whole)
    }
}

/// The long base64 word that ends a line after a key. A word that could be a number stays: a mark is always text.
fn last_word(line: &str) -> Option<&str> {
    if line.len() < LONG {
        return None;
    }
    let is_inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let length = line.bytes().rev().take_while(is_inside).count();
    let (before, word) = line.split_at_checked(line.len() - length)?;
    let in_no_number = |byte: u8| {
        byte.is_ascii_alphabetic()
            && !matches!(byte, b'a'..=b'f' | b'A'..=b'F' | b'o' | b'O' | b'x' | b'X')
    };
    (length >= LONG && before.ends_with(": ") && word.bytes().take(LONG).any(in_no_number))
        .then_some(word)
}

#[cfg(test)]
mod tests {
    use super::super::cost::ParseMemory;
    use super::super::{ParseLimits, Parsed, Parsing, chunks, parse_many};
    use super::*;
    use proptest::prelude::*;

    const LIMITS: ParseLimits = ParseLimits {
        bytes: 1 << 20,
        nodes: 10_000,
        depth: 20,
    };

    fn shown(all: &[Parsed]) -> String {
        all.iter()
            .map(|one| format!("{} {} {:?}\n", one.number, one.line, one.value))
            .collect()
    }

    /// What the parser makes of a text without marks.
    fn plainly(text: &str) -> String {
        let mut all = Vec::new();
        for chunk in chunks(text) {
            let memory = ParseMemory::of(text.len());
            let mut parsing = Parsing::new(&chunk, LIMITS, &memory);
            parsing.text(&Aside::nothing(chunk.text));
            if parsing.ends_at_a_duplicate_key() {
                parsing.restart(ParseMemory::of(text.len()).left());
                parsing.exact = true;
                parsing.text(&Aside::nothing(chunk.text));
            }
            all.extend(parsing.found);
        }
        for (number, one) in (1..).zip(&mut all) {
            one.number = number;
        }
        shown(&all)
    }

    #[test]
    fn sets_aside_only_words_that_are_not_numbers() {
        let word = "LS0tLS1CRUdJTi".repeat(20);
        let text = format!(
            "a: {word}\r\nb: |\n  c: {word}\nd: \"{word}\"\ne: {}\nf: x {word}\n",
            "1234567890".repeat(30)
        );
        let aside = Aside::of(&text).unwrap();
        assert_eq!(
            aside.text.len(),
            text.len() - 2 * word.len() + 2 * "aside~0~".len()
        );
        assert_eq!(
            aside.whole("aside~0~ and aside~1~."),
            format!("{word} and {word}.")
        );
        assert!(Aside::of(&format!("aside~: {word}\n")).is_none());
        assert!(Aside::of("a: b\n").is_none());
        for forged in ["\"\\x61side~0~\"", "\"\\u0061side~0~\"", "\"asi\\\nde~0~\""] {
            let text = format!("a: {word}\nb: {forged}\n");
            assert!(Aside::of(&text).is_none(), "{forged}");
            assert_eq!(shown(&parse_many(text.as_bytes(), LIMITS)), plainly(&text));
        }
    }

    fn line() -> impl Strategy<Value = String> {
        let word = prop_oneof![
            Just("LS0tLS1CRUdJTi".repeat(20)),
            Just("A/b+".repeat(70)),
            Just("7".repeat(300)),
            Just("0x1e".repeat(70)),
            Just("short".to_owned()),
        ];
        let form = prop_oneof![
            Just("K: W"),
            Just("  K: W"),
            Just("    K: W"),
            Just("K: \"W"),
            Just("  W\""),
            Just("K: 'W'"),
            Just("K: |"),
            Just("K: >-"),
            Just("  x: W"),
            Just("  W"),
            Just("- W"),
            Just("- K: W"),
            Just("# K: W"),
            Just("K: &a W"),
            Just("K: *a"),
            Just("K: !!str W"),
            Just("K: {x: W"),
            Just("}"),
            Just("? W"),
            Just(": W"),
            Just("---"),
            Just("K: W "),
            Just("K: \"\\x61side~0~\""),
            Just("K: aside~0~"),
            Just("K: \"asi\\"),
            Just("de~0~\""),
            Just("K: [x, y: W"),
            Just("]"),
            Just("K: \"x: W"),
            Just("\""),
        ];
        (form, word, "[ab]", any::<bool>()).prop_map(|(form, word, key, cr)| {
            form.replace('K', &key).replace('W', &word) + if cr { "\r\n" } else { "\n" }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn the_meaning_of_a_text_stays_the_same(lines in proptest::collection::vec(line(), 1..7), ended in any::<bool>()) {
            let whole = lines.concat();
            let text = if ended { &*whole } else { whole.trim_end() };
            prop_assert_eq!(shown(&parse_many(text.as_bytes(), LIMITS)), plainly(text));
        }
    }
}
