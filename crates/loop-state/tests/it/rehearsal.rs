//! The preview of how a process would take over a run.

use loop_state::{
    CheckResult, FeedbackRefusal, LoopCommand, MAX_STEER_BYTES, MachineInput, NoAttempt,
    ResumeOptions, RunUpdate, StopReason, StopTiming, Timestamp, TurnOutcome,
};

use crate::person::steer;
use crate::rules;
use crate::traces::{Trace, failed, stop};

const UNKNOWN: &str = "(not run)";

#[test]
fn run_without_a_process_is_started() {
    let head = loop_state::Head::new(rules(|_| {})).unwrap();
    let mut first = head.first_input(ResumeOptions::default());
    assert_eq!(first, MachineInput::Started);
    let refused = head.add_feedback(&mut first, "mind the docs".into());
    assert_eq!(refused, Err(FeedbackRefusal::NotBegun));
    let rehearsed = head.rehearse(first, UNKNOWN, Timestamp::from_millis(0));
    assert_eq!((rehearsed.phase, rehearsed.iteration), (0, 1));
    assert!(rehearsed.next.unwrap().steers.is_empty());
}

#[test]
fn feedback_of_a_resume_is_in_the_next_prompt_and_its_length_is_limited() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(steer("one", false));
    let head = trace.machine.head();
    let mut first = head.first_input(ResumeOptions::default());
    let long = "x".repeat(MAX_STEER_BYTES - 2);
    let refused = |text: &str, mut first| head.add_feedback(&mut first, text.into());
    assert_eq!(refused(" \n", first.clone()), Err(FeedbackRefusal::Empty));
    assert_eq!(refused(&long, first.clone()), Err(FeedbackRefusal::TooMuch));
    head.add_feedback(&mut first, "two".into()).unwrap();
    let rehearsed = head.rehearse(first, UNKNOWN, Timestamp::from_millis(trace.now));
    let texts = rehearsed.next.unwrap().steers;
    assert_eq!(texts.last().unwrap().text, "two");
}

#[test]
fn dry_run_assumes_a_failing_check_and_changes_nothing() {
    let mut trace = Trace::new(rules(|rules| {
        rules.limits.sleep = std::time::Duration::from_secs(60);
    }));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(stop(StopTiming::Now));
    trace.then(MachineInput::CheckEnded(CheckResult::Stopped));
    trace.then(MachineInput::LeftoversEnded(
        loop_state::ProcessTreeOutcome::default(),
    ));
    let head = trace.machine.head().clone();
    let first = head.first_input(ResumeOptions::default());
    let rehearsed = head.rehearse(first, UNKNOWN, Timestamp::from_millis(trace.now));
    assert_eq!(rehearsed.command, Some(LoopCommand::Check));
    assert_eq!(rehearsed.iteration, 1);
    let slept = |notice: &RunUpdate| matches!(notice, RunUpdate::Sleeping { .. });
    assert!(
        !rehearsed.updates.iter().any(slept),
        "the sleep is only assumed"
    );
    let brief = rehearsed.next.unwrap();
    assert_eq!(brief.feedback.unwrap().text, UNKNOWN);
    assert_eq!(trace.machine.head(), &head);
}

#[test]
fn dry_run_names_why_no_attempt_begins() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(failed("red"));
    trace.iteration(CheckResult::Passed);
    let head = trace.machine.head();
    let first = head.first_input(ResumeOptions::default());
    let rehearsed = head.rehearse(first, UNKNOWN, Timestamp::from_millis(trace.now));
    let NoAttempt::Ends(StopReason::Done(_)) = rehearsed.next.unwrap_err() else {
        panic!("the run has ended");
    };
}
