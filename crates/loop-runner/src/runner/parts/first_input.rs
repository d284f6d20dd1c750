//! The beginning of a run and of a resume: the first machine input, the prompts, and the source of configuration changes.

use std::fmt;
use std::path::Path;

use loop_state::{Head, MachineInput, ResumeOptions, RuleChange};
use rlm_store::journal::Journal;
use rlm_store::sessions::SavedSession;
use rlm_store::{
    MAX_PROMPT, PhaseSettings, Project, PromptSource, RunHead, RunId, Settings, data_loss,
    sessions, transcript,
};
use uuid::Uuid;

use crate::Error;

/// Returns the first machine input of a resumed run. The new settings, if any, replace the saved ones.
pub(crate) fn first(
    project: &Project,
    saved: &mut RunHead,
    settings: Option<Settings>,
    from: Option<u32>,
    attended: bool,
) -> Result<MachineInput, Error> {
    let (mut rules, mut predecessor) = (None, None);
    if let Some(settings) = settings {
        predecessor = previous_agent(saved, &settings);
        settings.check_rules()?;
        let names = |settings: &Settings| -> Vec<_> {
            let phases = settings.phases.iter();
            phases
                .map(|it| (it.name.clone(), it.prompt.clone()))
                .collect()
        };
        if names(&settings) != names(&saved.settings) {
            settings.validate()?;
        }
        rules = Some(settings.rules());
        saved.settings = settings;
    }
    let run_dir = project.run_dir(&saved.run);
    let session = saved_session(&run_dir, saved);
    let first = saved.machine.first_input(ResumeOptions {
        rules,
        from_iteration: from,
        highest_used_attempt: transcript::unknown(&run_dir, &saved.machine)
            .iter()
            .map(|(_, attempt)| *attempt)
            .max(),
        last_begun_iteration: data_loss::last_transcript_beyond(&run_dir, &saved.machine),
        previous_agent: predecessor,
        session_position: session.as_ref().map(|session| session.position),
        session_steers: session.map_or_else(Vec::new, |it| steers_in(&it, &saved.machine)),
        attended,
        feedback: None,
        taken_over: false,
    });
    if first == MachineInput::Started {
        saved.machine = Head::new(saved.settings.rules()).map_err(rlm_store::Error::rules)?;
    }
    Ok(first)
}

/// Reads the session of the run, if the agent of the current phase keeps it in the directory of the run.
fn saved_session(run_dir: &Path, saved: &RunHead) -> Option<SavedSession> {
    let phase = saved.settings.phases.get(saved.machine.phase as usize)?;
    let id = saved.machine.session.as_ref()?;
    let is_kept = phase.agent.has_durable_sessions();
    is_kept.then(|| sessions::read(run_dir, id))?
}

/// Returns the id of the input with a steer.
pub(crate) fn steer_input(id: u32) -> String {
    format!("steer-{id}")
}

/// Returns the steers that a session has, and that count as unread.
pub(crate) fn steers_in(session: &SavedSession, head: &Head) -> Vec<u32> {
    let unseen = head.unseen_steers().map(|steer| steer.id);
    unseen
        .filter(|id| session.inputs.contains(&steer_input(*id)))
        .collect()
}

/// Adds a person's message to the first input of a resumed run.
pub(crate) fn with_feedback(
    first: &mut MachineInput,
    head: &Head,
    text: String,
) -> Result<(), Error> {
    let added = head.add_feedback(first, text);
    added.map_err(Error::feedback)
}

/// Returns the name of the current phase's agent, if `settings` give the phase another agent.
fn previous_agent(saved: &RunHead, settings: &Settings) -> Option<String> {
    let at = saved.machine.phase as usize;
    let before = &saved.settings.phases.get(at)?.agent;
    let other = !settings.phases.get(at)?.agent.is_same(before);
    other.then(|| before.name().to_owned())
}

/// Reads the prompts of a new run.
pub(crate) fn first_prompts(run: &RunId, settings: &Settings) -> Result<Vec<String>, Error> {
    let text = |phase: &PhaseSettings| match &phase.prompt {
        PromptSource::File(path) => rlm_store::read_prompt(path),
        PromptSource::Text(text) => Ok(text.clone()),
        PromptSource::Stored(_) => Err(rlm_store::Error::prompt_lost(run.clone())),
    };
    let texts: Result<Vec<_>, _> = settings.phases.iter().map(text).collect();
    Ok(texts?)
}

/// Stores a phase's prompt in the run, and returns the name of the stored blob.
pub(crate) async fn store_prompt(
    journal: &mut Journal,
    phase: &mut PhaseSettings,
    text: &str,
) -> Result<String, Error> {
    if text.len() as u64 > MAX_PROMPT {
        let problem = format!("has {} bytes; the limit is {MAX_PROMPT}", text.len());
        return Err(rlm_store::Error::prompt(Path::new("the prompt"), problem).into());
    }
    let blob = format!("prompt-{}", Uuid::new_v4().simple());
    journal.put_blob(&blob, text).await?;
    if let PromptSource::Text(_) = phase.prompt {
        phase.prompt = PromptSource::Stored(blob.clone());
    }
    Ok(blob)
}

/// Stores the prompt texts of new settings, so that each phase has a stored prompt.
pub(crate) async fn store_new_prompts(
    journal: &mut Journal,
    settings: &mut Settings,
    blobs: &mut Vec<String>,
) -> Result<(), Error> {
    blobs.resize(settings.phases.len(), String::new());
    for (phase, blob) in settings.phases.iter_mut().zip(blobs) {
        if let PromptSource::Text(text) = &phase.prompt {
            let text = text.clone();
            *blob = store_prompt(journal, phase, &text).await?;
        }
    }
    Ok(())
}

/// The changes in the configuration of a run since the last reload, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// The rules that changed, each with the index of its phase; rules of the run have index 0.
    pub changes: Vec<(usize, RuleChange)>,
    /// Warnings for people: settings that can't change during a run, or the reason why the configuration can't be read.
    pub warnings: Vec<String>,
}

/// A function that reads the configuration again, and returns its changes.
pub(crate) type ReloadFn = Box<dyn FnMut() -> Reloaded + Send>;

/// The source of configuration changes; none by default.
#[derive(Default)]
pub(crate) struct Reload(pub(crate) Option<ReloadFn>);

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reload").field(&self.0.is_some()).finish()
    }
}
