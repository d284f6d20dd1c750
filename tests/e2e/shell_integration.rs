//! The integration with shells, pagers and terminals: completions, the manual, colours.

use std::process::Command;

use rlm_tests::Sandbox;

use crate::scene::Scene;
use crate::{LONG, RLM};

/// Expects that a program, if installed, accepts this file without output.
#[track_caller]
fn expect_taken(sandbox: &Sandbox, program: &str, arguments: &[&str], text: &str) {
    let file = sandbox.path().join("taken");
    fs_err::write(&file, text).unwrap();
    match Command::new(program).args(arguments).arg(&file).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        output => {
            let output = output.unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{said}");
        }
    }
}

#[test]
fn each_shell_accepts_its_completions() {
    let sandbox = Sandbox::new();
    let script = |shell| {
        let rlm = sandbox.rlm(RLM).args(["completions", shell]);
        let script = rlm.run(LONG).expect_code(0).stdout;
        assert!(script.contains("completion-promise"), "{shell}: {script}");
        assert!(!script.contains("__demo-agent"), "{shell}: hidden is shown");
        script
    };
    expect_taken(&sandbox, "bash", &["-n"], &script("bash"));
    expect_taken(&sandbox, "zsh", &["-n"], &script("zsh"));
    expect_taken(&sandbox, "fish", &["--no-execute"], &script("fish"));
    script("elvish");
    script("powershell");
    let ended = sandbox.rlm(RLM).args(["completions", "tcsh"]).run(LONG);
    assert!(ended.expect_code(2).stderr.contains("bash"));
}

#[test]
fn the_manual_has_a_page_for_each_command_and_can_be_typeset() {
    let sandbox = Sandbox::new();
    let man = sandbox.rlm(RLM).args(["man", "--dir", "man/man1"]);
    man.run(LONG).expect_code(0);
    let folder = sandbox.repo().join("man/man1");
    for name in ["rlm", "rlm-run", "rlm-stop", "rlm-checkpoints-list"] {
        let page = fs_err::read_to_string(folder.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH EXAMPLES\n.nf\n  rlm"), "{page}");
        let typeset = ["-man", "-Tutf8", "-ww", "-z"];
        expect_taken(&sandbox, "groff", &typeset, &page);
    }
    let one = sandbox.rlm(RLM).args(["man", "run"]).run(LONG);
    let same = fs_err::read_to_string(folder.join("rlm-run.1")).unwrap();
    assert_eq!(one.expect_code(0).stdout, same);
    let none = sandbox.rlm(RLM).args(["man", "checkpoints", "lost"]);
    let none = none.run(LONG).expect_code(2);
    assert!(none.stderr.contains("list, show, verify"), "{none}");
}

#[test]
fn colour_option_wins_and_default_follows_the_terminal() {
    let scene = Scene::new("print done");
    let is_coloured = |arguments: &[&str], variable: Option<(&str, &str)>| {
        let rlm = scene.run(&[&["--once", "--no-input"], arguments].concat());
        let rlm = variable
            .into_iter()
            .fold(rlm, |rlm, (name, value)| rlm.env(name, value));
        rlm.run(LONG).expect_code(0).stdout.contains('\u{1b}')
    };
    assert!(!is_coloured(&[], None), "it goes to a file");
    assert!(is_coloured(&["--color", "always"], None));
    assert!(is_coloured(&[], Some(("CLICOLOR_FORCE", "1"))));
    assert!(!is_coloured(
        &["--color=never"],
        Some(("CLICOLOR_FORCE", "1"))
    ));
    let on_terminal = |arguments: &[&str]| {
        let rlm = scene.run(&[&["--once"], arguments].concat());
        let (running, terminal) = rlm.env("TERM", "xterm").spawn_on_terminal();
        running.wait(LONG).expect_code(0);
        let text = terminal.text();
        assert!(text.contains("complete"), "{text}");
        // Cursor movements are no colours.
        text.contains("\u{1b}[1m")
    };
    assert!(on_terminal(&[]));
    assert!(!on_terminal(&["--color", "never"]));
    let refused = scene.rlm(&["--color", "always", "stauts"]).run(LONG);
    let refused = refused.expect_code(2).stderr;
    assert!(
        refused.contains('\u{1b}') && refused.contains("status"),
        "{refused}"
    );
}
