//! What a run would be, before there is one.

use loop_state::{Brief, Head};
use rlm_store::{Project, RunHead, RunId, Settings, runs};

use crate::runner::Runner;
use crate::runner::parts::prompts;
use crate::{Error, prompt};

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
    ) -> Result<(RunHead, Vec<String>), Error> {
        let machine = Head::new(settings.rules()).map_err(rlm_store::Error::rules)?;
        settings.check_names()?;
        if runs::exists(project, &run) {
            return Err(rlm_store::Error::run_exists(run).into());
        }
        Self::refuse_unfit(project, &settings).await?;
        let texts = prompts::first(&run, &settings)?;
        let mut told = Vec::new();
        for (phase, text) in settings.phases.iter().zip(texts) {
            let brief = Brief {
                phase: 0,
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
            told.push(prompt::compose(&brief, phase, None, &text, None));
        }
        Ok((RunHead::new(run, machine, settings), told))
    }
}
