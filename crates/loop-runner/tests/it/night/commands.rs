//! The simulated required checks and check: they take some time, and pass or fail by chance.

use agent_duplex::BoxFuture;
use agent_subprocess::ProcessContext;
use cancellable_sleep::SleepGate;
use loop_state::{CheckResult, LoopCommand, Rules};

use super::defect::Defect;
use super::dice::Dice;
use super::phases::Place;
use super::world::{Shared, World, lock};

/// The results of the loop's own commands.
#[derive(Debug, Default)]
pub(crate) struct FakeCommands {
    /// The number of required checks of each phase.
    required_checks: Vec<u32>,
    /// The number of commands that began in the night.
    begun: u64,
    /// The last checked attempt, the number of its passed required checks, and the result of the check.
    at: Option<Place>,
    passed: u32,
    pub(crate) checked: Option<bool>,
    /// The failure that the next agent must get: the command, a unique word, and the iteration.
    failed: Option<(LoopCommand, String, (u32, u32))>,
}

impl FakeCommands {
    pub(crate) fn of(rules: &Rules) -> Self {
        let required_checks = rules
            .phases
            .iter()
            .map(|phase| phase.required_checks)
            .collect();
        Self {
            required_checks,
            ..Self::default()
        }
    }

    fn is_at(&self, turn: (u32, u32)) -> bool {
        self.at.is_some_and(|at| at.turn() == turn)
    }

    /// Returns whether all required checks of an iteration passed.
    pub(crate) fn let_through(&self, turn: (u32, u32)) -> bool {
        let gates = self.required_checks[turn.0 as usize];
        gates == 0 || (self.passed == gates && self.is_at(turn))
    }

    /// Returns the number of the required check that stopped an iteration, from 1.
    pub(crate) fn stopped_by(&self, turn: (u32, u32)) -> Option<u32> {
        let stopped = self.is_at(turn) && self.passed < self.required_checks[turn.0 as usize];
        stopped.then_some(self.passed + 1)
    }

    /// Returns the word that the first agent of an iteration must get.
    pub(crate) fn word_for(&self, (phase, iteration): (u32, u32)) -> Option<&str> {
        let (_, word, of) = self.failed.as_ref()?;
        ((of.0, of.1 + 1) == (phase, iteration)).then_some(word)
    }

    /// Forgets the failure of a first check that a crash lost: a resume begins with the agent.
    pub(crate) fn crashed(&mut self) {
        self.failed.take_if(|(.., of)| of.1 == 0);
    }

    /// Forgets the failure, because the run repeats the work from an earlier point.
    pub(crate) fn forget(&mut self) {
        self.failed = None;
    }
}

/// Returns the result of a command, after a simulated duration.
pub(crate) fn play(
    world: &Shared,
    command: LoopCommand,
    context: &ProcessContext,
    bent: Defect,
) -> BoxFuture<'static, CheckResult> {
    let at = Place::of(context);
    let mut dice = lock(world).command_begins(command, at);
    let world = world.clone();
    Box::pin(async move {
        let long = dice.seconds(0, 240);
        let _elapsed = SleepGate::new().sleep(long).await;
        let passes = match command {
            LoopCommand::RequiredCheck(_) => dice.hits(850),
            LoopCommand::Check => dice.hits(40),
        };
        let result = lock(&world).command_ends(command, at, passes);
        match (bent, command) {
            (Defect::RequiredChecks, LoopCommand::RequiredCheck(_)) => CheckResult::Passed,
            _ => result,
        }
    })
}

impl World {
    fn command_begins(&mut self, command: LoopCommand, at: Place) -> Dice {
        self.note(format!("{command:?} of {at:?}"));
        let (stopping, gates) = (
            self.stopping,
            self.commands.required_checks[at.phase as usize],
        );
        self.holds(!stopping, || "a command is started after a stop".into());
        let book = &mut self.commands;
        book.begun += 1;
        if command == LoopCommand::RequiredCheck(0) || gates == 0 {
            (book.at, book.passed, book.checked) = (Some(at), 0, None);
        }
        let due = match command {
            LoopCommand::RequiredCheck(index) => index,
            LoopCommand::Check => gates,
        };
        let (begun, ready) = (book.begun, (book.at, book.passed) == (Some(at), due));
        self.holds(ready, || {
            format!("{command:?} of {at:?} runs before the previous command passed")
        });
        Dice::new(self.seed, 2_000_000 + begun)
    }

    fn command_ends(&mut self, command: LoopCommand, at: Place, passes: bool) -> CheckResult {
        let book = &mut self.commands;
        match command {
            LoopCommand::RequiredCheck(index) => book.passed = index + u32::from(passes),
            LoopCommand::Check => book.checked = Some(passes),
        }
        if passes {
            book.failed.take_if(|(of, ..)| *of == command);
            return CheckResult::Passed;
        }
        let word = format!("FAILED{}x", book.begun);
        // The check before the first iteration, which has no attempt yet, counts as that of iteration 0.
        let turn = (at.phase, if at.attempt == 0 { 0 } else { at.iteration });
        book.failed = Some((command, word.clone(), turn));
        CheckResult::Failed(word)
    }
}
