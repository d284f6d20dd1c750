//! The first day of a new user, from an empty project to a merged result. Read it from top to bottom.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rlm_tests::Ended;

use crate::LONG;
use crate::scene::{Scene, expect_in_order};

/// An agent as a new user may have one: it reads the prompt, looks at what is there, and works on until the test passes.
const AGENT: &str = r#"#!/bin/sh
goal=$(cat)
case "$goal" in
*"the agent says hello"*) echo "I had not seen your message; now I have." ;;
esac
if test -e greet.sh; then
    printf 'echo "hello, ${1:-world}"\n' > greet.sh
    echo "I read the output of the failed check, and fixed the greeting."
else
    printf 'echo "hi"\n' > greet.sh
    echo "I wrote greet.sh."
fi
"#;

/// The user's own test.
const TEST: &str = "#!/bin/sh\ntest \"$(sh greet.sh)\" = 'hello, world' || { echo 'the greeting is wrong'; exit 1; }\n";

fn program(scene: &Scene, name: &str, text: &str) {
    let path = scene.file(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs `rlm WORDS`, which must succeed.
fn rlm(scene: &Scene, words: &[&str]) -> Ended {
    scene.rlm(words).run(LONG).expect_code(0)
}

/// Returns the words of the printed command after `label`, without the name of the program.
fn printed<'a>(ended: &'a Ended, label: &str) -> Vec<&'a str> {
    let line = { ended.stdout.lines() }.find_map(|line| line.trim().strip_prefix(label));
    let line = line.unwrap_or_else(|| panic!("no {label:?}: {ended}"));
    line.split_whitespace().skip(1).collect()
}

#[test]
fn first_day_from_init_to_a_merged_result() {
    // The morning: a project with a test that fails, and no configuration.
    let scene = Scene::new("");
    crate::git::know_who(&scene);
    program(&scene, "agent", AGENT);
    program(&scene, "test", TEST);
    scene.sandbox.git(&["add", "--all"]);
    scene
        .sandbox
        .git(&["commit", "--quiet", "--message", "A test that fails"]);

    // `rlm status` says how to begin.
    let nothing = scene.rlm(&["status"]).run(LONG).expect_code(10);
    assert!(nothing.stderr.contains("start one: rlm run"), "{nothing}");

    // `rlm init` writes a configuration that the program accepts.
    rlm(&scene, &["init", "--preset", "tdd"]);
    assert!(scene.file("rlm.toml").exists() && scene.file("PROMPT.md").exists());
    rlm(&scene, &["config", "show"]);
    scene.sandbox.git(&["clean", "-dfq"]);

    // A misspelled check costs nothing: no iteration begins.
    let begin = |check: &str, more: &[&str]| {
        let agent = scene.file("agent");
        let goal = [
            "run",
            "write a greeting that the test accepts",
            "--until",
            check,
        ];
        let options = ["--worktree", "--commit", "--sleep", "0", "-n", "5"];
        let command = ["--", agent.to_str().unwrap()];
        let words = [&goal[..], &options, more, &command].concat();
        scene
            .rlm(&words)
            .env("RLM_NO_FIRST_CHECK", "false")
            .run(LONG)
    };
    let misspelled = begin("./tset", &[]);
    assert_ne!(misspelled.code(), Some(0));
    assert!(
        misspelled.stderr.contains("tset") || misspelled.stdout.contains("tset"),
        "{misspelled}"
    );
    assert!(!misspelled.stdout.contains("iteration 1"), "{misspelled}");

    // The run: the first iteration fails the check, and the second one passes it.
    let ended = begin("./test", &["--run-id", "greeting"]).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "── iteration 1 ──",
            "I wrote greet.sh.",
            "the greeting is wrong",
            "changed 1 file (+1 -0)",
            "iteration 1 complete",
            "── iteration 2 ──",
            "I read the output of the failed check",
            "changed 1 file (+1 -1)",
            "iteration 2 complete",
            "check passed",
        ],
    );

    // Afterwards: what was it for, what did it do, and what is next?
    let status = rlm(&scene, &["status", "last"]);
    expect_in_order(
        &status.stdout,
        &["greeting", "write a greeting that the test accepts"],
    );
    let page = rlm(&scene, &["report", "greeting", "-o", "-"]);
    assert!(page.stdout.contains("Changed files"), "{page}");

    // The work is still in its own worktree. The printed commands bring it home, and remove the worktree.
    assert!(!scene.file("greet.sh").exists());
    let (merge, remove) = (printed(&ended, "merge it:"), printed(&ended, "remove it:"));
    let preview = rlm(&scene, &[&merge[..], &["--dry-run"]].concat());
    assert!(preview.stdout.contains("greet.sh"), "{preview}");
    rlm(&scene, &[&merge[..], &["--yes"]].concat());
    assert!(
        fs::read_to_string(scene.file("greet.sh"))
            .unwrap()
            .contains("hello")
    );
    rlm(&scene, &[&remove[..], &["--yes"]].concat());

    // The evening: the same goal again costs nothing, because the check passes already.
    let again = begin("./test", &[]).expect_code(0);
    assert!(again.stdout.contains("already done"), "{again}");
    assert!(!again.stdout.contains("iteration 1"), "{again}");
    scene.expect_nothing_alive();
}
