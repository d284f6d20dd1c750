//! What is put back when somebody removed the state of a run while it ran.

use checkpoint_store::Healed;
use rlm_store::transcript::{removed_transcripts, transcripts};

use crate::Error;
use crate::control::Socket;
use crate::news::News;
use crate::runner::Runner;

/// How many things that are gone are named; the others are counted.
const NAMED: usize = 4;

impl Runner {
    /// Saves again, once, when the control socket was removed, and probably all that lies beside it, while nothing comes that would be saved.
    pub(super) async fn notice_removal(&mut self) -> Result<(), Error> {
        if self
            .control
            .socket
            .as_ref()
            .is_some_and(Socket::was_removed)
        {
            self.saved.advance(self.machine.head());
            self.work_tree.keep_state(&self.saved.run)?;
            self.journal.save(&self.saved).await?;
            self.heal().await?;
            self.ensure_socket();
        }
        Ok(())
    }

    /// Puts back what lay beside the saves, if these had to be written again, and says what is gone. The lock needs nothing: it is on the
    /// working tree itself.
    ///
    /// Only what a later process can't go on without is an error when it can't be put back.
    pub(super) async fn heal(&mut self) -> Result<(), Error> {
        let Some(mut healed) = self.journal.take_healed() else {
            return Ok(());
        };
        let restored = self.work_tree.restore();
        if let Err(e) = restored {
            self.tell(News::Warning(e.to_string()));
        }
        for (blob, text) in self.saved.prompts.iter().zip(&self.prompts) {
            let is_prompt = |file: &String| file.strip_prefix("blobs/") == Some(blob);
            if healed.lost.iter().any(is_prompt) {
                self.journal.put_blob(blob, text).await?;
                healed.lost.retain(|file| !is_prompt(file));
            }
        }
        self.write_transcript(|transcript| transcript.restore().map(drop));
        let lost = self.lost(&healed);
        let gone = match lost.len() {
            0 => String::new(),
            1..=NAMED => format!("; gone for good: {}", lost.join(", ")),
            all => format!(
                "; gone for good: {}, and {} more",
                lost[..NAMED].join(", "),
                all - NAMED
            ),
        };
        self.tell(News::Warning(format!(
            "{}; what was saved since the last phase is on disk again, in a new file{gone}",
            healed.what
        )));
        Ok(())
    }

    fn lost(&self, healed: &Healed) -> Vec<String> {
        let run_dir = self.work_tree.project().run_dir(&self.saved.run);
        let removed = removed_transcripts(&run_dir).map_or(0, |it| it.attempts.len());
        let there = transcripts(&run_dir).unwrap_or_default().len() + removed;
        let made = self.machine.head().counts.attempts as usize;
        let gone = made.saturating_sub(there);
        let transcripts = match gone {
            0 => None,
            1 => Some("the transcript of 1 attempt".to_owned()),
            _ => Some(format!("the transcripts of {gone} attempts")),
        };
        transcripts.into_iter().chain(healed.lost.clone()).collect()
    }
}
