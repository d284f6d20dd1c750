//! The shipped `rlm` around an agent that only notes when it was asked, and what it notes.
//!
//! The agent is called for an iteration only after the one before it was saved, so its notes
//! tell what was acknowledged: the numbers grow, by one at most, and no attempt is made twice.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::program::{self, Running};
use crate::reference::{Kept, broken};
use crate::rng::Rng;

/// More iterations than anybody waits for.
const MANY: &str = "1000000";
const RUN: &str = "storm";

/// An iteration, and the attempt at it.
type Call = (u64, u64);

/// A project in which a loop runs and is killed.
#[derive(Debug)]
pub struct Project {
    rlm: PathBuf,
    place: TempDir,
    /// The newest iteration that `rlm` said had ended.
    ended: u64,
    /// Whether `rlm` said that the run has ended.
    is_over: bool,
}

impl Project {
    /// Makes an empty project.
    ///
    /// # Errors
    /// If `rlm` was not built, or there is no place for it; the text says so.
    pub fn new() -> Result<Self, String> {
        let rlm = program::rlm()?;
        let place = tempfile::tempdir().map_err(|err| err.to_string())?;
        let agent = r#"echo "$RLM_ITERATION $RLM_ATTEMPT" >> "$1""#;
        std::fs::write(place.path().join("agent.sh"), agent).map_err(|err| err.to_string())?;
        std::fs::create_dir(place.path().join("project")).map_err(|err| err.to_string())?;
        Ok(Self {
            rlm,
            place,
            ended: 0,
            is_over: false,
        })
    }

    fn notes(&self) -> PathBuf {
        self.place.path().join("notes")
    }

    /// Returns a directory beside the project.
    pub fn place(&self) -> &Path {
        self.place.path()
    }

    /// Returns the directory of the run's store.
    pub fn store(&self) -> PathBuf {
        self.place.path().join("project/.rlm/runs").join(RUN)
    }

    /// Returns a command that starts the loop, or goes on with it; `before` is what runs it.
    pub fn command(&self, before: &[OsString], iterations: &str) -> Command {
        let mut words: Vec<OsString> = before.to_vec();
        words.push(self.rlm.clone().into());
        words.extend(["run", "-C"].map(Into::into));
        words.push(self.place.path().join("project").into());
        words.extend(["--resume-or-start", "--run-id", RUN, "-n", iterations].map(Into::into));
        words.extend(["--sleep", "0", "--max-failures", "0", "--nested"].map(Into::into));
        words.extend(["--json", "--no-input", "-p", "note it", "--", "sh"].map(Into::into));
        words.push(self.place.path().join("agent.sh").into());
        words.push(self.notes().into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    /// Runs the loop, kills it at a random moment, and looks at what the agents noted.
    ///
    /// # Errors
    /// If a promise was broken.
    pub fn interrupt(&mut self, rng: &mut Rng) -> Kept {
        let running = Running::start(&mut self.command(&[], MANY)).expect("it was found");
        for _ in 0..rng.below(16) {
            match running.line()? {
                Some(line) => self.hear(&line)?,
                None => return broken('L', "rlm ended although nobody stopped it"),
            }
        }
        program::pause(Duration::from_micros(rng.below(8_000) as u64));
        running
            .kill()?
            .iter()
            .try_for_each(|line| self.hear(line))?;
        self.look()
    }

    /// Runs the loop until it ends by itself.
    ///
    /// # Errors
    /// If a promise was broken.
    pub fn go(&mut self, before: &[OsString], iterations: u64) -> Kept {
        let mut command = self.command(before, &iterations.to_string());
        let running = Running::lead(&mut command).expect("it was found");
        while let Some(line) = running.line()? {
            self.hear(&line)?;
        }
        Ok(())
    }

    /// Fails unless the loop came to its end. An iteration may have failed on the way, where the
    /// fault kept the agent from being started.
    ///
    /// # Errors
    /// If a promise was broken.
    pub fn done(&self) -> Kept<u64> {
        match self.is_over {
            true => Ok(self.seen()),
            false => broken(
                'L',
                format!("rlm cannot go on; {} iterations were made", self.seen()),
            ),
        }
    }

    /// Takes down what `rlm` says about its iterations.
    ///
    /// # Errors
    /// If it does again what it said had ended.
    pub fn hear(&mut self, line: &str) -> Kept {
        let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else {
            return Ok(());
        };
        let iteration = event["iteration"].as_u64().unwrap_or_default();
        match event["event"].as_str() {
            Some("iteration_ended") if event["failure"].is_null() => {
                self.ended = self.ended.max(iteration);
            }
            Some("run_ended") => self.is_over = true,
            Some("run_resumed" | "attempt_started") if iteration <= self.ended => {
                return broken(
                    'D',
                    format!("iteration {} had ended, {iteration} begins", self.ended),
                );
            }
            _ => {}
        }
        Ok(())
    }

    fn calls(&self) -> Kept<Vec<Call>> {
        let text = std::fs::read_to_string(self.notes()).unwrap_or_default();
        let call = |line: &str| {
            let (iteration, attempt) = line.split_once(' ')?;
            Some((iteration.parse().ok()?, attempt.parse().ok()?))
        };
        // An agent that is killed inside its one write leaves the whole line or nothing.
        let calls: Option<Vec<Call>> = text.lines().map(call).collect();
        calls.map_or_else(|| broken('A', "an agent noted half a line"), Ok)
    }

    /// Fails unless the agents were called for each iteration, in order, and for no attempt twice.
    ///
    /// # Errors
    /// If a promise was broken.
    pub fn look(&self) -> Kept {
        let mut last = (0, 1);
        for call in self.calls()? {
            // A call that was cut before the agent could note it leaves a gap in the attempts.
            if call <= last || call.0 > last.0 + 1 {
                return broken(
                    'D',
                    format!("after {last:?} an agent was called for {call:?}"),
                );
            }
            last = call;
        }
        Ok(())
    }

    /// Returns how many iterations the agents were called for.
    pub fn seen(&self) -> u64 {
        let calls = self.calls().unwrap_or_default();
        calls.last().map_or(0, |(iteration, _)| *iteration)
    }
}
