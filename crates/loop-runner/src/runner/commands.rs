//! The commands of the user: the checks of the present iteration, and the command that is told what becomes of the run.

use agent_duplex::BoxFuture;
use agent_subprocess::Context;
use loop_state::{CheckResult, Command, Event, Happening, Timestamp, Warning, times};
use rlm_store::deadline::until;
use tokio::time::Instant;

use crate::check::{CheckEnd, Commands, RunningCheck};
use crate::hook::{Happened, Hook, Hooks, Moment};
use crate::news::News;
use crate::runner::Runner;
use crate::{Awaited, Error, Outcome};

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

    /// Reports a warning of the machine, with the words of the configuration.
    pub(super) fn warn(&mut self, warning: Warning) {
        let text = match warning {
            Warning::CommandNotRun {
                command,
                said,
                stuck_after,
            } => self.describe_slip(command, &said, stuck_after),
            Warning::SteersUnseen { count: 1 } => {
                "one steer was not told to the agent before the run was over".to_owned()
            }
            Warning::SteersUnseen { count } => {
                format!("{count} steers were not told to the agent before the run was over")
            }
            _ => return,
        };
        self.tell(News::Warning(text));
    }

    fn describe_slip(&self, command: Command, said: &str, stuck_after: Option<u32>) -> String {
        let phase = self.phase();
        let (option, text) = match command {
            Command::Gate(index) => ("--gate", phase.gates[index as usize].clone()),
            Command::Check => ("--until", phase.until.clone().unwrap_or_default()),
        };
        let ends = stuck_after.map_or_else(String::new, |max| {
            format!("; if that comes {max} times in a row the run is stuck")
        });
        let said = said.trim_end().replace('\n', " ");
        let run = &self.saved.run;
        format!(
            "`{text}` can't be run: {said}{ends}; if it is a slip: rlm stop {run}, then rlm resume {run} {option} COMMAND"
        )
    }

    /// Has a command told what becomes of the run, each thing once it is saved.
    ///
    /// At the end of the run it has 10 s for the last of it; when the run was told to stop, 3 s within the budget of the stop; and none when it was
    /// aborted.
    #[must_use]
    pub fn with_hook(mut self, hook: Hook) -> Self {
        self.hooks = Some(Hooks::new(hook));
        self
    }

    /// Has the command told of this, if it wants to be.
    pub(super) fn notify(&mut self, at: Timestamp, what: Happened<'_>) {
        let Some(hooks) = &self.hooks else {
            return;
        };
        let moment = Moment {
            run: &self.saved.run,
            head: self.machine.head(),
            at,
            what,
            missed: 0,
        };
        let Some(telling) = hooks.telling(moment) else {
            return;
        };
        let context = self.context("-notify");
        if let Some(hooks) = &mut self.hooks {
            hooks.push(context, telling);
        }
    }

    /// Has it told that the run begins, or goes on, once that is saved.
    pub(super) fn notify_begun(&mut self) {
        if self.machine.has_begun() && !std::mem::replace(&mut self.told.begun, true) {
            let again = matches!(self.first, loop_state::Happening::Resumed(_));
            let at = self.clock.now();
            self.notify(at, Happened::Began { again });
        }
    }

    /// Takes notice of the end of a call.
    pub(super) fn notified(&mut self, end: CheckEnd) {
        let complaint = self.hooks.as_mut().and_then(|it| it.complaint(&end));
        if let Some(complaint) = complaint {
            self.tell(News::Warning(complaint));
        }
        if !end.leftovers.is_empty() {
            self.tell(News::Ended {
                why: "left running by the notify command".into(),
                processes: end.leftovers,
            });
        }
        self.ends.proven &= end.proven;
        self.note_survivors(end.survivors);
    }

    /// Has it told that the run is over, and waits for that within bounds. A wish to stop ends the waiting.
    pub(super) async fn notify_end(&mut self, result: Result<&Outcome, &Error>) {
        let now = self.clock.now();
        let left = self.machine.deadline().last_call(now, times::NOTIFY_CALL);
        let Some(hooks) = &mut self.hooks else {
            return;
        };
        if !self.machine.keeps_calls() {
            hooks.clear();
        }
        if !left.is_zero() {
            let at = self.clock.now();
            self.notify(at, Happened::Ended(result));
        }
        self.show_awaited(Some(Awaited::Notify));
        let by = Instant::now() + left;
        let mut is_late = false;
        while let Some(hooks) = self.hooks.as_mut().filter(|it| it.is_running()) {
            tokio::select! {
                biased;
                // That the reply is dropped says that the run is over.
                wish = self.requests.next(), if !is_late => {
                    let effects = wish.what.while_ending().map(|what| {
                        let at = self.clock.now();
                        self.machine.step(Event { at, what })
                    });
                    is_late = effects.is_some_and(|it| !it.is_empty());
                }
                () = until(by), if !is_late => is_late = true,
                end = hooks.ended() => {
                    self.notified(end);
                    continue;
                }
            }
            if is_late && let Some(hooks) = &mut self.hooks {
                hooks.clear();
                hooks.halt();
            }
        }
    }
}
