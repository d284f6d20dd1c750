//! The gates and the check of the night: they take their time, and come to anything.

use agent_duplex::BoxFuture;
use agent_subprocess::Context;
use loop_runner::Command;
use loop_state::CheckResult;

use super::agent::rest;
use super::dice::Dice;
use super::world::{Shared, World, lock};

/// What the commands of the loop's own came to.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    /// How many gates each iteration has.
    pub(crate) gates: u32,
    /// How many were begun in the night.
    begun: u64,
    /// The attempt that was last judged, how many of its gates passed, and what the check said.
    at: (u32, u32),
    passed: u32,
    pub(crate) checked: Option<bool>,
    /// What the next agent has to be told: what failed, with a word that comes nowhere else, and in which iteration.
    failed: Option<(Command, String, u32)>,
}

impl Commands {
    /// Whether all gates passed that an iteration has.
    pub(crate) fn let_through(&self, iteration: u32) -> bool {
        self.gates == 0 || (self.passed == self.gates && self.at.0 == iteration)
    }

    /// Which gate stopped an iteration, from 1 on.
    pub(crate) fn stopped_by(&self, iteration: u32) -> Option<u32> {
        (self.at.0 == iteration && self.passed < self.gates).then_some(self.passed + 1)
    }

    /// What the first agent of an iteration has to be told.
    pub(crate) fn word_for(&self, iteration: u32) -> Option<&str> {
        let (_, word, of) = self.failed.as_ref()?;
        (of + 1 == iteration).then_some(word)
    }

    /// The work is done again from an earlier point: what failed there is of no interest any more.
    pub(crate) fn forget(&mut self) {
        self.failed = None;
    }
}

/// Says what a command comes to, after its time.
pub(crate) fn play(
    world: &Shared,
    command: Command,
    context: &Context,
) -> BoxFuture<'static, CheckResult> {
    let number = |name: &str| {
        let value = context.env.iter().find(|(it, _)| it == name);
        value.and_then(|(_, it)| it.to_str()?.parse().ok()).unwrap()
    };
    let at = (number("RLM_ITERATION"), number("RLM_ATTEMPT"));
    let mut dice = lock(world).command_begins(command, at);
    let world = world.clone();
    Box::pin(async move {
        let long = dice.seconds(0, 240);
        rest(long).await;
        let passes = match command {
            Command::Gate(_) => dice.hits(850),
            Command::Check => dice.hits(40),
        };
        lock(&world).command_ends(command, at, passes)
    })
}

impl World {
    fn command_begins(&mut self, command: Command, at: (u32, u32)) -> Dice {
        self.note(format!("{command:?} of {at:?}"));
        let (stopping, gates) = (self.stopping, self.commands.gates);
        self.holds(!stopping, || "a command is started after a stop".into());
        let book = &mut self.commands;
        book.begun += 1;
        if command == Command::Gate(0) || gates == 0 {
            (book.at, book.passed, book.checked) = (at, 0, None);
        }
        let due = match command {
            Command::Gate(index) => index,
            Command::Check => gates,
        };
        let (begun, ready) = (book.begun, (book.at, book.passed) == (at, due));
        self.holds(ready, || {
            format!("{command:?} of {at:?} is run before what stands before it passed")
        });
        Dice::new(self.seed, 2_000_000 + begun)
    }

    fn command_ends(&mut self, command: Command, at: (u32, u32), passes: bool) -> CheckResult {
        let book = &mut self.commands;
        match command {
            Command::Gate(index) => book.passed = index + u32::from(passes),
            Command::Check => book.checked = Some(passes),
        }
        if passes {
            book.failed.take_if(|(of, ..)| *of == command);
            return CheckResult::Passed;
        }
        let word = format!("FAILED{}x", book.begun);
        book.failed = Some((command, word.clone(), at.0));
        CheckResult::Failed(word)
    }
}
