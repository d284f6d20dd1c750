//! The command line of the live checks.

/// The option for one check per agent.
pub(super) const QUICK: &str = "--quick";
/// Returns the words that select the checks, and whether to run only one check per agent.
pub(super) fn asked() -> (Vec<String>, bool) {
    let (options, words): (Vec<_>, Vec<_>) =
        { std::env::args().skip(1) }.partition(|word| word == QUICK);
    (words, !options.is_empty())
}
