//! Runs the shipped `rlm` with an agent that only records its calls, and checks the records.
//!
//! `rlm` calls the agent for an iteration only after the previous iteration was saved. So the agent's records show the acknowledged saves: the
//! iterations increase by at most one, and no attempt happens twice.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::program::{self, Running};
use crate::reference::{CheckResult, broken};
use crate::rng::Rng;

/// More iterations than a test ever reaches.
const MANY: &str = "1000000";
const RUN: &str = "storm";

/// An iteration and its attempt.
type Call = (u64, u64);

/// A project in which a loop runs and is killed.
#[derive(Debug)]
pub struct Project {
    rlm: PathBuf,
    place: TempDir,
    /// The newest iteration whose end `rlm` reported.
    ended: u64,
    /// Whether `rlm` reported the end of the run.
    is_over: bool,
}

impl Project {
    /// Makes an empty project.
    ///
    /// # Errors
    /// If `rlm` was not built, or no directory can be made; the text has the reason.
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

    /// Returns the directory that contains the project.
    pub fn place(&self) -> &Path {
        self.place.path()
    }

    /// Returns the directory of the run's store.
    pub fn store(&self) -> PathBuf {
        self.place.path().join("project/.rlm/runs").join(RUN)
    }

    /// Returns a command that starts or resumes the loop; the words in `before` go before it.
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

    /// Runs the loop, kills it at a random moment, and checks the agents' records.
    ///
    /// # Errors
    /// If a promise was broken.
    pub fn interrupt(&mut self, rng: &mut Rng) -> CheckResult {
        let running = Running::start(&mut self.command(&[], MANY)).expect("`rlm` was found");
        for _ in 0..rng.below(16) {
            match running.line()? {
                Some(line) => self.record_event(&line)?,
                None => return broken('L', "rlm ended although nothing stopped it"),
            }
        }
        program::pause(Duration::from_micros(rng.below(8_000) as u64));
        running
            .kill()?
            .iter()
            .try_for_each(|line| self.record_event(line))?;
        self.check_calls()
    }

    /// Runs the loop until it ends by itself.
    ///
    /// # Errors
    /// If a promise was broken.
    pub fn go(&mut self, before: &[OsString], iterations: u64) -> CheckResult {
        let mut command = self.command(before, &iterations.to_string());
        let running = Running::lead(&mut command).expect("`rlm` was found");
        while let Some(line) = running.line()? {
            self.record_event(&line)?;
        }
        Ok(())
    }

    /// Fails unless the loop reached its end. An iteration may have failed if the fault prevented the start of the agent.
    ///
    /// # Errors
    /// If a promise was broken.
    pub fn done(&self) -> CheckResult<u64> {
        match self.is_over {
            true => Ok(self.seen()),
            false => broken(
                'L',
                format!("rlm cannot continue; {} iterations ran", self.seen()),
            ),
        }
    }

    /// Records the events that `rlm` reports about its iterations.
    ///
    /// # Errors
    /// If `rlm` repeats an iteration after it reported its end.
    pub fn record_event(&mut self, line: &str) -> CheckResult {
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
                    format!("iteration {} had ended, but {iteration} begins", self.ended),
                );
            }
            _ => {}
        }
        Ok(())
    }

    fn calls(&self) -> CheckResult<Vec<Call>> {
        let text = std::fs::read_to_string(self.notes()).unwrap_or_default();
        let call = |line: &str| {
            let (iteration, attempt) = line.split_once(' ')?;
            Some((iteration.parse().ok()?, attempt.parse().ok()?))
        };
        // If an agent is killed during its one write, the whole line or nothing is written.
        let calls: Option<Vec<Call>> = text.lines().map(call).collect();
        calls.map_or_else(|| broken('A', "an agent recorded half a line"), Ok)
    }

    /// Fails unless the agents were called for each iteration, in order, and for no attempt twice.
    ///
    /// # Errors
    /// If a promise was broken.
    pub fn check_calls(&self) -> CheckResult {
        let mut last = (0, 1);
        for call in self.calls()? {
            // A call that ended before the agent could record it leaves a gap in the attempts.
            if call <= last || call.0 > last.0 + 1 {
                return broken(
                    'D',
                    format!("an agent was called for {call:?} after {last:?}"),
                );
            }
            last = call;
        }
        Ok(())
    }

    /// Returns the number of iterations for which the agents were called.
    pub fn seen(&self) -> u64 {
        let calls = self.calls().unwrap_or_default();
        calls.last().map_or(0, |(iteration, _)| *iteration)
    }
}
