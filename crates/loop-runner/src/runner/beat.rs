//! Signs of life: what a loop that hangs does not give.

use std::path::PathBuf;

use crate::heartbeat::{Beat, Heartbeat};
use crate::news::News;
use crate::runner::Runner;

impl Runner {
    /// Has the file at `path` replaced by what `text` makes of a [`Beat`]: every 10 s, whenever the run comes further, and when it is over.
    ///
    /// The loop itself does it, so a file that is older than 30 s says that the loop does not turn. One that can't be written is a warning.
    #[must_use]
    pub fn with_heartbeat(
        mut self,
        path: PathBuf,
        text: impl Fn(&Beat<'_>) -> String + Send + Sync + 'static,
    ) -> Self {
        self.heartbeat = Some(Heartbeat::new(path, Box::new(text)));
        self
    }

    /// Shows that the loop turns.
    pub(super) async fn beat(&mut self) {
        self.control.pulse.turn();
        let Some(mut heartbeat) = self.heartbeat.take() else {
            return;
        };
        let at = self.clock.now();
        let told = heartbeat.beat(&self.a_beat(at, None)).await;
        self.heartbeat = Some(heartbeat);
        told.into_iter()
            .for_each(|why| self.tell(News::Warning(why)));
    }

    /// Shows that the loop turns no more, and why.
    pub(super) async fn last_beat(&mut self, reason: &str) {
        let Some(heartbeat) = self.heartbeat.take() else {
            return;
        };
        let at = self.clock.now();
        let told = heartbeat.end(&self.a_beat(at, Some(reason))).await;
        told.into_iter()
            .for_each(|why| self.tell(News::Warning(why)));
    }

    fn a_beat<'a>(&'a self, at: loop_state::Timestamp, ended: Option<&'a str>) -> Beat<'a> {
        Beat {
            run: &self.saved.run,
            head: self.machine.head(),
            at,
            due: self.machine.next_deadline().filter(|_| ended.is_none()),
            ended,
        }
    }
}
