//! A commit of the work of an iteration.

use agent_subprocess::{ProcessContext, TreeCommand};
use loop_state::CheckResult;
use rlm_store::deadline::DeadlineReceiver;
use rlm_store::git::commit::{CommitMessage, SCRIPT};
use rlm_store::git::{COMMAND_TIMEOUT, Git, REPOSITORY_VARIABLES, error_text};
use tokio::sync::mpsc;

use crate::check::{self, CheckOutcome, Freeze, Limit};

const STOPPED: &str = "the run was stopped";

/// A commit to create.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) about: CommitMessage,
    pub(crate) phase: u32,
    pub(crate) git: Git,
    pub(crate) context: ProcessContext,
}

/// The result of a commit.
#[derive(Debug)]
pub(crate) struct CommitOutcome {
    pub(crate) about: CommitMessage,
    pub(crate) phase: u32,
    /// `None` if there was nothing to commit.
    pub(crate) made: Result<Option<CreatedCommit>, String>,
    pub(crate) left_out: Vec<String>,
    /// The result of the git commands, if any ran.
    pub(crate) ran: Option<CheckOutcome>,
}

#[derive(Debug)]
pub(crate) struct CreatedCommit {
    pub(crate) commit: String,
    pub(crate) is_new: bool,
}

impl Commit {
    /// Creates the commit. If the shared deadline is set meanwhile, the git processes end by that deadline.
    pub(crate) async fn make(
        self,
        mut deadline: DeadlineReceiver,
        freezes: mpsc::Receiver<Freeze>,
    ) -> CommitOutcome {
        let Self {
            about,
            phase,
            git,
            context,
        } = self;
        let (mut left_out, mut ran) = (Vec::new(), None);
        let made = async {
            let planner = git.clone();
            let plan = tokio::task::spawn_blocking(move || planner.plan());
            let plan = tokio::select! {
                biased;
                _ = deadline.wait_for_deadline() => return Err(STOPPED.to_owned()),
                plan = plan => plan.map_err(|e| e.to_string())?,
            };
            let plan = plan.map_err(|e| e.to_string())?;
            let is_empty = plan.is_empty();
            left_out = plan.left_out;
            let mut failed = None;
            if !is_empty {
                let command = TreeCommand::new("sh").args(["-c", SCRIPT, "rlm"]);
                let command = command.arg(about.message()).args(plan.paths);
                let command = REPOSITORY_VARIABLES
                    .iter()
                    .fold(command, |it, name| it.env_remove(name));
                let end = check::run(
                    command,
                    context,
                    Limit::Time(COMMAND_TIMEOUT),
                    deadline,
                    freezes,
                )
                .await;
                failed = failure(&end.result);
                ran = Some(end);
            }
            let commit = git.head_commit().await;
            let is_new = commit != plan.before;
            match (commit, failed) {
                // A process that is ended after the commit, such as a hook, does not undo the commit.
                (Some(commit), failed) if is_new || failed.is_none() => Ok(Some(CreatedCommit {
                    is_new: is_new && !is_empty,
                    commit,
                })),
                (_, Some(why)) => Err(why),
                (_, None) if is_empty => Ok(None),
                (_, None) => Err("git does not report the new commit".to_owned()),
            }
        };
        let made = made.await;
        CommitOutcome {
            about,
            phase,
            made,
            left_out,
            ran,
        }
    }
}

fn failure(result: &CheckResult) -> Option<String> {
    match result {
        CheckResult::Passed => None,
        CheckResult::Failed(text) | CheckResult::NotRun(text) => {
            // The last line states how the command ended; its output is before that line.
            let (output, how) = text.rsplit_once('\n').unwrap_or(("", text));
            Some(match output.trim().is_empty() {
                true => text.clone(),
                false => format!("{} {how}", error_text(output)),
            })
        }
        _ => Some(STOPPED.into()),
    }
}
