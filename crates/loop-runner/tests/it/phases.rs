//! Several phases, one after the other, and a person's word between them.

use std::path::Path;

use agent_duplex::scripted::{Script, ScriptedDriver};
use agent_duplex::{Capabilities, EndReason};
use cancellable_sleep::SleepGate;
use loop_runner::{Control, News, Options, Outcome, Runner};
use loop_state::{Autonomy, Evidence, Notice, Occasion, Request, StopCause, StopReason, Verdict};
use rlm_store::{Project, RunHead, Settings, WorkTree};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// The agents of a pipeline's phases, each of which says what it came to.
pub(crate) struct Agents(Vec<(&'static str, ScriptedDriver)>);

impl Agents {
    pub(crate) fn new() -> Self {
        let agent = |name| {
            let says = format!("{name} came to 42\n");
            let script = Script::new().message().begin().say(&says);
            let script = script.end(EndReason::Completed);
            (
                name,
                ScriptedDriver::new(Capabilities::none()).repeats(script),
            )
        };
        Self(["plan", "build", "check"].map(agent).into())
    }

    /// Returns the prompts that the agent of a phase got.
    fn told(&self, phase: &str) -> Vec<String> {
        let mut agents = self.0.iter();
        agents
            .find(|(name, _)| *name == phase)
            .unwrap()
            .1
            .messages()
    }
}

fn settings(prompt: impl Fn(&str) -> Value) -> Settings {
    let time = |secs: u64| json!({"secs": secs, "nanos": 0});
    let phase = |name: &str, limit: u32| {
        json!({
            "name": name, "prompt": prompt(name), "agent": {"options": "command", "program": ["never"]},
            "check_timeout": time(9), "limits": {"max_iterations": limit},
        })
    };
    let phases = [phase("plan", 1), phase("build", 2), phase("check", 1)];
    let settings = json!({"directory": "/", "phases": phases, "max_failures": 3, "sleep": time(0)});
    serde_json::from_value(settings).unwrap()
}

pub(crate) fn texts() -> Settings {
    settings(|name| json!({"Text": format!("Do the {name}.")}))
}

/// Carries the run out, and gives an answer to each question that it asks.
pub(crate) async fn carry_out(
    dir: &Path,
    settings: Option<Settings>,
    interactive: bool,
    agents: &Agents,
    mut answers: Vec<Control>,
) -> (Outcome, RunHead, Vec<Notice>) {
    let project = Project::find(dir).unwrap();
    let run = "r1".parse().unwrap();
    let work_tree = WorkTree::take(&project, &run, &SleepGate::new())
        .await
        .unwrap();
    let options = Options {
        interactive,
        ..Options::new(SleepGate::new())
    };
    let (runner, mut news) = match settings {
        Some(settings) => Runner::create(work_tree, settings, options).await.unwrap(),
        None => Runner::open(work_tree, None, None, options).await.unwrap(),
    };
    let (control, wishes) = mpsc::channel(8);
    let drivers = agents.0.clone();
    let factory = Box::new(move |phase: &rlm_store::PhaseSettings, _| {
        let mut agents = drivers.iter();
        let (_, driver) = agents.find(|(name, _)| *name == phase.name).unwrap();
        Ok(Box::new(driver.clone()) as Box<dyn agent_duplex::Driver>)
    });
    let mut told = Vec::new();
    // A run may be a task of its own.
    let running = tokio::spawn(runner.run(factory, wishes));
    {
        answers.reverse();
        while let Some((_, news)) = news.recv().await {
            let News::Run(notice) = news else { continue };
            if let Notice::Review(_) = notice {
                control
                    .send(answers.pop().expect("an answer"))
                    .await
                    .unwrap();
            }
            told.push(notice);
        }
    }
    let outcome = running.await.unwrap();
    assert!(answers.is_empty(), "{answers:?}");
    let head = project.run(&run).unwrap().head.unwrap();
    (outcome.unwrap(), head, told)
}

fn reviews(told: &[Notice]) -> Vec<Occasion> {
    let of = |notice: &Notice| match notice {
        Notice::Review(of) => Some(*of),
        _ => None,
    };
    told.iter().filter_map(of).collect()
}

#[tokio::test]
async fn x119a_x119b_each_phase_has_its_agent_and_prompt_and_what_the_one_before_came_to() {
    let (dir, agents) = (tempfile::tempdir().unwrap(), Agents::new());
    let (outcome, head, told) = carry_out(dir.path(), Some(texts()), false, &agents, vec![]).await;
    assert_eq!(outcome.reason, StopReason::Planned);
    assert_eq!(reviews(&told), [], "nobody is there");
    assert_eq!(agents.told("plan"), ["Do the plan."]);
    let build = "Note from the loop: what phase `plan` came to, in the words of its agent:\nplan came to 42\n\nDo the build.";
    assert_eq!(agents.told("build"), [build, build]);
    let check = agents.told("check");
    assert!(
        check[0].contains("phase `build`") && !check[0].contains("plan came"),
        "{check:?}"
    );
    let finished = &head.machine.finished;
    let names: Vec<_> = finished.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["plan", "build", "check"]);
    assert_eq!(finished[2].result, None, "there is nobody to be told");
    let saved = Project::find(dir.path()).unwrap();
    let sealed = saved.checkpoints(&"r1".parse().unwrap()).unwrap().phases;
    let sealed: Vec<_> = sealed.iter().rev().map(|it| it.phase.as_str()).collect();
    assert_eq!(sealed, ["plan", "build", "check"]);
}

#[tokio::test]
async fn x120a_x120b_x120c_x120d_a_persons_word_on_a_phase_is_what_happens_next() {
    let (dir, agents) = (tempfile::tempdir().unwrap(), Agents::new());
    let steer = Request::Steer {
        text: "shorter".into(),
        now: false,
    };
    let answers = vec![
        steer.into(),
        Request::Review(Verdict::StartOver).into(),
        Request::Continue.into(),
        Request::Review(Verdict::Exit).into(),
    ];
    let (outcome, head, told) = carry_out(dir.path(), Some(texts()), true, &agents, answers).await;
    assert_eq!(outcome.reason, StopReason::Stopped(StopCause::Person));
    assert_eq!(reviews(&told), [Occasion::Phase; 4]);
    let plan = agents.told("plan");
    assert_eq!(plan.len(), 3);
    assert_eq!(
        plan[1],
        "Note from the person who runs the loop: shorter\n\nDo the plan."
    );
    assert_eq!(plan[2], "Do the plan.");
    assert_eq!(
        (agents.told("build").len(), agents.told("check").len()),
        (2, 0)
    );
    assert_eq!(head.machine.phase, 2, "what is over is over");
    let asked = Request::Review(Verdict::Continue).into();
    let (outcome, _, told) = carry_out(dir.path(), None, true, &agents, vec![asked]).await;
    assert_eq!(outcome.reason, StopReason::Planned);
    assert_eq!(reviews(&told), [Occasion::Phase], "the same question");
    assert_eq!(agents.told("check").len(), 1);
}

#[tokio::test]
async fn s23a_s23d_a_batch_is_not_a_phase_and_full_asks_nothing() {
    let go_on = |n| (0..n).map(|_| Request::Continue.into()).collect::<Vec<_>>();
    let (batch, full) = (Autonomy::Batch(2), Autonomy::Full);
    for (autonomy, asked) in [(batch, vec![Occasion::Batch]), (full, vec![])] {
        let (dir, agents) = (tempfile::tempdir().unwrap(), Agents::new());
        let mut settings = texts();
        settings.autonomy = Some(autonomy);
        let answers = go_on(asked.len());
        let (outcome, _, told) =
            carry_out(dir.path(), Some(settings), true, &agents, answers).await;
        assert_eq!(outcome.reason, StopReason::Planned);
        assert_eq!(reviews(&told), asked, "{autonomy}");
    }
}

#[tokio::test]
async fn s23c_s23e_a_review_ends_when_the_person_leaves() {
    let (dir, agents) = (tempfile::tempdir().unwrap(), Agents::new());
    let leaves = vec![Control::Attended(false)];
    let (outcome, _, told) = carry_out(dir.path(), Some(texts()), true, &agents, leaves).await;
    assert_eq!(outcome.reason, StopReason::Planned);
    assert_eq!(reviews(&told), [Occasion::Phase]);
}

#[tokio::test]
async fn x119c_a_resume_lands_in_its_phase_with_the_text_that_was_kept() {
    let (dir, agents) = (tempfile::tempdir().unwrap(), Agents::new());
    let file = |name: &str| dir.path().join(format!("{name}.md"));
    for name in ["plan", "build", "check"] {
        fs_err::write(file(name), format!("Do the {name}.")).unwrap();
    }
    let settings = settings(|name| json!({"File": file(name)}));
    let exit = vec![Request::Review(Verdict::Exit).into()];
    carry_out(dir.path(), Some(settings), true, &agents, exit).await;
    fs_err::remove_file(file("check")).unwrap();
    fs_err::write(file("build"), "Do the build well.").unwrap();
    let (outcome, head, _) = carry_out(dir.path(), None, false, &agents, vec![]).await;
    assert_eq!(outcome.reason, StopReason::Planned);
    assert_eq!(agents.told("plan").len(), 1);
    assert!(agents.told("build")[0].ends_with("\n\nDo the build well."));
    assert!(agents.told("check")[0].ends_with("\n\nDo the check."));
    assert_eq!(head.machine.finished[0].evidence, None::<Evidence>);
}

#[tokio::test]
async fn x117c_names_that_phases_can_not_have_are_refused() {
    for name in ["build", "../plan", ""] {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::find(dir.path()).unwrap();
        let mut settings = texts();
        settings.phases[0].name = name.into();
        let refused = settings.validate().unwrap_err();
        assert!(refused.is_usage(), "{refused}");
        let work_tree = WorkTree::take(&project, &"r1".parse().unwrap(), &SleepGate::new()).await;
        let made =
            Runner::create(work_tree.unwrap(), settings, Options::new(SleepGate::new())).await;
        assert_eq!(made.unwrap_err().to_string(), refused.to_string());
    }
}
