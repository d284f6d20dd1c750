//! The changes from outside while the run goes on: prompts, the configuration, and the control socket by which they are requested.

use loop_state::Happening;
use rlm_store::{PromptSource, processes};
use tokio::sync::mpsc;

use crate::control::{Ended, Socket, Wish};
use crate::news::News;
use crate::runner::Runner;
use crate::runner::parts::beginning::{Reload, Reloaded, keep_prompt};
use crate::{Error, Outcome};

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
        match rlm_store::read_prompt(path) {
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
        let blob = keep_prompt(&mut self.journal, phase, &text).await?;
        if is_kept {
            phase.prompt = PromptSource::Kept(blob.clone());
        }
        self.saved.prompts[index] = blob;
        self.prompts[index] = text;
        self.journal.save(&self.saved).await?;
        self.heal().await
    }

    /// Has the configuration looked at whenever a turn is over, before it is judged, and whenever a wait is. Its changes are set as by
    /// [`Request::Set`](loop_state::Request::Set), also those of phases that are still to come, but none that raises a bound of the run: agents write files.
    /// It is called by the run itself, so it must not take long.
    #[must_use]
    pub fn with_reload(mut self, look: impl FnMut() -> Reloaded + Send + 'static) -> Self {
        self.reload = Reload(Some(Box::new(look)));
        self
    }

    /// Returns what the machine must know of a configuration that has changed.
    pub(super) fn reloaded(&mut self) -> Vec<Happening> {
        let Some(look) = &mut self.reload.0 else {
            return Vec::new();
        };
        let Reloaded { changes, warnings } = look();
        let changes = changes.into_iter();
        let changes = changes.map(|(phase, rule)| (u32::try_from(phase).unwrap_or(u32::MAX), rule));
        let (taken, refusals) = self.machine.reloaded(changes.collect());
        for warning in refusals.into_iter().chain(warnings) {
            self.tell(News::Warning(warning));
        }
        taken
    }

    /// Makes the control socket; without one the run can still be carried out.
    pub(super) fn open_socket(&mut self) -> mpsc::Receiver<Wish> {
        let run = self.saved.run.clone();
        let run_dir = self.work_tree.project().run_dir(&run);
        let (socket, wishes) = Socket::new(
            run,
            run_dir,
            &self.options,
            self.control.view.subscribe(),
            self.control.pulse.clone(),
            self.news.keep(),
        );
        self.control.socket = Some(socket);
        self.ensure_socket();
        wishes
    }

    /// Makes it again when somebody removed it.
    pub(super) fn ensure_socket(&mut self) {
        if let Some(Err(e)) = self.control.socket.as_mut().map(Socket::ensure) {
            self.tell(News::Warning(format!(
                "this run can't be controlled from another terminal: {e}"
            )));
        }
    }

    /// Reports a request that was refused to a process, also in the transcript of the attempt that runs.
    pub(super) fn tell_refused(&mut self, what: String) {
        let at = self.clock.now();
        self.write_transcript(|transcript| transcript.note(at, "note", &what));
        self.tell(News::Warning(what));
    }

    /// Tells those who wait for something that will not come any more how the run ended.
    pub(super) async fn close_socket(&mut self, result: &Result<Outcome, Error>) {
        let Some(socket) = self.control.socket.take() else {
            return;
        };
        let ended = Ended {
            reason: match result {
                Ok(outcome) => outcome.reason.to_string(),
                Err(e) => e.to_string(),
            },
            ended: self.ends.ended.len(),
            survivors: processes::told(&self.ends.survivors),
            proven: self.ends.proven,
        };
        socket.close(ended).await;
    }
}
