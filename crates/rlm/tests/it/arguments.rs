//! Any command line ends with a code of the contract, and says why.

use proptest::prelude::*;

use crate::{place, rlm};

/// Parts of command lines: commands, options, and values that are right, wrong or hostile. No agent among them can start.
const WORDS: &[&str] = &[
    "attach",
    "checkpoints",
    "clean",
    "completions",
    "config",
    "drop",
    "export",
    "fork",
    "init",
    "interrupt",
    "list",
    "logs",
    "man",
    "merge",
    "pause",
    "ps",
    "report",
    "resume",
    "run",
    "schema",
    "set",
    "show",
    "status",
    "steer",
    "stop",
    "verify",
    "zsh",
    "-C",
    ".",
    "nowhere",
    "-n",
    "-p",
    "-P",
    "-q",
    "-v",
    "-h",
    "--agent",
    "claude",
    "--color",
    "always",
    "--commit",
    "--detach",
    "--dry-run",
    "--force",
    "--gate",
    "--idle-timeout",
    "--json",
    "--max-cost",
    "--max-duration",
    "--once",
    "--permissions",
    "all",
    "--run-id",
    "r1",
    "--sleep",
    "--until",
    "--worktree",
    "-V",
    "--",
    "no-such-agent",
    "0",
    "1",
    "-1",
    "99999999999999999999",
    "1h",
    "true",
    "false",
    "",
    " ",
    "../x",
    "\u{1b}[2J",
    "a\nb",
    "ü",
    "\u{202e}",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn k8a_any_arguments_end_with_a_code_and_one_reason(
        words in proptest::collection::vec(proptest::sample::select(WORDS), 0..7)
    ) {
        let place = place();
        let ended = rlm(place.path(), &words);
        let code = ended.code;
        prop_assert!(code.is_some_and(|code| (0..=10).contains(&code)), "{words:?}: {code:?} {}", ended.stderr);
        prop_assert!(!ended.stderr.contains("panicked"), "{words:?}: {}", ended.stderr);
        if code != Some(0) {
            prop_assert!(!ended.stderr.trim().is_empty(), "{words:?}: no reason for {code:?}");
        }
        if code == Some(2) {
            prop_assert_eq!(&ended.stdout, "", "{:?}", words);
            prop_assert!(!place.path().join("p/.rlm").exists(), "{words:?}: wrong usage creates no state");
        }
        // Hostile words never control the terminal. `--color always` sets colours, and nothing else.
        if !words.contains(&"always") {
            prop_assert!(!(ended.stdout + &ended.stderr).contains('\u{1b}'), "{words:?}");
        }
    }
}
