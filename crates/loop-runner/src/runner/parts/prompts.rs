//! The texts of the phases' prompts, read and kept with the run.

use std::path::Path;

use rlm_store::journal::Journal;
use rlm_store::prompt_file::MAX_PROMPT;
use rlm_store::{PhaseSettings, PromptSource, RunId, Settings, prompt_file};
use uuid::Uuid;

use crate::Error;

/// Reads the prompts of a new run.
pub(crate) fn first(run: &RunId, settings: &Settings) -> Result<Vec<String>, Error> {
    let text = |phase: &PhaseSettings| match &phase.prompt {
        PromptSource::File(path) => prompt_file::read(path),
        PromptSource::Text(text) => Ok(text.clone()),
        PromptSource::Kept(_) => Err(rlm_store::Error::prompt_lost(run.clone())),
    };
    let texts: Result<Vec<_>, _> = settings.phases.iter().map(text).collect();
    Ok(texts?)
}

/// Keeps a phase's prompt with the run, and returns under which name.
pub(crate) async fn keep(
    journal: &mut Journal,
    phase: &mut PhaseSettings,
    text: &str,
) -> Result<String, Error> {
    if text.len() as u64 > MAX_PROMPT {
        let problem = format!("has {} bytes; at most {MAX_PROMPT} are taken", text.len());
        return Err(rlm_store::Error::prompt(Path::new("the prompt"), problem).into());
    }
    let blob = format!("prompt-{}", Uuid::new_v4().simple());
    journal.put_blob(&blob, text).await?;
    if let PromptSource::Text(_) = phase.prompt {
        phase.prompt = PromptSource::Kept(blob.clone());
    }
    Ok(blob)
}

/// Keeps the texts that settings bring along which replace those of a run, and has a blob for each phase.
pub(crate) async fn keep_new(
    journal: &mut Journal,
    settings: &mut Settings,
    blobs: &mut Vec<String>,
) -> Result<(), Error> {
    blobs.resize(settings.phases.len(), String::new());
    for (phase, blob) in settings.phases.iter_mut().zip(blobs) {
        if let PromptSource::Text(text) = &phase.prompt {
            let text = text.clone();
            *blob = keep(journal, phase, &text).await?;
        }
    }
    Ok(())
}
