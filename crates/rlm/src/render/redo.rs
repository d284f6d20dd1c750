//! Complete work whose saved state was lost to damage: the question that a resume asks before it runs the work again.

use rlm_store::{DataLoss, RunEntry};
use rlm_text::escape::plain;

use crate::hint::program_command;

/// The question of a resume that names no iteration. Only a person answers it.
#[derive(Debug)]
pub(crate) struct RedoQuestion {
    run: String,
    loss: DataLoss,
}

impl RedoQuestion {
    /// Returns the question, if a resume of this run needs it.
    pub(crate) fn of(run: &RunEntry) -> Option<Self> {
        let loss = run.loss.clone().filter(DataLoss::loses_iterations)?;
        let run = run.id.to_string();
        Some(Self { run, loss })
    }

    /// Names the iterations that would run again.
    fn again(&self) -> String {
        let at = self.loss.resumes_at;
        match self.loss.last_transcript.unwrap_or(at).saturating_sub(1) {
            last if last > at => format!("iterations {at} to {last}"),
            _ => format!("iteration {at}"),
        }
    }

    fn problem(&self) -> String {
        let (run, loss) = (&self.run, &self.loss);
        format!("run `{run}`: the state is damaged: {loss}")
    }

    /// Returns the question as text.
    pub(crate) fn question(&self) -> String {
        let (problem, again) = (plain(&self.problem()), self.again());
        format!("{problem}\nrun {again} again? [y/N] ")
    }

    /// Returns the error with the next commands, if no person can be asked.
    pub(crate) fn refusal(&self) -> String {
        let (problem, again, ways) = (self.problem(), self.again(), self.ways());
        let (run, rlm) = (&self.run, program_command());
        format!(
            "{problem}; rlm repeats no complete work by itself: {rlm} resume {run} {again_from} runs {again} again{ways}; \
             to check first: {rlm} checkpoints verify {run}",
            again_from = self.from()
        )
    }

    /// Returns the effect of a resume.
    pub(crate) fn next(&self) -> String {
        let (again, ways) = (self.again(), self.ways());
        let (run, rlm, from) = (&self.run, program_command(), self.from());
        format!(
            "{rlm} resume {run} asks whether to run {again} again, and fails if no person can be asked: \
             {rlm} resume {run} {from} runs {again} again{ways}"
        )
    }

    fn from(&self) -> String {
        format!("--from {}", self.loss.resumes_at)
    }

    fn ways(&self) -> String {
        let (run, rlm) = (&self.run, program_command());
        self.loss.last_transcript.map_or_else(String::new, |reached| {
            format!("; {rlm} resume {run} --from {reached} continues after them, with their changes in the working tree")
        })
    }
}
