//! Job control: ^Z and fg, the background, and a closed terminal.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;

use rlm_tests::{Running, Terminal, poll_until, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::LONG;
use crate::menu;
use crate::scene::Scene;

/// Returns a shell with job control, and the command line of a run in it.
fn shell(scene: &Scene, arguments: &str) -> (Running, Terminal, String) {
    let (shell, terminal) = scene.sandbox.shell().spawn_on_terminal();
    terminal.sees("$ ", LONG);
    let mut line = String::new();
    for (name, value) in scene.agent.variables() {
        write!(line, "{name}='{}' ", value.display()).unwrap();
    }
    write!(
        line,
        "{} run --agent claude --agent-bin {} -p x --sleep 0 {arguments}",
        crate::RLM,
        crate::FAKE_AGENT
    )
    .unwrap();
    (shell, terminal, line)
}

/// Returns the states of the agents and their children.
fn states(scene: &Scene) -> Vec<char> {
    let mut pids: Vec<i32> = scene
        .agent
        .children()
        .iter()
        .map(|child| child.pid)
        .collect();
    pids.extend(scene.agent.starts().iter().map(|start| start.pid));
    let alive = scene.alive().into_iter();
    alive
        .filter(|process| pids.contains(&process.pid))
        .map(|process| process.state)
        .collect()
}

fn wait_for_states(scene: &Scene, what: &str, is_it: impl Fn(char) -> bool) {
    wait_for(format_args!("{what}: {:?}", states(scene)), LONG, || {
        let states = states(scene);
        (!states.is_empty() && states.iter().all(|state| is_it(*state))).then_some(())
    });
}

#[test]
fn x126a_x126b_suspend_freezes_the_tree_and_fg_thaws_it() {
    let scene = Scene::new("child setsid\nchild daemon\nsay ready\nawait go\nsay went on\nturn");
    let (shell, terminal, line) = shell(&scene, "--once");
    terminal.send(format!("{line}\r"));
    terminal.sees("ready", LONG);
    let before = format!("{:?}", terminal.settings());
    for _ in 0..3 {
        terminal.send(b"\x1a");
        wait_for_states(&scene, "all processes stopped", |state| state == 'T');
        wait_for("the shell in the foreground", LONG, || {
            (terminal.foreground() == Some(shell.pid())).then_some(())
        });
        // Other commands see that the run is alive, only suspended.
        assert_eq!(scene.status()["state"], "running");
        let second = scene.claude(&["--once"]).run(LONG).expect_code(9);
        assert!(
            second.stderr.contains("hold") || second.stderr.contains("work"),
            "{second}"
        );
        terminal.send("fg\r");
        wait_for_states(&scene, "all processes running", |state| state != 'T');
    }
    wait_for("the settings", LONG, || {
        (format!("{:?}", terminal.settings()) == before).then_some(())
    });
    fs_err::write(scene.file("go"), "").unwrap();
    terminal.sees("went on", LONG);
    terminal.sees("planned", LONG);
    terminal.send("exit\r");
    shell.wait(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 1);
}

#[test]
fn x126a_suspend_during_agent_start_delays_nothing() {
    let scene = Scene::new("");
    let agent = scene.file("agent");
    let introduced_never = "#!/bin/sh\necho >up\nwhile read line; do :; done\n";
    fs_err::write(&agent, introduced_never).unwrap();
    fs_err::set_permissions(&agent, PermissionsExt::from_mode(0o755)).unwrap();
    let (shell, terminal) = scene.sandbox.shell().spawn_on_terminal();
    terminal.sees("$ ", LONG);
    let rlm = crate::RLM;
    terminal.send(format!(
        "{rlm} run -n 1 --agent acp --agent-bin ./agent -p x\r"
    ));
    scene.wait_for_file("up");
    terminal.send(b"\x1a");
    wait_for("the shell in the foreground", LONG, || {
        (terminal.foreground() == Some(shell.pid())).then_some(())
    });
    terminal.send("fg\r");
    // A run that does not read its requests would not respond in time.
    scene.rlm(&["stop"]).run(LONG).expect_code(0);
    terminal.sees("stopped", LONG);
    terminal.send("exit\r");
    shell.wait(LONG);
    scene.expect_nothing_alive();
}

#[test]
fn x126a_suspend_in_the_menu_returns_the_terminal_to_the_shell() {
    let scene = Scene::new("say ready\nawait go\nturn");
    let (shell, terminal, line) = shell(&scene, "--once");
    terminal.send(format!("{line}\r"));
    terminal.sees("ready", LONG);
    let before = format!("{:?}", terminal.settings());
    terminal.send(b"\x03");
    terminal.sees("save and exit", LONG);
    terminal.send(b"\x1a");
    wait_for("the shell in the foreground", LONG, || {
        (terminal.foreground() == Some(shell.pid())).then_some(())
    });
    terminal.send("echo in the $((40 + 2)) shell\r");
    terminal.sees("in the 42 shell", LONG);
    terminal.send("fg\r");
    wait_for("rlm in the foreground", LONG, || {
        (terminal.foreground() != Some(shell.pid())).then_some(())
    });
    terminal.sees("save and exit", LONG);
    terminal.send("\r");
    terminal.sees_no("save and exit", LONG);
    wait_for("the settings", LONG, || {
        (format!("{:?}", terminal.settings()) == before).then_some(())
    });
    fs_err::write(scene.file("go"), "").unwrap();
    terminal.sees("planned", LONG);
    terminal.send("exit\r");
    shell.wait(LONG).expect_code(0);
}

#[test]
fn x126c_suspended_time_does_not_count_as_silence() {
    let scene = Scene::new("say ready\nawait go\nrun true\nturn");
    let (shell, terminal, line) = shell(&scene, "--once --idle-timeout 3s --iteration-timeout 20s");
    terminal.send(format!("{line}\r"));
    terminal.sees("ready", LONG);
    terminal.send(b"\x1a");
    wait_for_states(&scene, "the agent stopped", |state| state == 'T');
    // Longer than the idle timeout.
    assert!(poll_until(std::time::Duration::from_secs(4), || None::<()>).is_none());
    fs_err::write(scene.file("go"), "").unwrap();
    terminal.send("fg\r");
    terminal.sees("planned", LONG);
    assert!(
        !terminal.scrolled().contains("stopping the agent"),
        "{}",
        terminal.scrolled()
    );
    terminal.send("exit\r");
    shell.wait(LONG).expect_code(0);
}

#[test]
fn x126c_suspended_time_does_not_count_for_required_checks_and_commits() {
    let scene = Scene::new("turn");
    for (name, value) in [("user.name", "A"), ("user.email", "a@localhost")] {
        scene.sandbox.git(&["config", name, value]);
    }
    let waits = |name: &str| {
        let beat = format!("sleep 0.05; echo >> {name}-beats");
        format!("echo $$ > {name}; while ! test -e {name}-goes; do {beat}; done")
    };
    let hook = scene.file(".git/hooks/pre-commit");
    fs_err::create_dir_all(hook.parent().unwrap()).unwrap();
    fs_err::write(&hook, format!("#!/bin/sh\n{}\n", waits("hook"))).unwrap();
    fs_err::set_permissions(&hook, PermissionsExt::from_mode(0o755)).unwrap();
    let gate = waits("gate");
    let (shell, terminal, line) = shell(
        &scene,
        &format!("--once --commit --check-timeout 8s --gate '{gate}'"),
    );
    terminal.send(format!("{line}\r"));
    for name in ["gate", "hook"] {
        let pid = wait_for(
            format_args!("{name}: {}", terminal.scrolled()),
            LONG,
            || {
                let text = fs_err::read_to_string(scene.file(name)).ok()?;
                text.trim().parse::<i32>().ok()
            },
        );
        let state = || {
            scene
                .alive()
                .into_iter()
                .find(|it| it.pid == pid)
                .map(|it| it.state)
        };
        // The run waits half a second for a command that is just starting, and then suspends without it.
        let beats = || fs_err::read(scene.file(&format!("{name}-beats"))).unwrap_or_default();
        wait_for("the beats of the command", LONG, || {
            (beats().len() > 10).then_some(())
        });
        terminal.send(b"\x1a");
        wait_for("the suspension of the command", LONG, || {
            (state() == Some('T')).then_some(())
        });
        assert!(poll_until(std::time::Duration::from_secs(9), || None::<()>).is_none());
        fs_err::write(scene.file(&format!("{name}-goes")), "").unwrap();
        terminal.send("fg\r");
        wait_for("the end of the command", LONG, || {
            state().is_none().then_some(())
        });
    }
    terminal.sees("planned", LONG);
    assert!(
        !terminal.scrolled().contains("longer than"),
        "{}",
        terminal.scrolled()
    );
    terminal.send("exit\r");
    shell.wait(LONG).expect_code(0);
}

#[test]
fn j47e_background_job_does_not_touch_the_terminal() {
    let scene = Scene::new("say ready\nawait go\nask Bash touch made\nsay after\nturn");
    let (shell, terminal, line) = shell(&scene, "--once --permissions ask");
    let before = format!("{:?}", terminal.settings());
    terminal.send(format!(
        "stty tostop; stty -a > modes; {line} > out 2>&1 &\r"
    ));
    let out = || fs_err::read_to_string(scene.file("out")).unwrap_or_default();
    wait_for("the agent's text", LONG, || {
        out().contains("ready").then_some(())
    });
    let tostop = format!("{:?}", terminal.settings());
    assert_eq!(terminal.foreground(), Some(shell.pid()));
    terminal.send("echo still $((40 + 2)) here\r");
    terminal.sees("still 42 here", LONG);
    fs_err::write(scene.file("go"), "").unwrap();
    wait_for("the end", LONG, || out().contains("planned").then_some(()));
    assert!(!scene.file("made").exists());
    assert_eq!(
        scene.agent.answers().len(),
        1,
        "no person can be asked: {}",
        out()
    );
    assert_eq!(format!("{:?}", terminal.settings()), tostop);
    assert_ne!(before, tostop, "`stty tostop` changes the settings");
    terminal.send("exit\r");
    shell.wait(LONG).expect_code(0);
}

#[test]
fn j47f_background_job_that_writes_is_not_suspended_by_its_terminal() {
    let scene = Scene::new("say ready\nawait go\nsay after\nturn");
    let (shell, terminal, line) = shell(&scene, "--once");
    terminal.send(format!("stty tostop; {line} &\r"));
    wait_for("the agent", LONG, || {
        (scene.agent.messages().len() == 1).then_some(())
    });
    fs_err::write(scene.file("go"), "").unwrap();
    wait_for("the end", LONG, || {
        (scene.status()["state"] == "ended").then_some(())
    });
    terminal.send("wait; echo ended with $?\r");
    terminal.sees("ended with 0", LONG);
    assert!(!terminal.text().contains("Stopped"), "{}", terminal.text());
    terminal.send("exit\r");
    shell.wait(LONG).expect_code(0);
}

#[test]
fn editor_of_a_foreground_job_returns_the_terminal() {
    let scene = Scene::new("say ready\nawait go\nturn");
    let (shell, terminal, line) = shell(&scene, "--once");
    terminal.send(format!("VISUAL='touch edited; true' {line}\r"));
    terminal.sees("ready", LONG);
    let ours = terminal.foreground();
    for _ in 0..3 {
        menu::open(&terminal);
        terminal.send("e");
        scene.wait_for_file("edited");
        fs_err::remove_file(scene.file("edited")).unwrap();
        terminal.sees_no(menu::MENU, LONG);
        wait_for("the terminal", LONG, || {
            (terminal.foreground() == ours).then_some(())
        });
    }
    fs_err::write(scene.file("go"), "").unwrap();
    terminal.sees("planned", LONG);
    assert!(!terminal.text().contains("Stopped"), "{}", terminal.text());
    terminal.send("exit\r");
    shell.wait(LONG).expect_code(0);
}

#[test]
fn j47a_j47c_an_interrupt_in_the_background_saves_and_stops() {
    let scene = Scene::new("say ready\nhang");
    let (shell, terminal, line) = shell(&scene, "--once");
    terminal.send(format!("{line} > out 2>&1 &\r"));
    let out = || fs_err::read_to_string(scene.file("out")).unwrap_or_default();
    wait_for("the agent's text", LONG, || {
        out().contains("ready").then_some(())
    });
    terminal.send("kill -INT %1; wait %1; echo ended with $?\r");
    terminal.sees("ended with 130", LONG);
    assert!(!terminal.text().contains("save and exit") && !out().contains("save and exit"));
    assert_eq!(scene.status()["reason"], "stopped by a person");
    terminal.send("exit\r");
    shell.wait(LONG);
}

#[test]
fn a_run_that_comes_to_the_foreground_has_its_menu() {
    let scene = Scene::new("say ready\nawait go\nturn");
    let (shell, terminal, line) = shell(&scene, "--once");
    terminal.send(format!("{line} &\r"));
    terminal.sees("ready", LONG);
    terminal.send("fg\r");
    wait_for("rlm in the foreground", LONG, || {
        (terminal.foreground() != Some(shell.pid())).then_some(())
    });
    terminal.send(b"\x03");
    terminal.sees("save and exit", LONG);
    terminal.send("\r");
    terminal.sees_no("save and exit", LONG);
    fs_err::write(scene.file("go"), "").unwrap();
    terminal.sees("planned", LONG);
    terminal.send("exit\r");
    shell.wait(LONG).expect_code(0);
}

#[test]
fn closing_the_terminal_saves_and_stops_the_run() {
    for prompt in [None, Some("\r"), Some("\x03")] {
        let scene = Scene::new("child setsid\nsay ready\nhang");
        let (running, terminal) = scene.claude(&["--once"]).spawn_on_terminal();
        terminal.sees("ready", LONG);
        if let Some(keys) = prompt {
            let before = terminal.bytes().len();
            terminal.send(keys);
            wait_for("the next prompt", LONG, || {
                (terminal.bytes().len() > before + 10).then_some(())
            });
        }
        drop(terminal);
        running.wait(LONG).expect_signal(Signal::HUP);
        let status = scene.status();
        assert_eq!(
            (&status["state"], &status["reason"]),
            (&"stopped".into(), &"stopped by SIGHUP".into())
        );
        scene.expect_nothing_alive();
    }
}

#[test]
fn run_that_ignores_sighup_continues_without_terminal_and_does_not_spin() {
    let scene = Scene::new("say ready\nawait go\nrun true\nsay well\nturn");
    let (shell, terminal, line) = shell(&scene, "--once");
    terminal.send(format!("trap '' HUP; {line}\r"));
    terminal.sees("ready", LONG);
    let mut alive = scene.alive().into_iter();
    let rlm = alive
        .find(|process| process.ppid == shell.pid())
        .expect("the run");
    drop(terminal);
    drop(shell);
    let used = || {
        let stat = fs_err::read_to_string(format!("/proc/{}/stat", rlm.pid)).unwrap();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before = used();
    assert!(poll_until(std::time::Duration::from_secs(1), || None::<()>).is_none());
    let after = used();
    assert!(
        after - before < 50,
        "{} of 100 ticks used while the run waits",
        after - before
    );
    kill_process(Pid::from_raw(rlm.pid).unwrap(), Signal::CONT).unwrap();
    fs_err::write(scene.file("go"), "").unwrap();
    wait_for("the end", LONG, || {
        (scene.status()["state"] == "ended" && scene.status()["iterations_complete"] == 1)
            .then_some(())
    });
}
