//! Fills the placeholders of a template: `{{name}}` is replaced, everything else stays as it is.

/// The template with each `{{name}}` replaced by its value; a name without a value stays, where the reader of the
/// manifest sees it.
pub(crate) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(template.len() * 2);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, behind)) = after.split_once("}}") else {
            break;
        };
        filled.push_str(before);
        match values.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => filled.push_str(value),
            None => {
                filled.push_str("{{");
                filled.push_str(name);
                filled.push_str("}}");
            }
        }
        rest = behind;
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_placeholders_and_keeps_unknown_ones() {
        assert_eq!(
            fill("a {{b}}{{b}} {{c}} }} {{", &[("b", "x")]),
            "a xx {{c}} }} {{"
        );
    }
}
