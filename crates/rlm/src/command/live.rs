//! Reaching a run that a process has: finding it, asking it, saying what became of that.

use std::path::Path;
use std::time::{Duration, Instant};

use loop_runner::control::{Answer, Answers, Request, ask};
use loop_runner::{Holder, Project, RunEntry, RunId, RunState};

use crate::command::meant;
use crate::exit::Failure;
use crate::render::{self, Told, print};

pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(10);
/// How long the first answer is waited for when nothing more is: a run may be busy saving.
const FIRST: Duration = Duration::from_secs(5);
/// The same for those who say how long they wait.
const LEAST: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(50);

/// A run that a process has.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) project: Project,
    pub(crate) run: RunId,
    pub(crate) holder: Option<Holder>,
}

/// How asking came out.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The last thing that was said, which nothing follows.
    Told(Answer),
    /// The time is over; this was the last thing that was said, if anything was.
    SoFar(Option<Answer>),
    /// Its process is gone without a word about its end.
    Gone,
}

impl Target {
    /// Finds the run that is meant: the named one, or the only one that is live.
    pub(crate) fn find(directory: &Path, name: Option<&str>) -> Result<Self, Failure> {
        let here = Project::find(directory)?;
        let (project, entry) = meant::live(here, name)?;
        let run = entry.id;
        refuse_own_agent(&run)?;
        let holder = project.holder(&run);
        Ok(Self {
            project,
            run,
            holder,
        })
    }

    pub(crate) fn is_live(&self) -> bool {
        self.project.run(&self.run).is_ok_and(|it| is_live(&it))
    }

    /// Returns who took the run when the process that had it was gone, be it that this one is gone too.
    pub(crate) fn successor(&self) -> Option<Holder> {
        let before = self.holder.as_ref()?;
        if before.process.is_alive() {
            return None;
        }
        let last = self.project.last_holder(&self.run)?;
        (last.process != before.process).then_some(last)
    }

    /// Asks, and says each step of what becomes of it, until nothing follows or `wait` has passed. `longer` makes more time of what was said.
    pub(crate) fn ask(
        &self,
        request: &Request,
        json: bool,
        wait: Duration,
        longer: impl Fn(&Answer) -> Option<Duration>,
    ) -> Result<Outcome, Failure> {
        let begun = Instant::now();
        let mut by = begun + first(wait);
        let Some(mut answers) = self.reach(request, by)? else {
            return Ok(Outcome::SoFar(None));
        };
        let mut last = None;
        loop {
            let left = by.saturating_duration_since(Instant::now());
            match answers.next(left) {
                Ok(Some(Answer::Unknown)) => {}
                Ok(Some(answer)) => {
                    by = longer(&answer).map_or(begun + wait, |more| Instant::now() + more);
                    if answer.is_last() {
                        return Ok(Outcome::Told(answer));
                    }
                    self.say(request, &answer, json);
                    last = Some(answer);
                }
                Ok(None) => return Ok(Outcome::Gone),
                Err(e) if e.is_silent() => return Ok(Outcome::SoFar(last)),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Reaches a run that may have just begun, or whose socket was removed and is made again within seconds.
    pub(crate) fn try_for<T>(
        &self,
        mut reach: impl FnMut() -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        let by = Instant::now() + FIRST;
        loop {
            match reach()? {
                Some(reached) => return Ok(reached),
                None if !self.is_live() => return Err(not_live(&self.project.run(&self.run)?)),
                None if Instant::now() < by => std::thread::park_timeout(POLL),
                None => return Err(self.mute(FIRST)),
            }
        }
    }

    /// Connects; `None` when nobody listens for so long though a process has the run.
    fn reach(&self, request: &Request, by: Instant) -> Result<Option<Answers>, Failure> {
        let run_dir = self.project.run_dir(&self.run);
        loop {
            match ask(&run_dir, request) {
                Ok(answers) => return Ok(Some(answers)),
                Err(e) if e.is_silent() => return Ok(None),
                Err(e) if !e.is_nobody() => return Err(e.into()),
                Err(_) if !self.is_live() => {
                    let run = self.project.run(&self.run)?;
                    return Err(not_live(&run));
                }
                // It has just begun, or its socket was removed and is made again within seconds.
                Err(_) if Instant::now() < by => std::thread::park_timeout(POLL),
                Err(_) => return Ok(None),
            }
        }
    }

    pub(crate) fn say(&self, request: &Request, answer: &Answer, json: bool) {
        let run = &self.run;
        let told = Told {
            run,
            request,
            answer,
        };
        // Who asked may not want to know.
        let _gone = print(json, &told);
    }

    /// Names the process, as far as it is known.
    pub(crate) fn process(&self) -> String {
        match &self.holder {
            Some(holder) => format!("run `{}` (pid {})", self.run, holder.process.pid),
            None => format!("run `{}`", self.run),
        }
    }

    /// Says that its process does not answer to what it was asked, and what to do.
    pub(crate) fn silent(&self, wait: Duration) -> Failure {
        self.unheard(wait, "; what was asked may still come to be")
    }

    /// The same where nothing was asked that would come to be.
    pub(crate) fn mute(&self, wait: Duration) -> Failure {
        self.unheard(wait, "")
    }

    fn unheard(&self, wait: Duration, asked: &str) -> Failure {
        let (run, rlm) = (&self.run, render::rlm());
        let (cont, kill) = match &self.holder {
            Some(holder) => {
                let pid = holder.process.pid;
                (
                    format!(" (kill -CONT {pid} if somebody did)"),
                    format!(", or kill -9 {pid}, upon which its guard ends the agent's tree"),
                )
            }
            None => Default::default(),
        };
        Failure::failed(format!(
            "{} does not answer within {}: it stands still{cont}, hangs, or its socket was removed and can't be made again\
                 {asked}. The mend: {rlm} stop {run} --force{kill}",
            self.process(),
            crate::duration::show(first(wait)),
        ))
    }

    /// Says why something did not come to be, and what an answer means that is none.
    pub(crate) fn refusal(&self, answer: &Answer) -> Failure {
        let run = &self.run;
        let message = match answer {
            Answer::Rejected { why } => format!("run `{run}`: no: {why}"),
            Answer::Unsupported { what } => {
                format!("the program of run `{run}` is another version and can't do that: {what}")
            }
            Answer::Malformed { why } => format!("run `{run}` does not understand: {why}"),
            Answer::Busy => format!("too many ask run `{run}` at once; ask again"),
            Answer::Ended(ended) => format!(
                "run `{run}` is over before that came to be: {}; what was recorded is kept for {} resume {run}",
                ended.reason,
                render::rlm()
            ),
            _ => format!("run `{run}` gives an answer to something else"),
        };
        Failure::failed(message)
    }

    pub(crate) fn gone(&self) -> Failure {
        Failure::failed(format!(
            "{} was gone before it said more; what was recorded is kept for {} resume {}",
            self.process(),
            render::rlm(),
            self.run
        ))
    }
}

/// Refuses a word from inside the run: what a person is recorded to have said is no agent's. One that hides where it comes from is not found out.
fn refuse_own_agent(run: &RunId) -> Result<(), Failure> {
    match std::env::var("RLM_RUN_ID") {
        Ok(outer) if outer == run.as_str() => Err(Failure::usage(format!(
            "this is inside run `{run}`, which its agent does not control: a person does, from another terminal"
        ))),
        _ => Ok(()),
    }
}

/// How long the first answer is waited for.
fn first(wait: Duration) -> Duration {
    match wait.is_zero() {
        true => FIRST,
        false => wait.max(LEAST),
    }
}

pub(crate) fn is_live(run: &RunEntry) -> bool {
    matches!(run.state, RunState::Running | RunState::Paused)
}

/// Says that nobody has a run, and how it can be taken up.
pub(super) fn not_live(run: &RunEntry) -> Failure {
    let id = &run.id;
    let mend = match run.state {
        RunState::Stopped | RunState::Crashed => {
            format!("go on with: {} resume {id}", render::rlm())
        }
        _ => format!("look at it with: {} status {id}", render::rlm()),
    };
    let state = render::state(run.state);
    Failure::not_found(format!(
        "nothing reached: no process has run `{id}`, it is {state}; {mend}"
    ))
}
