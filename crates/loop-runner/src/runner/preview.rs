//! What a run would be, before there is one.

use loop_state::{Brief, Head};
use uuid::Uuid;

use super::Runner;
use crate::{Error, Project, PromptSource, RunHead, RunId, Settings, prompt, runs};

impl Runner {
    /// Returns the state that a new run would begin with, and for each of its phases what its first attempt would be told.
    ///
    /// Reads the prompt files and asks git, as [`create`](Self::create) does; makes, starts and locks nothing. A later phase is also told what came
    /// of the one before it, which is not there yet.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), but for what taking the working tree and saving come to.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future leaves nothing behind.
    pub async fn preview(
        project: &Project,
        run: RunId,
        settings: Settings,
        text: Option<String>,
    ) -> Result<(RunHead, Vec<String>), Error> {
        let machine = Head::new(settings.rules()).map_err(Error::rules)?;
        if runs::exists(project, &run) {
            return Err(Error::run_exists(run));
        }
        Self::refuse_unfit(project, &settings).await?;
        let mut prompts = Vec::new();
        for (index, phase) in (0..).zip(&settings.phases) {
            let text = match &phase.prompt {
                PromptSource::File(path) => prompt::read(path)?,
                PromptSource::Kept(_) => text.clone().unwrap_or_default(),
            };
            let brief = Brief {
                phase: index,
                iteration: 1,
                attempt: 1,
                cut: None,
                feedback: None,
                steers: Vec::new(),
                result: None,
                predecessor: None,
                session: None,
                prompted: false,
            };
            prompts.push(prompt::compose(&brief, phase, &text, None));
        }
        let head = RunHead {
            run,
            machine,
            settings,
            scope: Uuid::new_v4().simple().to_string(),
            prompt: None,
            git_commit: None,
            git_changed: None,
            committed: None,
            pause_reason: None,
        };
        Ok((head, prompts))
    }
}
