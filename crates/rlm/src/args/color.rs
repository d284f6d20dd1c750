//! `--color`, which must hold for the messages of the command line's own parser too.

use std::ffi::OsString;

use anstream::ColorChoice;
use clap::ValueEnum;

/// The values of `--color`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorArg {
    Auto,
    Always,
    Never,
}

/// Sets what all output of this process heeds, before anything is parsed or printed.
pub(crate) fn choose_color(words: impl IntoIterator<Item = OsString>) {
    let choice = match wanted(words) {
        Some(ColorArg::Always) => ColorChoice::Always,
        Some(ColorArg::Never) => ColorChoice::Never,
        _ => ColorChoice::Auto,
    };
    choice.write_global();
}

/// Finds the last `--color` among the words in front of `--`; a bad value is the parser's to refuse.
fn wanted(words: impl IntoIterator<Item = OsString>) -> Option<ColorArg> {
    let (mut found, mut is_next) = (None, false);
    for word in words.into_iter().take_while(|word| word != "--") {
        let word = word.to_string_lossy();
        let value = match word.strip_prefix("--color") {
            _ if is_next => Some(&*word),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        is_next = !is_next && word == "--color";
        found = { value.and_then(|value| ColorArg::from_str(value, false).ok()) }.or(found);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_colours_counts_and_what_an_agent_is_told_does_not() {
        let of = |line: &str| wanted(line.split(' ').map(OsString::from));
        assert_eq!(of("rlm run -- agent --color never"), None);
        assert_eq!(of("rlm --color=always run"), Some(ColorArg::Always));
        assert_eq!(
            of("rlm --color never run --color always"),
            Some(ColorArg::Always)
        );
        assert_eq!(of("rlm --color --color never"), None);
        assert_eq!(of("rlm --colors=never --color=some"), None);
    }
}
