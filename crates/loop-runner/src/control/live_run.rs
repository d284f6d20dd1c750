//! A live run as its clients see it: they send requests with deadlines, and wait for the end of the run. The module `client` handles only one
//! connection.

use std::time::{Duration, Instant};

use agent_duplex::ProcessName;
use loop_state::{Request, Timestamp, times};
use rlm_store::{Holder, Project, RunId};

use crate::Error;
use crate::control::attached::{self, AttachedRun};
use crate::control::client::{Responses, ask};
use crate::control::force_stop::poll_until;
use crate::control::protocol::{EndReport, Response};

/// The time limit of the first response, for a client that waits for no other response: the run can be busy saving.
const FIRST: Duration = Duration::from_secs(5);
/// The shortest time limit of the first response.
const LEAST: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(50);
/// The longest stop budget that a client accepts.
const LONGEST: Duration = Duration::from_secs(3600);

/// The time limits of a client for the responses of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    first: Duration,
    all: Duration,
    or_budget: bool,
}

impl ResponseLimits {
    /// Returns the limit `all` for all responses together, and at least a second for the first response. If `all` is zero, the client waits only for
    /// the first response, for 5 seconds.
    #[must_use]
    pub fn new(all: Duration) -> Self {
        let first = match all.is_zero() {
            true => FIRST,
            false => all.max(LEAST),
        };
        Self {
            first,
            all,
            or_budget: false,
        }
    }

    /// Extends the wait for a stop to the stop budget that the run reports, and 5 seconds more.
    #[must_use]
    pub fn or_budget(self) -> Self {
        Self {
            or_budget: true,
            ..self
        }
    }

    /// Divides the time of `rlm stop --force`: a run that doesn't respond gets at most half of it, and the rest is for the signals.
    pub(super) fn before_force(all: Duration) -> Self {
        Self {
            first: (all / 2).clamp(times::FORCE_LEAST, times::FORCE_ANSWER),
            all,
            or_budget: false,
        }
    }

    /// Returns the time limit of the first response.
    #[must_use]
    pub fn first(&self) -> Duration {
        self.first
    }

    /// Returns the new time limit after this response, if the response extends the wait.
    fn longer(&self, response: &Response) -> Option<Duration> {
        match response {
            Response::Recorded { budget_ms, .. } if self.or_budget => {
                let budget = Duration::from_millis((*budget_ms)?) + times::STOP_MARGIN;
                Some(budget.min(LONGEST))
            }
            _ => None,
        }
    }
}

/// The result of [`LiveRun::ask`].
#[derive(Debug)]
#[non_exhaustive]
pub enum AskOutcome {
    /// The last response.
    Final(Response),
    /// The time limit is reached; the last response, if there was one.
    TimedOut(Option<Response>),
    /// The process closed the connection and did not report its end.
    Gone,
    /// No process works on the run.
    NotLive,
}

/// The result of connecting to a run.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectOutcome<T> {
    /// The connection.
    Connected(T),
    /// A process works on the run, but does not accept connections.
    Unresponsive,
    /// No process works on the run.
    NotLive,
}

/// A run, and the process that works on it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveRun {
    /// The project of the run.
    pub project: Project,
    /// The id of the run.
    pub run: RunId,
    /// The process that worked on the run when this value was created.
    pub holder: Option<Holder>,
}

impl LiveRun {
    /// Returns the run with the process that works on it now.
    #[must_use]
    pub fn of(project: Project, run: RunId) -> Self {
        let holder = project.holder(&run);
        Self {
            project,
            run,
            holder,
        }
    }

    /// Returns whether a process works on the run.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.project.run(&self.run).is_ok_and(|it| it.is_live())
    }

    /// Returns the process that took over the run after [`holder`](Self::holder) was gone, even if that process is gone too.
    #[must_use]
    pub fn successor(&self) -> Option<Holder> {
        let before = self.holder.as_ref()?;
        if before.process.is_alive() {
            return None;
        }
        let last = self.project.last_holder(&self.run)?;
        (last.process != before.process).then_some(last)
    }

    /// Sends a request, and passes each response except the last to `on_answer`, each kind once. Blocks until the last response, or until `limits`
    /// ends.
    ///
    /// # Errors
    ///
    /// The errors of [`ask`] and [`Responses::next`], except those for a process that is unresponsive or absent.
    pub fn ask(
        &self,
        request: &Request,
        limits: ResponseLimits,
        mut on_answer: impl FnMut(&Response),
    ) -> Result<AskOutcome, Error> {
        let begun = Instant::now();
        let (first_by, mut by) = (begun + limits.first, begun + limits.first);
        let mut responses = match self.connect(request, first_by)? {
            ConnectOutcome::Connected(responses) => responses,
            ConnectOutcome::Unresponsive => return Ok(AskOutcome::TimedOut(None)),
            ConnectOutcome::NotLive => return Ok(AskOutcome::NotLive),
        };
        let (mut last, mut reported, mut is_longer) = (None, Vec::new(), false);
        loop {
            let left = by.saturating_duration_since(Instant::now());
            match responses.next(left) {
                Ok(Some(Response::Unknown)) => {}
                // Another connection can end and free a place.
                Ok(Some(Response::Busy)) if last.is_none() && !left.is_zero() => {
                    std::thread::park_timeout(POLL.min(left));
                    match self.connect(request, first_by)? {
                        ConnectOutcome::Connected(again) => responses = again,
                        ConnectOutcome::Unresponsive => return Ok(AskOutcome::TimedOut(None)),
                        ConnectOutcome::NotLive => return Ok(AskOutcome::NotLive),
                    }
                }
                Ok(Some(mut response)) => {
                    if let Response::RunEnded(ended) = &mut response {
                        ended.proven &= self.is_owner(&responses);
                    }
                    match limits.longer(&response).filter(|_| !is_longer) {
                        Some(more) => {
                            is_longer = true;
                            by = Instant::now() + more;
                        }
                        None if is_longer => {}
                        None => by = begun + limits.all,
                    }
                    if response.is_last() {
                        return Ok(AskOutcome::Final(response));
                    }
                    let kind = std::mem::discriminant(&response);
                    if !reported.contains(&kind) {
                        reported.push(kind);
                        on_answer(&response);
                    }
                    last = Some(response);
                }
                Ok(None) => return Ok(AskOutcome::Gone),
                Err(e) if e.is_unresponsive() => return Ok(AskOutcome::TimedOut(last)),
                Err(e) => return Err(e),
            }
            if Instant::now() >= by && last.is_some() {
                return Ok(AskOutcome::TimedOut(last));
            }
        }
    }

    /// Attaches to the run, even if it has just begun. The run sends its last stored events again, if they are later than `seen`.
    ///
    /// If `attended` is true, a person is present: the run asks for reviews and permissions as in its own terminal, until the last such viewer
    /// detaches. Blocks for some seconds at most.
    ///
    /// # Errors
    ///
    /// [`Error::is_other_version`] when the run has another version and its responses are not known here, [`Error::is_refused`] when it refuses the
    /// request.
    pub fn attach(
        &self,
        attended: bool,
        seen: Timestamp,
    ) -> Result<ConnectOutcome<AttachedRun>, Error> {
        let run_dir = self.project.run_dir(&self.run);
        let by = Instant::now() + FIRST;
        self.reach(by, || attached::attach(&run_dir, attended, seen))
    }

    fn connect(&self, request: &Request, by: Instant) -> Result<ConnectOutcome<Responses>, Error> {
        let run_dir = self.project.run_dir(&self.run);
        self.reach(by, || ask(&run_dir, request.clone()))
    }

    /// Tries to connect until `by`: a run that has just begun has no socket yet, and a run creates a removed socket again within seconds.
    fn reach<T>(
        &self,
        by: Instant,
        connect: impl Fn() -> Result<T, Error>,
    ) -> Result<ConnectOutcome<T>, Error> {
        loop {
            match connect() {
                Ok(reached) => return Ok(ConnectOutcome::Connected(reached)),
                Err(e) if e.is_unresponsive() => return Ok(ConnectOutcome::Unresponsive),
                Err(e) if !e.is_not_running() => return Err(e),
                Err(_) if !self.project.run(&self.run)?.is_live() => {
                    return Ok(ConnectOutcome::NotLive);
                }
                Err(_) if Instant::now() < by => std::thread::park_timeout(POLL),
                Err(_) => return Ok(ConnectOutcome::Unresponsive),
            }
        }
    }

    /// Returns whether the responses come from the process that works on the run: responses of another process prove nothing.
    fn is_owner(&self, responses: &Responses) -> bool {
        let is_it = |holder: &Holder| responses.is_from(holder.process);
        !cfg!(target_os = "linux") || self.holder.as_ref().is_some_and(is_it)
    }

    /// Waits until the process of an ending run is gone, with everything that it started; returns the processes that are left. Returns `None` if the
    /// process itself is still alive after 10 seconds. Doesn't wait for a process that took over the run meanwhile: guards hold the working tree
    /// until nothing is left of the previous process.
    #[must_use]
    pub fn await_end(&self, ended: Option<&EndReport>) -> Option<Vec<ProcessName>> {
        let by = Instant::now() + times::PROCESS_EXIT;
        let is_alive = || {
            let process = self.holder.as_ref().map(|holder| holder.process);
            process.is_some_and(|it| it.is_alive()) || self.is_live()
        };
        let is_taken_up = || self.successor().is_some();
        if !poll_until(by, || !is_alive() || is_taken_up()) {
            return None;
        }
        // The guards are still ending the rest, except for the processes that the run could not end.
        let is_hopeless = ended.is_some_and(|ended| !ended.survivors.is_empty());
        let left = || self.project.processes_of(&self.run);
        poll_until(by, || is_hopeless || left().is_empty() || is_taken_up());
        match is_taken_up() {
            // The processes with the marker of the run belong to the successor.
            true => Some(Vec::new()),
            false => Some(left()),
        }
    }

    /// Waits until no process works on the run, at most until `by` but at least a second. Returns whether no process works on it now.
    pub(super) fn is_gone(&self, by: Instant) -> bool {
        let by = by.max(Instant::now() + times::FORCE_LEAST);
        poll_until(by, || !self.project.is_owned(&self.run) && !self.is_live())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(budget_ms: Option<u64>) -> Response {
        Response::Recorded {
            steer: None,
            budget_ms,
        }
    }

    #[test]
    fn client_always_waits_for_the_first_response() {
        let first = |ms| ResponseLimits::new(Duration::from_millis(ms)).first();
        assert_eq!(
            [0, 1, 2000].map(first),
            [FIRST, LEAST, Duration::from_secs(2)]
        );
        let all = Duration::from_secs(60);
        assert_eq!(
            ResponseLimits::before_force(all).first(),
            times::FORCE_ANSWER
        );
        let none = ResponseLimits::before_force(Duration::ZERO);
        assert_eq!(none.first(), times::FORCE_LEAST);
    }

    #[test]
    fn only_the_limited_budget_of_a_recorded_stop_extends_the_wait() {
        let limits = ResponseLimits::new(Duration::from_secs(1));
        assert_eq!(limits.longer(&recorded(Some(1000))), None);
        let limits = limits.or_budget();
        let longer = [None, Some(1000), Some(u64::MAX)].map(|it| limits.longer(&recorded(it)));
        let second = Duration::from_secs(1) + times::STOP_MARGIN;
        assert_eq!(longer, [None, Some(second), Some(LONGEST)]);
        assert_eq!(limits.longer(&Response::Busy), None);
    }
}
