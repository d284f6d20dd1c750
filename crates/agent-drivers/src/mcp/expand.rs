//! `${VARIABLE}` and `${VARIABLE:-default}` in a text.

/// Fills a text in, in one pass: what a variable holds is not looked at. What is no name between the braces stays as it is.
pub(super) fn expand(
    text: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, behind) = rest.split_at(start);
        filled.push_str(before);
        let reference = behind[2..].split_once('}');
        let named = reference.and_then(|(inside, tail)| {
            let (name, default) = match inside.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (inside, None),
            };
            is_name(name).then_some((name, default, tail))
        });
        let Some((name, default, tail)) = named else {
            filled.push_str("${");
            rest = &behind[2..];
            continue;
        };
        let value = variable(name).filter(|value| default.is_none() || !value.is_empty());
        match value.or(default.map(str::to_owned)) {
            Some(value) => filled.push_str(&value),
            None => return Err(name.to_owned()),
        }
        rest = tail;
    }
    filled.push_str(rest);
    Ok(filled)
}

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    let first = chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    first && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
