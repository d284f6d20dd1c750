//! What the command line of the live checks asks for.

/// The option for one check an agent.
pub(super) const QUICK: &str = "--quick";
/// What the command line asks for: the words that choose the checks, and whether one check an agent is enough.
pub(super) fn asked() -> (Vec<String>, bool) {
    let (options, words): (Vec<_>, Vec<_>) =
        { std::env::args().skip(1) }.partition(|word| word == QUICK);
    (words, !options.is_empty())
}
