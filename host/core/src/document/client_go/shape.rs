//! Which quotes a text needs, as yaml.v2 decides it.

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

/// What a text contains, as libyaml analyses it.
#[derive(Default)]
pub(super) struct TextShape {
    indicators: bool,
    special: bool,
    breaks: bool,
    space_at_an_end: bool,
    trailing_space: bool,
    break_then_space: bool,
    space_then_break: bool,
}

impl TextShape {
    pub(super) fn of(text: &str) -> Self {
        // Base64, which is most of a kubeconfig, contains none of these.
        if text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='))
        {
            return Self::default();
        }
        let mut shape = Self {
            indicators: text.starts_with("---") || text.starts_with("..."),
            ..Self::default()
        };
        let mut before = None;
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            let next = letters.peek().copied();
            let blank_follows = next.is_none_or(|next| matches!(next, ' ' | '\t'));
            let blank_before =
                before.is_none_or(|before| matches!(before, ' ' | '\t') || is_break(before));
            shape.indicators |= match (letter, before) {
                (
                    '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"'
                    | '%' | '@' | '`',
                    None,
                ) => true,
                ('?' | '-', None) | (':', _) => blank_follows,
                ('#', _) => blank_before,
                _ => false,
            };
            shape.special |= !is_printable(letter);
            shape.breaks |= is_break(letter);
            let at_an_end = before.is_none() || next.is_none();
            shape.space_at_an_end |= at_an_end && (letter == ' ' || is_break(letter));
            shape.trailing_space |= next.is_none() && letter == ' ';
            shape.break_then_space |= letter == ' ' && before.is_some_and(is_break);
            shape.space_then_break |= is_break(letter) && before == Some(' ');
            before = Some(letter);
        }
        shape
    }

    pub(super) fn style(&self, text: &str) -> Style {
        let quoted = self.special || self.space_then_break;
        if text.contains('\n') && !quoted && !self.trailing_space {
            return Style::Literal;
        }
        let plain = !self.indicators && !self.space_at_an_end && !self.breaks;
        match quoted || self.break_then_space || text.contains('\n') || is_word(text) {
            true => Style::Double,
            false if plain => Style::Plain,
            false => Style::Single,
        }
    }
}

pub(super) fn is_break(letter: char) -> bool {
    matches!(letter, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// What libyaml counts as printable: nothing beyond the basic plane.
pub(super) fn is_printable(letter: char) -> bool {
    matches!(letter, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

/// Whether YAML 1.1 reads a text as something else than a string. yaml.v2 writes `<<` plain, which makes a merge of a
/// field that clients do not know; clients drop such fields before they write, so their files have none.
fn is_word(text: &str) -> bool {
    const WORDS: [&str; 13] = [
        "", "~", "<<", "y", "n", "yes", "no", "on", "off", "true", "false", "null", ".nan",
    ];
    const LONGEST_WORD: usize = "false".len();
    let cased = |word: &str| {
        let upper = word.to_ascii_uppercase();
        let first = word.get(..1).unwrap_or_default().to_ascii_uppercase()
            + word.get(1..).unwrap_or_default();
        text == word || text == upper || text == first
    };
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    (text.len() <= LONGEST_WORD && WORDS.iter().any(|word| cased(word)))
        || matches!(text, ".NaN" | ".NAN")
        || matches!(unsigned, ".inf" | ".Inf" | ".INF")
        || is_number(text, unsigned)
        || is_base_60(unsigned)
        || is_time(text)
}

fn is_number(text: &str, unsigned: &str) -> bool {
    if !text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) {
        return false;
    }
    // yaml.v2 keeps the underscores of a text that begins with a point.
    let plain = if text.starts_with('.') {
        unsigned.to_owned()
    } else {
        unsigned.replace('_', "")
    };
    let lower = plain.to_ascii_lowercase();
    let of_base = |prefix: &str, base: u32| {
        let digits = lower.strip_prefix(prefix);
        digits.is_some_and(|digits| {
            !digits.is_empty()
                && u64::from_str_radix(digits, base).is_ok()
                && !digits.starts_with('+')
        })
    };
    let (mantissa, exponent) = lower
        .split_once('e')
        .map_or((&*lower, None), |(mantissa, rest)| (mantissa, Some(rest)));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.is_none_or(|text| {
        text.strip_prefix(['+', '-'])
            .is_some_and(|text| !text.is_empty() && digits(text))
            || !text.is_empty() && digits(text)
    });
    let float = digits(whole) && digits(part) && !(whole.is_empty() && part.is_empty()) && exponent;
    float && lower.parse::<f64>().is_ok_and(f64::is_finite)
        || of_base("0x", 16)
        || of_base("0o", 8)
        || of_base("0b", 2)
}

fn is_base_60(unsigned: &str) -> bool {
    let Some((first, rest)) = unsigned.split_once(':') else {
        return false;
    };
    let (rest, part) = rest.split_once('.').unwrap_or((rest, ""));
    let digits = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'_')
    };
    let sixtieth = |text: &str| {
        let number = text.parse::<u8>().ok().filter(|number| *number < 60);
        number.is_some() && text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    first.starts_with(|first: char| first.is_ascii_digit())
        && digits(first)
        && digits(part)
        && rest.split(':').all(sixtieth)
}

/// Whether a text begins like a date and may go on with a time.
fn is_time(text: &str) -> bool {
    let (date, time) = text
        .split_at_checked(text.find(['T', 't', ' ']).unwrap_or(text.len()))
        .unwrap_or((text, ""));
    let mut parts = date.split('-');
    let mut number = |shortest: usize, longest: usize| {
        let part = parts.next().unwrap_or_default();
        (shortest..=longest).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    number(4, 4)
        && number(1, 2)
        && number(1, 2)
        && parts.next().is_none()
        && (time.is_empty() || time.len() > 1 && time.matches(':').count() >= 2)
        && time
            .bytes()
            .skip(1)
            .all(|byte| byte.is_ascii_digit() || b":.+-Zz".contains(&byte))
}
