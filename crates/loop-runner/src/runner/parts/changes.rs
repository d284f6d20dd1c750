//! The files that an iteration changed.

use std::path::PathBuf;

use rlm_store::deadline::DeadlineReceiver;
use rlm_store::git::Git;
use rlm_store::git::changes::Changes;

/// A comparison of the working tree with its earlier state.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) git: Git,
    /// The snapshot before the iteration; `None` if there is none, so that only the next snapshot is taken.
    pub(crate) before: Option<String>,
    pub(crate) run_dir: PathBuf,
}

/// The result of a comparison.
#[derive(Debug)]
pub(crate) struct Compared {
    /// `None` if there was no earlier state.
    pub(crate) changes: Option<Changes>,
    /// The snapshot of the working tree now.
    pub(crate) snapshot: String,
}

impl Comparison {
    /// Compares. Returns `None` if the shared deadline is set first; then git ends with the other git processes of the run.
    ///
    /// # Errors
    ///
    /// An error in words if git fails, or too much has changed.
    pub(crate) async fn run(
        self,
        deadline: &mut DeadlineReceiver,
    ) -> Option<Result<Compared, String>> {
        let task = tokio::task::spawn_blocking(move || {
            self.git
                .changes_since(self.before.as_deref(), &self.run_dir)
        });
        tokio::select! {
            biased;
            _ = deadline.wait_for_deadline() => None,
            compared = task => Some(match compared {
                Ok(Ok((changes, snapshot))) => Ok(Compared { changes, snapshot }),
                Ok(Err(e)) => Err(e.to_string()),
                Err(e) => Err(e.to_string()),
            }),
        }
    }
}
