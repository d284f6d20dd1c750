//! The texts of the phases' prompts: read, kept with the run, and replaced by a person.

use std::path::Path;

use rlm_store::journal::Journal;
use rlm_store::prompt_file::MAX_PROMPT;
use rlm_store::{PhaseSettings, PromptSource, RunId, Settings, prompt_file};
use uuid::Uuid;

use crate::Error;
use crate::news::News;
use crate::runner::Runner;

/// Reads the prompts of a new run.
pub(super) fn first(run: &RunId, settings: &Settings) -> Result<Vec<String>, Error> {
    let text = |phase: &PhaseSettings| match &phase.prompt {
        PromptSource::File(path) => prompt_file::read(path),
        PromptSource::Text(text) => Ok(text.clone()),
        PromptSource::Kept(_) => Err(rlm_store::Error::prompt_lost(run.clone())),
    };
    let texts: Result<Vec<_>, _> = settings.phases.iter().map(text).collect();
    Ok(texts?)
}

/// Keeps a phase's prompt with the run, and returns under which name.
pub(super) async fn keep(
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
pub(super) async fn keep_new(
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

impl Runner {
    /// Returns the index of the present phase.
    pub(super) fn phase_index(&self) -> usize {
        self.machine.head().phase as usize
    }

    /// Reads the prompt file anew; the last text read stands in for a file that is gone.
    pub(super) async fn refresh_prompt(&mut self) -> Result<(), Error> {
        let PromptSource::File(path) = &self.phase().prompt else {
            return Ok(());
        };
        match prompt_file::read(path) {
            Ok(text) if text == self.prompts[self.phase_index()] => Ok(()),
            Ok(text) => self.keep_prompt(self.phase_index(), text).await,
            Err(e) => {
                self.tell(News::Warning(format!(
                    "{e}; going on with the text that was read last"
                )));
                Ok(())
            }
        }
    }

    /// Replaces the text of a phase's prompt that comes from no file.
    pub(super) async fn replace_prompt(
        &mut self,
        index: usize,
        text: String,
    ) -> Result<Result<(), &'static str>, Error> {
        let phase = self.saved.settings.phases.get(index);
        let is_kept = phase.is_some_and(|it| matches!(it.prompt, PromptSource::Kept(_)));
        if !is_kept || text.trim().is_empty() {
            return Ok(Err("the prompt comes from a file, or the new one is empty"));
        }
        self.keep_prompt(index, text).await.map(Ok)
    }

    /// Keeps a new text of a phase's prompt.
    async fn keep_prompt(&mut self, index: usize, text: String) -> Result<(), Error> {
        let phase = &mut self.saved.settings.phases[index];
        let is_kept = matches!(phase.prompt, PromptSource::Kept(_));
        let blob = keep(&mut self.journal, phase, &text).await?;
        if is_kept {
            phase.prompt = PromptSource::Kept(blob.clone());
        }
        self.saved.prompts[index] = blob;
        self.prompts[index] = text;
        self.journal.save(&self.saved).await?;
        self.heal().await
    }
}
