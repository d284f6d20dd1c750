//! Tests of pages for runs of the real state machine: their texts and their size, and that hostile text adds no markup.

mod parsed_page;

use std::collections::BTreeMap;
use std::time::Duration;

use checkpoint_store::{Options, Writer};
use jiff::tz::{TimeZone, offset};
use loop_state::{
    Autonomy, CheckResult, Effect, Head, Machine, MachineInput, PauseAfter, PhaseRules,
    ProcessTreeOutcome, Request, ResumeOptions, ReviewDecision, Rules, RunLimits, StopCause,
    StopRequest, StopTiming, TimedInput, Timestamp, TurnOutcome, UsageTotal,
};
use maud::{PreEscaped, html};
use proptest::prelude::*;
use rlm_store::{
    AttemptOutcome, PhaseSettings, Project, PromptSource, Record, RunHead, RunId, Settings,
};
use serde_json::json;

use parsed_page::{expect_harmless, parse};

use crate::report::{CommandLineTerms, ReportData};
use crate::transcript::{AttemptDetail, Transcript};
use crate::visible::{pre, visible};
use crate::words::Clock;
use crate::{figures, page, summary};

/// Text that tries to act as markup or as control sequences.
const HOSTILE: &str = "</script></pre><img src=x onerror=alert(1)><style>*{display:none}</style>{{7*7}}\u{202e}gnp.exe\u{0}\u{1b}]0;x\u{7}\u{1b}[31mred\u{1b}[0m\r\n\u{85}\"'><a href=\"https://example.invalid\">&amp;";

/// The task and the rules of a run.
struct TestTask {
    rules: Rules,
    until: Option<&'static str>,
    promise: Option<&'static str>,
    prompt: &'static str,
    /// The names of the phases, which have the same settings.
    phases: &'static [&'static str],
}

impl Default for TestTask {
    fn default() -> Self {
        Self {
            rules: Rules {
                autonomy: Autonomy::Checkpoint,
                limits: RunLimits {
                    sleep: Duration::ZERO,
                    ..RunLimits::default()
                },
                ..Rules::default()
            },
            until: Some("cargo test"),
            promise: None,
            prompt: "# Make the parser accept nested lists.\n\nWork in small steps.",
            phases: &["main"],
        }
    }
}

/// Returns the report of a run with these inputs, one minute apart, read from its store.
fn report(
    asked: &TestTask,
    inputs: impl IntoIterator<Item = MachineInput>,
    is_live: bool,
) -> ReportData {
    let mut phase = PhaseRules {
        required_checks: 1,
        has_check: asked.until.is_some(),
        has_promise: asked.promise.is_some(),
        reports_cost: true,
        reports_tokens: true,
        ..PhaseRules::default()
    };
    phase.limits.max_iterations = Some(3);
    if let Some(first) = asked.rules.phases.first() {
        phase.limits.clone_from(&first.limits);
    }
    let named = asked.phases.iter().map(|name| PhaseRules {
        name: (*name).into(),
        ..phase.clone()
    });
    let rules = Rules {
        phases: named.collect(),
        ..asked.rules.clone()
    };
    let mut machine = Machine::from(Head::new(rules).unwrap());
    let mut events = Vec::new();
    let mut at = 1_795_000_000_000;
    let first = [MachineInput::Started, MachineInput::Attended(true)];
    for what in first.into_iter().chain(inputs) {
        let mut due = vec![what];
        while let Some(what) = due.pop() {
            let event = TimedInput {
                at: Timestamp::from_millis(at),
                what,
            };
            at += 1;
            events.push(event.clone());
            for effect in machine.step(event) {
                if effect == Effect::EndLeftovers {
                    due.push(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
                }
            }
            due.extend(machine.due_input(Timestamp::from_millis(at)));
        }
        at += 60_000;
    }
    let settings = asked.phases.iter().map(|name| {
        let agent = json!({"options": "command", "program": ["my-agent"]});
        let agent = serde_json::from_value(agent).unwrap();
        let prompt = PromptSource::Text(asked.prompt.into());
        let mut settings = PhaseSettings::new(*name, prompt, agent);
        settings.required_checks = vec!["cargo fmt --check".into()];
        settings.check = asked.until.map(Into::into);
        settings.promise = asked.promise.map(Into::into);
        settings.limits.clone_from(&phase.limits);
        settings
    });
    let settings = Settings::new("/srv/project", settings.collect());
    let run: RunId = "night".parse().unwrap();
    let head = RunHead::new(run.clone(), machine.head().clone(), settings);
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let options = Options {
        schema: "rlm-run".into(),
        ..Options::default()
    };
    let (mut writer, _) =
        Writer::<RunHead, TimedInput>::open(project.run_dir(&run), options).unwrap();
    writer.append(&head, &events).unwrap();
    let writer = Some(writer).filter(|_| is_live);
    let timeline = project.timeline(&run).unwrap();
    drop(writer);
    assert!(timeline.unknown.is_empty(), "{:?}", timeline.unknown);
    let resume = timeline.head.machine.end.as_ref();
    let resume = resume.filter(|end| !end.reason.is_final());
    ReportData {
        wording: CommandLineTerms {
            version: "1.2.3",
            agents: vec!["my-agent".into()],
            permissions: vec!["may do what its own flags allow"],
            resume: resume.map(|_| "rlm resume night".into()),
            exit_code: Some(7),
        },
        removed: None,
        timeline,
        prompts: vec![asked.prompt.into()],
        details: BTreeMap::new(),
        remaining_processes: Vec::new(),
        zone: TimeZone::fixed(offset(1)),
    }
}

fn summary_of(
    asked: &TestTask,
    inputs: impl IntoIterator<Item = MachineInput>,
    is_live: bool,
) -> String {
    let report = report(asked, inputs, is_live);
    let clock = Clock::new(
        report.zone.clone(),
        Timestamp::from_millis(0),
        Timestamp::from_millis(0),
    );
    let sentences = summary::sentences(&report);
    sentences.map(|sentence| sentence.plain(&clock)).join("\n")
}

fn ended(outcome: TurnOutcome) -> MachineInput {
    MachineInput::TurnEnded(outcome)
}

fn went_well() -> [MachineInput; 3] {
    let usage = UsageTotal {
        cost_microusd: 400_000,
        input_tokens: 12_000,
        output_tokens: 345,
    };
    let gate = MachineInput::RequiredCheckEnded(CheckResult::Passed);
    [
        MachineInput::UsageReported(usage),
        ended(TurnOutcome::Completed),
        gate,
    ]
}

fn check(passed: bool) -> MachineInput {
    MachineInput::CheckEnded(match passed {
        true => CheckResult::Passed,
        false => CheckResult::Failed("1 test failed".into()),
    })
}

fn stop(by: StopCause) -> MachineInput {
    let when = StopTiming::Now;
    MachineInput::StopRequested(StopRequest { by, when })
}

fn resume() -> MachineInput {
    MachineInput::Resumed(ResumeOptions::default())
}

fn iterations(n: usize) -> impl Iterator<Item = MachineInput> {
    (0..n).flat_map(|_| went_well().into_iter().chain([check(false)]))
}

#[test]
fn v17_figures_of_a_long_run_are_bounded_and_complete() {
    let mut timeline = report(&TestTask::default(), iterations(3), true).timeline;
    // The table also has a row with names, and one with sums.
    let few = figures(&timeline, TimeZone::UTC);
    assert_eq!(few.matches("<tr>").count(), 3 + 2, "{few}");
    assert!(few.contains("<title>Iteration 3: "), "{few}");
    let repeated = std::iter::repeat_n(timeline.attempts.clone(), 40_000);
    timeline.attempts = repeated.flatten().collect();
    // The attempts fill the time of the run, and their outcomes alternate.
    let (began, all) = (timeline.began(), timeline.attempts.len() as u64);
    let took = timeline.until().since(began).as_millis() as u64;
    for (at, attempt) in timeline.attempts.iter_mut().enumerate() {
        attempt.began = began + Duration::from_millis(at as u64 * took / all);
        attempt.ended = Some(attempt.began + Duration::from_millis(1));
        if at % 2 == 1 {
            attempt.outcome = AttemptOutcome::Failed("no".into());
        }
    }
    let many = figures(&timeline, TimeZone::UTC);
    assert_eq!(many.matches("<tr>").count(), 200 + 2);
    assert!(many.contains("(600 attempts): "), "{many}");
    assert!(many.len() < 300_000, "{}", many.len());
    // The sums have each attempt once.
    let sums = many.split("<tfoot>").nth(1).unwrap();
    let cost = 3 * 40_000 * 400_000_u64;
    assert!(sums.contains(&format!("<data value=\"{cost}\">")), "{sums}");
    let page =
        format!("<!doctype html><html><head><title>x</title></head><body>{many}</body></html>");
    parse(&page);
}

#[test]
fn v17_each_attempt_has_its_own_name_in_the_plots() {
    // The process died in the first iteration, so this iteration has two attempts.
    let inputs = || [resume()].into_iter().chain(iterations(2));
    let report = report(&TestTask::default(), inputs(), true);
    let names = |html: &str| {
        let (_, plot) = html.split_once("Time of each attempt").unwrap();
        let (plot, _) = plot.split_once("</svg>").unwrap();
        let titles = plot.split("<title>").skip(1);
        let name = |title: &str| title.split_once(':').unwrap().0.to_owned();
        titles.map(name).collect::<Vec<_>>()
    };
    let expected = ["Iteration 1", "Iteration 1, attempt 2", "Iteration 2"];
    let view = figures(&report.timeline, TimeZone::UTC);
    assert_eq!(names(&view), expected);
    assert_eq!(names(&page(&report)), expected);
    for name in expected {
        let row = format!("<th scope=\"row\">{name}</th>");
        assert_eq!(view.matches(&row).count(), 1, "{view}");
    }
}

#[test]
fn summary_has_three_sentences_for_every_end() {
    let usual = TestTask::default;
    let bounded = |change: fn(&mut Rules)| {
        let mut asked = TestTask::default();
        change(&mut asked.rules);
        asked
    };
    let claimed = TestTask {
        until: None,
        promise: Some("DONE"),
        ..usual()
    };
    let planned = TestTask {
        until: None,
        ..usual()
    };
    let died = || iterations(1).chain([resume(), resume()]);
    let failed = || MachineInput::TurnEnded(TurnOutcome::Failed("exit status 1".into()));
    let gate_failed = || MachineInput::RequiredCheckEnded(CheckResult::Failed("no".into()));
    let limited = ended(TurnOutcome::ServiceUnavailable {
        reset: Some(Timestamp::from_millis(1_795_500_000_000)),
        why: "come back later".into(),
    });
    let spent = || {
        let [used, ..] = went_well();
        [used, ended(TurnOutcome::Stopped)]
    };
    let survivor = agent_duplex::ProcessName {
        pid: 4711,
        name: "stubborn".into(),
    };
    let mut survived = report(
        &usual(),
        iterations(1).chain([stop(StopCause::Person), ended(TurnOutcome::Stopped)]),
        false,
    );
    survived.remaining_processes.push(survivor);
    let clock = Clock::new(
        survived.zone.clone(),
        Timestamp::from_millis(0),
        Timestamp::from_millis(0),
    );
    let survived = summary::sentences(&survived)
        .map(|it| it.plain(&clock))
        .join("\n");
    let all = [
        (
            "done",
            summary_of(
                &usual(),
                iterations(1).chain(went_well()).chain([check(true)]),
                false,
            ),
        ),
        (
            "completion promise",
            summary_of(
                &claimed,
                [
                    ended(TurnOutcome::PromiseMade),
                    MachineInput::RequiredCheckEnded(CheckResult::Passed),
                ],
                false,
            ),
        ),
        (
            "planned",
            summary_of(&planned, (0..3).flat_map(|_| went_well()), false),
        ),
        (
            "iteration limit",
            summary_of(&usual(), iterations(3), false),
        ),
        (
            "time limit",
            summary_of(
                &bounded(|rules| rules.limits.max_duration = Some(Duration::from_secs(90))),
                iterations(1),
                false,
            ),
        ),
        (
            "budget",
            summary_of(
                &bounded(|rules| rules.limits.max_cost_microusd = Some(500_000)),
                iterations(1).chain(spent()),
                false,
            ),
        ),
        (
            "tokens",
            summary_of(
                &bounded(|rules| rules.limits.max_tokens = Some(20_000)),
                iterations(1).chain(spent()),
                false,
            ),
        ),
        (
            "rate limit",
            summary_of(&usual(), iterations(1).chain([limited]), false),
        ),
        (
            "stuck",
            summary_of(
                &bounded(|rules| rules.limits.max_failures = 2),
                [failed(), gate_failed(), failed(), gate_failed()],
                false,
            ),
        ),
        (
            "not started",
            summary_of(
                &usual(),
                [ended(TurnOutcome::NotStarted("no such program".into()))],
                false,
            ),
        ),
        (
            "stopped",
            summary_of(
                &usual(),
                iterations(2).chain([stop(StopCause::Person), ended(TurnOutcome::Stopped)]),
                false,
            ),
        ),
        (
            "terminated",
            summary_of(
                &usual(),
                [stop(StopCause::Terminated), ended(TurnOutcome::Stopped)],
                false,
            ),
        ),
        ("died", summary_of(&usual(), iterations(1), false)),
        (
            "died during a stop",
            summary_of(&usual(), [stop(StopCause::Person)], false),
        ),
        ("died twice", summary_of(&usual(), died(), true)),
        ("at work", summary_of(&usual(), iterations(1), true)),
        (
            "paused",
            summary_of(
                &usual(),
                [MachineInput::Requested(Request::Pause {
                    reason: None,
                    after: PauseAfter::Iteration,
                })]
                .into_iter()
                .chain(iterations(1)),
                true,
            ),
        ),
        (
            "interrupted",
            summary_of(&usual(), [ended(TurnOutcome::Interrupted)], true),
        ),
        ("survivors", survived),
    ];
    let all: String = all
        .iter()
        .map(|(name, summary)| format!("# {name}\n{summary}\n\n"))
        .collect();
    insta::assert_snapshot!(all);
}

#[test]
fn any_text_leaves_the_page_valid() {
    let asked = TestTask {
        prompt: HOSTILE,
        promise: Some(HOSTILE),
        until: None,
        ..TestTask::default()
    };
    let failed = CheckResult::Failed(HOSTILE.into());
    let mut report = report(
        &asked,
        [
            MachineInput::Requested(Request::Steer {
                text: HOSTILE.into(),
                now: false,
            }),
            ended(TurnOutcome::Failed(HOSTILE.into())),
            MachineInput::RequiredCheckEnded(failed),
        ],
        false,
    );
    let mut transcript = Transcript::with_room(10_000);
    for kind in [
        "prompt", "stdout", "stderr", "message", "tool", "result", "text", HOSTILE,
    ] {
        transcript.take(&Record {
            at: Timestamp::from_millis(1),
            kind: kind.into(),
            text: HOSTILE.into(),
            omitted: 0,
        });
    }
    transcript.finish();
    let detail = AttemptDetail {
        transcript: Ok(transcript),
        stat: None,
    };
    report.details.insert(0, detail);
    let seen = expect_harmless(&page(&report));
    assert!(seen.text.contains("<img src=x onerror=alert(1)>"));
    assert!(
        seen.text
            .contains("\\u{202e}gnp.exe\u{2400}\u{241b}]0;x\u{2407}red"),
        "{}",
        seen.text
    );
    assert!(
        !seen
            .text
            .contains(['\u{202e}', '\u{1b}', '\0', '\r', '\u{85}'])
    );
}

#[test]
fn line_of_ten_megabytes_is_shortened() {
    let mut transcript = Transcript::with_room(20_000);
    for kind in ["prompt", "stdout", "stdout", "message"] {
        transcript.take(&Record {
            at: Timestamp::from_millis(1),
            kind: kind.into(),
            text: "<é>".repeat(2_500_000),
            omitted: 5,
        });
    }
    for n in 0..5000 {
        transcript.take(&Record {
            at: Timestamp::from_millis(2),
            kind: "stdout".into(),
            text: format!("line {n}"),
            omitted: 0,
        });
    }
    let mut report = report(&TestTask::default(), iterations(1), false);
    let detail = AttemptDetail {
        transcript: Ok(transcript),
        stat: None,
    };
    report.details.insert(0, detail);
    let page = page(&report);
    assert!(page.len() < 200_000, "{}", page.len());
    let seen = expect_harmless(&page);
    for said in [
        "left out …",
        "line 4999",
        "rlm logs night --iteration 1",
        "transcripts/1-1",
    ] {
        assert!(seen.text.contains(said), "{said}");
    }
    assert!(!seen.text.contains("line 2000\n"));
}

#[test]
fn page_of_ten_thousand_iterations_is_small_and_names_omissions() {
    let mut asked = TestTask::default();
    let mut phase = PhaseRules::default();
    phase.limits.max_iterations = Some(20_000);
    asked.rules.phases.push(phase);
    asked.rules.limits.max_failures = 0;
    let wrong = |n: usize| match n % 500 {
        7 => CheckResult::Failed("it broke\n".repeat(900)),
        _ => CheckResult::Passed,
    };
    let inputs = (0..10_000).flat_map(|n| {
        let gate = MachineInput::RequiredCheckEnded(wrong(n));
        let check = (n % 500 != 7).then(|| check(false));
        [ended(TurnOutcome::Completed), gate]
            .into_iter()
            .chain(check)
    });
    let report = report(&asked, inputs, false);
    assert_eq!(report.timeline.attempts.len(), 10_001);
    let page = page(&report);
    assert!(page.len() < 1_500_000, "{}", page.len());
    let seen = expect_harmless(&page);
    let rows = seen.elements.iter().filter(|(tag, _)| tag == "tr").count();
    assert!(rows < 500, "{rows}");
    assert!(
        seen.text
            .contains("60 of 10,001 attempts are shown in full")
    );
    assert!(seen.text.contains("it broke\nit broke"));
}

#[test]
fn json_has_every_part_of_the_timeline() {
    let what = went_well()
        .into_iter()
        .chain([check(false), stop(StopCause::Person)]);
    let report = report(&TestTask::default(), what, false);
    let json = crate::json(&report.timeline, Some(7));
    insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap());
}

/// Compares the whole page except its style, so that every change of a text is visible in a diff.
#[test]
fn a_page_has_these_parts() {
    let steer = |text: &str| {
        let text = text.to_owned();
        MachineInput::Requested(Request::Steer { text, now: false })
    };
    let failed = MachineInput::RequiredCheckEnded(CheckResult::Failed("2 files differ".into()));
    let what = iterations(1)
        .chain([
            steer("mind <b>the</b> docs"),
            ended(TurnOutcome::Completed),
            failed,
        ])
        .chain([
            resume(),
            stop(StopCause::Person),
            ended(TurnOutcome::Stopped),
        ]);
    let page = page(&report(&TestTask::default(), what, false));
    expect_harmless(&page);
    let page = page.replace(page::CSS, "…").replace("><", ">\n<");
    insta::assert_snapshot!(page);
}

#[test]
fn revised_phase_has_only_its_last_result() {
    let asked = TestTask {
        phases: &["plan", "build"],
        ..TestTask::default()
    };
    let finished = |result: &str| {
        let message = MachineInput::ResultReported(result.into());
        let gate = MachineInput::RequiredCheckEnded(CheckResult::Passed);
        [message, ended(TurnOutcome::Completed), gate, check(true)]
    };
    let review = |decision| MachineInput::Requested(Request::Review(decision));
    let revise = ReviewDecision::Revise("name the files".into());
    let what = finished("The plan is in PLAN.md.")
        .into_iter()
        .chain([review(revise)])
        .chain(finished("The plan is in PLAN.md."));
    let seen = expect_harmless(&page(&report(&asked, what, true)));
    let heading = "Result of phase plan, as its agent reported it";
    assert_eq!(seen.text.matches(heading).count(), 1, "{}", seen.text);
}

fn any_input() -> impl Strategy<Value = MachineInput> {
    let text = || "\\PC{0,12}|</?[a-z]{1,6}>";
    prop_oneof![
        6 => Just(ended(TurnOutcome::Completed)),
        1 => Just(ended(TurnOutcome::Stopped)),
        1 => Just(ended(TurnOutcome::Interrupted)),
        1 => Just(ended(TurnOutcome::SessionLost)),
        1 => text().prop_map(|why| ended(TurnOutcome::Failed(why))),
        1 => text().prop_map(|why| ended(TurnOutcome::Transient(why))),
        1 => text().prop_map(|why| ended(TurnOutcome::NotStarted(why))),
        1 => text().prop_map(|why| ended(TurnOutcome::ServiceUnavailable { reset: None, why })),
        4 => text().prop_map(|why| MachineInput::RequiredCheckEnded(CheckResult::Failed(why))),
        4 => Just(MachineInput::RequiredCheckEnded(CheckResult::Passed)),
        4 => any::<bool>().prop_map(check),
        1 => any::<u32>().prop_map(|n| MachineInput::UsageReported(UsageTotal { cost_microusd: n.into(), ..UsageTotal::default() })),
        2 => proptest::option::of(1..4u32).prop_map(|from| MachineInput::Resumed(ResumeOptions { from_iteration: from, ..ResumeOptions::default() })),
        1 => Just(stop(StopCause::Person)),
        2 => text().prop_map(|text| MachineInput::Requested(Request::Steer { text, now: false })),
        1 => Just(MachineInput::Requested(Request::Interrupt)),
        1 => Just(MachineInput::Requested(Request::Continue)),
        1 => Just(MachineInput::Requested(Request::Pause { reason: None, after: PauseAfter::Iteration })),
        1 => Just(MachineInput::PermissionDenied),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_timeline_makes_a_harmless_page_and_a_complete_object(inputs in proptest::collection::vec(any_input(), 0..40), is_live in any::<bool>()) {
        let report = report(&TestTask::default(), inputs, is_live);
        let seen = expect_harmless(&page(&report));
        prop_assert!(!seen.text.is_empty());
        let json = crate::json(&report.timeline, None);
        let count = |part: &str| json[part].as_array().map(Vec::len);
        let timeline = &report.timeline;
        prop_assert_eq!(count("attempts"), Some(timeline.attempts.len()));
        prop_assert_eq!(count("waits"), Some(timeline.waits.len()));
        prop_assert_eq!(count("processes"), Some(timeline.processes.len()));
        prop_assert_eq!(count("steers"), Some(timeline.steers.len()));
        prop_assert_eq!(count("events"), Some(timeline.events.len()));
        for moment in json["events"].as_array().unwrap() {
            prop_assert!(moment["what"].is_string() && !moment["detail"].is_object(), "{moment}");
        }
    }
}

#[test]
fn same_state_gives_the_same_page() {
    let made = || page(&report(&TestTask::default(), iterations(2), false));
    assert_eq!(made(), made());
}

proptest! {
    /// Text from elsewhere appears on the page in its visible form and adds no element.
    #[test]
    fn any_text_is_escaped(text in "(\\PC|[\u{0}-\u{1f}\u{7f}-\u{9f}<>&\"'\u{202e}\u{feff}\u{fffe}\u{e0041}]|</pre>|<!--|\\]\\]>|&#[0-9];){0,60}") {
        for tag in ["p", "pre", "td", "title", "summary", "code"] {
            let title = if tag == "title" { &text } else { "t" };
            let body = match tag {
                "p" => html! { p class=(text) { (text) } },
                "pre" => pre(&text),
                "td" => html! { table { tbody { tr { td { (text) } } } } },
                "summary" => html! { details { summary { (text) } } },
                "code" => html! { code class=(text) { (text) } },
                _ => html! {},
            };
            let page = html! {
                (PreEscaped("<!doctype html>"))
                html { head { title { (title) } } body { (body) } }
            };
            let seen = parse(&visible(&page.into_string()));
            let shown = visible(&text);
            let all = if tag == "title" { shown.clone() } else { format!("t{shown}") };
            prop_assert_eq!(seen.text.trim_start_matches('\n'), all.trim_start_matches('\n'));
            let class = seen.elements.iter().flat_map(|(_, it)| it).find(|(name, _)| name == "class");
            if let Some((_, class)) = class {
                prop_assert_eq!(class, &shown);
            }
            let extra = if tag == "td" { 8 } else if tag == "title" { 4 } else if tag == "summary" { 6 } else { 5 };
            prop_assert_eq!(seen.elements.len(), extra, "{:?}", seen.elements);
        }
    }
}
