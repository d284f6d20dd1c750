//! Gates and the check of the present iteration.

use agent_duplex::BoxFuture;
use agent_subprocess::Context;
use loop_state::{CheckResult, Command, Happening};

use crate::check::{CheckEnd, Commands, RunningCheck};
use crate::news::News;
use crate::runner::Runner;

impl Runner {
    /// Lets `play` say what gates and the check come to instead of running them: for a test that plays a night in a second, in which no
    /// process can take part. It gets what the command would be run with.
    #[must_use]
    pub fn with_commands(
        mut self,
        play: impl Fn(Command, Context) -> BoxFuture<'static, CheckResult> + Send + Sync + 'static,
    ) -> Self {
        self.agent_io.commands = Some(Commands(Box::new(play)));
        self
    }

    pub(super) fn run_command(&mut self, command: Command, text: String) {
        let context = self.context("-check");
        self.agent_io.check = Some(match &self.agent_io.commands {
            Some(Commands(play)) => RunningCheck::play(command, play(command, context)),
            None => RunningCheck::start(command, text.clone(), context),
        });
        self.tell(News::CommandStarted { command, text });
    }

    pub(super) fn check_ended(&mut self, end: CheckEnd) -> Happening {
        let check = self.agent_io.check.take().expect("its end was awaited");
        self.tell(News::CommandEnded {
            command: check.command,
            result: end.result.clone(),
            took: end.took,
        });
        self.warn_of_a_mistake(check.command, &end.result);
        if !end.leftovers.is_empty() {
            self.tell(News::Ended {
                why: "left running by the command".into(),
                processes: end.leftovers,
            });
        }
        if end.result == CheckResult::Stopped {
            self.ends.ended.extend(end.ended);
        }
        self.ends.proven &= end.proven;
        self.note_survivors(end.survivors);
        match check.command {
            Command::Gate(_) => Happening::GateEnded(end.result),
            Command::Check => Happening::CheckEnded(end.result),
        }
    }

    /// Says of a command that can't be run, once as long as that is so, what that leads to: the agent can't mend a slip in a command line.
    fn warn_of_a_mistake(&mut self, command: Command, result: &CheckResult) {
        let CheckResult::NotRun(said) = result else {
            return;
        };
        let (head, phase) = (self.machine.head(), self.phase());
        let (option, text, in_a_row) = match command {
            Command::Gate(index) => (
                "--gate",
                phase.gates[index as usize].clone(),
                head.streaks.gates,
            ),
            Command::Check => (
                "--until",
                phase.until.clone().unwrap_or_default(),
                head.streaks.unrun,
            ),
        };
        if in_a_row > 0 {
            return;
        }
        let max = head.rules.limits.max_failures;
        let ends = match max {
            0 => String::new(),
            _ => format!("; if that comes {max} times in a row the run is stuck"),
        };
        let said = said.trim_end().replace('\n', " ");
        let run = &self.saved.run;
        self.tell(News::Warning(format!(
            "`{text}` can't be run: {said}{ends}; if it is a slip: rlm stop {run}, then rlm resume {run} {option} COMMAND"
        )));
    }
}
