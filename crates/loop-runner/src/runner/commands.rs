//! The user's commands: the required checks and the check; also the program that keeps the computer awake.

use agent_duplex::BoxFuture;
use agent_subprocess::ProcessContext;
use loop_state::{CheckResult, LoopCommand, MachineInput, Warning, times};

use crate::check::{CheckOutcome, FakeCommands, RunningCheck};
use crate::keep_awake::SleepInhibitor;
use crate::run_event::RunEvent;
use crate::runner::Runner;

impl Runner {
    /// Replaces the required checks and the check by `play`, which returns their results: for a test that simulates hours in a second, without
    /// processes. `play` gets the context in which the command would run.
    #[must_use]
    pub fn with_commands(
        mut self,
        play: impl Fn(LoopCommand, ProcessContext) -> BoxFuture<'static, CheckResult>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.processes.commands = Some(FakeCommands(Box::new(play)));
        self
    }

    pub(super) fn run_command(&mut self, command: LoopCommand, text: String) {
        let context = self.context_with_guard("-check");
        self.processes.check = Some(match &self.processes.commands {
            Some(FakeCommands(play)) => RunningCheck::play(command, play(command, context)),
            None => RunningCheck::start(command, text.clone(), context),
        });
        self.emit(RunEvent::CommandStarted { command, text });
    }

    pub(super) fn check_ended(&mut self, end: CheckOutcome) -> MachineInput {
        let check = self.processes.check.take().expect("a check runs");
        self.emit(RunEvent::CommandEnded {
            command: check.command,
            result: end.result.clone(),
            took: end.took,
        });
        if !end.leftovers.is_empty() {
            self.emit(RunEvent::ProcessesEnded {
                why: "left running by the command".into(),
                run: None,
                processes: end.leftovers,
            });
        }
        if end.result == CheckResult::Stopped {
            self.ended_processes.ended.extend(end.ended);
        }
        self.ended_processes.proven &= end.proven;
        self.note_survivors(end.survivors);
        match check.command {
            LoopCommand::RequiredCheck(_) => MachineInput::RequiredCheckEnded(end.result),
            LoopCommand::Check => MachineInput::CheckEnded(end.result),
        }
    }

    /// Reports a warning of the machine, with the names and commands of the configuration.
    pub(super) fn warn(&mut self, warning: Warning) {
        let text = match warning {
            Warning::CommandNotRun {
                command,
                why: said,
                stuck_after,
            } => self.describe_command_not_run(command, &said, stuck_after),
            Warning::SteersUnseen { count: 1 } => {
                "1 steer did not reach the agent before the run ended".to_owned()
            }
            Warning::SteersUnseen { count } => {
                format!("{count} steers did not reach the agent before the run ended")
            }
            _ => return,
        };
        self.emit(RunEvent::Warning(text));
    }

    fn describe_command_not_run(
        &self,
        command: LoopCommand,
        why: &str,
        stuck_after: Option<u32>,
    ) -> String {
        let phase = self.phase();
        let (option, text) = match command {
            LoopCommand::RequiredCheck(index) => {
                ("--gate", phase.required_checks[index as usize].clone())
            }
            LoopCommand::Check => ("--until", phase.check.clone().unwrap_or_default()),
        };
        let ends = stuck_after.map_or_else(String::new, |max| {
            format!("; after {max} times in a row the run stops as stuck")
        });
        let why = why.trim_end().replace('\n', " ");
        let run = &self.saved.run;
        format!(
            "`{text}` can't be run: {why}{ends}; to correct it: rlm stop {run}, then rlm resume {run} {option} COMMAND"
        )
    }

    /// Keeps the computer awake from the start of the run to its end, also while the run waits or is paused.
    ///
    /// If the computer has no program for this, or the program fails, the run reports a warning once and continues.
    #[must_use]
    pub fn with_keep_awake(mut self) -> Self {
        self.keeps_awake = true;
        self
    }

    /// Starts the program that keeps the computer awake, if the run needs it.
    pub(super) fn keep_awake(&mut self) {
        if !self.keeps_awake {
            return;
        }
        let context = self.context("-awake");
        match SleepInhibitor::start(&self.saved.run, context) {
            Ok(inhibitor) => self.processes.inhibitor = Some(inhibitor),
            Err(warning) => self.emit(RunEvent::Warning(warning)),
        }
    }

    /// Reports that the program which keeps the computer awake has ended by itself.
    pub(super) fn inhibitor_ended(&mut self, end: CheckOutcome) {
        if let Some(inhibitor) = self.processes.inhibitor.take() {
            self.emit(RunEvent::Warning(inhibitor.warning(&end)));
        }
        self.ended_processes.proven &= end.proven;
        self.note_survivors(end.survivors);
    }

    /// Ends the program that keeps the computer awake.
    pub(super) async fn allow_sleep(&mut self) {
        let budget = self.budget().min(times::KEEP_AWAKE_END);
        if let Some(inhibitor) = self.processes.inhibitor.take() {
            let end = inhibitor.end(budget).await;
            self.ended_processes.proven &= end.proven;
            self.note_survivors(end.survivors);
        }
    }
}
