//! A sandbox with a scripted agent, and short ways to run `rlm` in it.

use std::path::PathBuf;

use rlm_tests::agent::{FakeAgent, Message};
use rlm_tests::{Ended, Process, Rlm, Running, Sandbox, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::{FAKE_AGENT, LONG, RLM};

/// The prompt of [`Scene::run`].
pub(crate) const PROMPT: &str = "Do the next step.";

/// One child of every kind, then a line on stdout, then ten minutes of silence.
pub(crate) const TREE: &str =
    "child plain\nchild setsid\nchild daemon\nchild holder\nprint ready\nhang";
/// The agent and its four children.
pub(crate) const TREE_SIZE: usize = 5;
/// The same tree; all its processes ignore INT, TERM and HUP.
pub(crate) const STUBBORN_TREE: &str = "ignore INT TERM HUP\nchild plain ignore INT TERM HUP\n\
    child setsid ignore INT TERM HUP\nchild daemon ignore INT TERM HUP\nchild holder ignore INT TERM HUP\n\
    print ready\nhang";

/// The third turn hangs at the first attempt, and finishes at the second.
pub(crate) const HANGS_IN_THE_THIRD: &str =
    "print turn {start}\n@3 print ready\n@3 hang\n@5 touch done";

#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) agent: FakeAgent,
    pub(crate) sandbox: Sandbox,
}

impl Scene {
    pub(crate) fn new(script: &str) -> Self {
        let sandbox = Sandbox::new();
        Self {
            agent: sandbox.fake_agent(FAKE_AGENT, script),
            sandbox,
        }
    }

    /// Prepares `rlm ARGUMENTS`.
    pub(crate) fn rlm(&self, arguments: &[&str]) -> Rlm<'_> {
        self.sandbox.rlm(RLM).args(arguments)
    }

    /// Prepares `rlm run --sleep 0 --prompt … ARGUMENTS -- AGENT`.
    pub(crate) fn run(&self, arguments: &[&str]) -> Rlm<'_> {
        self.run_bare(&[&["--sleep", "0", "--prompt", PROMPT], arguments].concat())
    }

    /// Prepares `rlm run ARGUMENTS -- AGENT`.
    pub(crate) fn run_bare(&self, arguments: &[&str]) -> Rlm<'_> {
        self.rlm(&["run"])
            .args(arguments)
            .args(["--"])
            .args(self.agent.argv())
    }

    /// Prepares `rlm run --sleep 0 --prompt … --agent claude ARGUMENTS` with the fake agent in a conversation.
    pub(crate) fn claude(&self, arguments: &[&str]) -> Rlm<'_> {
        self.claude_bare(&[&["--sleep", "0", "--prompt", PROMPT], arguments].concat())
    }

    /// Prepares `rlm run --agent claude ARGUMENTS`.
    pub(crate) fn claude_bare(&self, arguments: &[&str]) -> Rlm<'_> {
        let run = ["run", "--agent", "claude", "--agent-bin", FAKE_AGENT];
        self.talking(&[&run, arguments].concat())
    }

    /// Prepares `rlm ARGUMENTS` with the variables for the script of the fake agent in a conversation.
    pub(crate) fn talking(&self, arguments: &[&str]) -> Rlm<'_> {
        let [record, script] = self.agent.variables();
        self.rlm(arguments)
            .env(record.0, record.1)
            .env(script.0, script.1)
    }

    /// Returns the messages of all conversations of the agent, oldest first.
    pub(crate) fn received_messages(&self) -> Vec<String> {
        let messages = self.agent.messages().into_iter();
        messages.map(|message| message.text).collect()
    }

    /// Waits until a transcript contains `what`, so that rlm has read it, whether or not the screen shows it.
    #[track_caller]
    pub(crate) fn wait_until_recorded(&self, what: &str) {
        wait_for(format_args!("{what:?} in the transcripts"), LONG, || {
            let logs = self.rlm(&["logs", "--json"]).run(LONG);
            logs.stdout.contains(what).then_some(())
        });
    }

    /// Waits until the agent has received a message with these words.
    #[track_caller]
    pub(crate) fn wait_until_received(&self, words: &str) -> Message {
        wait_for(
            format_args!("{words:?} among {:?}", self.received_messages()),
            LONG,
            || {
                let mut messages = self.agent.messages().into_iter();
                messages.find(|message| message.text.contains(words))
            },
        )
    }

    /// Returns the kinds of the control requests of the agent, except queries of its usage.
    pub(crate) fn controls(&self) -> Vec<String> {
        let controls = self.agent.controls().into_iter();
        let controls = controls.map(|control| control.subtype);
        controls.filter(|kind| kind != "get_usage").collect()
    }

    /// Starts `rlm run` and waits until its agent has printed `ready`.
    pub(crate) fn ready(&self, arguments: &[&str]) -> Running {
        until_ready(self.run(arguments))
    }

    /// Starts a run of [`HANGS_IN_THE_THIRD`] and waits until it hangs.
    pub(crate) fn third_iteration(&self) -> Running {
        self.ready(&["--until", "test -e done"])
    }

    /// Returns the path of `name` in the repository.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.sandbox.repo().join(name)
    }

    pub(crate) fn wait_for_file(&self, name: &str) {
        wait_for(format!("file {name}"), LONG, || {
            self.file(name).exists().then_some(())
        });
    }

    /// Returns the statuses of all runs, ordered by name and thus by age.
    pub(crate) fn statuses(&self) -> Vec<Value> {
        let ended = self.rlm(&["status", "--json"]).run(LONG);
        ended.stdout.lines().map(json).collect()
    }

    /// Returns the status of the only run.
    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        let mut all = self.statuses();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// Returns the id of the only run.
    #[track_caller]
    pub(crate) fn run_id(&self) -> String {
        text(&self.status()["run"])
    }

    /// Returns the stdin of each start of the agent.
    pub(crate) fn prompts(&self) -> Vec<String> {
        let starts = self.agent.starts();
        starts
            .into_iter()
            .map(|start| start.stdin.unwrap_or_default())
            .collect()
    }

    pub(crate) fn wait_until_started(&self, count: usize) {
        wait_for(format!("start {count}"), LONG, || {
            (self.start_count() >= count).then_some(())
        });
    }

    pub(crate) fn start_count(&self) -> usize {
        self.agent.starts().len()
    }

    /// Returns all processes of this scene, including `rlm`.
    pub(crate) fn alive(&self) -> Vec<Process> {
        self.sandbox.survivors().scan()
    }

    #[track_caller]
    pub(crate) fn expect_nothing_alive(&self) {
        let left = self.alive();
        assert!(left.is_empty(), "left alive: {left:?}");
    }

    /// Waits until all processes have ended by themselves.
    #[track_caller]
    pub(crate) fn wait_until_nothing_is_alive(&self) {
        wait_for(
            format_args!("everything to be gone, still there: {:?}", self.alive()),
            LONG,
            || self.alive().is_empty().then_some(()),
        );
    }

    /// Returns the number of live agents and children of agents.
    pub(crate) fn tree_alive(&self) -> usize {
        let children = self.agent.children();
        let mut pids: Vec<i32> = children.iter().map(|child| child.pid).collect();
        pids.extend(self.agent.starts().iter().map(|start| start.pid));
        let mut alive = self.alive();
        alive.retain(|process| pids.contains(&process.pid) && !process.is_zombie());
        alive.len()
    }

    /// Returns the live children of the start with this number.
    pub(crate) fn children_alive(&self, start: u32) -> Vec<Process> {
        let children = self.agent.children();
        let pids: Vec<i32> = children
            .iter()
            .filter(|child| child.start == start)
            .map(|child| child.pid)
            .collect();
        let mut alive = self.alive();
        alive.retain(|process| pids.contains(&process.pid));
        alive
    }
}

/// Starts a run and waits until its agent has printed `ready`.
#[track_caller]
pub(crate) fn until_ready(rlm: Rlm<'_>) -> Running {
    let mut running = rlm.spawn();
    says(&mut running, "ready");
    running
}

/// Waits until stdout contains a text.
#[track_caller]
pub(crate) fn says(running: &mut Running, what: &str) {
    running.until(what, LONG, |running| {
        running.stdout().contains(what).then_some(())
    });
}

/// Sends a signal, and expects that the process ends by it.
#[track_caller]
pub(crate) fn stop(running: Running, signal: Signal) -> Ended {
    running.signal(signal);
    running.wait(LONG).expect_signal(signal)
}

/// Waits until a program has a handler for a signal, whose default action would end the program.
#[cfg(target_os = "linux")]
#[track_caller]
pub(crate) fn wait_until_caught(running: &Running, signal: Signal) {
    let status = format!("/proc/{}/status", running.pid());
    wait_for("its signal handlers", LONG, || {
        let status = fs_err::read_to_string(&status).ok()?;
        let caught = status.lines().find_map(|it| it.strip_prefix("SigCgt:"))?;
        let caught = u64::from_str_radix(caught.trim(), 16).ok()?;
        (caught >> (signal.as_raw() - 1) & 1 == 1).then_some(())
    });
}

/// Kills a process, as a crash would.
#[track_caller]
pub(crate) fn crash(running: Running) -> Ended {
    stop(running, Signal::KILL)
}

#[track_caller]
pub(crate) fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// Returns the events of a run with `--json`.
#[track_caller]
pub(crate) fn events(stdout: &str) -> Vec<Value> {
    stdout.lines().map(json).collect()
}

#[track_caller]
pub(crate) fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a text: {value}"))
        .to_owned()
}

/// Expects the words in this order, with any text between them.
#[track_caller]
pub(crate) fn expect_in_order(text: &str, words: &[&str]) {
    let mut rest = text;
    for word in words {
        let at = rest.find(word);
        let at = at.unwrap_or_else(|| panic!("{word:?} is missing or too early in:\n{text}"));
        rest = &rest[at + word.len()..];
    }
}
