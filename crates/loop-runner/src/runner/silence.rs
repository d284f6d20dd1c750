//! An agent that says nothing is told of before it is taken for hung.

use loop_state::Timestamp;

use crate::news::News;
use crate::runner::Runner;

impl Runner {
    /// Returns when the present silence is to be told: at two thirds of what is allowed, once.
    pub(super) fn silence_at(&self) -> Option<Timestamp> {
        let silence = self.machine.silence()?;
        let told = self.agent_io.attempt.as_ref()?.silence_told;
        let allowed = silence.until.since(silence.since);
        (told != Some(silence.since)).then(|| silence.since + allowed * 2 / 3)
    }

    pub(super) fn tell_silence(&mut self, now: Timestamp) {
        let is_due = self.silence_at().is_some_and(|at| at <= now);
        if let (true, Some(silence), Some(attempt)) =
            (is_due, self.machine.silence(), &mut self.agent_io.attempt)
        {
            attempt.silence_told = Some(silence.since);
            let silent = now.since(silence.since);
            let of = silence.until.since(silence.since);
            self.tell(News::Silent { silent, of });
        }
    }
}
