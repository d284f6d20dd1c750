//! The prompt: its sources, the changes that later iterations see, and the failures that it reports.

use std::path::Path;

use crate::LONG;
use crate::scene::{PROMPT, Scene, expect_in_order};

#[test]
fn failed_check_output_is_in_next_prompt() {
    let scene = Scene::new("print turn {start}\n@2 touch done");
    let check = "echo 3 tests failed; echo see the log >&2; test -e done";
    scene.run(&["--until", check]).run(LONG).expect_code(0);
    let prompts = scene.prompts();
    assert_eq!(prompts[0], PROMPT);
    expect_in_order(&prompts[1], &["check", "failed", "3 tests failed", PROMPT]);
    assert!(prompts[1].contains("see the log"), "{prompts:?}");
}

#[test]
fn failed_required_check_skips_the_check_and_reaches_the_agent() {
    let scene = Scene::new("@2.. touch formatted");
    let gate = "echo not formatted; test -e formatted";
    let check = "echo asked >> checks; true";
    let ended = scene
        .run(&["--gate", "true", "--gate", gate, "--until", check])
        .run(LONG)
        .expect_code(0);
    let words = [
        "required check 1 passed",
        "required check 2 did not pass",
        "iteration 1 failed: required check 2 failed",
        "required check 2 passed",
        "check passed",
    ];
    expect_in_order(&ended.stdout, &words);
    assert_eq!(
        fs_err::read_to_string(scene.file("checks")).unwrap(),
        "asked\n"
    );
    let prompts = scene.prompts();
    expect_in_order(
        &prompts[1],
        &["the required check", gate, "not formatted", PROMPT],
    );
}

#[test]
fn prompt_file_is_read_again_for_each_iteration() {
    let scene = Scene::new("@1 append PROMPT.md And mind the docs.");
    fs_err::write(scene.file("PROMPT.md"), "Go on.\n").unwrap();
    scene
        .run_bare(&["--sleep", "0", "-n", "2"])
        .run(LONG)
        .expect_code(0);
    assert_eq!(
        scene.prompts(),
        ["Go on.\n", "Go on.\nAnd mind the docs.\n"]
    );
}

#[test]
fn removed_prompt_file_is_replaced_by_its_last_content() {
    let scene = Scene::new("print turn {start}");
    fs_err::write(scene.file("notes.md"), "Go on.\n").unwrap();
    let run = [
        "--sleep",
        "0",
        "-n",
        "2",
        "-P",
        "notes.md",
        "--gate",
        "rm -f notes.md",
    ];
    let ended = scene.run_bare(&run).run(LONG).expect_code(0);
    assert_eq!(scene.prompts(), ["Go on.\n", "Go on.\n"]);
    expect_in_order(
        &ended.stdout,
        &["iteration 2", "warning:", "notes.md", "is missing"],
    );
}

#[test]
fn prompt_can_come_from_standard_input() {
    let scene = Scene::new("print fine");
    let run = ["--sleep", "0", "-n", "2", "-P", "-"];
    scene
        .run_bare(&run)
        .input("From the pipe.\n")
        .run(LONG)
        .expect_code(0);
    assert_eq!(scene.prompts(), ["From the pipe.\n", "From the pipe.\n"]);
    scene.run_bare(&run).input(" \n").run(LONG).expect_code(2);
    assert_eq!(scene.start_count(), 2);
}

#[test]
fn prompt_can_be_an_argument_or_a_private_file() {
    let scene = Scene::new("");
    let script = r#"printf %s "$1" >text; stat -c %a "$2" >mode; cp "$2" copy; echo "$2" >path; wc -c >stdin"#;
    scene
        .rlm(&[
            "run",
            "-p",
            "Say \"hi\" to $HOME",
            "--once",
            "--",
            "sh",
            "-c",
            script,
            "sh",
            "{prompt}",
            "{prompt_file}",
        ])
        .run(LONG)
        .expect_code(0);
    let read = |name: &str| fs_err::read_to_string(scene.file(name)).unwrap();
    assert_eq!(read("text"), "Say \"hi\" to $HOME");
    assert_eq!(read("copy"), "Say \"hi\" to $HOME");
    assert_eq!((read("mode").trim(), read("stdin").trim()), ("600", "0"));
    assert!(
        !Path::new(read("path").trim()).exists(),
        "the file is removed at the end"
    );
}
