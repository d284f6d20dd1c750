//! A running program: waiting, signals and stops, for both kinds of containment.

use crate::error::{Error, Kind};
use crate::guard_protocol::{HostCommand, SignalTarget, TreeEnd, milliseconds};
use crate::output::{Output, OutputLines, Outputs, RawOutput};
use crate::stop::{StopFacts, next_stage};
use crate::times;
use crate::tree_handle::TreeHandle;
use crate::writer::{Input, Stdin};
use crate::{Containment, Exit, Marker, ProcessId, ProcessName, StopPolicy, StopReport, StopStage};
use rustix::process::Signal;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// The state of a stop. All times count from `start`, also those of the policy.
#[derive(Clone, Debug)]
struct StopState {
    start: Instant,
    policy: StopPolicy,
    /// Whether the main process had ended by itself before the stop.
    exited_before: bool,
    stage: StopStage,
    until: Duration,
    /// The last stage that addressed only the main process.
    last_gentle_stage: StopStage,
}

impl StopState {
    /// Also applies `policy` from now on, if this ends the stop sooner. Then no stage gets more time than either policy allows.
    fn within_policy(mut self, policy: &StopPolicy) -> Self {
        let now = self.start.elapsed();
        let sooner = policy.clone().within(now + policy.budget);
        if sooner.budget < self.policy.budget {
            self.policy = self.policy.min_of(&sooner);
            self.until = (self.policy).within_policy(self.stage, now, self.until);
        }
        self
    }
}

/// A running program and its process tree.
///
/// Dropping it ends the whole process tree: the guard sees its socket close, sends SIGTERM, and SIGKILL half a second later. Without a guard, the
/// process group gets SIGKILL immediately. Only [`stop`](Self::stop) reports the result.
#[derive(Debug)]
#[must_use = "dropping it ends the agent"]
pub struct ProcessTree {
    tree: TreeHandle,
    input: Option<Input>,
    /// Whether the caller may still take the standard input.
    may_take_stdin: bool,
    outputs: Outputs,
    raw_outputs: [Option<RawOutput>; 2],
    lists: u64,
    stopping: Option<StopState>,
    /// Whether the process tree is frozen by [`suspend`](Self::suspend).
    suspended: bool,
    report: Option<StopReport>,
    _hold: Vec<OwnedFd>,
}

impl ProcessTree {
    pub(crate) fn new(
        tree: TreeHandle,
        input: Option<Input>,
        stdin_free: bool,
        outputs: Outputs,
        raw_outputs: [Option<RawOutput>; 2],
        hold: Vec<OwnedFd>,
    ) -> Self {
        ProcessTree {
            tree,
            input,
            may_take_stdin: stdin_free,
            outputs,
            raw_outputs,
            lists: 0,
            stopping: None,
            suspended: false,
            report: None,
            _hold: hold,
        }
    }

    /// Returns the pid of the main process.
    pub fn pid(&self) -> u32 {
        self.tree.main
    }

    /// Returns the marker in the environment of the process tree. Store it durably before the program does anything that matters: if host and guard are
    /// killed together, [`sweep::find`](crate::sweep::find) finds the rest by it.
    pub fn marker(&self) -> &Marker {
        &self.tree.marker
    }

    /// Returns the guard, if there is one. Store it durably: a guard that is suspended (SIGSTOP) after the death of its host does nothing, and must
    /// be swept first.
    pub fn guard(&self) -> Option<ProcessId> {
        self.tree.guard()
    }

    /// Returns the containment of the process tree: [`Containment::Guard`] or [`Containment::Group`].
    pub fn containment(&self) -> Containment {
        self.tree.containment()
    }

    /// Returns the standard input for writing, once, if the program was started with [`StdinMode::Piped`](crate::StdinMode).
    pub fn take_stdin(&mut self) -> Option<Stdin> {
        let free = std::mem::replace(&mut self.may_take_stdin, false);
        self.input.as_ref().filter(|_| free).map(Input::writer)
    }

    /// Closes the standard input, also if the caller has taken it or still writes to it.
    pub fn close_stdin(&mut self) {
        if let Some(input) = &self.input {
            input.close();
        }
    }

    /// Returns the lines of both outputs as a value of their own, once. Then `next_output` returns `None`. Use it to wait for a line and for the end of
    /// the program in one `select!`:
    ///
    /// ```no_run
    /// # async fn example(mut tree: agent_subprocess::ProcessTree) -> Option<()> {
    /// let mut output = tree.take_output()?;
    /// let exit = loop {
    ///     tokio::select! {
    ///         Some(line) = output.next() => println!("{}", line.line.text()),
    ///         exit = tree.wait() => break exit,
    ///     }
    /// };
    /// # Some(())
    /// # }
    /// ```
    pub fn take_output(&mut self) -> Option<OutputLines> {
        self.outputs.lines.take()
    }

    /// Returns the bytes of standard output, once, if the program was started with [`OutputMode::Bytes`](crate::OutputMode).
    pub fn take_stdout(&mut self) -> Option<RawOutput> {
        self.raw_outputs[0].take()
    }

    /// Returns the bytes of standard error, once, if the program was started with [`OutputMode::Bytes`](crate::OutputMode).
    pub fn take_stderr(&mut self) -> Option<RawOutput> {
        self.raw_outputs[1].take()
    }

    /// Waits for the next line of standard output or standard error.
    ///
    /// Up to 4 MiB of standard output are read ahead, then the program has to wait. Standard error never makes it wait: above 2 MiB, lines are left out
    /// here and only [`stderr_tail`](Self::stderr_tail) contains them. Returns `None` when both streams have ended, or half a second after the main
    /// process ended if another process keeps them open. Later output of that process is read and dropped, so that a leftover server can continue.
    ///
    /// # Cancel safety
    /// Cancel safe: no line is lost.
    pub async fn next_output(&mut self) -> Option<Output> {
        self.outputs.lines.as_mut()?.next().await
    }

    /// Returns the next line without waiting, if it came in the same read as the line before.
    pub fn try_next_output(&mut self) -> Option<Output> {
        self.outputs.lines.as_mut()?.try_next()
    }

    /// Waits for the end of the main process. Its descendants, and processes that keep its streams open, don't matter.
    ///
    /// A program that writes more than 4 MiB waits until [`next_output`](Self::next_output) takes the lines, and this function waits with it.
    ///
    /// # Cancel safety
    /// Cancel safe; further calls return the same exit.
    pub async fn wait(&mut self) -> Exit {
        let exit = self
            .tree
            .progress
            .wait_for(|progress| progress.exit.is_some())
            .await;
        exit.ok()
            .and_then(|progress| progress.exit)
            .unwrap_or(Exit::UNKNOWN)
    }

    /// Returns whether the main process is known to have ended.
    pub fn has_exited(&self) -> bool {
        self.tree.exit().is_some()
    }

    /// Sends a signal to the process group of the main process, and not to its other descendants. Does nothing after the main process has ended.
    ///
    /// # Errors
    /// Fails if there is no such signal, or if the guard accepts no more commands.
    pub fn signal(&self, signal: crate::Signal) -> Result<(), Error> {
        self.send_signal(signal.named()?, SignalTarget::Group)
    }

    /// Freezes (SIGSTOP) every process of the tree that can be found; [`resume`](Self::resume) thaws them.
    ///
    /// # Errors
    /// Fails if the owner of the process tree accepts no more commands.
    pub fn suspend(&mut self) -> Result<(), Error> {
        self.suspended = true;
        self.send_signal(Signal::STOP, SignalTarget::Tree)
    }

    /// Thaws the processes of the tree (SIGCONT).
    ///
    /// # Errors
    /// Fails if the owner of the process tree accepts no more commands.
    pub fn resume(&mut self) -> Result<(), Error> {
        self.suspended = false;
        self.send_signal(Signal::CONT, SignalTarget::Tree)
    }

    /// Sets the time at which the guard kills the process tree, on the clock `CLOCK_BOOTTIME`. A later call moves this time.
    ///
    /// The guard needs no command of the host for this. So the kill also happens while the host is suspended (SIGSTOP), and as soon as the machine wakes
    /// up after the time. The guard sends SIGKILL only: the processes have no time to react. A time in the past kills now. The time does nothing after
    /// the end of the process tree.
    ///
    /// # Errors
    /// [`Error::is_unsupported`] without a guard; another error if the guard accepts no more commands.
    ///
    /// # Platform
    /// Unsupported outside Linux.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(tree: &agent_subprocess::ProcessTree) -> Result<(), agent_subprocess::Error> {
    /// use std::time::Duration;
    ///
    /// let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    /// let now = Duration::try_from(now).expect("the machine has booted");
    /// tree.kill_at(now + Duration::from_secs(30))?; // Move it before it is over.
    /// # Ok(()) }
    /// ```
    pub fn kill_at(&self, boottime: Duration) -> Result<(), Error> {
        let pid = self.pid();
        if self.containment() != Containment::Guard {
            return Err(Kind::NoKillTime.into());
        }
        if self.tree.progress.borrow().tree_end.is_some() {
            return Ok(());
        }
        self.tree.wake();
        let boottime = milliseconds(boottime);
        let sent = self.tree.send_command(HostCommand::KillAt { boottime });
        sent.map_err(|source| Kind::Unreachable { pid, source }.into())
    }

    fn send_signal(&self, signal: Signal, whom: SignalTarget) -> Result<(), Error> {
        if self.tree.progress.borrow().tree_end.is_some() {
            return Ok(());
        }
        let unreachable = |source| {
            Kind::Unreachable {
                pid: self.pid(),
                source,
            }
            .into()
        };
        self.tree.signal(signal, whom).map_err(unreachable)
    }

    /// Lists the living processes of the tree without the main process; at most 4096.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn leftovers(&mut self) -> Vec<ProcessName> {
        self.lists += 1;
        let asked = self
            .tree
            .send_command(HostCommand::List {
                sequence: self.lists,
            })
            .is_ok();
        match timeout(times::LIST_REPLY, self.tree.listed(self.lists)).await {
            Ok(listed) if asked || self.tree.is_proven_over() => listed,
            _ => self.tree.find_by_marker().await,
        }
    }

    /// Stops the whole process tree, stage by stage according to `policy`, and returns the result.
    ///
    /// The first stage thaws a [suspended](Self::suspend) process tree. A stop never fails and never hangs. The report names a process that cannot be
    /// ended within the budget as a survivor. A guard that does not answer is killed 250 ms before the end of the budget (an eighth of a short budget
    /// before its end), and its process tree is swept by marker. After a normal exit, a stop ends the leftovers. [`next_output`](Self::next_output)
    /// still returns the lines that were written until the end. A second call returns the same report.
    ///
    /// If the runtime that spawned the program has ended, no report about the process tree can arrive. Then the report names the main process as a
    /// survivor, and dropping this value ends the process tree.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the stop in its current stage, and the next call continues there. The next call can only shorten the rest of the
    /// stop. The budget of its policy counts from that call. If that budget ends sooner, no remaining stage gets more time than either policy allows.
    /// So a second call with a shorter policy makes a stop faster.
    pub async fn stop(&mut self, policy: &StopPolicy) -> StopReport {
        if self.report.is_none() {
            self.report = Some(self.end(&policy.bounded()).await);
        }
        self.report.clone().expect("it was just set")
    }

    async fn end(&mut self, policy: &StopPolicy) -> StopReport {
        let mut now = match self.stopping.clone() {
            Some(stopping) => stopping.within_policy(policy),
            None => self.begin(policy).await,
        };
        self.stopping = Some(now.clone());
        let mut progress = self.tree.progress.clone();
        while progress.borrow().tree_end.is_none() {
            let main_exited = self.tree.exit().is_some();
            if now.start.elapsed() >= now.until || (now.stage < StopStage::Terminate && main_exited)
            {
                if now.stage == StopStage::Kill {
                    break;
                }
                let seen = StopFacts {
                    stage: now.stage,
                    main_exited,
                    stdin_open: self.stdin_open(),
                };
                (now.stage, now.until) = next_stage(&now.policy, now.start.elapsed(), seen);
                if now.stage < StopStage::Terminate {
                    now.last_gentle_stage = now.stage;
                }
                self.stopping = Some(now.clone());
                self.enter_stage(&now);
            }
            let done = progress.wait_for(|progress| {
                progress.tree_end.is_some()
                    || (now.stage < StopStage::Terminate && progress.exit.is_some())
            });
            let told = timeout_at(now.start + now.until, done).await;
            if told.is_ok_and(|told| told.is_err()) {
                // The runtime that spawned the program has ended, so no report about the process tree can arrive.
                break;
            }
        }
        if progress.borrow().tree_end.is_none() {
            self.tree.give_up.notify_one();
        }
        let tree_end = timeout(
            times::GIVE_UP_TIMEOUT,
            progress.wait_for(|now| now.tree_end.is_some()),
        )
        .await;
        let tree_end_report = tree_end.ok().and_then(|now| now.ok()?.tree_end.clone());
        let is_unreported = tree_end_report.is_none();
        let tree_end = tree_end_report.unwrap_or_else(|| self.unknown_tree_end());
        let drained = self.drained().await;
        self.close_stdin();
        let nothing_left =
            now.exited_before && tree_end.ended.is_empty() && tree_end.survivors.is_empty();
        let stage = match &tree_end {
            _ if nothing_left => StopStage::AlreadyEnded,
            tree_end if tree_end.killed => StopStage::Kill,
            tree_end if tree_end.terminated => StopStage::Terminate,
            _ => now.last_gentle_stage,
        };
        let main_survived = tree_end
            .survivors
            .iter()
            .any(|survivor| survivor.pid == self.pid());
        StopReport {
            stage,
            exit: self.tree.exit().filter(|_| !main_survived),
            ended: tree_end.ended,
            unnamed: tree_end.unlisted,
            survivors: tree_end.survivors,
            containment: self.containment(),
            outputs_ended: drained,
            guard_lost: tree_end.guard_lost,
            is_unreported,
        }
    }

    async fn begin(&mut self, policy: &StopPolicy) -> StopState {
        let stopping = StopState {
            start: Instant::now(),
            policy: policy.clone(),
            exited_before: self.tree.exit().is_some(),
            stage: StopStage::AlreadyEnded,
            until: Duration::ZERO,
            last_gentle_stage: StopStage::AlreadyEnded,
        };
        self.stopping = Some(stopping.clone());
        let seen = StopFacts {
            stage: StopStage::AlreadyEnded,
            main_exited: stopping.exited_before,
            stdin_open: self.stdin_open(),
        };
        if next_stage(policy, Duration::ZERO, seen).0 != StopStage::Kill {
            self.record_living(policy).await;
        }
        stopping
    }

    /// Makes the guard record the living processes, before a gentle stage can end them unrecorded.
    async fn record_living(&mut self, policy: &StopPolicy) {
        self.tree.wake();
        self.lists += 1;
        let noted = self
            .tree
            .send_command(HostCommand::RecordNames)
            .and_then(|()| {
                self.tree.send_command(HostCommand::List {
                    sequence: self.lists,
                })
            });
        // If the guard answers too late, the report lacks some names, but the stop takes no longer.
        if noted.is_ok() {
            let _known_or_due = timeout(
                times::LIST_TIMEOUT.min(policy.budget / 8),
                self.tree.listed(self.lists),
            )
            .await;
        }
    }

    fn stdin_open(&self) -> bool {
        self.input.as_ref().is_some_and(Input::is_open)
    }

    fn enter_stage(&mut self, now: &StopState) {
        let rounds = milliseconds(now.policy.kill_time());
        let time = now.until.saturating_sub(now.start.elapsed());
        self.tree.wake();
        // If a command is not accepted, the next stage follows, and in the end the host gives up on the guard.
        let _not_taken = match now.stage {
            StopStage::AlreadyEnded => Ok(()),
            StopStage::Interrupt => self.tree.signal(Signal::INT, SignalTarget::Group),
            StopStage::CloseInput => {
                self.close_stdin();
                Ok(())
            }
            StopStage::Terminate => self.tree.send_command(HostCommand::Stop {
                grace: milliseconds(time),
                rounds,
            }),
            StopStage::Kill => self
                .tree
                .send_command(HostCommand::Stop { grace: 0, rounds }),
        };
        // A frozen process does not react to a gentle stage. The stage's signal is sent before the thaw, so that the process does no other work
        // first.
        if self.suspended && now.stage < StopStage::Terminate {
            let _not_taken = self.tree.signal(Signal::CONT, SignalTarget::Tree);
        }
    }

    /// Returns the result if no report has arrived: only the main process can be named.
    fn unknown_tree_end(&self) -> TreeEnd {
        let main = ProcessName {
            pid: self.pid(),
            name: "?".to_owned(),
        };
        TreeEnd {
            survivors: vec![main],
            killed: true,
            guard_lost: self.containment() == Containment::Guard,
            ..TreeEnd::default()
        }
    }

    async fn drained(&self) -> bool {
        let mut draining = self.outputs.draining.clone();
        let done = timeout(
            2 * times::DRAIN,
            draining.wait_for(|draining| draining.open == 0),
        )
        .await;
        done.is_ok_and(|done| done.is_ok_and(|draining| draining.abandoned == 0))
    }

    /// Returns the last 64 KiB of standard error; bytes that are not UTF-8 become U+FFFD.
    pub fn stderr_tail(&self) -> String {
        self.outputs.tail()
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        self.close_stdin();
    }
}
