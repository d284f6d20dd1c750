//! Compares a text with its stored version.

/// Returns the lines that only one of the two texts has.
pub(crate) fn of(before: &str, now: &str) -> Vec<String> {
    let lacking = |one: &str, other: &str, mark: char| {
        let known: Vec<&str> = other.lines().collect();
        let lines = one.lines().filter(|line| !known.contains(line));
        lines.map(|line| format!("{mark} {line}")).collect()
    };
    let gone: Vec<String> = lacking(before, now, '-');
    [gone, lacking(now, before, '+')].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_and_removed_items_are_named() {
        let (before, now) = ("pub fn a()\npub fn b()\n", "pub fn a()\npub fn b(u8)\n");
        assert_eq!(of(before, now), ["- pub fn b()", "+ pub fn b(u8)"]);
        assert!(of(now, now).is_empty());
    }
}
