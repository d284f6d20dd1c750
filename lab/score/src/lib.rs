//! Scores any program that runs an agent in a loop, as a black box, by five promises: stop, resume, done, night and control.
//!
//! This is the program behind `cargo xtask lab`. It starts a tool by a command, or by the commands of a small file of verbs ([`Tool`]), and needs no
//! code in the tool's project. `README.md` describes how to score your own tool.
//!
//! # Theory of operation
//!
//! Each cell plays one fault in a `Sandbox` of `rlm-tests`. The agent is scripted, and leaves receipts outside of the repository: a record of each
//! start with its pid and its input, a line for each step, and a line for each fault that it plays. A lock that the agent holds as long as it lives
//! shows whether two agents were alive at once. The check of the job counts the steps, and leaves a receipt of each of its results. The lab counts a
//! fault only if a receipt shows that it landed; otherwise the verdict of the cell is [`Verdict::NotShown`], never a success.
//!
//! The lab kills only processes with the marker of the sandbox. Every wait has a limit, a file has at most 256 MiB, and a scene ends when it has too
//! many processes.
//!
//! # Modules in reading order
//!
//! `tool` (the verbs of a tool), `cell` (the results), `random`, `small_disk`, `scene` (a sandbox with a job, an agent and the tool), `stop`,
//! `resume`, `done`, `night`, `whole_night`, `control` (the scores), `real_agent`, `table` (the output).
//!
//! A real agent CLI can play instead of the scripted agent (`real_agent`): one fault of each score, with a scripted model.
//!
//! # Platform
//!
//! Linux; it needs git, bash and `flock`.

mod cell;
mod control;
mod done;
mod night;
mod random;
mod real_agent;
mod resume;
mod scene;
mod small_disk;
mod stop;
mod table;
mod tool;
mod whole_night;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

pub use cell::{Cell, Circumstances, Report, Score, ScoreName, Verdict};
pub use scene::{Effort, Lab};
pub use tool::Tool;

/// A part of a score that runs by itself.
#[derive(Debug, Clone, Copy)]
enum Part {
    Done(done::Fault),
    Kills,
    Overlap,
    Race,
    Torn,
    Night(night::Event),
    WholeNight,
    Control(control::Event),
    /// One fault of this score, with a real agent.
    RealAgent(ScoreName),
}

impl Part {
    fn of(score: ScoreName) -> Vec<Self> {
        match score {
            ScoreName::Stop => Vec::new(),
            ScoreName::Resume => vec![Self::Kills, Self::Overlap, Self::Race, Self::Torn],
            ScoreName::Done => done::Fault::ALL.map(Self::Done).into(),
            ScoreName::Night => { night::Event::ALL.map(Self::Night).into_iter() }
                .chain([Self::WholeNight])
                .collect(),
            ScoreName::Control => control::Event::ALL.map(Self::Control).into(),
        }
    }

    fn play(self, lab: Lab<'_>) -> Vec<Cell> {
        match self {
            Self::Done(fault) => vec![done::cell(lab, fault)],
            Self::Kills => resume::killed(lab),
            Self::Overlap => vec![resume::overlap(lab)],
            Self::Race => vec![resume::race(lab)],
            Self::Torn => vec![resume::torn(lab)],
            Self::Night(event) => vec![night::cell(lab, event)],
            Self::WholeNight => vec![whole_night::cell(lab)],
            Self::Control(event) => vec![control::cell(lab, event)],
            Self::RealAgent(score) => vec![real_agent::cell(lab, score)],
        }
    }
}

impl Lab<'_> {
    /// Plays the faults of a score, at most `jobs` at the same time. Calls `progress` with the number of finished parts, and with their total number.
    ///
    /// # Panics
    /// When a sandbox can't be made, or one of its processes can't be killed.
    #[must_use]
    pub fn score(
        self,
        score: ScoreName,
        jobs: usize,
        progress: impl Fn(usize, usize) + Sync,
    ) -> Score {
        let cells = match score {
            _ if self.cli.is_some() => self.parts(&[Part::RealAgent(score)], jobs, progress),
            ScoreName::Stop => stop::cells(self, jobs, progress),
            _ => self.parts(&Part::of(score), jobs, progress),
        };
        Score { score, cells }
    }

    fn parts(
        self,
        parts: &[Part],
        jobs: usize,
        progress: impl Fn(usize, usize) + Sync,
    ) -> Vec<Cell> {
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        progress(0, parts.len());
        thread::scope(|scope| {
            for _ in 0..jobs.min(parts.len()) {
                scope.spawn(|| {
                    loop {
                        // The longest part, the whole night, is the last one, so it begins first.
                        let before = next.fetch_add(1, Ordering::Relaxed);
                        let Some(number) = parts.len().checked_sub(before + 1) else {
                            break;
                        };
                        let part = parts[number];
                        if self.given_up.load(Ordering::Relaxed) {
                            break;
                        }
                        let cells = part.play(self);
                        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                        done.push((number, cells));
                        progress(done.len(), parts.len());
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(number, _)| *number);
        done.into_iter().flat_map(|(_, cells)| cells).collect()
    }
}
