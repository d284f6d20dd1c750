//! A run in the foreground: it handles signals, shows events on the screen, and turns the end of the run into an exit code.

use std::cell::Cell;
use std::ops::Deref;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cancellable_sleep::{SleepGate, Wake};
use interrupt_stack::{Cause, HardExit, Installed, Interrupts, die_by};
use loop_runner::{
    RunControl, RunEventReceiver, RunOutcome, Runner, RunnerOptions, View, WaitingOutput,
};
use loop_state::{StopCause, StopRequest, StopTiming, times};
use rlm_store::index::{self, IndexEntry};
use rlm_store::{Project, PromptSource, RunId};
use rlm_terminal::{EditTarget, ForegroundRun, PressActions, Terminal, TerminalSignals};
use rlm_text::duration;
use rlm_text::escape::plain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use signal_hook_tokio::Signals;
use tokio::sync::{mpsc, watch};

use crate::agents;
use crate::config::{self, Config};
use crate::detach::{self, DetachedReady};
use crate::exit::{Code, Failure, exit_code, fatal};
use crate::hint;
use crate::observers::RunObservers;
use crate::render::{RunWorktree, Screen};
use crate::{output, ulimits};

const POLL: Duration = Duration::from_millis(100);
/// The answer to a press that no handler took for a second, for example because a file system hangs.
const UNTAKEN: &str = "rlm: Ctrl-C received, but rlm is busy; Ctrl-C again saves and stops";
/// The message is printed at most once in this time, because an untaken press passes from scope to scope.
const UNTAKEN_INTERVAL: Duration = Duration::from_secs(10);
/// The number of requests that can wait for a run that is busy saving.
const REQUEST_QUEUE: usize = 64;

/// The run of this process.
static RUN: OnceLock<String> = OnceLock::new();

/// The parts that a command needs to run a loop, from its first moment.
#[derive(Debug)]
pub(crate) struct Session {
    interrupts: Installed,
    /// The parent of all sleep gates of this process: a shutdown ends every sleep.
    gate: SleepGate,
    runtime: tokio::runtime::Runtime,
    /// The stop budget.
    shutdown_budget: Cell<Duration>,
    /// The state of a detached run, which has no terminal.
    detached: Option<DetachedReady>,
    terminal: Terminal,
}

impl Session {
    /// Installs the signal handlers and creates a runtime, before any work that is slow or that can fail because of the user's input. With `no_input`
    /// nothing is asked, as without a terminal. A `detached` session leaves the terminal first.
    pub(crate) fn begin(no_input: bool, detached: bool) -> Result<Self, Failure> {
        ulimits::check_for_run()?;
        if detached {
            detach::leave_session()?;
        }
        // The settings files are read later, and apply from then on.
        let shutdown_budget = match std::env::var(config::SHUTDOWN_TIMEOUT) {
            Ok(text) => duration::parse(&text)
                .map_err(|e| Failure::usage(format!("{}: {e}", config::SHUTDOWN_TIMEOUT)))?,
            Err(_) => times::STOP_BUDGET,
        };
        let failed =
            |what: &str, e: &dyn std::error::Error| Failure::failed(format!("{what}: {e}"));
        // Comes first, so that every thread inherits the blocked signals.
        rlm_terminal::block_terminal_signals();
        rlm_terminal::restore_on_panic();
        rlm_store::track_git_processes();
        // A hard exit runs on its own thread, because it first erases drawn rows and ends an editor. If this cleanup hangs, the next press exits
        // without the cleanup.
        let terminal = Terminal::find(no_input || detached);
        let interrupts = Interrupts::builder()
            // Ctrl-C has to work where rlm prompts, even if a parent such as a background job of a script had it ignored.
            .catch_ignored_keys(terminal.can_ask())
            .shutdown_deadline(Some(shutdown_budget))
            .cooldown(times::COOLDOWN)
            .debounce(times::DEBOUNCE)
            .hard_exit(HardExit::Thread)
            .on_notice_timeout(print_untaken)
            .before_exit(|_| {
                rlm_terminal::restore();
                rlm_store::stop_git_processes();
                print_hard_exit_line();
            })
            .install_scoped()
            .map_err(|e| failed("can't handle signals", &e))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| failed("can't start the async runtime", &e))?;
        let settled = detached.then(|| detach::end_with_parent(interrupts.deref().clone()));
        let settled = settled.transpose();
        Ok(Self {
            gate: SleepGate::from_token(interrupts.token()),
            interrupts,
            runtime,
            shutdown_budget: Cell::new(shutdown_budget),
            detached: settled.map_err(|e| failed("can't watch the parent process", &e))?,
            terminal,
        })
    }

    /// Returns a gate whose sleeps end when this process shuts down.
    pub(crate) fn gate(&self) -> SleepGate {
        self.gate.child()
    }

    /// Applies the settings of options, environment and files for presses and stops.
    pub(crate) fn apply_config(&self, config: &Config) {
        if let Some(budget) = config.shutdown_timeout {
            self.shutdown_budget.set(budget.0);
            self.interrupts.set_shutdown_deadline(Some(budget.0));
        }
        if let Some(cooldown) = config.cooldown {
            self.interrupts.set_cooldown(cooldown.0);
        }
        if let Some(debounce) = config.debounce {
            self.interrupts.set_debounce(debounce.into());
        }
    }

    /// Returns whether a person can press keys and answer questions.
    pub(crate) fn can_ask(&self) -> bool {
        self.terminal.can_ask()
    }

    pub(crate) fn options(&self) -> RunnerOptions {
        RunnerOptions {
            stop_budget: self.shutdown_budget.get(),
            interactive: self.can_ask(),
            ..RunnerOptions::new(self.gate())
        }
    }

    /// Does work that may be slow and that comes before the run: reads a prompt from standard input, calls git.
    pub(crate) fn prepare<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let work = async { tokio::task::spawn_blocking(work).await };
        self.block_on(work)
            .expect("the work before a run does not panic")
    }

    /// Waits for a future before a run. A press exits immediately, and ends git if git runs.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut start = self.interrupts.push("start");
        self.runtime.block_on(async {
            let press = async {
                start.notified().await.escalate();
                self.interrupts.shutdown_cause().await
            };
            tokio::select! {
                biased;
                cause = self.interrupts.shutdown_cause() => die(cause),
                cause = press => die(cause),
                output = future => output,
            }
        })
    }

    /// Waits for work that undoes itself when this session's [gate](Self::gate) closes. A press closes the gate; when the work has ended, this
    /// process exits by the cause of the shutdown. If the work was completed anyway, the function returns its result.
    pub(crate) fn run_with_rollback<T>(
        &self,
        work: impl Future<Output = Result<T, rlm_store::Error>>,
    ) -> Result<T, Failure> {
        let mut start = self.interrupts.push("move");
        let done = self.runtime.block_on(async {
            let press = async {
                start.notified().await.escalate();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                done = work => done,
                () = press => unreachable!("this future never completes"),
            }
        });
        match (done, self.interrupts.cause()) {
            (Err(_), Some(cause)) => die(cause),
            (done, _) => Ok(done?),
        }
    }

    /// Waits for work that ends by itself after a shutdown of this process: `shutdown` is cancelled then.
    #[cfg(feature = "fleet")]
    pub(crate) fn run_until_shutdown<F: Future>(
        &self,
        shutdown: &tokio_util::sync::CancellationToken,
        work: F,
    ) -> F::Output {
        let mut start = self.interrupts.push("worker");
        self.runtime.block_on(async {
            let begin = async {
                tokio::select! {
                    biased;
                    _ = self.interrupts.shutdown_cause() => {}
                    () = async { start.notified().await.escalate() } => {}
                }
                shutdown.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                done = work => done,
                () = begin => unreachable!("this future never completes"),
            }
        })
    }

    /// Runs the loop to its end, and exits as the contract of the command line requires: the caller has nothing left to do.
    pub(crate) fn run_to_end(
        self,
        project: &Project,
        runner: Runner,
        events: RunEventReceiver,
        screen: Screen,
        presses: PressActions,
        watchers: &RunObservers,
    ) -> Result<ExitCode, Failure> {
        let beside = |_, _| std::future::pending();
        self.run_to_end_beside(project, runner, events, screen, presses, watchers, beside)
    }

    /// As [`run_to_end`](Self::run_to_end), with a future that gets the view of the run and its requests, and is dropped when the run ends.
    #[expect(
        clippy::too_many_arguments,
        reason = "those of `run_to_end`, and one more"
    )]
    pub(crate) fn run_to_end_beside<F: Future<Output = ()>>(
        self,
        project: &Project,
        runner: Runner,
        events: RunEventReceiver,
        screen: Screen,
        presses: PressActions,
        watchers: &RunObservers,
        beside: impl FnOnce(watch::Receiver<Arc<View>>, mpsc::Sender<RunControl>) -> F,
    ) -> Result<ExitCode, Failure> {
        let runner = watchers.watch(runner, project, &self.interrupts)?;
        let (control, messages) = mpsc::channel(REQUEST_QUEUE);
        let head = runner.head();
        let (run, worktree) = (head.run.clone(), head.settings.worktree.clone());
        let _set_once = RUN.set(run.to_string());
        let phases = head.settings.phases.iter().zip(runner.prompts());
        let prompts = phases.map(|(phase, text)| match &phase.prompt {
            PromptSource::File(path) => EditTarget::File(path.clone()),
            _ => EditTarget::Text(text.clone()),
        });
        let prompts = prompts.collect();
        let log = match &self.detached {
            Some(settled) => {
                let output = detach::report_ready(project, &run, settled, screen.is_json())?;
                screen.log(Box::new(output), false)
            }
            None => screen.printed_log(),
        };
        let shown = ForegroundRun {
            run: run.to_string(),
            view: runner.watch(),
            control: control.clone(),
            interrupts: self.interrupts.deref().clone(),
            prompts,
            log,
            signals,
            detached_exit_code: Code::Done as u8,
            on_stop: self.shutdown(),
            presses,
            bell: watchers.bell,
            attached: false,
            earlier_events: Vec::new(),
            messages: None,
        };
        let waiting_output = events.waiting_output();
        let console = self.terminal.show(shown, events);
        let place = IndexEntry::of(project, &run);
        let beside = beside(runner.watch(), control.clone());
        let supervised = self.supervise(runner, &control, messages, place.as_ref());
        let outcome = self.runtime.block_on(async {
            tokio::select! {
                biased;
                outcome = supervised => outcome,
                () = beside => unreachable!("this future never completes"),
            }
        });
        if let Some(place) = place {
            place.leave();
        }
        let is_stopped = |it: &RunOutcome| it.reason.is_stopped();
        let is_stopped = outcome.as_ref().is_ok_and(is_stopped);
        let has_printed = self.wait_for(&console, &waiting_output, is_stopped);
        // The console has restored the terminal, unless it hangs.
        rlm_terminal::restore();
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(e) => {
                // As in `end`: a blocking thread that hangs must not delay the exit.
                self.runtime.shutdown_background();
                return Err(e.into());
            }
        };
        if watchers.bell {
            self.terminal.ring();
        }
        if has_printed {
            let own = worktree.map(|own| RunWorktree::of(project, run.clone(), own));
            let shown = screen.end(
                &run,
                &outcome,
                exit_code(&outcome, self.interrupts.cause()),
                own.as_ref(),
            );
            let words = screen.end_words(&run, &outcome);
            self.terminal.print_at_end(&words, shown.is_err());
        }
        if !is_stopped {
            warn_of_damage(project, &run);
        }
        // If the process exits by a signal, this is the last chance to report lost output.
        output::report();
        self.end(&outcome)
    }

    /// Waits until everything was printed. A slow reader gets as much time as it needs, but in a shutdown or after a stop only `LAST_LINES`. When half of
    /// this time has passed, the waiting output is only counted, so that a flood does not displace the end of the run.
    fn wait_for(
        &self,
        console: &JoinHandle<()>,
        waiting_output: &WaitingOutput,
        is_stopped: bool,
    ) -> bool {
        let mut time_left = times::LAST_LINES;
        while !console.is_finished() {
            if is_stopped || self.interrupts.cause().is_some() {
                if time_left.is_zero() {
                    return false;
                }
                if time_left <= times::LAST_LINES / 2 {
                    waiting_output.discard();
                }
                time_left = time_left.saturating_sub(POLL);
            }
            // The console's thread wakes this one when it ends.
            std::thread::park_timeout(POLL);
        }
        true
    }

    /// Returns a function that begins the shutdown of this process, with its deadline, when a person stops the run.
    fn shutdown(&self) -> Box<dyn Fn() + Send> {
        let injector = self.interrupts.injector();
        Box::new(move || injector.terminate(Cause::Requested(Code::Stopped as u8)))
    }

    /// Runs the loop. Turns the beginning of a shutdown into a stop of the run; a stop of the run from any source also begins the shutdown.
    async fn supervise(
        &self,
        runner: Runner,
        control: &mpsc::Sender<RunControl>,
        messages: mpsc::Receiver<RunControl>,
        place: Option<&IndexEntry>,
    ) -> Result<RunOutcome, loop_runner::Error> {
        let stop = async {
            let by = match self.interrupts.shutdown_cause().await {
                Cause::Terminate => StopCause::Terminated,
                Cause::Hangup => StopCause::HungUp,
                _ => StopCause::Person,
            };
            // A closed channel means that the run has ended.
            let _over = control
                .send(RunControl::Stop(StopRequest {
                    by,
                    when: StopTiming::Now,
                }))
                .await;
            std::future::pending::<()>().await;
        };
        let (mut view, shut_down) = (runner.watch(), self.shutdown());
        let stopped = async {
            // The sender of the view is dropped when the run has ended.
            if view.wait_for(|view| is_being_stopped(view)).await.is_ok() {
                shut_down();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            outcome = runner.run(agents::factory(config::api_server()), messages) => outcome,
            () = stopped => unreachable!("this future never completes"),
            () = stop => unreachable!("this future never completes"),
            () = keep_index_entry(place, &self.gate) => unreachable!("this future never completes"),
        }
    }

    /// Returns the handle for the presses of this process.
    pub(crate) fn interrupts(&self) -> Interrupts {
        self.interrupts.deref().clone()
    }

    /// Shows a run of another process until the run ends, or until the person detaches; then it calls `leave`. Returns the cause of the detach.
    pub(crate) fn show_attached(
        &self,
        shown: ForegroundRun,
        events: RunEventReceiver,
        leave: impl FnOnce(),
    ) -> Option<Cause> {
        let waiting_output = events.waiting_output();
        let console = self.terminal.show(shown, events);
        let mut cause = None;
        while !console.is_finished() && cause.is_none() {
            // The console's thread wakes this one when it ends.
            std::thread::park_timeout(POLL);
            cause = self.interrupts.cause();
        }
        if cause.is_some() {
            leave();
        }
        self.wait_for(&console, &waiting_output, false);
        rlm_terminal::restore();
        cause
    }

    /// Exits as a program that only showed a run.
    pub(crate) fn exit_attached(self, cause: Cause) -> Result<ExitCode, Failure> {
        output::report();
        self.runtime.shutdown_background();
        match cause {
            Cause::Requested(code) => Ok(ExitCode::from(code)),
            cause => die_by(cause),
        }
    }

    fn end(self, outcome: &RunOutcome) -> Result<ExitCode, Failure> {
        let fatal = fatal(outcome, self.interrupts.cause());
        // A blocking thread of the runtime that hangs must not delay the exit.
        self.runtime.shutdown_background();
        match fatal {
            Some(cause) => die_by(cause),
            None if !outcome.survivors.is_empty() => Ok(Code::Survivors.into()),
            None => Ok(Code::of(&outcome.reason).into()),
        }
    }
}

/// Prints a warning if the saved state can't be read in full: an agent can damage it while the run works, and a save doesn't notice that, because it
/// only appends.
fn warn_of_damage(project: &Project, run: &RunId) {
    let Ok(entry) = project.run(run) else { return };
    let why = match (&entry.loss, &entry.head) {
        (Some(loss), _) => loss.to_string(),
        (None, Err(why)) => why.clone(),
        (None, Ok(_)) => return,
    };
    let (why, rlm) = (plain(&why), hint::program_command());
    anstream::eprintln!(
        "rlm: warning: the saved state is damaged: {why}; for a safe next command: {rlm} checkpoints verify {run}"
    );
}

/// Returns whether a person or a signal stops the run now. A run that ends by itself does not count.
fn is_being_stopped(view: &View) -> bool {
    let end = view.head.end.as_ref();
    view.shutdown.is_some() && end.is_none_or(|end| end.reason.is_stopped())
}

/// Prints once that a press was received: this is called again for each scope that doesn't take the press.
fn print_untaken() {
    static PRINTED_AT: Mutex<Option<Instant>> = Mutex::new(None);
    let mut printed_at = PRINTED_AT.lock().unwrap_or_else(PoisonError::into_inner);
    if printed_at.is_none_or(|at| at.elapsed() >= UNTAKEN_INTERVAL) {
        *printed_at = Some(Instant::now());
        anstream::eprintln!("{UNTAKEN}");
    }
}

/// Installs the signal handlers that concern the terminal, for the thread of the terminal.
pub(crate) fn signals() -> TerminalSignals {
    let of = |signal: Signal| Signals::new([signal.as_raw()]).ok();
    TerminalSignals {
        suspend: of(Signal::TSTP),
        continued: of(Signal::CONT),
        resized: of(Signal::WINCH),
    }
}

/// Prints the last line after a hard exit, unless standard error is full: a full pipe must not delay the exit.
fn print_hard_exit_line() {
    let stderr = std::io::stderr();
    let mut takes = [PollFd::new(&stderr, PollFlags::OUT)];
    let at_once = Timespec::default();
    let is_free = poll(&mut takes, Some(&at_once)).is_ok_and(|ready| ready > 0);
    if let Some(run) = RUN.get().filter(|_| is_free) {
        anstream::eprintln!(
            "stopped immediately; cleaning up the agent; to continue: {} resume {}",
            hint::program_command(),
            rlm_text::escape::plain(run)
        );
    }
}

/// Exits a process in which nothing runs, except perhaps git.
fn die(cause: Cause) -> ! {
    rlm_store::stop_git_processes();
    die_by(cause)
}

/// Keeps the entry of this run in the index of live runs, so that other processes find it.
async fn keep_index_entry(place: Option<&IndexEntry>, gate: &SleepGate) {
    let Some(place) = place else {
        return std::future::pending().await;
    };
    let mut ticks = gate.interval(index::CHECK_INTERVAL);
    loop {
        let place = place.clone();
        // The index may be on a network file system that hangs; that must not delay the run.
        let _ensured = tokio::task::spawn_blocking(move || place.ensure()).await;
        if ticks.tick().await == Wake::Shutdown {
            return std::future::pending().await;
        }
    }
}

/// Refuses a run inside the agent of another run: two loops in one working tree would disturb each other.
pub(crate) fn refuse_nested(allowed: bool) -> Result<(), Failure> {
    match std::env::var("RLM_RUN_ID") {
        Ok(outer) if !allowed => Err(Failure::usage(format!(
            "this command runs inside the agent of run {}: a nested run needs --nested",
            rlm_text::escape::plain(&outer)
        ))),
        _ => Ok(()),
    }
}

/// Refuses a change of a project's runs from inside an agent: only a person may make it. The variable prevents mistakes, not attacks.
pub(crate) fn refuse_inside(what: &str, allowed: bool) -> Result<(), Failure> {
    match std::env::var("RLM_RUN_ID") {
        Ok(outer) if !allowed => Err(Failure::usage(format!(
            "this command runs inside the agent of run {}: only a person outside of the agent may use `{} {what}`; to allow it: --nested",
            rlm_text::escape::plain(&outer),
            hint::program_command()
        ))),
        _ => Ok(()),
    }
}
