//! A minimal program around the machine. It does the effects in order, is killed in the middle of a turn, and resumes from its last save.
//!
//! `cargo run -p loop-state --example shell` ends by itself, at once. The agent is simulated: the check passes after three turns.
#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::collections::VecDeque;
use std::error::Error;
use std::time::Duration;

use loop_state::{
    CheckResult, Effect, Head, Machine, MachineInput, PhaseRules, RunLimits, TimedInput,
};
use loop_state::{ProcessTreeOutcome, ResumeOptions, Rules, StopReason, Timestamp, TurnOutcome};

/// The data that survives a process: the saved state, and the work.
#[derive(Default)]
struct World {
    saved: String,
    turns_done: u32,
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let phase = PhaseRules {
        name: "main".into(),
        has_check: true, // a check decides when the phase is finished
        ..PhaseRules::default()
    };
    let rules = Rules {
        phases: vec![phase],
        limits: RunLimits {
            sleep: Duration::from_secs(60),
            ..RunLimits::default()
        },
        ..Rules::default()
    };
    let mut world = World::default();
    let ended = carry_out(
        &mut world,
        Machine::new(rules)?,
        MachineInput::Started,
        Some(2),
    )?;
    assert!(ended.is_none(), "the process was killed in iteration 2");

    println!("-- killed, and started again --");
    let saved: Head = serde_json::from_str(&world.saved)?;
    let machine = Machine::from(saved);
    let resumed = MachineInput::Resumed(ResumeOptions::default());
    let ended = carry_out(&mut world, machine, resumed, None)?;
    println!("the end: {}", ended.ok_or("the run has not ended")?);
    Ok(())
}

/// Runs until the run ends, or until the middle of the turn in which this process is killed.
fn carry_out(
    world: &mut World,
    mut machine: Machine,
    first: MachineInput,
    killed_in: Option<u32>,
) -> Result<Option<StopReason>, Box<dyn Error>> {
    let mut now = Timestamp::from_millis(0);
    let mut inputs = VecDeque::from([first]);
    loop {
        // No input is queued, so time has to pass. Here it passes at once; a real program sleeps until the deadline or the next input.
        let what = inputs.pop_front().or_else(|| {
            now = machine.next_deadline()?;
            machine.due_input(now)
        });
        let what = what.ok_or("the machine has no deadline")?;
        for effect in machine.step(TimedInput { at: now, what }) {
            match effect {
                // A real program writes, syncs, and does nothing else before the sync returns.
                Effect::Save | Effect::SavePhase { .. } => {
                    world.saved = serde_json::to_string(machine.head())?;
                    println!("saved ({} bytes)", world.saved.len());
                }
                Effect::StartAttempt(brief) => {
                    let (iteration, attempt) = (brief.iteration, brief.attempt);
                    println!("agent: iteration {iteration}, attempt {attempt}");
                    if let Some(unfinished) = brief.unfinished {
                        println!(
                            "       its prompt mentions the unfinished attempt: {unfinished:?}"
                        );
                    }
                    if killed_in == Some(iteration) {
                        return Ok(None);
                    }
                    world.turns_done += 1;
                    inputs.push_back(MachineInput::PromptReceived);
                    inputs.push_back(MachineInput::TurnEnded(TurnOutcome::Completed));
                }
                Effect::RunCheck => inputs.push_back(MachineInput::CheckEnded(check(world))),
                Effect::EndLeftovers => {
                    inputs.push_back(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()))
                }
                Effect::Emit(notice) => println!("update: {notice:?}"),
                Effect::EndRun => return Ok(machine.head().end.clone().map(|end| end.reason)),
                // This program has no required checks, steers, interrupts or stops, so it gets no other effects that matter.
                _ => {}
            }
        }
    }
}

fn check(world: &World) -> CheckResult {
    match world.turns_done {
        0..3 => CheckResult::Failed("one test failed".into()),
        _ => CheckResult::Passed,
    }
}
