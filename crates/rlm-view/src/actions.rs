//! The requests of a person that a page sends to a run.

use std::time::Duration;

use loop_runner::control::{AskOutcome, LiveRun, Response, ResponseLimits};
use loop_state::{PauseAfter, Request, ReviewDecision, StopTiming};
use rlm_store::Project;
use serde::Deserialize;

use crate::program::Program;
use crate::row::{RunRow, StepKind};

/// The time in which a run must respond. After that, the page shows only the effect.
const WAIT: Duration = Duration::from_secs(2);

/// The fields of a form.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ActionForm {
    pub(crate) csrf: String,
    pub(crate) action: String,
    pub(crate) text: String,
    /// The id of a permission request.
    pub(crate) id: String,
    /// The name of a limit, and its new value.
    pub(crate) key: String,
    pub(crate) value: String,
    /// The iteration after which a fork continues.
    pub(crate) at: String,
    /// Whether the person confirmed the action.
    pub(crate) confirmed: String,
}

impl ActionForm {
    /// Returns the fields that a person filled in, for the question before the action.
    pub(crate) fn fields(&self) -> [(&'static str, &str); 5] {
        [
            ("text", &self.text),
            ("id", &self.id),
            ("key", &self.key),
            ("value", &self.value),
            ("at", &self.at),
        ]
    }
}

/// The result of an action, with a text for the person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ActionResult {
    Done(String),
    /// The person must confirm it first: work may be lost.
    Confirm(String),
    Rejected(String),
}

/// The effect of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Effect {
    Live(Request),
    /// A command of the program, with the words after its name.
    Command(Vec<String>),
}

/// Parses a form; the error is a text for the person. `limits` are the names of the limits.
fn parse(form: &ActionForm, run: &str, limits: &[&str]) -> Result<Effect, &'static str> {
    let command = |words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned());
        Ok(Effect::Command(words.collect()))
    };
    let limit = || match limits.contains(&form.key.as_str()) {
        false => Err("there is no such limit; load the page again"),
        true if form.value.trim().is_empty() => Err("the value of the limit is empty"),
        true => Ok((form.key.as_str(), form.value.trim())),
    };
    let text = || form.text.trim_end().replace("\r\n", "\n");
    let needs_text = |request: &dyn Fn(String) -> Request| match form.text.trim().is_empty() {
        true => Err("the message is empty"),
        false => Ok(Effect::Live(request(text()))),
    };
    let answer = |allow| {
        Ok(Effect::Live(Request::Answer {
            permission_request: form.id.clone(),
            allow,
            message: if allow { String::new() } else { text() },
        }))
    };
    let live = |request| Ok(Effect::Live(request));
    match form.action.as_str() {
        "steer" => needs_text(&|text| Request::Steer { text, now: false }),
        "steer-now" => needs_text(&|text| Request::Steer { text, now: true }),
        "revise" => needs_text(&|text| Request::Review(ReviewDecision::Revise(text))),
        "approve" => live(Request::Review(ReviewDecision::Continue)),
        "interrupt" => live(Request::Interrupt),
        "pause" => live(Request::Pause {
            reason: None,
            after: PauseAfter::Iteration,
        }),
        "continue" => live(Request::Continue),
        "skip" => live(Request::Skip),
        "stop" => live(Request::Stop {
            when: StopTiming::Now,
        }),
        "stop-after" => live(Request::Stop {
            when: StopTiming::AfterIteration,
        }),
        "allow" => answer(true),
        "deny" => answer(false),
        "resume" => command(&["resume", run, "--detach"]),
        "set" => {
            let (key, value) = limit()?;
            command(&["set", run, &format!("{key}={value}")])
        }
        "resume-with" => {
            let (key, value) = limit()?;
            command(&["resume", run, "--detach", &format!("--{key}={value}")])
        }
        "fork" => match form.at.trim().parse::<u32>() {
            Ok(at @ 1..) => command(&["checkpoints", "fork", run, "--at", &at.to_string()]),
            _ => Err("the number of the iteration is missing"),
        },
        _ => Err("the page doesn't know this action; load it again"),
    }
}

/// Returns the question before an action that may lose work.
fn question(effect: &Effect, form: &ActionForm, row: &RunRow) -> Option<String> {
    match effect {
        // At a limit, the turn ends.
        Effect::Command(words) if words[0] == "set" && row.step == StepKind::Turn => Some(format!(
            "Set {} of {} to {}? If the turn has already reached this limit, it is interrupted.",
            form.key, row.run, form.value
        )),
        Effect::Live(Request::Stop {
            when: StopTiming::Now,
        }) => Some(format!(
            "Stop {}? Iteration {} is interrupted; a resume starts it again.",
            row.run, row.iteration
        )),
        _ => None,
    }
}

/// Carries out an action. Blocks for some seconds at most.
pub(crate) fn act(
    program: &dyn Program,
    project: &Project,
    row: &RunRow,
    form: &ActionForm,
) -> ActionResult {
    let effect = match parse(form, row.run.as_str(), &program.limits()) {
        Ok(effect) => effect,
        Err(why) => return ActionResult::Rejected(why.into()),
    };
    if let Some(question) = question(&effect, form, row).filter(|_| form.confirmed != "yes") {
        return ActionResult::Confirm(question);
    }
    match effect {
        Effect::Command(words) => {
            let result = program.run(project, &words);
            match (result.is_success, words[0].as_str()) {
                (false, _) => ActionResult::Rejected(result.output),
                (true, "resume") => ActionResult::Done("resumed".into()),
                (true, _) => ActionResult::Done(result.output),
            }
        }
        Effect::Live(request) => {
            let target = LiveRun::of(project.clone(), row.run.clone());
            let limits = ResponseLimits::new(WAIT);
            match target.ask(&request, limits, |_| ()) {
                Ok(outcome) => result(&outcome, row),
                Err(e) => ActionResult::Rejected(e.to_string()),
            }
        }
    }
}

/// Returns the text for the outcome of a request.
fn result(outcome: &AskOutcome, row: &RunRow) -> ActionResult {
    let done = |text: &str| ActionResult::Done(text.to_owned());
    let rejected = |text: String| ActionResult::Rejected(text);
    let run = &row.run;
    match outcome {
        AskOutcome::Final(response) | AskOutcome::TimedOut(Some(response)) => match response {
            Response::Applied => done("done"),
            Response::NextPrompt => done("saved; the agent gets it with its next prompt"),
            Response::Recorded { .. } => done("saved; it takes effect as soon as possible"),
            Response::Delivered => done("delivered to the agent"),
            Response::RunEnded(end) => ActionResult::Done(format!("the run ended: {}", end.reason)),
            Response::Rejected { reason } => rejected(format!("the run rejected it: {reason}")),
            Response::Refused { reason } => rejected(format!("the run refused it: {reason}")),
            Response::Unsupported { what } => rejected(format!("the run doesn't support {what}")),
            Response::Malformed { reason } => rejected(reason.clone()),
            Response::Busy => rejected("the run is busy with other requests; try again".into()),
            _ => rejected("the run sent an unexpected response".into()),
        },
        AskOutcome::TimedOut(None) => rejected(format!(
            "{run} has not responded yet; the request may still take effect"
        )),
        AskOutcome::NotLive => rejected(format!("{run} is not live")),
        _ => rejected(format!(
            "the process of {run} exited before it responded; a saved request applies after a resume"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_of_the_pages_is_known() {
        let mut found = Vec::new();
        for page in [include_str!("pages/run.rs"), include_str!("pages/inbox.rs")] {
            let starts = ["name=\"action\" value=\"", ".one(\"", ".limit(\""];
            let quoted = starts.iter().flat_map(|start| page.split(start).skip(1));
            for action in quoted.filter_map(|it| it.split('"').next()) {
                found.push(action);
                let form = ActionForm {
                    action: action.into(),
                    text: "x".into(),
                    key: "sleep".into(),
                    value: "5m".into(),
                    at: "3".into(),
                    ..ActionForm::default()
                };
                assert!(parse(&form, "r1", &["sleep"]).is_ok(), "{action}");
            }
        }
        for action in ["stop", "steer", "allow", "set", "resume-with", "fork"] {
            assert!(found.contains(&action), "{action}: {found:?}");
        }
        let form = ActionForm::default();
        assert!(parse(&form, "r1", &[]).is_err());
    }

    #[test]
    fn words_of_a_command_come_from_known_names_and_one_value() {
        let form = |action: &str, key: &str, value: &str, at: &str| ActionForm {
            action: action.into(),
            key: key.into(),
            value: value.into(),
            at: at.into(),
            ..ActionForm::default()
        };
        for (form, words) in [
            (
                form("set", "sleep", " 5m ", ""),
                vec!["set", "r1", "sleep=5m"],
            ),
            (
                form("resume-with", "sleep", "5m --force", ""),
                vec!["resume", "r1", "--detach", "--sleep=5m --force"],
            ),
            (
                form("fork", "", "", "3"),
                vec!["checkpoints", "fork", "r1", "--at", "3"],
            ),
        ] {
            let words = words.into_iter().map(str::to_owned).collect();
            assert_eq!(parse(&form, "r1", &["sleep"]), Ok(Effect::Command(words)));
        }
        for wrong in [
            form("set", "", "5m", ""),
            form("set", "until", "rm -r x", ""),
            form("set", "sleep", " ", ""),
            form("resume-with", "--force", "", ""),
            form("fork", "", "", "0"),
            form("fork", "", "", "3 --nested"),
        ] {
            assert!(parse(&wrong, "r1", &["sleep"]).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn empty_message_is_rejected_and_line_ends_are_plain() {
        let form = |text: &str| ActionForm {
            action: "steer".into(),
            text: text.into(),
            ..ActionForm::default()
        };
        assert!(parse(&form(" \r\n"), "r1", &[]).is_err());
        let steer = parse(&form("a\r\nb\r\n"), "r1", &[]).unwrap();
        let text = "a\nb".into();
        assert_eq!(steer, Effect::Live(Request::Steer { text, now: false }));
    }
}
