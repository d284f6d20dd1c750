//! A sandbox with a scripted agent in it, and short ways to run `rlm` there.

use std::path::PathBuf;

use rlm_tests::agent::{FakeAgent, Message};
use rlm_tests::{Ended, Process, Rlm, Running, Sandbox, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::{FAKE_AGENT, LONG, RLM};

/// The prompt of a [`Scene::run`].
pub(crate) const PROMPT: &str = "Do the next step.";

/// One child of every kind, then a sign on stdout, then nothing for ten minutes.
pub(crate) const TREE: &str =
    "child plain\nchild setsid\nchild daemon\nchild holder\nprint ready\nhang";
/// The agent and its four children.
pub(crate) const TREE_SIZE: usize = 5;
/// The same, and none of them goes without being killed.
pub(crate) const STUBBORN_TREE: &str = "ignore INT TERM HUP\nchild plain ignore INT TERM HUP\n\
    child setsid ignore INT TERM HUP\nchild daemon ignore INT TERM HUP\nchild holder ignore INT TERM HUP\n\
    print ready\nhang";

/// Its third turn hangs the first time, and is done when it is made again.
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

    /// `rlm ARGUMENTS`
    pub(crate) fn rlm(&self, arguments: &[&str]) -> Rlm<'_> {
        self.sandbox.rlm(RLM).args(arguments)
    }

    /// `rlm run --sleep 0 --prompt … ARGUMENTS -- AGENT`
    pub(crate) fn run(&self, arguments: &[&str]) -> Rlm<'_> {
        self.run_bare(&[&["--sleep", "0", "--prompt", PROMPT], arguments].concat())
    }

    /// `rlm run ARGUMENTS -- AGENT`
    pub(crate) fn run_bare(&self, arguments: &[&str]) -> Rlm<'_> {
        self.rlm(&["run"])
            .args(arguments)
            .args(["--"])
            .args(self.agent.argv())
    }

    /// `rlm run --sleep 0 --prompt … --agent claude ARGUMENTS`, and the agent is the fake one in a conversation.
    pub(crate) fn claude(&self, arguments: &[&str]) -> Rlm<'_> {
        self.claude_bare(&[&["--sleep", "0", "--prompt", PROMPT], arguments].concat())
    }

    /// `rlm run --agent claude ARGUMENTS`
    pub(crate) fn claude_bare(&self, arguments: &[&str]) -> Rlm<'_> {
        let run = ["run", "--agent", "claude", "--agent-bin", FAKE_AGENT];
        self.talking(&[&run, arguments].concat())
    }

    /// `rlm ARGUMENTS` with what the fake agent in a conversation needs to find its script.
    pub(crate) fn talking(&self, arguments: &[&str]) -> Rlm<'_> {
        let [record, script] = self.agent.variables();
        self.rlm(arguments)
            .env(record.0, record.1)
            .env(script.0, script.1)
    }

    /// What the agent was told in conversations, oldest first.
    pub(crate) fn told(&self) -> Vec<String> {
        let messages = self.agent.messages().into_iter();
        messages.map(|message| message.text).collect()
    }

    /// Waits until `what` is in a transcript: rlm has read it, whether it was shown or not.
    #[track_caller]
    pub(crate) fn wait_until_recorded(&self, what: &str) {
        wait_for(format_args!("{what:?} in the transcripts"), LONG, || {
            let logs = self.rlm(&["logs", "--json"]).run(LONG);
            logs.stdout.contains(what).then_some(())
        });
    }

    /// Waits until the agent has been told something with these words.
    #[track_caller]
    pub(crate) fn wait_until_told(&self, words: &str) -> Message {
        wait_for(
            format_args!("{words:?} among {:?}", self.told()),
            LONG,
            || {
                let mut messages = self.agent.messages().into_iter();
                messages.find(|message| message.text.contains(words))
            },
        )
    }

    /// The kinds of the control requests that the agent got, but those that ask what it used.
    pub(crate) fn controls(&self) -> Vec<String> {
        let controls = self.agent.controls().into_iter();
        let controls = controls.map(|control| control.subtype);
        controls.filter(|kind| kind != "get_usage").collect()
    }

    /// Starts `rlm run` and waits until its agent has said `ready`.
    pub(crate) fn ready(&self, arguments: &[&str]) -> Running {
        until_ready(self.run(arguments))
    }

    /// Starts a run of [`HANGS_IN_THE_THIRD`] and waits until it does.
    pub(crate) fn third_iteration(&self) -> Running {
        self.ready(&["--until", "test -e done"])
    }

    /// What stands in the repository under `name`.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.sandbox.repo().join(name)
    }

    pub(crate) fn wait_for_file(&self, name: &str) {
        wait_for(format!("file {name}"), LONG, || {
            self.file(name).exists().then_some(())
        });
    }

    /// Where all runs stand, by their names, and thus by their age.
    pub(crate) fn statuses(&self) -> Vec<Value> {
        let ended = self.rlm(&["status", "--json"]).run(LONG);
        ended.stdout.lines().map(json).collect()
    }

    /// Where the only run stands.
    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        let mut all = self.statuses();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// The name of the only run.
    #[track_caller]
    pub(crate) fn run_id(&self) -> String {
        text(&self.status()["run"])
    }

    /// What each start of the agent got on its stdin.
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

    /// Every process of this scene that exists, `rlm` included.
    pub(crate) fn alive(&self) -> Vec<Process> {
        self.sandbox.survivors().scan()
    }

    #[track_caller]
    pub(crate) fn expect_nothing_alive(&self) {
        let left = self.alive();
        assert!(left.is_empty(), "left alive: {left:?}");
    }

    /// For what ends by itself, without anybody to wait for it.
    #[track_caller]
    pub(crate) fn wait_until_nothing_is_alive(&self) {
        wait_for(
            format_args!("everything to be gone, still there: {:?}", self.alive()),
            LONG,
            || self.alive().is_empty().then_some(()),
        );
    }

    /// How many agents and children of agents live.
    pub(crate) fn tree_alive(&self) -> usize {
        let children = self.agent.children();
        let mut pids: Vec<i32> = children.iter().map(|child| child.pid).collect();
        pids.extend(self.agent.starts().iter().map(|start| start.pid));
        let mut alive = self.alive();
        alive.retain(|process| pids.contains(&process.pid) && !process.is_zombie());
        alive.len()
    }

    /// Those children of the start with this number that exist.
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

/// Starts it and waits until the agent has said `ready`.
#[track_caller]
pub(crate) fn until_ready(rlm: Rlm<'_>) -> Running {
    let mut running = rlm.spawn();
    says(&mut running, "ready");
    running
}

/// Waits until something is on stdout.
#[track_caller]
pub(crate) fn says(running: &mut Running, what: &str) {
    running.until(what, LONG, |running| {
        running.stdout().contains(what).then_some(())
    });
}

/// Ends it by a signal and expects that it died of that.
#[track_caller]
pub(crate) fn stop(running: Running, signal: Signal) -> Ended {
    running.signal(signal);
    running.wait(LONG).expect_signal(signal)
}

/// Waits until a program has taken a signal that would end it else.
#[cfg(target_os = "linux")]
#[track_caller]
pub(crate) fn wait_until_caught(running: &Running, signal: Signal) {
    let status = format!("/proc/{}/status", running.pid());
    wait_for("its signals to be taken", LONG, || {
        let status = fs_err::read_to_string(&status).ok()?;
        let caught = status.lines().find_map(|it| it.strip_prefix("SigCgt:"))?;
        let caught = u64::from_str_radix(caught.trim(), 16).ok()?;
        (caught >> (signal.as_raw() - 1) & 1 == 1).then_some(())
    });
}

/// Kills it as a crash would.
#[track_caller]
pub(crate) fn crash(running: Running) -> Ended {
    stop(running, Signal::KILL)
}

#[track_caller]
pub(crate) fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The events of a run with `--json`.
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

/// Expects the words in this order, other text between them allowed.
#[track_caller]
pub(crate) fn expect_in_order(text: &str, words: &[&str]) {
    let mut rest = text;
    for word in words {
        let at = rest.find(word);
        let at = at.unwrap_or_else(|| panic!("{word:?} is missing or too early in:\n{text}"));
        rest = &rest[at + word.len()..];
    }
}
