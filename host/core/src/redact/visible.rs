//! Escapes text for people: one line, without letters that move a cursor, change the direction of text or are
//! invisible. Names of objects and files come from the authors of manifests.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text with a JSON escape (`\n`, `\u001b`) for every letter that [`is_hidden`]. In a string of a JSON document
/// the escape means the same letter; a second call changes nothing more.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, is_hidden)
}

/// The same for text of several lines; line feeds stay.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| letter != '\n' && is_hidden(letter))
}

/// Whether a letter ends a line, moves a cursor, changes the direction of text, or is invisible.
pub fn is_hidden(letter: char) -> bool {
    if letter.is_ascii() {
        return letter.is_ascii_control();
    }
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

fn escaped(text: &str, is_hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    // Fast path: nearly all text is plain, and there are megabytes of it.
    if text
        .bytes()
        .all(|byte| byte.is_ascii() && !is_hidden(char::from(byte)))
    {
        return Cow::Borrowed(text);
    }
    let Some(at) = text.find(&is_hidden) else {
        return Cow::Borrowed(text);
    };
    let (plain, rest) = text.split_at(at);
    let mut shown = plain.to_owned();
    for letter in rest.chars() {
        match letter {
            letter if !is_hidden(letter) => shown.push(letter),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            hidden => hidden.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                let _ = write!(shown, "\\u{unit:04x}");
            }),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spells_out_invisible_characters() {
        for (text, expected) in [
            (
                "Secret a/b.c_d: ü 木 🦀 e\u{301}",
                "Secret a/b.c_d: ü 木 🦀 e\u{301}",
            ),
            ("a\nb\r\t\u{1b}[31m", "a\\nb\\r\\t\\u001b[31m"),
            ("\u{9b}31m\u{85}\u{7f}\0", "\\u009b31m\\u0085\\u007f\\u0000"),
            (
                "\u{202e}x\u{2066}\u{2028}\u{2029}\u{200b}\u{feff}",
                "\\u202ex\\u2066\\u2028\\u2029\\u200b\\ufeff",
            ),
            ("\u{e0041}", "\\udb40\\udc41"),
            ("back\\slash", "back\\slash"),
        ] {
            assert_eq!(visible(text), expected);
        }
        assert_eq!(visible_lines("a\nb\u{1b}"), "a\nb\\u001b");
        assert!(matches!(visible("plain"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn no_invisible_character_remains_and_json_stays_equal(text in "(?s).{0,40}|[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}]{0,20}") {
            let shown = visible(&text).into_owned();
            prop_assert!(!shown.contains(is_hidden));
            prop_assert_eq!(visible(&shown), shown.as_str());
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(serde_json::from_str::<String>(&visible(&json)).unwrap(), text);
        }

        #[test]
        fn spells_out_every_zero_width_character(letter in "[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}]") {
            // These signs of some scripts are visible.
            let signs = ['\u{600}'..='\u{605}', '\u{6dd}'..='\u{6dd}', '\u{70f}'..='\u{70f}', '\u{890}'..='\u{891}',
                '\u{8e2}'..='\u{8e2}', '\u{110bd}'..='\u{110bd}', '\u{110cd}'..='\u{110cd}', '\u{13430}'..='\u{1345f}'];
            prop_assert!(letter.chars().all(|letter| is_hidden(letter) || signs.iter().any(|signs| signs.contains(&letter))));
        }
    }
}
