//! Invalid input: one line with the problem and its place, the right exit code, and no changes.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use rlm_tests::{Ended, Rlm};

use crate::LONG;
use crate::scene::{PROMPT, Scene};

/// Expects a refusal without any effect.
#[track_caller]
fn refused(scene: &Scene, rlm: Rlm<'_>, code: i32, says: &[&str]) -> Ended {
    let ended = rlm.run(LONG).expect_code(code);
    assert!(
        says.iter().all(|word| ended.stderr.contains(word)),
        "{says:?} {ended}"
    );
    assert_eq!(ended.stdout, "", "{ended}");
    // Errors of the argument parser have a hint below the first line.
    let first = ended.stderr.lines().next().unwrap_or_default();
    let one = first.starts_with("error: ")
        || (first.starts_with("rlm: ") && ended.stderr.lines().count() == 1);
    assert!(one, "one line: {ended}");
    assert!(!ended.stderr.contains("panicked"), "{ended}");
    assert!(
        !scene.file(".rlm").exists(),
        "a refused run leaves no file: {ended}"
    );
    assert_eq!(scene.start_count(), 0);
    ended
}

#[test]
fn x117d_x117i_a_mistake_on_the_command_line_is_refused() {
    let scene = Scene::new("print never");
    let cases: [(&[&str], &str); 14] = [
        (&["--once", "--sleep", "soon"], "`soon` is not a duration"),
        (&["--once", "--iteration-timeout", "-1"], "-1"),
        (
            &["--once", "--check-timeout", "1.5h"],
            "`1.5h` is not a duration",
        ),
        (
            &["--once", "--max-duration", "99999999999999999999d"],
            "is not a duration",
        ),
        (&["-n", "0"], "--max-iterations"),
        (&["-n", "many"], "--max-iterations"),
        (&["-n", "4294967296"], "--max-iterations"),
        (&["--once", "--max-failures", "-3"], "-3"),
        (&["--once", "--agent", "gpt"], "command, claude"),
        (&["--once", "--agent", "claude"], "was not found"),
        (&["--once", "--prompt", "again"], "--prompt"),
        (&["--once", "-P", "PROMPT.md"], "--prompt-file"),
        (&["--once", "--until"], "--until"),
        (&["--once", "--wat"], "--wat"),
    ];
    for (arguments, says) in cases {
        refused(
            &scene,
            scene.run_bare(&[&["--prompt", PROMPT], arguments].concat()),
            2,
            &[says],
        );
    }
    refused(&scene, scene.rlm(&["frobnicate"]), 2, &["frobnicate"]);
    refused(
        &scene,
        scene.rlm(&["run", "-p", " \n ", "--once", "--", "true"]),
        2,
        &["prompt is empty"],
    );
}

#[test]
fn x117f_x117i_invalid_environment_variables_are_refused() {
    let scene = Scene::new("print never");
    refused(
        &scene,
        scene.run(&["--once"]).env("RLM_AGENT", "gpt"),
        2,
        &["gpt", "command, claude"],
    );
    let soon = scene.run(&["--once"]).env("RLM_SHUTDOWN_TIMEOUT", "soon");
    refused(&scene, soon, 2, &["RLM_SHUTDOWN_TIMEOUT", "`soon`"]);
}

#[test]
fn s24a_s24b_the_option_wins_over_the_environment() {
    let scene = Scene::new("print fine");
    refused(
        &scene,
        scene.run(&["--once"]).env("RLM_AGENT", "codex"),
        2,
        &["`codex` was not found on PATH"],
    );
    let run = scene
        .run(&["--once", "--agent", "command"])
        .env("RLM_AGENT", "codex");
    run.run(LONG).expect_code(0);
}

#[test]
fn s24c_an_unknown_agent_is_an_error() {
    let scene = Scene::new("print never");
    let variable = scene.run(&["--once"]).env("RLM_AGENT", "cluade");
    refused(&scene, variable, 2, &["RLM_AGENT", "`cluade`"]);
    let flag = scene.run(&["--once", "--agent", "cluade"]);
    refused(&scene, flag, 2, &["'cluade'", "--agent"]);
}

#[test]
fn x117e_x117i_unstartable_agent_is_refused_before_the_run_is_created() {
    let scene = Scene::new("print never");
    fs_err::write(scene.file("plain"), "#!/bin/sh\n").unwrap();
    fs_err::create_dir(scene.file("folder")).unwrap();
    symlink("nowhere", scene.file("dangling")).unwrap();
    let cases: [(&[&str], &str); 7] = [
        (&[], "no agent"),
        (&["no-such-agent"], "`no-such-agent` was not found on PATH"),
        (&["./none"], "`./none`"),
        (&["./plain"], "chmod +x ./plain"),
        (&["./folder"], "`./folder`"),
        (&["./dangling"], "`./dangling`"),
        (&[""], "``"),
    ];
    for (agent, says) in cases {
        let run = scene
            .rlm(&["run", "-p", PROMPT, "--once", "--"])
            .args(agent);
        refused(&scene, run, 2, &[says]);
    }
}

#[test]
fn x117e_agent_refused_by_the_system_is_named() {
    let scene = Scene::new("print never");
    let broken = scene.file("broken");
    fs_err::write(&broken, "#!/no/such/interpreter\n").unwrap();
    fs_err::set_permissions(&broken, PermissionsExt::from_mode(0o755)).unwrap();
    let run = [
        "run", "-p", PROMPT, "--sleep", "600", "--until", "false", "--", "./broken",
    ];
    let ended = scene.rlm(&run).run(LONG).expect_code(1);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(said.contains("`./broken`"), "{ended}");
}

#[test]
fn w14_prompt_file_outside_the_project_needs_an_explicit_option() {
    let scene = Scene::new("print fine");
    let secret = scene.sandbox.home().join("secret");
    fs_err::write(&secret, "not for the agent").unwrap();
    let link = scene.file("PROMPT.md");
    symlink(&secret, &link).unwrap();
    let run = |more: &[&str]| scene.run_bare(&[&["--once"], more].concat());
    let named = secret.display().to_string();
    refused(&scene, run(&[]), 2, &["PROMPT.md", &named, "--prompt-file"]);
    let relative = format!("{}{named}", "../".repeat(64));
    for file in [&named, &relative] {
        fs_err::write(scene.file("rlm.toml"), format!("prompt-file = '{file}'")).unwrap();
        refused(
            &scene,
            run(&[]),
            2,
            &["prompt file", &named, "--prompt-file"],
        );
    }
    run(&["--prompt-file", &named]).run(LONG).expect_code(0);
}

#[test]
fn x117b_x117i_unreadable_prompt_is_refused() {
    let scene = Scene::new("print never");
    let missing = refused(
        &scene,
        scene.run_bare(&["--once"]),
        2,
        &["PROMPT.md` is missing", "--prompt-file"],
    );
    assert!(
        missing
            .stderr
            .contains(&*scene.file("PROMPT.md").to_string_lossy()),
        "{missing}"
    );
    fs_err::create_dir(scene.file("folder")).unwrap();
    fs_err::write(scene.file("empty"), " \n").unwrap();
    fs_err::write(scene.file("binary"), b"a\xff\n").unwrap();
    fs_err::File::create(scene.file("huge"))
        .unwrap()
        .set_len(5 << 20)
        .unwrap();
    fifo(&scene.file("fifo"));
    let cases = [
        ("folder", "is not a file"),
        ("empty", "is empty"),
        ("binary", "is not UTF-8"),
        ("huge", "5242880 bytes"),
        ("fifo", "is not a file"),
        ("/dev/zero", "is not a file"),
        ("none/here", "none/here` is missing"),
    ];
    for (file, says) in cases {
        refused(
            &scene,
            scene.run_bare(&["--once", "-P", file]),
            2,
            &[file, says],
        );
    }
    let endless = fs_err::read(scene.file("huge")).unwrap();
    refused(
        &scene,
        scene.run_bare(&["--once", "-P", "-"]).input(endless),
        2,
        &["standard input"],
    );
    refused(
        &scene,
        scene.run_bare(&["--once", "-P", "-"]).input(b"\xff\n"),
        2,
        &["standard input"],
    );
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn x117a_x117i_a_mistake_in_the_settings_is_named_with_its_file_and_its_line() {
    let scene = Scene::new("print never");
    let cases: [(&[u8], &str); 11] = [
        (b"\nuntil = \n", "line 2"),
        (
            b"\n\nsleeep = 3\n",
            "line 3: unknown key `sleeep`; did you mean `sleep`?",
        ),
        (
            b"sleep = \"soon\"\n",
            "line 1: `sleep`: `soon` is not a duration",
        ),
        (b"sleep = -1\n", "line 1"),
        (b"max-iterations = -1\n", "line 1"),
        (
            b"max-iterations = 0\n",
            "line 1: `max-iterations`: invalid value",
        ),
        (b"agent = \"gpt\"\n", "line 1: `agent`: unknown value `gpt`"),
        (b"command = \"sh\"\n", "line 1"),
        (b"until = 1\nuntil = 2\n", "line 2"),
        (b"[[[[", "line 1"),
        (b"# \xff\n", "can't be read"),
    ];
    for (content, says) in cases {
        fs_err::write(scene.file("rlm.toml"), content).unwrap();
        refused(
            &scene,
            scene.run(&["--until", "true"]),
            2,
            &["rlm.toml`", says],
        );
        assert_eq!(fs_err::read(scene.file("rlm.toml")).unwrap(), content);
    }
}

#[test]
fn x117a_settings_in_a_non_regular_file_are_refused() {
    let scene = Scene::new("print never");
    let path = scene.file("rlm.toml");
    let refuse = || refused(&scene, scene.run(&["--once"]), 2, &["rlm.toml`"]);
    fs_err::create_dir(&path).unwrap();
    refuse();
    fs_err::remove_dir(&path).unwrap();
    fifo(&path);
    refuse();
    for target in ["rlm.toml", "/dev/zero"] {
        fs_err::remove_file(&path).unwrap();
        symlink(target, &path).unwrap();
        refuse();
    }
}

#[test]
fn x117c_run_id_cannot_lead_out_of_the_runs_directory() {
    let scene = Scene::new("print never");
    let long = "x".repeat(65);
    for id in [
        "../x",
        "..",
        ".",
        "",
        "a/b",
        "/etc",
        "a\nb",
        "a\u{1b}[2Jb",
        ".hidden",
        "a b",
        "ä",
        &long,
    ] {
        for command in ["resume", "status", "logs"] {
            let ended = refused(&scene, scene.rlm(&[command, id]), 2, &["is not a run id"]);
            assert!(!ended.stderr.contains('\u{1b}'), "{ended}");
        }
    }
    for command in ["resume", "status", "logs"] {
        refused(&scene, scene.rlm(&[command, "none"]), 10, &["none"]);
        refused(&scene, scene.rlm(&[command]), 10, &[]);
    }
}

#[test]
fn x117g_working_directory_that_is_no_directory_is_refused() {
    let scene = Scene::new("print never");
    fs_err::write(scene.file("plain"), "").unwrap();
    for (directory, command) in [
        ("none", "run"),
        ("plain", "run"),
        ("none", "status"),
        ("none", "resume"),
        ("none", "init"),
    ] {
        let mut arguments = vec!["-C", directory, command];
        if command == "run" {
            arguments.extend(["-p", PROMPT, "--once", "--", "true"]);
        }
        refused(&scene, scene.rlm(&arguments), 2, &[directory]);
    }
}

#[test]
fn x117g_state_directory_that_is_no_directory_is_left_alone() {
    let scene = Scene::new("print never");
    let outside = scene.sandbox.path().join("outside");
    fs_err::create_dir(&outside).unwrap();
    fs_err::set_permissions(&outside, PermissionsExt::from_mode(0o755)).unwrap();
    let state = scene.file(".rlm");
    fs_err::write(&state, "mine").unwrap();
    let ended = scene.run(&["--once"]).run(LONG).expect_code(1);
    assert!(
        ended.stderr.contains(".rlm") && ended.stderr.lines().count() == 1,
        "{ended}"
    );
    assert_eq!(fs_err::read_to_string(&state).unwrap(), "mine");

    fs_err::remove_file(&state).unwrap();
    symlink(&outside, &state).unwrap();
    let link = "`.rlm` is a symbolic link, which rlm does not follow; remove the link, or put the directory itself in its place";
    let ended = scene.run(&["--once"]).run(LONG).expect_code(1);
    assert!(ended.stderr.contains(link), "{ended}");
    let ended = scene.rlm(&["status"]).run(LONG).expect_code(1);
    assert!(ended.stderr.contains(link), "{ended}");
    let ended = scene.rlm(&["doctor"]).run(LONG);
    assert!(ended.stdout.contains(link), "{ended}");
    assert_eq!(
        fs_err::read_dir(&outside).unwrap().count(),
        0,
        "nothing is written through a link"
    );
    assert_eq!(
        fs_err::metadata(&outside).unwrap().permissions().mode() & 0o777,
        0o755
    );
    assert_eq!(scene.start_count(), 0);
}

#[test]
fn agent_that_always_exits_immediately_ends_the_run() {
    for (last, why) in [
        ("exit 1", "exit status 1"),
        ("die SEGV", "killed by signal 11"),
        ("part half a li\ndie KILL", "killed by signal 9"),
    ] {
        let scene = Scene::new(&format!("no-stdin\n{last}"));
        let ended = scene.run(&["--until", "false"]).run(LONG).expect_code(6);
        assert!(
            ended.stdout.contains("stuck: 3 failed turns in a row"),
            "{ended}"
        );
        assert!(ended.stdout.contains(why), "{ended}");
        assert_eq!(scene.start_count(), 3);
    }
}

#[test]
fn unfinished_line_of_the_agent_is_stored() {
    let scene = Scene::new("print whole\npart half a li\ndie KILL");
    scene.run(&["--once"]).run(LONG).expect_code(1);
    let logs = scene.rlm(&["logs"]).run(LONG).expect_code(0).stdout;
    assert!(logs.contains("whole\nhalf a li\n"), "{logs}");
}

#[test]
fn x115a_garbage_reaches_neither_terminal_nor_log_readers() {
    let scene = Scene::new("garbage\nwarn \\e]0;owned\\x07\\e[2J\nprint done");
    let (running, terminal) = scene
        .run(&["--once", "--gate", "printf '\\033[2Jgate\\n'; exit 1"])
        .spawn_on_terminal();
    running.wait(LONG).expect_code(1);
    terminal.wait_text("all processes ended", 0, LONG);
    let logs = scene.rlm(&["logs"]).run(LONG).expect_code(0).stdout;
    for shown in [terminal.text(), logs] {
        for harm in [
            "\u{1b}]",
            "\u{1b}[2J",
            "\u{1b}[?1049h",
            "\u{1b}[999D",
            "\u{1b}[6n",
            "\u{7}",
            "\0",
            "\u{9b}",
        ] {
            assert!(!shown.contains(harm), "{harm:?} in {shown:?}");
        }
        assert!(shown.contains("done") && shown.contains("red"), "{shown}");
    }
}

/// Runs `sh -c SCRIPT sh rlm run … --` with the given agent, so that the shell sets up its streams.
fn by_shell(scene: &Scene, script: &str, arguments: &[&str]) -> Ended {
    let run = ["run", "--sleep", "0", "--prompt", PROMPT];
    let shell = scene
        .sandbox
        .rlm("/bin/sh")
        .args(["-c", script, "sh", crate::RLM]);
    let shell = shell
        .args(run)
        .args(arguments)
        .args(["--"])
        .args(scene.agent.argv());
    shell.run(LONG).expect_code(0)
}

#[test]
fn closed_output_pipe_does_not_stop_the_run() {
    for json in [&["-n", "20"][..], &["-n", "20", "--json"]] {
        let scene = Scene::new("flood 64K");
        let ended = by_shell(&scene, r#""$@" | head -1"#, json);
        assert_eq!(ended.stdout.lines().count(), 1, "{ended}");
        assert_eq!(scene.start_count(), 20);
        assert_eq!(
            scene.status()["reason"],
            "finished: all planned iterations ran"
        );
    }
}

#[test]
fn a_run_needs_no_open_streams() {
    let scene = Scene::new("print fine");
    let ended = by_shell(&scene, r#""$@" <&- >&- 2>&-"#, &["-n", "2"]);
    assert_eq!(ended.stdout, "");
    assert_eq!(scene.start_count(), 2);
    assert_eq!(scene.prompts(), [PROMPT, PROMPT]);
    assert_eq!(scene.status()["state"], "ended");
    let streams =
        |start: &rlm_tests::agent::AgentStart| start.fds.keys().copied().collect::<Vec<_>>();
    assert!(
        scene
            .agent
            .starts()
            .iter()
            .all(|start| streams(start) == [0, 1, 2])
    );
}
