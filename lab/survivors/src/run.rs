//! One run: starts the tool, sees its process tree alive, stops it, and checks for survivors.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rlm_tests::agent::{ChildKind, FakeAgent};
use rlm_tests::{Ended, Process, Rlm, Running, Sandbox, Terminal, poll_until};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::added_files::{self, AddedFiles};
use crate::{Plan, Run, StopMethod, StopMoment};

const KINDS: [ChildKind; 4] = [
    ChildKind::Plain,
    ChildKind::Setsid,
    ChildKind::Daemon,
    ChildKind::Holder,
];
/// The text that `rlm` prints when it begins to sleep.
const SLEEPS: &str = "next iteration";
/// Runs its argument as a command; a tool with endless output ends at 256 MiB, before the disk is full.
const BOUNDED: &str = r#"ulimit -f 262144; exec bash -c "$0""#;
/// The number of shown output lines.
const TAIL: usize = 4;

/// The relation of a process to the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A child of the agent in its session and group.
    Plain,
    /// A child of the agent in a session of its own.
    Setsid,
    /// A double-forked daemon: it has its own session, and its parent is gone.
    Daemon,
    /// A grandchild whose parent is gone and that keeps the agent's stdout and stderr open.
    Holder,
    /// The agent itself.
    Agent,
    /// Any other process with the marker: helpers of the tool, a shell between it and the agent.
    Other,
}

impl Role {
    /// All roles, in the order of the table.
    pub const ALL: [Self; 6] = [
        Self::Plain,
        Self::Setsid,
        Self::Daemon,
        Self::Holder,
        Self::Agent,
        Self::Other,
    ];

    /// Returns the role's word in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Setsid => "setsid",
            Self::Daemon => "daemon",
            Self::Holder => "holder",
            Self::Agent => "agent",
            Self::Other => "other",
        }
    }
}

impl From<ChildKind> for Role {
    fn from(kind: ChildKind) -> Self {
        match kind {
            ChildKind::Plain => Self::Plain,
            ChildKind::Setsid => Self::Setsid,
            ChildKind::Daemon => Self::Daemon,
            ChildKind::Holder => Self::Holder,
        }
    }
}

/// A process that survived the stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Survivor {
    /// Its relation to the tool.
    pub role: Role,
    /// Its process id while it was alive.
    pub pid: i32,
    /// Its command name, but not its command line, which may contain secrets.
    pub name: String,
    /// Whether it is a zombie: dead, but not reaped.
    pub zombie: bool,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum RunResult {
    /// The tool ended. The survivors are listed, if there are any.
    Ended {
        /// `0`, `130`, `SIGINT` …
        status: String,
        /// From the stop (the last press) to the end of the tool.
        tool_gone: Duration,
        /// From the stop to the end of the last process; `None` if there are survivors.
        all_gone: Option<Duration>,
        /// The processes that were alive at the time limit.
        left: Vec<Survivor>,
    },
    /// The tool was still alive at the time limit.
    Ignored {
        /// The processes that were alive then, including the tool.
        left: Vec<Survivor>,
    },
    /// The tool could not end the processes that are left. It named each by pid, and failed.
    Named {
        /// The exit code, never 0.
        status: String,
        /// From the stop to the end of the tool.
        tool_gone: Duration,
        /// The processes that the tool named as alive.
        left: Vec<Survivor>,
    },
    /// This tool or this machine doesn't allow this way.
    Skipped {
        /// The reason.
        why: String,
    },
    /// The agent did not begin to work, so there was no process to stop.
    NeverReady {
        /// The details.
        why: String,
    },
}

impl Plan {
    /// Makes all runs, at most `jobs` at the same time, and calls `progress` after each. If `given_up` becomes true, the other runs don't begin.
    ///
    /// # Panics
    /// When [`Plan::run`] does.
    pub fn run_all(
        &self,
        jobs: usize,
        given_up: &AtomicBool,
        progress: impl Fn(&[Run]) + Sync,
    ) -> Vec<Run> {
        let all = self.all();
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..jobs.min(all.len()) {
                scope.spawn(|| {
                    while !given_up.load(Ordering::Relaxed)
                        && let Some((way, number)) = all.get(next.fetch_add(1, Ordering::Relaxed))
                        && let Some(run) = self.run(*way, *number, given_up)
                    {
                        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                        done.push(run);
                        progress(&done);
                    }
                });
            }
        });
        done.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the tool, stops it in one way, and returns the survivors. Blocks at most for the sum of the plan's time limits.
    ///
    /// Returns `None` if `given_up` became true; all processes are then killed at once.
    ///
    /// # Panics
    /// When a sandbox can't be made, or one of its processes can't be killed.
    pub fn run(&self, way: StopMethod, number: usize, given_up: &AtomicBool) -> Option<Run> {
        let stage = RunSandbox::new(self, way);
        let program = std::env::current_exe().unwrap_or_default();
        let programs = [self.agent.as_path(), &program];
        let verdict = match stage.extra.hand_over(&stage.sandbox, &programs) {
            Err(why) => RunResult::Skipped { why },
            Ok(()) => stage.stopped(self, way, number, given_up),
        };
        (!given_up.load(Ordering::Relaxed)).then_some(Run {
            way,
            number,
            verdict,
        })
    }
}

/// The sandbox of a run; dropping it kills all remaining processes.
struct RunSandbox {
    extra: AddedFiles,
    agent: FakeAgent,
    program: PathBuf,
    sandbox: Sandbox,
}

impl RunSandbox {
    fn new(plan: &Plan, way: StopMethod) -> Self {
        let sandbox = Sandbox::new();
        let extra = AddedFiles::new(way, &sandbox);
        let agent = sandbox.fake_agent(&plan.agent, &plan.script());
        let program = sandbox.path().join("bin").join(&plan.agent_name);
        agent.install(&sandbox, &program, &extra.before_agent());
        Self {
            extra,
            agent,
            program,
            sandbox,
        }
    }

    /// Starts the tool, stops it, and checks for survivors.
    fn stopped(
        &self,
        plan: &Plan,
        way: StopMethod,
        number: usize,
        given_up: &AtomicBool,
    ) -> RunResult {
        let (mut tool, terminal) = self.start(plan, way);
        if let Err(verdict) = self.until_ready(plan, number, &mut tool, terminal.as_ref(), given_up)
        {
            return verdict;
        }
        if way == StopMethod::KilledGuard
            && let Err(why) = self.kill_guard(&tool)
        {
            return RunResult::Skipped { why };
        }
        let terminal = way.stop(&mut tool, terminal);
        let verdict = self.watch(plan, way, tool, given_up);
        drop(terminal); // not earlier, because closing it would also be a stop
        verdict
    }

    /// Kills the parent of the agent, unless the tool itself is the parent.
    fn kill_guard(&self, tool: &Running) -> Result<(), String> {
        let starts = self.agent.starts();
        let parent = starts.last().map_or(0, |start| start.ppid);
        let alive = self.sandbox.survivors().scan();
        let guard = { alive.iter() }.find(|it| it.pid == parent && it.pid != tool.pid());
        let guard = guard.and_then(|it| Pid::from_raw(it.pid));
        let guard = guard.ok_or("the tool itself is the parent of its agent")?;
        kill_process(guard, Signal::KILL).map_err(|error| error.to_string())
    }

    fn start(&self, plan: &Plan, way: StopMethod) -> (Running, Option<Terminal>) {
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".into());
        let first = self.program.with_file_name("");
        // Bash replaces itself by a simple command instead of waiting for it. So the signals reach the tool, not a shell in front of it.
        let mut words = self.extra.before_tool();
        words.push("bash");
        let tool: Rlm<'_> = self
            .sandbox
            .rlm(words[0])
            .args(&words[1..])
            .args(["-c", BOUNDED, &plan.command_for(&self.program)])
            .env("PATH", format!("{}:{path}", first.display()));
        if way.needs_terminal() {
            let (tool, terminal) = tool.spawn_on_terminal();
            (tool, Some(terminal))
        } else {
            (tool.own_session().spawn(), None)
        }
    }

    /// Waits for the moment of the stop.
    fn until_ready(
        &self,
        plan: &Plan,
        number: usize,
        tool: &mut Running,
        terminal: Option<&Terminal>,
        given_up: &AtomicBool,
    ) -> Result<(), RunResult> {
        let output = |tool: &Running| {
            let text = terminal.map_or_else(|| tool.stdout() + &tool.stderr(), Terminal::scrolled);
            text.trim_end().to_owned()
        };
        let begun = Instant::now();
        let found = poll_until(plan.ready, || {
            // The check for the end comes first, so that actions of the tool just before its end count.
            let over = tool.has_ended() || given_up.load(Ordering::Relaxed);
            let is_it = match plan.moment {
                StopMoment::Turn | StopMoment::Gate if self.extra.count() > 0 => self.extra_alive(),
                StopMoment::Turn | StopMoment::Gate => self.all_kinds_alive(),
                StopMoment::Start => begun.elapsed() >= plan.early(number),
                StopMoment::Sleep => output(tool).contains(SLEEPS),
            };
            is_it.then_some(true).or_else(|| over.then_some(false))
        });
        let why = match found {
            Some(true) if self.extra.pids().len() < self.extra.count() => {
                return Err(RunResult::Skipped {
                    why: "the tool ran no git between two turns that reads changed files".into(),
                });
            }
            Some(true) => return Ok(()),
            Some(false) => "the tool ended before its agent began to work".to_owned(),
            None => format!(
                "the agent did not begin to work within {} s",
                plan.ready.as_secs()
            ),
        };
        let output = output(tool);
        let lines: Vec<&str> = output.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL)..].join(" | ");
        let why = match tail.as_str() {
            "" => format!("{why}; it printed nothing"),
            tail => format!("{why}; its last lines: {tail}"),
        };
        Err(RunResult::NeverReady { why })
    }

    /// Returns whether the processes that the way adds are alive. A filter runs before the agent's second turn; a tool without git reaches that turn
    /// without a filter.
    fn extra_alive(&self) -> bool {
        let extra = self.extra.pids();
        if extra.len() < self.extra.count() {
            return self.extra.count() > 1 && self.all_kinds_alive();
        }
        let alive = self.sandbox.survivors().scan();
        let is_alive = |pid: &i32| alive.iter().any(|it| it.pid == *pid && !it.is_zombie());
        extra.iter().all(is_alive) && (self.extra.count() > 1 || self.all_kinds_alive())
    }

    fn all_kinds_alive(&self) -> bool {
        let children = self.agent.children();
        if children.len() < KINDS.len() {
            return false; // a scan is expensive
        }
        let alive = self.sandbox.survivors().scan();
        KINDS.iter().all(|kind| {
            let mut of_kind = children.iter().filter(|child| child.kind == *kind);
            of_kind.any(|child| {
                let mut alive = alive.iter().filter(|process| !process.is_zombie());
                alive.any(|process| process.pid == child.pid)
            })
        })
    }

    /// Waits until the tool and its process tree are gone, or until the time limit.
    fn watch(
        &self,
        plan: &Plan,
        way: StopMethod,
        mut tool: Running,
        given_up: &AtomicBool,
    ) -> RunResult {
        let cannot_end = match way {
            StopMethod::SetuidChild => self.extra.pids(),
            _ => Vec::new(),
        };
        let stopped = Instant::now();
        let (mut tool_gone, mut empty, mut left) = (None, None, Vec::new());
        let all_gone = poll_until(plan.time_limit, || {
            if tool_gone.is_none() && tool.has_ended() {
                tool_gone = Some(stopped.elapsed());
            }
            left = self.sandbox.survivors().scan();
            // The scan must be empty twice in a row: an orphan has no marker at the moment of its `exec`.
            let before = empty.take();
            if tool_gone.is_some() && left.is_empty() {
                empty = before.or_else(|| Some(stopped.elapsed()));
            }
            let is_over = !left.is_empty() && left.iter().all(|it| cannot_end.contains(&it.pid));
            let is_over = is_over && tool_gone.is_some() || given_up.load(Ordering::Relaxed);
            (before.is_some() && empty.is_some() || is_over).then_some(empty)
        });
        let left = self.named(left);
        match tool_gone {
            Some(tool_gone) => {
                let ended = tool.wait(Duration::ZERO);
                let status = status(&ended);
                let output = ended.stdout.clone() + &ended.stderr;
                let is_named = |it: &Survivor| {
                    cannot_end.contains(&it.pid) && added_files::names(&output, it.pid)
                };
                if !left.is_empty() && ended.code() > Some(0) && left.iter().all(is_named) {
                    return RunResult::Named {
                        status,
                        tool_gone,
                        left,
                    };
                }
                RunResult::Ended {
                    status,
                    tool_gone,
                    all_gone: all_gone.flatten(),
                    left,
                }
            }
            None => RunResult::Ignored { left },
        }
    }

    fn named(&self, left: Vec<Process>) -> Vec<Survivor> {
        let children = self.agent.children();
        let mut roles: HashMap<i32, Role> = children
            .iter()
            .map(|child| (child.pid, child.kind.into()))
            .collect();
        let agents = self.agent.starts();
        roles.extend(agents.iter().map(|start| (start.pid, Role::Agent)));
        let survivor = |process: Process| Survivor {
            role: roles.get(&process.pid).copied().unwrap_or(Role::Other),
            pid: process.pid,
            zombie: process.is_zombie(),
            name: process.name,
        };
        let mut left: Vec<Survivor> = left.into_iter().map(survivor).collect();
        left.sort_by_key(|survivor| (survivor.role, survivor.pid));
        left
    }
}

/// Returns the exit code, or the name of the signal that ended the process.
fn status(ended: &Ended) -> String {
    match (ended.code(), ended.signal()) {
        (Some(code), _) => code.to_string(),
        (None, Some(number)) => signal_hook::low_level::signal_name(number)
            .map_or_else(|| format!("signal {number}"), str::to_owned),
        (None, None) => "?".to_owned(),
    }
}
