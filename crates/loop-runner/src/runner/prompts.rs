//! Prompts that change while the run goes on: in their files, or replaced by a person.

use rlm_store::{PromptSource, prompt_file};

use crate::Error;
use crate::news::News;
use crate::runner::Runner;
use crate::runner::parts::prompts::keep;

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
