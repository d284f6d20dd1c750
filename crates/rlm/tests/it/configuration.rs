//! Any `rlm.toml` is accepted as a whole, or refused with its line.

use proptest::prelude::*;

use crate::{place, rlm};

/// Lines of a file: right, wrong and hostile.
const LINES: &[&str] = &[
    "max-iterations = 7",
    "max-iterations = 0",
    "max-iterations = \"many\"",
    "permissions = \"all\"",
    "permissions = \"root\"",
    "sleep = \"1h30m\"",
    "sleep = -1",
    "idle-timeout = \"5m\"",
    "idle-timeout = 5",
    "until = \"make test\"",
    "gates = [\"true\"]",
    "gates = \"true\"",
    "commit = true",
    "commit = \"yes\"",
    "worktree = true",
    "notify = [\"bell\", \"desktop\"]",
    "notify = [\"ring\"]",
    "webhook = [{ url = \"https://localhost/\" }]",
    "agent = \"claude\"",
    "agent = \"\"",
    "max-cost = 2.5",
    "max-cost = -1",
    "notify-on = [\"done\"]",
    "notify-on = [\"never\"]",
    "unknown = 1",
    "max-iteration = 3",
    "x = [",
    "= 1",
    "[limits]",
    "prompt = \"a\\u001b[2J\"",
    "leftovers = \"keep\"",
    "# a comment",
    "",
];

/// Each setting has a value here that is not its default.
const FULL: &str = r#"
prompt = "Do the next step."
agent = "command"
permissions = "all"
session = "continue"
completion-promise = "DONE"
until = "make test"
gates = ["cargo fmt --check", "cargo clippy"]
max-iterations = 7
iteration-timeout = "2h"
idle-timeout = "5m"
check-timeout = "1m"
max-duration = "8h"
max-failures = 5
sleep = "1m30s"
wait-on-limit = "1h"
shutdown-timeout = "4s"
cooldown = "3s"
debounce = "40ms"
leftovers = "keep"
commit = true
notify = ["bell", "command:true"]
notify-on = ["done"]
keep-awake = true
"#;

#[test]
fn each_setting_is_shown() {
    let place = place();
    fs_err::write(place.path().join("p/rlm.toml"), FULL).unwrap();
    let ended = rlm(place.path(), &["config", "show"]);
    insta::assert_snapshot!(format!("{}{}", ended.stderr, ended.stdout));
    assert_eq!(ended.code, Some(0));
}

#[test]
fn each_mistake_in_a_file_is_named_with_its_line() {
    let place = place();
    let mut seen = String::new();
    for (before, bad) in [
        ("", "x = ["),
        ("commit = true\n", "max-iterations = 0"),
        ("# one\n# two\n", "max-iteration = 3"),
        ("\n", "permissions = \"root\""),
        ("", "sleep = -1"),
        ("", "sleep = \"soon\""),
        ("commit = true\n", "commit = false"),
        ("", "notify-on = [\"never\"]"),
        ("", "notify = [\"ring\"]"),
        ("", "webhook = [{ url = \"https://s3cret/\" }]"),
        ("", "gates = \"true\""),
        ("", "max-cost = -1"),
    ] {
        fs_err::write(place.path().join("p/rlm.toml"), format!("{before}{bad}\n")).unwrap();
        let ended = rlm(place.path(), &["config", "show"]);
        let real = fs_err::canonicalize(place.path()).unwrap();
        let message = ended.stderr.replace(real.to_str().unwrap(), "[PLACE]");
        seen.push_str(&format!("{bad}\n  {}", message));
        assert_eq!(ended.code, Some(2), "{bad}");
    }
    insta::assert_snapshot!(seen);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn k8b_any_file_is_accepted_or_refused_with_its_line(
        lines in proptest::collection::vec(proptest::sample::select(LINES), 0..5)
    ) {
        let place = place();
        let file = place.path().join("p/rlm.toml");
        fs_err::write(&file, lines.join("\n")).unwrap();
        let ended = rlm(place.path(), &["config", "show"]);
        prop_assert!(!(ended.stdout.clone() + &ended.stderr).contains('\u{1b}'), "{lines:?}");
        match ended.code {
            Some(0) => {
                // The output is a configuration too, with the same meaning.
                fs_err::write(&file, &ended.stdout).unwrap();
                let again = rlm(place.path(), &["config", "show"]);
                prop_assert_eq!(again.code, Some(0), "{:?}: {}", &lines, again.stderr);
                prop_assert_eq!(again.stdout, ended.stdout, "{:?}", lines);
            }
            Some(2) => {
                prop_assert!(ended.stderr.contains("rlm.toml`, line "), "{lines:?}: {}", ended.stderr);
                prop_assert_eq!(ended.stderr.lines().count(), 1, "{:?}: {}", lines, ended.stderr);
                prop_assert_eq!(&ended.stdout, "", "{:?}", lines);
            }
            code => prop_assert!(false, "{lines:?}: {code:?} {}", ended.stderr),
        }
    }
}
