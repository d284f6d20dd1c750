//! The control socket of the run that is carried out.

use rlm_store::processes;
use tokio::sync::mpsc;

use crate::control::{Ended, Socket, Wish};
use crate::news::News;
use crate::runner::Runner;
use crate::{Error, Outcome};

impl Runner {
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
