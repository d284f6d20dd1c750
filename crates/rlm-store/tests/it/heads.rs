//! Heads on disk: their keys, and the errors of inconsistent heads.

use agent_drivers::AgentConfig;
use checkpoint_store::{Options, Writer};
use loop_state::{Autonomy, Head, SessionPolicy, TimedInput, Timestamp};
use proptest::prelude::*;
use rlm_store::{
    Committed, DataLoss, Leftovers, PhaseSettings, Project, PromptSource, RunHead, RunState,
    Settings, Transfer, Uncommitted, Worktree,
};
use serde_json::{Value, json};

/// Returns a head of two phases that is in the second one.
fn head() -> RunHead {
    let phase = |name: &str| {
        let agent = AgentConfig::command(vec!["agent".into()]);
        let mut phase = PhaseSettings::new(name, PromptSource::Stored("prompt-1".into()), agent);
        phase.check = Some("make test".into());
        phase
    };
    let settings = Settings::new("/srv/project", vec![phase("plan"), phase("build")]);
    let mut machine = Head::new(settings.rules()).unwrap();
    machine.phase = 1;
    RunHead::new("planted".parse().unwrap(), machine, settings)
}

#[test]
fn items_of_an_earlier_iteration_are_gone() {
    let mut saved = head();
    let mut machine = saved.machine.clone();
    machine.iteration = 1;
    saved.advance(&machine);
    let set = saved.set_item(&machine, "page".into(), json!(7));
    set.unwrap();
    saved.advance(&machine);
    assert_eq!(saved.items().values()["page"], json!(7));
    machine.iteration = 2;
    saved.advance(&machine);
    assert!(saved.items().is_empty());
}

#[test]
fn saved_head_without_items_has_no_iteration_of_them() {
    let mut saved = serde_json::to_value(head()).unwrap();
    saved["items"] = json!({"phase": 0, "iteration": 1, "first_attempt": 1, "values": {}});
    let read: RunHead = serde_json::from_value(saved).unwrap();
    let again = serde_json::to_value(&read).unwrap();
    assert_eq!(serde_json::from_value::<RunHead>(again).unwrap(), read);
}

/// Returns a head with a value in every field, and with each kind of agent and of prompt.
fn full() -> RunHead {
    let agents = [
        json!({"options": "command", "program": ["agent"], "args": ["-v"], "model": "large"}),
        json!({"options": {"claude": {}}, "program": ["claude"]}),
        json!({"options": {"codex": {}}, "program": ["codex"]}),
        json!({"options": {"acp": {"preset": "gemini", "options": {}}}, "program": ["gemini"]}),
    ];
    let phase = |(index, agent): (usize, Value)| {
        let prompt = match index {
            0 => PromptSource::File("/srv/project/PROMPT.md".into()),
            1 => PromptSource::Text("Do the next step.".into()),
            _ => PromptSource::Stored(format!("prompt-{index}")),
        };
        let agent = serde_json::from_value(agent).unwrap();
        let mut phase = PhaseSettings::new(format!("phase-{index}"), prompt, agent);
        phase.check = Some("make test".into());
        phase
    };
    let mut phases: Vec<_> = agents.into_iter().enumerate().map(phase).collect();
    let claude = &mut phases[1];
    claude.mcp_servers = serde_json::from_value(json!({
        "docs": {"type": "http", "url": "http://localhost:8000/mcp", "headers": {"A": "b"}},
        "tracker": {"type": "stdio", "command": "tracker", "args": ["-v"], "env": {"A": "b"}},
    }))
    .unwrap();
    claude.session = SessionPolicy::Continue;
    claude.promise = Some("DONE".into());
    claude.required_checks = vec!["cargo fmt --check".into()];
    claude.limits = serde_json::from_value(json!({
        "max_iterations": 3, "iteration_timeout_ms": 1, "idle_timeout_ms": 2, "check_timeout_ms": 3,
    }))
    .unwrap();
    let mut settings = Settings::new("/srv/project", phases);
    settings.limits.max_duration = Some(std::time::Duration::from_millis(1500));
    settings.autonomy = Some(Autonomy::Batch(5));
    settings.commit = true;
    settings.leftovers = Leftovers::Retain;
    settings.max_transcripts = Some(1);
    settings.worktree = Some(Worktree {
        path: "/srv/project/.rlm/worktrees/planted".into(),
        branch: "rlm/planted".into(),
        base: "1".repeat(40),
    });
    let mut machine = Head::new(settings.rules()).unwrap();
    machine.counts.processes = 1;
    let mut head = RunHead::new("planted".parse().unwrap(), machine.clone(), settings);
    machine.rules.limits.max_failures = 7;
    // The head stores the rules that the run began with.
    head.advance(&machine);
    head.settings.apply_rules(&machine.rules);
    head.scope = "0123456789abcdef".repeat(2);
    head.prompts = vec!["prompt-0".into()];
    head.git_commit = Some("2".repeat(40));
    head.git_changed = Some(1);
    head.committed = Some(Committed {
        phase: 0,
        iteration: 2,
        attempt: 3,
        commit: "3".repeat(40),
    });
    head.uncommitted = Some(Uncommitted {
        iterations: 1,
        reason: "a hook refused".into(),
    });
    head.losses = vec![DataLoss {
        save: 4,
        damaged: vec!["a.ckj: cut".into()],
        set_aside: vec!["quarantine/a.ckj".into()],
        resumes_at: 2,
        last_transcript: Some(3),
        spans_phases: true,
    }];
    head.pause_reason = Some("lunch".into());
    head.transfer = Some(Transfer {
        at: Timestamp::from_millis(5),
        to: "planted.tar".into(),
    });
    head.transfers = 6;
    head.root = Some("/srv/project".into());
    let mut begun = machine.clone();
    begun.iteration = 1;
    { head.set_item(&begun, "a.txt".into(), json!(7)) }.unwrap();
    head
}

/// A new, changed or removed key or variant needs a decision: accept the snapshot, and check whether saved runs keep their meaning.
#[test]
fn a_saved_head_has_these_keys() {
    let mut saved = serde_json::to_value(full()).unwrap();
    // The snapshots of `loop-state` have the keys of these parts.
    for machine in ["/machine", "/origin/head"] {
        *saved.pointer_mut(machine).unwrap() = Value::Null;
    }
    insta::assert_snapshot!(serde_json::to_string_pretty(&saved).unwrap());
    assert_eq!(planted(&serde_json::to_value(full()).unwrap()), Ok(full()));
}

/// Lists the paths of all values of a document.
fn paths(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(key, it)| paths(it, &format!("{at}/{key}"), all)),
        Value::Array(list) => (list.iter().enumerate())
            .for_each(|(index, it)| paths(it, &format!("{at}/{index}"), all)),
        _ => {}
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<u32>().prop_map(Into::into),
        (0u32..4).prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        ".{0,40}".prop_map(Into::into),
        Just(json!([])),
        Just(json!({})),
    ]
}

proptest! {
    /// A head with any replaced values is an error, or is consistent and equal when it is saved again.
    #[test]
    fn a_changed_head_is_refused_or_valid(changes in proptest::collection::vec((any::<prop::sample::Index>(), any_value()), 0..4)) {
        let mut saved = serde_json::to_value(full()).unwrap();
        for (index, value) in changes {
            let mut all = Vec::new();
            paths(&saved, "", &mut all);
            let path: &String = index.get(&all);
            *saved.pointer_mut(path).unwrap() = value;
        }
        if let Ok(head) = serde_json::from_value::<RunHead>(saved) {
            prop_assert!(head.settings.phases.get(head.machine.phase as usize).is_some());
            prop_assert!(head.settings.check_rules().is_ok() && head.settings.check_names().is_ok());
            let again = serde_json::to_value(&head).unwrap();
            prop_assert_eq!(serde_json::from_value::<RunHead>(again).unwrap(), head);
        }
    }

    #[test]
    fn any_bytes_parse_as_a_valid_head_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _no_panic = serde_json::from_slice::<RunHead>(&bytes);
    }
}

/// Saves a head as any program can, and returns how the run is read.
fn planted(head: &Value) -> Result<RunHead, String> {
    planted_as(1, head)
}

fn planted_as(schema_version: u32, head: &Value) -> Result<RunHead, String> {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let run = "planted".parse().unwrap();
    let options = Options {
        schema: "rlm-run".into(),
        schema_version,
        ..Options::default()
    };
    let (mut writer, _) =
        Writer::<Value, TimedInput>::open(project.run_dir(&run), options).unwrap();
    writer.append(head, &[]).unwrap();
    drop(writer);
    let read = project.run(&run).unwrap();
    assert_eq!(read.head.is_err(), read.state == RunState::Damaged);
    read.head
}

#[test]
fn state_of_a_newer_version_names_the_fix() {
    let sound = serde_json::to_value(head()).unwrap();
    let why = planted_as(2, &sound).unwrap_err();
    let expected = "a newer version of rlm wrote its state; use that version, nothing is damaged (";
    assert!(why.starts_with(expected), "{why}");
    assert!(
        why.contains("version 2") && why.contains("up to 1"),
        "{why}"
    );
}

#[test]
fn inconsistent_head_is_refused() {
    let head = head();
    let sound = serde_json::to_value(&head).unwrap();
    assert_eq!(planted(&sound).unwrap(), head);
    let refused = |change: fn(&mut Value)| {
        let mut head = sound.clone();
        change(&mut head);
        let why = planted(&head).unwrap_err();
        let (_, why) = why.split_once("as the requested type: ").unwrap();
        let (why, _) = why.split_once("; load it as").unwrap();
        why.to_owned()
    };
    let all = [
        // Without the check, a reader would use the settings of the second phase, which don't exist.
        refused(|head| drop(head["settings"]["phases"].as_array_mut().unwrap().pop())),
        refused(|head| head["settings"]["phases"][1]["name"] = "other".into()),
        refused(|head| head["settings"]["phases"][1]["name"] = "plan".into()),
        refused(|head| head["settings"]["phases"] = json!([])),
        refused(|head| head["settings"]["phases"][0]["check"] = Value::Null),
        refused(|head| head["machine"]["phase"] = 2.into()),
        refused(|head| head["scope"] = "".into()),
        refused(|head| head["git_commit"] = "--upload-pack=x".into()),
        refused(|head| {
            head["committed"] = json!({"phase": 0, "iteration": 1, "attempt": 1, "commit": "HEAD"});
        }),
    ];
    insta::assert_snapshot!(all.join("\n"), @r"
    the phases of the settings and of the rules differ
    the phases of the settings and of the rules differ
    invalid settings: invalid phase name `plan`: another phase has it already
    invalid settings: the run needs at least one phase
    invalid settings: phase `plan` needs a stop condition: a check, a completion promise or a number of iterations
    the state is in phase 2, which its rules don't have; use an earlier state
    the marker is invalid
    a commit id is invalid
    a commit id is invalid
    ");
}
