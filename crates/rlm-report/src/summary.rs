//! The summary of a run in three sentences: the task, the progress with its cost, and the end with its evidence.

use std::time::Duration;

use loop_state::{
    Evidence, IterationStep, SpentBudget, StopCause, StopReason, Timestamp, WaitCause,
};
use maud::{Markup, html};
use rlm_store::timeline::{ProcessEnd, Timeline};
use rlm_store::{AttemptOutcome, PhaseSettings, RunState};
use rlm_text::money::dollars;

use crate::report::ReportData;
use crate::words::{Clock, count, format_duration, number};

/// The maximum number of characters of a quoted prompt.
const QUOTED: usize = 180;

/// A piece of a sentence.
#[derive(Debug)]
pub(crate) enum Piece {
    Text(String),
    Code(String),
    Quote(String),
    Time(Timestamp),
}

/// A sentence.
#[derive(Debug, Default)]
pub(crate) struct Sentence(Vec<Piece>);

impl Sentence {
    fn text(mut self, text: impl Into<String>) -> Self {
        self.0.push(Piece::Text(text.into()));
        self
    }

    fn code(mut self, text: impl Into<String>) -> Self {
        self.0.push(Piece::Code(text.into()));
        self
    }

    fn quote(mut self, text: impl Into<String>) -> Self {
        self.0.push(Piece::Quote(text.into()));
        self
    }

    fn time(mut self, at: Timestamp) -> Self {
        self.0.push(Piece::Time(at));
        self
    }

    /// Returns the sentence as a paragraph.
    pub(crate) fn paragraph(&self, clock: &Clock) -> Markup {
        html! {
            p {
                @for piece in &self.0 {
                    @match piece {
                        Piece::Text(text) => (text),
                        Piece::Code(text) => code { (text) },
                        Piece::Quote(text) => { "“" bdi { (text) } "”" }
                        Piece::Time(at) => (clock.full_time(*at)),
                    }
                }
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn plain(&self, clock: &Clock) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Code(text) => format!("`{text}`"),
            Piece::Quote(text) => format!("“{text}”"),
            Piece::Time(at) => clock.full(*at),
        });
        pieces.collect()
    }
}

pub(crate) fn sentences(report: &ReportData) -> [Sentence; 3] {
    [
        task_text(report),
        work_text(&report.timeline),
        ended(report),
    ]
}

/// Returns the first line of a prompt that is not empty, without the marks of a heading or a list.
fn first_sentence(prompt: &str) -> String {
    let lines = prompt
        .lines()
        .map(|line| line.trim().trim_start_matches(['#', '-', '*']).trim());
    let line = lines
        .into_iter()
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    match line.char_indices().nth(QUOTED) {
        Some((at, _)) => format!("{}…", line[..at].trim_end()),
        None => line.trim_end_matches('.').to_owned(),
    }
}

fn task_text(report: &ReportData) -> Sentence {
    let head = &report.timeline.head;
    let phases = &head.settings.phases;
    let first = &phases[0];
    let gist = first_sentence(report.prompts.first().map_or("", String::as_str));
    let mut who = report.wording.agents.first().cloned().unwrap_or_default();
    if phases
        .iter()
        .any(|phase| !phase.agent.is_same(&first.agent))
    {
        who.push_str(" and others");
    }
    let asked = match (head.machine.parent.as_ref(), gist.is_empty()) {
        (Some(parent), _) => Sentence::default().text(format!(
            "As a fork of {} at iteration {}, ",
            parent.run, parent.iteration
        )),
        _ => Sentence::default(),
    };
    let asked = asked.code(who).text(" was asked to ");
    let asked = match gist.is_empty() {
        true => asked.text("work"),
        false => asked.text("do this: ").quote(gist),
    };
    match &phases[..] {
        [phase] => until(asked, phase),
        phases => {
            let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
            let phases = format!(", in {} phases: {}", phases.len(), names.join(", "));
            until(asked.text(phases), phases_end(&head.settings.phases))
        }
    }
    .text(".")
}

fn phases_end(phases: &[PhaseSettings]) -> &PhaseSettings {
    &phases[phases.len() - 1]
}

/// Adds the stop condition of a phase.
fn until(asked: Sentence, phase: &PhaseSettings) -> Sentence {
    let most = phase.limits.max_iterations;
    let asked = match (&phase.check, &phase.promise) {
        (Some(check), None) => asked.text(", until ").code(check).text(" passes"),
        (Some(check), Some(promise)) => asked
            .text(", until it promises ")
            .quote(promise)
            .text(" and ")
            .code(check)
            .text(" passes"),
        (None, Some(promise)) => asked.text(", until it promises ").quote(promise),
        (None, None) => {
            return match most {
                Some(1) => asked.text(", in one iteration"),
                Some(most) => asked.text(format!(", in {most} iterations")),
                None => asked,
            };
        }
    };
    match most {
        Some(most) => asked.text(format!(", in at most {most} iterations")),
        None => asked,
    }
}

fn work_text(timeline: &Timeline) -> Sentence {
    let m = &timeline.head.machine;
    let of = |test: fn(&AttemptOutcome) -> bool| {
        let counts = timeline.attempts.iter().filter(|it| !it.discarded);
        counts.filter(|it| test(&it.outcome)).count()
    };
    let failed = of(|fate| matches!(fate, AttemptOutcome::Failed(_)));
    let whole = failed + of(|fate| *fate == AttemptOutcome::Complete);
    let unfinished = of(|fate| matches!(fate, AttemptOutcome::Unfinished(_)));
    let gone = timeline.attempts.iter().filter(|it| it.discarded).count();
    let active = format_duration(Duration::from_millis(timeline.active_ms()));
    let mut text = match whole {
        0 => format!("In {active} of activity the run completed no iteration"),
        _ => format!(
            "In {active} of activity the run completed {}",
            count(whole, "iteration", "iterations")
        ),
    };
    match failed {
        0 => {}
        _ if failed == whole && whole == 1 => text.push_str(", which failed"),
        _ if failed == whole => text.push_str(", all of which failed"),
        _ => text.push_str(&format!(", of which {} failed", number(failed as u64))),
    }
    if unfinished > 0 {
        let were = if unfinished == 1 { "was" } else { "were" };
        text.push_str(&format!(
            "; {} {were} left unfinished",
            count(unfinished, "attempt", "attempts")
        ));
    }
    if gone > 0 {
        let were = if gone == 1 { "was" } else { "were" };
        text.push_str(&format!(
            "; {} {were} discarded when the run went back to an earlier iteration",
            count(gone, "attempt", "attempts")
        ));
    }
    let processes = timeline.processes.len();
    let died = timeline
        .processes
        .iter()
        .filter(|it| it.end == ProcessEnd::Died)
        .count();
    if processes > 1 || died > 0 {
        let had = format!(
            "; {} worked on it",
            count(processes, "process", "processes")
        );
        let died = match died {
            0 => String::new(),
            1 if processes == 1 => ", and died".to_owned(),
            died => format!(", of which {} died", number(died as u64)),
        };
        text.push_str(&(had + &died));
    }
    let (cost, tokens) = (m.usage.cost_microusd, m.usage.tokens());
    let limit = |max: Option<String>| {
        max.map_or_else(String::new, |max| format!(" out of the {max} allowed"))
    };
    text.push_str(&match (cost, tokens) {
        (0, 0) => "; its agent reported no usage".to_owned(),
        (0, _) => format!(
            "; it used {} tokens{}",
            number(tokens),
            limit(m.rules.limits.max_tokens.map(number))
        ),
        _ => format!(
            "; it cost {}{}",
            dollars(cost),
            limit(m.rules.limits.max_cost_microusd.map(dollars))
        ),
    });
    Sentence::default().text(text + ".")
}

fn ended(report: &ReportData) -> Sentence {
    let timeline = &report.timeline;
    let head = &timeline.head;
    let (run, m) = (&head.run, &head.machine);
    let resume = |sentence: Sentence, command: String| {
        let point = m.resume_point();
        let at = point.iteration;
        let again = if point.is_unfinished { " again" } else { "" };
        sentence
            .text("; the state is saved, and ")
            .code(command)
            .text(format!(" continues with iteration {at}{again}"))
    };
    let start = Sentence::default();
    let sentence = match (&m.end, timeline.state) {
        (_, RunState::Transferred) => {
            let sentence = start.text("The run was transferred and continues elsewhere");
            match &head.transfer {
                Some(moved) => sentence.text(" (").time(moved.at).text(")"),
                None => sentence,
            }
        }
        (_, RunState::Running | RunState::Paused) => state_sentence(timeline),
        (None, RunState::Stopped) => {
            let died = start
                .text("Its process died during a stop, after ")
                .time(m.last_at);
            resume(died, format!("rlm resume {run}"))
        }
        (None, _) => {
            let died =
                start.text("Its process died before the run ended; the last recorded time is ");
            resume(died.time(m.last_at), format!("rlm resume {run}"))
        }
        (Some(end), _) => {
            let sentence = reason(start, report, &end.reason)
                .text(" (")
                .time(end.at)
                .text(")");
            match &report.wording.resume {
                Some(command) => resume(sentence, command.clone()),
                None => sentence,
            }
        }
    };
    let sentence = match &report.remaining_processes[..] {
        [] => sentence,
        left => {
            let left: Vec<String> = left.iter().map(ToString::to_string).collect();
            sentence.text("; still alive: ").code(left.join(", "))
        }
    };
    sentence.text(".")
}

fn reason(start: Sentence, report: &ReportData, reason: &StopReason) -> Sentence {
    let head = &report.timeline.head;
    let phase = &head.settings.phases[head.machine.phase as usize];
    let check = phase.check.as_deref();
    match reason {
        StopReason::Done(Evidence::Check) => match check {
            Some(check) => start
                .text("The run is done: the loop ran ")
                .code(check)
                .text(", and it passed"),
            None => start.text("The run is done: the loop ran the check, and it passed"),
        },
        StopReason::Done(_) => start
            .text("The run is done, as its agent promised; there was no check to confirm it"),
        StopReason::AlreadyDone => {
            let start = start.text("There was nothing to do: before the first iteration the loop ran ");
            match check {
                Some(check) => start.code(check),
                None => start.text("the check"),
            }
            .text(", and it passed")
        }
        StopReason::FirstCheckNotRun { .. } => start
            .text("No iteration ran: ")
            .text(one_line(reason.to_string().trim_start_matches("failed: "))),
        StopReason::AllIterationsRan => start.text(
            "All planned iterations ran; there was no check, so there is no evidence that the work is done",
        ),
        StopReason::Failed(why) => start.text("The run could not continue: ").text(one_line(why)),
        StopReason::LastIterationFailed { iteration: last, why } => start
            .text(format!("All planned iterations ran, and the last one, iteration {last}, failed: "))
            .text(one_line(why)),
        StopReason::IterationLimit(limit) => {
            let sentence = start.text(format!("The run is not done: it reached its limit of {limit} iterations, and "));
            match check {
                Some(check) => sentence.code(check).text(" has not passed"),
                None => sentence.text("its agent has not made the completion promise"),
            }
        }
        StopReason::TimeLimit(limit) => start.text(format!(
            "The run is not done: it reached its time limit of {}",
            format_duration(*limit)
        )),
        StopReason::BudgetSpent(SpentBudget::Cost { limit, used }) => start.text(format!(
            "The run is not done: its budget is used up, {} of {}",
            dollars(*used),
            dollars(*limit)
        )),
        StopReason::BudgetSpent(SpentBudget::Tokens { limit, used }) => start.text(format!(
            "The run is not done: its budget is used up, {} of {} tokens",
            number(*used),
            number(*limit)
        )),
        StopReason::RateLimit { until, cap } => start
            .text("The run is not done: the service of its agent refuses requests until ")
            .time(*until)
            .text(match cap.is_zero() {
                true => ", and the run doesn’t wait".to_owned(),
                false => format!(", and the run waits at most {}", format_duration(*cap)),
            }),
        StopReason::InUse(what) => start
            .text("The run could not continue because another process uses what it needs: ")
            .text(one_line(what)),
        StopReason::Stuck { streak, count: times } => {
            start.text(format!("The run gave up: {}", streak.counted(*times)))
        }
        StopReason::Stopped(StopCause::Person) => start.text("A person stopped the run"),
        StopReason::Stopped(cause) => start.text(format!("The run was stopped {cause}")),
        other => start.text(format!("The run ended: {}", one_line(&other.to_string()))),
    }
}

/// Returns a sentence about the current state of a live run.
fn state_sentence(timeline: &Timeline) -> Sentence {
    let head = &timeline.head;
    let (run, m) = (&head.run, &head.machine);
    let at_work = Sentence::default().text("The run is live: ");
    let waits = |sentence: Sentence| {
        sentence
            .text("; ")
            .code(format!("rlm resume {run}"))
            .text(" continues it")
    };
    match &m.step {
        IterationStep::Turn { since } => at_work
            .text(format!(
                "its agent has worked on iteration {}, attempt {} since ",
                m.iteration, m.attempt
            ))
            .time(*since),
        IterationStep::Interrupted { since } => waits(
            at_work
                .text("a person interrupted its agent, and the session has been open since ")
                .time(*since),
        ),
        IterationStep::Paused { since } => {
            waits(at_work.text("it has been paused since ").time(*since))
        }
        IterationStep::Review { since, point: of } => waits(
            at_work
                .text(format!(
                    "it has been waiting for a review of the {of} since "
                ))
                .time(*since),
        ),
        IterationStep::Sleeping { until } => at_work
            .text(format!("iteration {} begins at ", m.iteration + 1))
            .time(*until),
        IterationStep::Waiting { until, why, .. } => at_work
            .text(match why {
                WaitCause::RateLimit => "it waits for the end of a rate limit, until ",
                _ => "it retries at ",
            })
            .time(*until),
        _ => at_work
            .text(format!(
                "the checks of iteration {} are running, as of ",
                m.iteration
            ))
            .time(m.last_at),
    }
}

/// Returns a text as one line of limited length.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().take(80).collect();
    let line = words.join(" ");
    match line.char_indices().nth(300) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
