//! Changes from outside during a run: the prompts, the configuration, and the control socket.

use loop_state::MachineInput;
use rlm_store::{PromptSource, processes};
use tokio::sync::mpsc;

use crate::control::{ControlSocket, EndReport, QueuedRequest};
use crate::run_event::RunEvent;
use crate::runner::Runner;
use crate::runner::parts::first_input::{Reload, Reloaded, store_prompt};
use crate::{Error, RunOutcome};

impl Runner {
    /// Returns the index of the current phase.
    pub(super) fn phase_index(&self) -> usize {
        self.machine.head().phase as usize
    }

    /// Reads the prompt file again; if the file is gone, the last text stays in use.
    pub(super) async fn refresh_prompt(&mut self) -> Result<(), Error> {
        let PromptSource::File(path) = &self.phase().prompt else {
            return Ok(());
        };
        match rlm_store::read_prompt(path) {
            Ok(text) if text == self.prompts[self.phase_index()] => Ok(()),
            Ok(text) => self.store_prompt(self.phase_index(), text).await,
            Err(e) => {
                self.emit(RunEvent::Warning(format!(
                    "{e}; continuing with the last text"
                )));
                Ok(())
            }
        }
    }

    /// Replaces the text of a phase's prompt, if that prompt does not come from a file.
    pub(super) async fn replace_prompt(
        &mut self,
        index: usize,
        text: String,
    ) -> Result<Result<(), &'static str>, Error> {
        let phase = self.saved.settings.phases.get(index);
        let is_stored = phase.is_some_and(|it| matches!(it.prompt, PromptSource::Stored(_)));
        if !is_stored || text.trim().is_empty() {
            return Ok(Err(
                "the prompt comes from a file, or the new text is empty",
            ));
        }
        self.store_prompt(index, text).await.map(Ok)
    }

    /// Stores a new text of a phase's prompt.
    async fn store_prompt(&mut self, index: usize, text: String) -> Result<(), Error> {
        let phase = &mut self.saved.settings.phases[index];
        let is_stored = matches!(phase.prompt, PromptSource::Stored(_));
        let blob = store_prompt(&mut self.journal, phase, &text).await?;
        if is_stored {
            phase.prompt = PromptSource::Stored(blob.clone());
        }
        self.saved.prompts[index] = blob;
        self.prompts[index] = text;
        self.save_now().await?;
        self.repair().await
    }

    /// Calls `reload` after each turn, before the checks, and after each wait. Applies its changes like [`Request::Set`](loop_state::Request::Set),
    /// also to later phases. Refuses a change that raises a limit of the run, because an agent can write to the configuration file. The loop of the
    /// run waits for `reload`, so it must return quickly.
    #[must_use]
    pub fn with_reload(mut self, reload: impl FnMut() -> Reloaded + Send + 'static) -> Self {
        self.reload = Reload(Some(Box::new(reload)));
        self
    }

    /// Returns the machine inputs for changes of the configuration.
    pub(super) fn reloaded(&mut self) -> Vec<MachineInput> {
        let Some(reload) = &mut self.reload.0 else {
            return Vec::new();
        };
        let Reloaded { changes, warnings } = reload();
        let changes = changes.into_iter();
        let changes = changes.map(|(phase, rule)| (u32::try_from(phase).unwrap_or(u32::MAX), rule));
        let (taken, refusals) = self.machine.reloaded(changes.collect());
        for warning in refusals.into_iter().chain(warnings) {
            self.emit(RunEvent::Warning(warning));
        }
        taken
    }

    /// Creates the control socket; if that fails, the run works without it.
    pub(super) fn open_socket(&mut self) -> mpsc::Receiver<QueuedRequest> {
        let run = self.saved.run.clone();
        let run_dir = self.work_tree.project().run_dir(&run);
        let (socket, requests) = ControlSocket::new(
            run,
            run_dir,
            &self.options,
            self.control.view.subscribe(),
            self.control.last_tick.clone(),
            self.events.keep(),
        );
        self.control.socket = Some(socket);
        self.restore_socket();
        requests
    }

    /// Creates the socket again if somebody removed it.
    pub(super) fn restore_socket(&mut self) {
        if let Some(Err(e)) = self.control.socket.as_mut().map(ControlSocket::ensure) {
            self.emit(RunEvent::Warning(format!(
                "other terminals can't control this run: {e}"
            )));
        }
    }

    /// Reports a refused request, also in the transcript of the running attempt.
    pub(super) fn report_refused(&mut self, what: String) {
        let at = self.clock.now();
        self.write_transcript(|transcript| transcript.note(at, "note", &what));
        self.emit(RunEvent::Warning(what));
    }

    /// Sends the end of the run to all waiting clients.
    pub(super) async fn close_socket(&mut self, result: &Result<RunOutcome, Error>) {
        let Some(socket) = self.control.socket.take() else {
            return;
        };
        let ended = EndReport {
            reason: match result {
                Ok(outcome) => outcome.reason.to_string(),
                Err(e) => e.to_string(),
            },
            ended_processes: self.ended_processes.ended.len(),
            survivors: processes::to_subprocess_names(&self.ended_processes.survivors),
            proven: self.ended_processes.proven,
        };
        socket.close(ended).await;
    }
}
