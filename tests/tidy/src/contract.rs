//! The draft of the contract: each interface, type, field, case and function says what it is.

use crate::Source;

/// What a line may begin with that is no part of the contract itself, or needs no words.
const PLAIN: [&str; 5] = ["package ", "use ", "import ", "export ", "include "];
const TYPES: [&str; 7] = [
    "interface ",
    "world ",
    "record ",
    "variant ",
    "enum ",
    "flags ",
    "resource ",
];

/// The items of the draft without documentation.
pub fn undocumented(sources: &[Source]) -> Vec<String> {
    let drafts = sources.iter().filter(|source| {
        let path = source.path.strip_prefix("wit/");
        source.is("wit") && path.is_some_and(|path| !path.contains('/'))
    });
    drafts.flat_map(without_words).collect()
}

fn without_words(source: &Source) -> Vec<String> {
    let (mut findings, mut before) = (Vec::new(), "");
    for (index, line) in source.text.lines().map(str::trim).enumerate() {
        if is_item(line) && !before.starts_with("///") {
            let (path, at) = (&source.path, index + 1);
            findings.push(format!("{path}:{at}: `{line}` has no documentation"));
        }
        if !line.is_empty() {
            before = line;
        }
    }
    findings
}

/// Whether a line begins a type, a field, a case or a function.
fn is_item(line: &str) -> bool {
    let begins = |with: &[&str]| with.iter().any(|word| line.starts_with(word));
    let end = line.find([':', ',', '(']);
    let name = end.map(|end| line[..end].trim_start_matches('%'));
    let is_name = |name: &str| {
        let mut chars = name.chars();
        let begins = chars.next().is_some_and(|char| char.is_ascii_lowercase());
        begins
            && chars.all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-')
    };
    !begins(&PLAIN) && (begins(&TYPES) || name.is_some_and(is_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_needs_words() {
        let text = "package a:b@0.1.0;\n\n/// Words.\ninterface a {\n    use b.{c};\n\n    record d {\n        /// Words.\n        e: u8,\n        f: u8,\n    }\n\n    /// Words.\n    enum g {\n        h,\n    }\n\n    i: func(j: u8);\n}\n";
        let found = undocumented(&[
            Source::new("wit/a.wit", text),
            Source::new("wit/released/0.1.0/a.wit", text),
            Source::new("tests/a.wit", text),
        ]);
        let lines: Vec<_> = found.iter().map(|one| &one[..12]).collect();
        assert_eq!(
            lines,
            [
                "wit/a.wit:7:",
                "wit/a.wit:10",
                "wit/a.wit:15",
                "wit/a.wit:18"
            ]
        );
    }
}
