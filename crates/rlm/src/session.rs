//! A run in the foreground: signals in, news to the screen, the end as an exit code.

use std::process::ExitCode;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use cancellable_sleep::SleepGate;
use interrupt_stack::{Cause, Installed, Interrupts, die_by};
use loop_runner::{Control, NewsReceiver, Options, Outcome, Runner};
use loop_state::{StopCause, StopRequest, When};
use tokio::sync::mpsc;

use crate::drivers;
use crate::exit::{Code, Failure};
use crate::render::Screen;
use crate::{duration, render};

/// How long a shutdown waits for a screen that doesn't take its last lines.
const LAST_LINES: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const DEFAULT_SHUTDOWN: Duration = Duration::from_secs(8);

/// What a command that carries out a run needs from the first moment on.
#[derive(Debug)]
pub(crate) struct Session {
    interrupts: Installed,
    runtime: tokio::runtime::Runtime,
    shutdown_budget: Duration,
}

impl Session {
    /// Takes the signals and makes a runtime, before anything slow or anything that can fail for the user's reasons.
    pub(crate) fn begin() -> Result<Self, Failure> {
        let shutdown_budget = match std::env::var("RLM_SHUTDOWN_TIMEOUT") {
            Ok(text) => duration::parse(&text)
                .map_err(|e| Failure::usage(format!("RLM_SHUTDOWN_TIMEOUT: {e}")))?,
            Err(_) => DEFAULT_SHUTDOWN,
        };
        let failed = |what: &str, e: &dyn std::error::Error| Failure {
            code: Code::Failed,
            message: format!("{what}: {e}"),
        };
        let interrupts = Interrupts::builder()
            .shutdown_deadline(Some(shutdown_budget))
            .install()
            .map_err(|e| failed("signals can't be taken", &e))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| failed("the runtime can't be made", &e))?;
        Ok(Self {
            interrupts,
            runtime,
            shutdown_budget,
        })
    }

    /// Returns a gate whose sleeps end when this process shuts down.
    pub(crate) fn gate(&self) -> SleepGate {
        SleepGate::from_token(self.interrupts.token())
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            stop_budget: self.shutdown_budget,
            interactive: false,
        }
    }

    /// Does what comes before a run and may be slow: reading a prompt from standard input, asking git.
    pub(crate) fn prepare<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let work = async { tokio::task::spawn_blocking(work).await };
        self.block_on(work)
            .expect("what comes before a run does not panic")
    }

    /// Waits for something that comes before a run. A press ends the process at once: nothing runs that had to be stopped.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                cause = self.interrupts.cancelled() => die_by(cause),
                output = future => output,
            }
        })
    }

    /// Carries a run out and ends as the contract of the command line says: the caller has nothing left to do.
    pub(crate) fn carry_out(
        self,
        runner: Runner,
        news: NewsReceiver,
        screen: Screen,
    ) -> Result<ExitCode, Failure> {
        let (printed, last_line) = std_mpsc::channel();
        let printer = screen.clone();
        std::thread::spawn(move || {
            print_all(news, &printer);
            // The receiver is gone when the end did not wait any longer.
            let _late = printed.send(());
        });
        let run = runner.head().run.clone();
        let outcome = self.runtime.block_on(self.supervise(runner));
        let has_printed = self.wait_for_screen(&last_line);
        let outcome = outcome?;
        if has_printed {
            screen.end(&run, &outcome);
        }
        self.end(&outcome)
    }

    /// Waits until all was printed. A slow reader gets its time, as from any program, but a process that is shut down has little of it.
    fn wait_for_screen(&self, last_line: &std_mpsc::Receiver<()>) -> bool {
        let mut patience = LAST_LINES;
        loop {
            match last_line.recv_timeout(LOOK_AGAIN) {
                Ok(()) => return true,
                Err(std_mpsc::RecvTimeoutError::Disconnected) => return false,
                Err(_) if self.interrupts.cause().is_none() => {}
                Err(_) if patience.is_zero() => return false,
                Err(_) => patience = patience.saturating_sub(LOOK_AGAIN),
            }
        }
    }

    /// Runs, and turns the beginning of a shutdown into a stop of the run.
    ///
    /// No handler is pushed: without a menu the fixed action of every press is *interrupt the turn, save, stop*, which is what an empty stack does.
    async fn supervise(&self, runner: Runner) -> Result<Outcome, loop_runner::Error> {
        let (control, messages) = mpsc::channel(8);
        let stop = async {
            let by = match self.interrupts.cancelled().await {
                Cause::Terminate => StopCause::Terminated,
                Cause::Hangup => StopCause::HungUp,
                _ => StopCause::Person,
            };
            // A full queue would mean eight stops before this one; a closed one that the run is over.
            let _over = control
                .send(Control::Stop(StopRequest {
                    by,
                    when: When::Now,
                }))
                .await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            outcome = runner.run(drivers::factory(), messages) => outcome,
            () = stop => unreachable!("it waits for ever once it has spoken"),
        }
    }

    fn end(self, outcome: &Outcome) -> Result<ExitCode, Failure> {
        // A runtime whose blocking thread hangs must not hold the end up.
        self.runtime.shutdown_background();
        if !outcome.survivors.is_empty() {
            return Ok(Code::Survivors.into());
        }
        match self.interrupts.cause() {
            Some(cause) if outcome.reason.is_stopped() && cause.signal().is_some() => die_by(cause),
            _ => Ok(Code::of(&outcome.reason).into()),
        }
    }
}

/// Prints until the run is over. A screen that is gone costs nothing but the lines.
fn print_all(mut news: NewsReceiver, screen: &Screen) {
    while let Some((at, item)) = news.blocking_recv() {
        if screen.news(at, &item).is_err() {
            return;
        }
    }
}

/// Refuses a run inside another run's agent: two loops in one working tree would pull at each other.
pub(crate) fn refuse_nested(allowed: bool) -> Result<(), Failure> {
    match std::env::var("RLM_RUN_ID") {
        Ok(outer) if !allowed => Err(Failure::usage(format!(
            "this is inside run {}: a nested run needs --nested",
            render::plain(&outer)
        ))),
        _ => Ok(()),
    }
}
