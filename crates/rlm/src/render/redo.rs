//! Work that was complete and whose record a damage took: what a resume asks before it is made again.

use rlm_store::{Loss, RunEntry};
use rlm_text::escape::plain;

use crate::hint::rlm;

/// The question of a resume that names no iteration: it is never answered by itself.
#[derive(Debug)]
pub(crate) struct Redo {
    run: String,
    loss: Loss,
}

impl Redo {
    /// Returns it, if a resume of this run would come to it.
    pub(crate) fn of(run: &RunEntry) -> Option<Self> {
        let loss = run.loss.clone().filter(Loss::is_work)?;
        let run = run.id.to_string();
        Some(Self { run, loss })
    }

    /// Names what would be made again.
    fn again(&self) -> String {
        let at = self.loss.at;
        match self.loss.reached.unwrap_or(at).saturating_sub(1) {
            last if last > at => format!("iterations {at} to {last}"),
            _ => format!("iteration {at}"),
        }
    }

    fn problem(&self) -> String {
        let (run, loss) = (&self.run, &self.loss);
        format!("run `{run}`: the state is damaged: {loss}")
    }

    /// Asks.
    pub(crate) fn question(&self) -> String {
        let (problem, again) = (plain(&self.problem()), self.again());
        format!("{problem}\nmake {again} again? [y/N] ")
    }

    /// Says what to say instead, where nobody can be asked.
    pub(crate) fn refusal(&self) -> String {
        let (problem, again, ways) = (self.problem(), self.again(), self.ways());
        let (run, rlm) = (&self.run, rlm());
        format!(
            "{problem}; nothing is done twice unsaid: {rlm} resume {run} {again_from} makes {again} again{ways}; \
             to look first: {rlm} checkpoints verify {run}",
            again_from = self.from()
        )
    }

    /// Says what a resume would come to.
    pub(crate) fn next(&self) -> String {
        let (again, ways) = (self.again(), self.ways());
        let (run, rlm, from) = (&self.run, rlm(), self.from());
        format!(
            "{rlm} resume {run} asks first whether to make {again} again, and is refused where nobody can be asked: \
             {rlm} resume {run} {from} makes {again} again{ways}"
        )
    }

    fn from(&self) -> String {
        format!("--from {}", self.loss.at)
    }

    fn ways(&self) -> String {
        let (run, rlm) = (&self.run, rlm());
        self.loss.reached.map_or_else(String::new, |reached| {
            format!("; {rlm} resume {run} --from {reached} goes on behind them, with what they left in the tree")
        })
    }
}
