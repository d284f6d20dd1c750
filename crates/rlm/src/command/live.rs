//! Reaching a run that a process has: finding it, asking it, saying what became of that.

use std::path::Path;
use std::time::{Duration, Instant};

use loop_runner::control::{Answer, Answers, ask};
use loop_state::Request;
use rlm_store::{Holder, Project, RunEntry, RunId, RunState};

use crate::command::meant;
use crate::exit::{Code, Failure};
use crate::hint;
use crate::render::{self, Told, print};

pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(10);
/// How long the first answer is waited for when nothing more is: a run may be busy saving.
const FIRST: Duration = Duration::from_secs(5);
/// The same for those who say how long they wait.
const LEAST: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(50);
/// The most that a run is believed to need for its stop.
const LONGEST: Duration = Duration::from_secs(3600);
/// The most characters of an answer's text that are shown.
const SHOWN: usize = 1000;

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
        Self::of(project, entry.id)
    }

    /// The same for a run that is ended by force: whatever became of its state, the process that has its working tree counts.
    pub(crate) fn find_by_force(directory: &Path, name: Option<&str>) -> Result<Self, Failure> {
        let failure = match Self::find(directory, name) {
            Err(failure) => failure,
            found => return found,
        };
        let Ok(project) = Project::find_to_stop(directory) else {
            return Err(failure);
        };
        let is_several = failure.code == Code::Usage && project.runs().is_ok();
        let run = match name {
            Some(name) => name.parse().ok(),
            None if is_several => None,
            None => project.owned_run(),
        };
        let Some(run) = run.filter(|run| project.is_owned(run)) else {
            return Err(failure);
        };
        Self::of(project, run)
    }

    /// Names a run and the process that has it, unless this is inside that run.
    fn of(project: Project, run: RunId) -> Result<Self, Failure> {
        refuse_own_agent(&run)?;
        let holder = project.holder(&run);
        Ok(Self {
            project,
            run,
            holder,
        })
    }

    pub(crate) fn is_live(&self) -> bool {
        self.project.run(&self.run).is_ok_and(|it| it.is_live())
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

    /// Asks, and says each step of what becomes of it, until nothing follows or `wait` has passed. `longer` makes more time of what was said, once.
    pub(crate) fn ask(
        &self,
        request: &Request,
        json: bool,
        wait: Duration,
        longer: impl Fn(&Answer) -> Option<Duration>,
    ) -> Result<Outcome, Failure> {
        self.ask_within(request, json, first(wait), wait, longer)
    }

    /// The same, with a time of its own for the first answer. What says the same again is not printed again, and makes no more time.
    pub(crate) fn ask_within(
        &self,
        request: &Request,
        json: bool,
        first: Duration,
        wait: Duration,
        longer: impl Fn(&Answer) -> Option<Duration>,
    ) -> Result<Outcome, Failure> {
        let begun = Instant::now();
        let (first_by, mut by) = (begun + first, begun + first);
        let Some(mut answers) = self.reach(request, first_by)? else {
            return Ok(Outcome::SoFar(None));
        };
        let (mut last, mut told, mut is_longer) = (None, Vec::new(), false);
        loop {
            let left = by.saturating_duration_since(Instant::now());
            match answers.next(left) {
                Ok(Some(Answer::Unknown)) => {}
                // Others ask too: there will be a place.
                Ok(Some(Answer::Busy)) if last.is_none() && !left.is_zero() => {
                    std::thread::park_timeout(POLL.min(left));
                    match self.reach(request, first_by)? {
                        Some(again) => answers = again,
                        None => return Ok(Outcome::SoFar(None)),
                    }
                }
                Ok(Some(mut answer)) => {
                    if let Answer::Ended(ended) = &mut answer {
                        ended.proven &= self.is_owner(&answers);
                    }
                    match longer(&answer).filter(|_| !is_longer) {
                        Some(more) => {
                            is_longer = true;
                            by = Instant::now() + more.min(LONGEST);
                        }
                        None if is_longer => {}
                        None => by = begun + wait,
                    }
                    if answer.is_last() {
                        return Ok(Outcome::Told(answer));
                    }
                    let kind = std::mem::discriminant(&answer);
                    if !told.contains(&kind) {
                        told.push(kind);
                        self.say(request, &answer, json);
                    }
                    last = Some(answer);
                }
                Ok(None) => return Ok(Outcome::Gone),
                Err(e) if e.is_silent() => return Ok(Outcome::SoFar(last)),
                Err(e) => return Err(e.into()),
            }
            if Instant::now() >= by && last.is_some() {
                return Ok(Outcome::SoFar(last));
            }
        }
    }

    /// Returns whether the process that has the run answers: another one proves nothing.
    fn is_owner(&self, answers: &Answers) -> bool {
        let is_it = |holder: &Holder| answers.is_from(holder.process);
        !cfg!(target_os = "linux") || self.holder.as_ref().is_some_and(is_it)
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
            match ask(&run_dir, request.clone()) {
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
        let (run, rlm) = (&self.run, hint::rlm());
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
            rlm_text::duration::show(first(wait)),
        ))
    }

    /// Says why something did not come to be, and what an answer means that is none.
    pub(crate) fn refusal(&self, answer: &Answer) -> Failure {
        let run = &self.run;
        let message = match answer {
            Answer::Refused { why } => {
                return Failure::usage(format!("run `{run}` refuses this: {}", shown(why)));
            }
            Answer::Rejected { why } => format!("run `{run}`: no: {}", shown(why)),
            Answer::Unsupported { what } => {
                format!(
                    "the program of run `{run}` is another version and can't do that: {}",
                    shown(what)
                )
            }
            Answer::Malformed { why } => format!("run `{run}` does not understand: {}", shown(why)),
            Answer::Busy => format!("too many ask run `{run}` at once; ask again"),
            Answer::Ended(ended) => format!(
                "run `{run}` is over before that came to be: {}; what was recorded is kept for {} resume {run}",
                shown(&ended.reason),
                hint::rlm()
            ),
            _ => format!("run `{run}` gives an answer to something else"),
        };
        Failure::failed(message)
    }

    pub(crate) fn gone(&self) -> Failure {
        Failure::failed(format!(
            "{} was gone before it said more; what was recorded is kept for {} resume {}",
            self.process(),
            hint::rlm(),
            self.run
        ))
    }
}

/// Refuses a request from inside the run before it is sent. One that removes the variable is refused by the run itself.
fn refuse_own_agent(run: &RunId) -> Result<(), Failure> {
    match std::env::var("RLM_RUN_ID") {
        Ok(outer) if outer == run.as_str() => Err(Failure::usage(format!(
            "this is inside run `{run}`, which its agent does not control: a person does, from another terminal"
        ))),
        _ => Ok(()),
    }
}

/// Makes the text of an answer short and harmless: whoever listens at the socket chose it.
pub(crate) fn shown(text: &str) -> String {
    let short: String = text.chars().take(SHOWN).collect();
    rlm_text::escape::plain(&short)
}

/// How long the first answer is waited for.
fn first(wait: Duration) -> Duration {
    match wait.is_zero() {
        true => FIRST,
        false => wait.max(LEAST),
    }
}

/// Says that nobody has a run, and how it can be taken up.
pub(super) fn not_live(run: &RunEntry) -> Failure {
    let id = &run.id;
    let mend = match run.state {
        RunState::Stopped | RunState::Crashed => {
            format!("go on with: {} resume {id}", hint::rlm())
        }
        _ => format!("look at it with: {} status {id}", hint::rlm()),
    };
    let state = render::state(run.state);
    Failure::not_found(format!(
        "nothing reached: no process has run `{id}`, it is {state}; {mend}"
    ))
}
