//! Simulated runs: they use the real machine, end within their bound, keep the budget, and can be repeated.

use std::collections::VecDeque;
use std::time::Duration;

use loop_state::simulate::{SeededRandom, SimulatedRun, SimulatedTurn, Simulation, SimulationEnd};
use loop_state::{
    CheckResult, Effect, Evidence, Head, Machine, MachineInput, ProcessTreeOutcome, PromptContext,
    Request, ResumeOptions, RuleChange, Rules, SpentBudget, StopCause, StopReason, StopTiming,
    Streak, Timestamp, TurnOutcome, UsageTotal,
};
use proptest::prelude::*;

use crate::properties::any_rules;
use crate::{at, rules};

const MINUTE: Duration = Duration::from_secs(60);

/// The most that a turn of [`any_turn`] uses, of each kind.
const LARGEST_TURN: u64 = 20;

fn play(rules: Rules, turns: Vec<SimulatedTurn>) -> SimulatedRun {
    play_with(&Simulation::new(rules).unwrap(), turns)
}

fn play_with(simulation: &Simulation, turns: Vec<SimulatedTurn>) -> SimulatedRun {
    let mut turns = VecDeque::from(turns);
    simulation.run(0, |_, _| turns.pop_front().expect("the script has a turn"))
}

#[test]
fn observed_inputs_lead_to_the_observed_states() {
    let rules = rules(|rules| rules.phases[0].limits.max_iterations = Some(3));
    let simulation = Simulation::new(rules.clone()).unwrap();
    let turn = |_: &PromptContext, _: &mut SeededRandom| SimulatedTurn::completed().takes(MINUTE);
    let mut again = Machine::new(rules).unwrap();
    let mut inputs = 0;
    let run = simulation.run_observed(0, turn, |input, effects, head| {
        inputs += 1;
        assert_eq!(again.step(input.clone()), effects);
        assert_eq!(again.head(), head);
    });
    assert_eq!((inputs, &run.head), (run.inputs, again.head()));
    assert_eq!(run, simulation.run(0, turn));
}

fn failed() -> SimulatedTurn {
    SimulatedTurn::new(TurnOutcome::Failed("no".into()))
}

fn metered(limit: u64) -> Rules {
    rules(|rules| {
        rules.phases[0].reports_cost = true;
        rules.limits.max_cost_microusd = Some(limit);
    })
}

/// Returns a turn with every kind of outcome, check, usage and duration.
fn any_turn(_: &PromptContext, random: &mut SeededRandom) -> SimulatedTurn {
    let why = || "so it is".to_owned();
    let outcome = match random.between(0, 20) {
        0 => TurnOutcome::PromiseMade,
        1 => TurnOutcome::Failed(why()),
        2 => TurnOutcome::Transient(why()),
        3 => TurnOutcome::ServiceUnavailable {
            reset: None,
            why: why(),
        },
        4 => TurnOutcome::SessionLost,
        5 => TurnOutcome::Interrupted,
        6 => TurnOutcome::Stopped,
        7 => TurnOutcome::NotStarted(why()),
        8 => TurnOutcome::SessionInUse(why()),
        9 => TurnOutcome::AgentUnusable(why()),
        _ => TurnOutcome::Completed,
    };
    let mut check = || match random.between(0, 9) {
        0 => CheckResult::NotRun(why()),
        1 => CheckResult::Stopped,
        2..5 => CheckResult::Passed,
        _ => CheckResult::Failed(why()),
    };
    let turn = SimulatedTurn::new(outcome)
        .check_ends(check())
        .required_checks_end(check());
    let mut part = || random.between(0, LARGEST_TURN);
    let usage = UsageTotal {
        input_tokens: part() / 2,
        output_tokens: part() / 2,
        cost_microusd: part(),
    };
    let takes = Duration::from_millis(random.between(0, 80));
    let takes = if random.chance(0.02) {
        Duration::MAX
    } else {
        takes
    };
    turn.takes(takes)
        .uses(usage)
        .reports_usage(random.between(0, 5) as u32)
}

#[test]
fn k6_simulated_run_equals_the_same_inputs_by_hand() {
    let simulated = play(
        rules(|_| {}),
        vec![
            SimulatedTurn::completed().takes(MINUTE).costs_microusd(7),
            SimulatedTurn::completed().takes(MINUTE).passes_check(),
        ],
    );
    let mut machine = Machine::new(rules(|_| {})).unwrap();
    let mut last = Vec::new();
    let used = MachineInput::UsageReported(UsageTotal {
        cost_microusd: 7,
        ..UsageTotal::default()
    });
    let known = || MachineInput::SessionKnown("simulated".into());
    let no_leftovers = || MachineInput::LeftoversEnded(ProcessTreeOutcome::default());
    for (time, what) in [
        (0, MachineInput::Started),
        (0, known()),
        (0, MachineInput::PromptReceived),
        (60_000, used),
        (60_000, MachineInput::TurnEnded(TurnOutcome::Completed)),
        (
            60_000,
            MachineInput::CheckEnded(CheckResult::Failed("the simulated check failed".into())),
        ),
        (60_000, no_leftovers()),
        (60_000, known()),
        (60_000, MachineInput::PromptReceived),
        (120_000, MachineInput::TurnEnded(TurnOutcome::Completed)),
        (120_000, MachineInput::CheckEnded(CheckResult::Passed)),
        (120_000, no_leftovers()),
    ] {
        last = machine.step(at(time, what));
    }
    assert_eq!(last.last(), Some(&Effect::EndRun));
    assert_eq!(&simulated.head, machine.head());
    assert_eq!(simulated.took, 2 * MINUTE);
    assert!(simulated.is_done());
    assert_eq!(
        simulated.end,
        SimulationEnd::Ended(StopReason::Done(Evidence::Check))
    );
}

#[test]
fn budget_ends_a_turn_at_a_report() {
    let turn = || SimulatedTurn::completed().takes(MINUTE).costs_microusd(60);
    let once = play(metered(100), vec![turn(), turn()]);
    assert_eq!(
        (once.head.usage.cost_microusd, once.took),
        (120, 2 * MINUTE)
    );
    let turn = || turn().reports_usage(6);
    let often = play(metered(100), vec![turn(), turn()]);
    let (limit, used) = (100, 100);
    let spent = StopReason::BudgetSpent(SpentBudget::Cost { limit, used });
    assert_eq!(often.end, SimulationEnd::Ended(spent));
    assert_eq!(often.took, Duration::from_secs(100));
    assert!(!often.is_done());
}

#[test]
fn time_passes_in_turns_sleeps_and_waits() {
    let limited = SimulatedTurn::new(TurnOutcome::ServiceUnavailable {
        reset: Some(Timestamp::from_millis(3_600_000)),
        why: "later".into(),
    });
    let run = play(
        rules(|rules| rules.limits.sleep = MINUTE),
        vec![
            limited,
            SimulatedTurn::completed().takes(MINUTE),
            SimulatedTurn::completed().passes_check(),
        ],
    );
    assert!(run.is_done(), "{:?}", run.end);
    // The wait until the reset, its margin and its random part, a turn, and a sleep.
    let least = Duration::from_secs(3600 + 10 + 60 + 60);
    assert!(
        (least..=least + MINUTE).contains(&run.took),
        "{:?}",
        run.took
    );

    let limit = |rules: &mut Rules| rules.phases[0].limits.iteration_timeout = Some(MINUTE);
    let run = play(rules(limit), vec![failed().takes(2 * MINUTE); 3]);
    assert_eq!(
        run.end,
        SimulationEnd::Ended(StopReason::Stuck {
            streak: Streak::Failures,
            count: 3
        })
    );
    assert_eq!(run.took, 3 * MINUTE, "the timeout ended each turn");

    let limit = |rules: &mut Rules| rules.phases[0].limits.idle_timeout = Some(MINUTE);
    let long = SimulatedTurn::completed().takes(2 * MINUTE).passes_check();
    assert!(
        play(rules(limit), vec![long]).is_done(),
        "the agent is never idle"
    );
}

#[test]
fn inputs_of_people_come_at_their_time() {
    let stop = MachineInput::Requested(Request::Stop {
        when: StopTiming::Now,
    });
    let turn = || SimulatedTurn::completed().takes(Duration::from_secs(40));
    let simulation = Simulation::new(rules(|_| {})).unwrap();
    let stopped = simulation.clone().with_input(MINUTE, stop);
    let run = play_with(&stopped, vec![turn(), turn()]);
    assert_eq!(
        run.end,
        SimulationEnd::Ended(StopReason::Stopped(StopCause::Person))
    );
    assert_eq!(run.took, MINUTE);

    let steer = |text: &str| Request::Steer {
        text: text.into(),
        now: false,
    };
    let pause = Request::Pause {
        reason: None,
        after: loop_state::PauseAfter::Iteration,
    };
    let requests = [
        (50, steer("b")),
        (10, steer("a")),
        (10, pause),
        (90, Request::Continue),
    ];
    let given = requests
        .into_iter()
        .fold(simulation.clone(), |simulation, (after, request)| {
            simulation.with_input(Duration::from_secs(after), MachineInput::Requested(request))
        });
    let mut prompts = Vec::new();
    let run = given.run(0, |prompt, _| {
        let steers = prompt
            .steers
            .iter()
            .map(|it| it.text.clone())
            .collect::<Vec<_>>();
        prompts.push(steers.concat());
        if prompts.len() == 2 {
            turn().passes_check()
        } else {
            turn()
        }
    });
    // The agent read `a` in its turn; `b` came while the run was paused.
    assert_eq!((run.is_done(), run.took), (true, Duration::from_secs(130)));
    assert_eq!(prompts, ["", "b"]);

    let interrupt = MachineInput::Requested(Request::Interrupt);
    let interrupted = simulation.with_input(MINUTE, interrupt);
    let run = play_with(&interrupted, vec![turn(), turn()]);
    assert_eq!(run.end, SimulationEnd::AwaitsPerson);
    let go = MachineInput::Requested(Request::Continue);
    let run = play_with(
        &interrupted.clone().with_input(2 * MINUTE, go),
        vec![turn(), turn(), turn().passes_check()],
    );
    assert_eq!((run.is_done(), run.took), (true, Duration::from_secs(160)));

    let shut_down = interrupted.with_input(MINUTE, MachineInput::ShutDown);
    let run = play_with(&shut_down, vec![turn(), turn()]);
    assert_eq!(
        run.end,
        SimulationEnd::Ended(StopReason::Stopped(StopCause::Terminated))
    );
}

#[test]
fn saved_run_continues_in_a_simulation() {
    let turn = || SimulatedTurn::completed().takes(MINUTE).costs_microusd(60);
    let spent = play(metered(100), vec![turn(), turn()]).head;
    let rules = spent
        .rules
        .with(0, &RuleChange::MaxCost(Some(200)))
        .unwrap();
    let resume = ResumeOptions {
        rules: Some(rules),
        ..ResumeOptions::default()
    };
    let saved: Head = serde_json::from_value(serde_json::to_value(&spent).unwrap()).unwrap();
    let run = play_with(&Simulation::from_head(saved, resume), vec![turn(), turn()]);
    assert_eq!(run.head.usage.cost_microusd, 240);
    assert_eq!(run.head.counts.processes, 2);
    assert_eq!(run.took, 2 * MINUTE);
}

#[test]
fn endless_run_ends_at_the_input_limit() {
    let simulation = Simulation::new(rules(|_| {})).unwrap().max_inputs(70);
    let run = simulation.run(0, |_, _| SimulatedTurn::completed());
    assert_eq!((run.end, run.inputs), (SimulationEnd::InputLimit, 70));
    let turns = run.head.counts.attempts;
    assert!((10..=12).contains(&turns), "{turns}");
}

proptest! {
    #[test]
    fn simulated_run_ends_within_its_bound_keeps_the_budget_and_can_be_repeated(
        rules in any_rules(),
        seed: u64,
        starts: u32,
        most in 0..400_u32,
    ) {
        let limits = rules.limits.clone();
        let simulation = Simulation::new(rules).unwrap().starts_at(Timestamp::from_millis(starts.into())).max_inputs(most);
        let run = simulation.run(seed, any_turn);
        prop_assert!(run.inputs <= most);
        if let Some(limit) = limits.max_cost_microusd {
            prop_assert!(run.head.usage.cost_microusd < limit + LARGEST_TURN);
        }
        if let Some(limit) = limits.max_tokens {
            prop_assert!(run.head.usage.tokens() < limit + LARGEST_TURN);
        }
        match &run.end {
            SimulationEnd::Ended(reason) => {
                prop_assert_eq!(run.head.stop_reason(), Some(reason.clone()));
                prop_assert_eq!(run.is_done(), reason.is_final());
            }
            SimulationEnd::InputLimit => prop_assert_eq!(run.inputs, most),
            // No person can be asked, so only an agent that ends its turn by an interrupt leaves the run waiting.
            end => prop_assert!(run.head.awaits_person(), "{:?}", end),
        }
        prop_assert_eq!(simulation.clone().run(seed, any_turn), run);
    }

    /// Only the seed decides: a run with a check that sometimes passes ends for good, at different points for different seeds.
    #[test]
    fn different_seeds_give_different_runs(seed in 0..u64::MAX - 20) {
        let simulation = Simulation::new(rules(|_| {})).unwrap();
        let turns = (seed..seed + 20).map(|seed| {
            let run = simulation.run(seed, |_, random| {
                let turn = SimulatedTurn::completed();
                if random.chance(0.2) { turn.passes_check() } else { turn }
            });
            assert!(run.is_done());
            run.head.counts.attempts
        });
        prop_assert!(turns.collect::<std::collections::BTreeSet<_>>().len() > 2);
    }
}
