//! Rust text without comments and the contents of literals, with the same lines. Not a parser: it knows only where code
//! stops, so that words can be searched in it.

/// The text with comments and literals blanked; lines keep their numbers.
pub fn only(text: &str) -> String {
    let mut scanner = Scanner {
        rest: text,
        code: String::with_capacity(text.len()),
        previous: ' ',
    };
    while scanner.step() {}
    scanner.code
}

struct Scanner<'a> {
    rest: &'a str,
    code: String,
    previous: char,
}

impl Scanner<'_> {
    /// Takes one comment, literal or character; false at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else {
            return false;
        };
        let taken = match first {
            '/' if self.rest.starts_with("//") => self.rest.find('\n').unwrap_or(self.rest.len()),
            '/' if self.rest.starts_with("/*") => block_comment(self.rest),
            '"' => quoted(self.rest, '"'),
            '\'' => character(self.rest),
            'r' if !is_word(self.previous) || self.previous == 'b' => raw_string(self.rest),
            _ => 0,
        };
        if taken == 0 {
            self.code.push(first);
            self.rest = &self.rest[first.len_utf8()..];
        } else {
            self.code
                .extend(self.rest[..taken].chars().filter(|char| *char == '\n'));
            self.code.push(' ');
            self.rest = &self.rest[taken..];
        }
        self.previous = first;
        true
    }
}

/// Length of a block comment, including nested ones.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(rest) = text.get(at..) {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else if let Some(char) = rest.chars().next() {
            at += char.len_utf8();
        } else {
            break;
        }
    }
    text.len()
}

/// Length of a literal between two of these quotes, with escapes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, char) in text.char_indices().skip(1) {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if char == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of a character literal; 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(text, '\''),
        _ => 0,
    }
}

/// Length of `r"…"` or `r#"…"#`; 0 if it is not a raw string.
fn raw_string(text: &str) -> usize {
    let hashes = text[1..].bytes().take_while(|byte| *byte == b'#').count();
    if !text[1 + hashes..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    text[2 + hashes..]
        .find(&end)
        .map_or(text.len(), |at| 2 + hashes + at + end.len())
}

/// Whether the code contains the word, not as part of a longer one.
pub fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Of each line of the code, whether it belongs to a `#[cfg(test)]` module at the outermost level.
pub fn test_lines(code: &str) -> Vec<bool> {
    let lines: Vec<&str> = code.lines().collect();
    let mut marks = vec![false; lines.len()];
    let mut at = 0;
    while at < lines.len() {
        let end = if lines[at].trim_end() == "#[cfg(test)]" {
            module_end(&lines, at)
        } else {
            at
        };
        marks[at..end].fill(true);
        at = end.max(at + 1);
    }
    marks
}

/// The line after the module whose attributes start here; the same line if no module follows.
fn module_end(lines: &[&str], start: usize) -> usize {
    let mut at = start;
    while lines.get(at).is_some_and(|line| line.starts_with("#[")) {
        at += 1;
    }
    if !lines
        .get(at)
        .is_some_and(|line| line.starts_with("mod ") || line.contains(" mod "))
    {
        return start;
    }
    let mut depth = 0_i64;
    for (offset, line) in lines[at..].iter().enumerate() {
        depth += line
            .chars()
            .map(|char| i64::from(char == '{') - i64::from(char == '}'))
            .sum::<i64>();
        if depth <= 0 {
            return at + offset + 1;
        }
    }
    lines.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_comments_and_literals() {
        let text = "let a = \"unsafe \\\" {\"; // unsafe\nlet b = r#\"unsafe \"x\" \"#; /* unsafe /* a */ b */ let c = '\"'; let d: &'static str = b\"unsafe\";";
        let code = only(text);
        assert!(!code.contains("unsafe"), "{code}");
        assert!(
            code.contains("let c =") && code.contains("&'static str"),
            "{code}"
        );
        assert_eq!(code.lines().count(), 2);
    }

    #[test]
    fn matches_whole_words() {
        assert!(has_word("pub unsafe fn a()", "unsafe"));
        assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
    }

    #[test]
    fn test_modules_end_at_their_closing_brace() {
        let code = "fn a() {}\n#[cfg(test)]\n#[expect(x)]\nmod tests {\n    fn b() {\n    }\n}\nfn c() {}\n#[cfg(test)]\nmod more;\nfn d() {}\n#[cfg(test)]\nuse a;\n";
        let marked: Vec<usize> = test_lines(code)
            .iter()
            .enumerate()
            .filter(|(_, is)| **is)
            .map(|(at, _)| at)
            .collect();
        assert_eq!(marked, [1, 2, 3, 4, 5, 6, 8, 9]);
    }
}
