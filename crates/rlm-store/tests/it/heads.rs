//! Heads as they are on disk: a well-formed one whose parts don't fit each other is refused.

use agent_drivers::AgentConfig;
use checkpoint_store::{Options, Writer};
use loop_state::{Event, Head};
use rlm_store::{PhaseSettings, Project, PromptSource, RunHead, RunState, Settings};
use serde_json::{Value, json};

/// Returns a head of two phases that stands in the second one.
fn head() -> RunHead {
    let phase = |name: &str| {
        let agent = AgentConfig::command(vec!["agent".into()]);
        let mut phase = PhaseSettings::new(name, PromptSource::Kept("prompt-1".into()), agent);
        phase.until = Some("make test".into());
        phase
    };
    let settings = Settings::new("/srv/project", vec![phase("plan"), phase("build")]);
    let mut machine = Head::new(settings.rules()).unwrap();
    machine.phase = 1;
    RunHead::new("planted".parse().unwrap(), machine, settings)
}

/// Saves a head as any program can, and returns how the run is read.
fn planted(head: &Value) -> Result<RunHead, String> {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let run = "planted".parse().unwrap();
    let options = Options {
        schema: "rlm-run".into(),
        schema_version: 1,
        ..Options::default()
    };
    let (mut writer, _) = Writer::<Value, Event>::open(project.run_dir(&run), options).unwrap();
    writer.append(head, &[]).unwrap();
    drop(writer);
    let read = project.run(&run).unwrap();
    assert_eq!(read.head.is_err(), read.state == RunState::Damaged);
    read.head
}

#[test]
fn a_head_whose_parts_do_not_fit_each_other_is_refused() {
    let head = head();
    let sound = serde_json::to_value(&head).unwrap();
    assert_eq!(planted(&sound).unwrap(), head);
    let refused = |change: fn(&mut Value)| {
        let mut head = sound.clone();
        change(&mut head);
        let why = planted(&head).unwrap_err();
        let (_, why) = why.split_once("as the asked type: ").unwrap();
        let (why, _) = why.split_once("; load it as").unwrap();
        why.to_owned()
    };
    let all = [
        // Without the check, a reader takes the settings of the second phase, which are none.
        refused(|head| drop(head["settings"]["phases"].as_array_mut().unwrap().pop())),
        refused(|head| head["settings"]["phases"][1]["name"] = "other".into()),
        refused(|head| head["settings"]["phases"][1]["name"] = "plan".into()),
        refused(|head| head["settings"]["phases"] = json!([])),
        refused(|head| head["settings"]["phases"][0]["until"] = Value::Null),
        refused(|head| head["machine"]["phase"] = 2.into()),
        refused(|head| head["scope"] = "".into()),
        refused(|head| head["git_commit"] = "--upload-pack=x".into()),
        refused(|head| {
            head["committed"] = json!({"phase": 0, "iteration": 1, "attempt": 1, "commit": "HEAD"});
        }),
    ];
    insta::assert_snapshot!(all.join("\n"), @r"
    its phases are not those of its rules
    its phases are not those of its rules
    the settings make no run: `plan` can't be the name of a phase: another phase has it already
    the settings make no run: a run needs at least one phase
    the settings make no run: phase `plan` has no end: give it a check, a promise or a number of iterations
    the state is in a phase with index 2, which its rules don't have; take an earlier one
    its marker is none
    it names a commit that is none
    it names a commit that is none
    ");
}
