//! Compressing older transcripts beside everything else, so that nothing waits for it.

use std::sync::atomic::Ordering;

use loop_state::times;
use rlm_store::transcript::Tended;
use tokio::time::timeout;

use crate::news::News;
use crate::runner::Runner;

impl Runner {
    /// Takes notice that an attempt has a transcript, and has the older ones tended if that is due. Waits for nothing.
    pub(super) async fn tidy(&mut self, iteration: u32, attempt: u32) {
        let tidying = &mut self.tidying;
        tidying.begun.push_back((iteration, attempt));
        if let Some(work) = { &mut tidying.work }.take_if(|work| work.is_finished()) {
            // One that panicked is not tried again by this process.
            if let Ok((room, tended)) = work.await {
                self.tidying.room = Some(room);
                self.tell_tended(tended);
            }
        }
        let tidying = &mut self.tidying;
        let Some(mut room) = tidying.room.take() else {
            // Rather none of them is compressed than that they are remembered without end.
            tidying.begun.truncate(usize::from(u16::MAX));
            return;
        };
        let begun = tidying.begun.drain(..);
        let due = begun.fold(false, |_, (iteration, attempt)| {
            room.begun(iteration, attempt)
        });
        if !due {
            tidying.room = Some(room);
            return;
        }
        let stop = tidying.stop.clone();
        tidying.work = Some(tokio::task::spawn_blocking(move || {
            let tended = room.tend(&stop);
            (room, tended)
        }));
    }

    fn tell_tended(&mut self, tended: Tended) {
        let error = tended
            .error
            .map(|e| format!("an older transcript stays as it is: {e}"));
        let reduced = tended.reduced.then(|| {
            "the transcripts take more room than max-transcripts: the oldest ones are reduced to what people read, then to beginning and end".to_owned()
        });
        for (told, what) in [error, reduced].into_iter().enumerate() {
            if let Some(what) = what.filter(|_| !self.tidying.told[told]) {
                self.tidying.told[told] = true;
                self.tell(News::Warning(what));
            }
        }
    }

    /// Has the tending stop at the next piece.
    pub(super) async fn end_tidying(&mut self) {
        self.tidying.stop.store(true, Ordering::Relaxed);
        if let Some(work) = self.tidying.work.take() {
            // What it does not come to is done by the next process.
            let _late = timeout(times::TRANSCRIPTS_END, work).await;
        }
    }
}
