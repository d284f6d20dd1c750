//! The cleanup after an attempt, in parallel with the loop: ends the process tree, then commits, and looks at the changed files. Leftovers for later
//! attempts are retained until the run ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_duplex::{Conversation, ConversationEvent, Event, ProcessName, Published, StopReport};
use rlm_store::deadline::{Deadline, DeadlineReceiver};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::check::Freezer;
use crate::runner::parts::attempt::{AttemptHandles, deny, freeze};
use crate::runner::parts::changes::{Compared, Comparison};
use crate::runner::parts::commit::{Commit, CommitOutcome};
use crate::stop_progress::Awaited;

/// The cleanup of an ended attempt: ends its process tree, then commits its work.
#[derive(Debug)]
pub(crate) struct AttemptCleanup {
    conversation: Option<Conversation>,
    /// The process id of the agent, if it is known.
    pid: Option<u32>,
    /// Whether the process tree is gone, so that git works.
    uses_git: Arc<AtomicBool>,
    /// Whether git creates a commit.
    commits: bool,
    /// The shared deadline of the whole cleanup. Setting or dropping it cancels the commit.
    deadline: Deadline,
    freezer: Freezer,
    task: JoinHandle<Box<CleanupOutcome>>,
}

/// The result of a cleanup.
#[derive(Debug)]
pub(crate) struct CleanupOutcome {
    pub(crate) tree: Option<ProcessTreeEnd>,
    pub(crate) commit: Option<CommitOutcome>,
    /// The changed files of a complete iteration in a git working tree; `None` also after an abort.
    pub(crate) compared: Option<Result<Compared, String>>,
}

#[derive(Debug)]
pub(crate) struct ProcessTreeEnd {
    pub(crate) attempt: AttemptHandles,
    pub(crate) leftovers: Vec<ProcessName>,
    /// `None` if the leftovers are retained.
    pub(crate) report: Option<StopReport>,
}

impl AttemptCleanup {
    /// Starts the cleanup. With `keep`, the leftovers of the attempt stay alive.
    pub(crate) fn begin(
        attempt: Option<AttemptHandles>,
        commit: Option<Commit>,
        comparison: Option<Comparison>,
        keep: bool,
        budget: Duration,
    ) -> Self {
        let deadline = Deadline::default();
        let mut deadline_changes = deadline.subscribe();
        let (freezer, freezes) = Freezer::new();
        let conversation = attempt.as_ref().map(|it| it.conversation.clone());
        let pid = attempt.as_ref().and_then(|it| it.reports.pid);
        let commits = commit.is_some();
        let uses_git = Arc::new(AtomicBool::new(false));
        let is_git_next = Arc::clone(&uses_git);
        let task = tokio::spawn(async move {
            let tree = match attempt {
                Some(attempt) => {
                    Some(clean_up(attempt, keep, budget, deadline_changes.clone()).await)
                }
                None => None,
            };
            is_git_next.store(commits || comparison.is_some(), Ordering::Relaxed);
            let commit = match commit {
                Some(commit) => {
                    let deadline_changes = deadline_changes.clone();
                    Some(Commit::make(commit, deadline_changes, freezes).await)
                }
                None => None,
            };
            let compared = match comparison {
                Some(comparison) => comparison.run(&mut deadline_changes).await,
                None => None,
            };
            Box::new(CleanupOutcome {
                tree,
                commit,
                compared,
            })
        });
        Self {
            conversation,
            pid,
            uses_git,
            commits,
            deadline,
            freezer,
            task,
        }
    }

    /// Suspends or resumes everything that runs.
    pub(crate) async fn freeze(&self, frozen: bool) {
        if let Some(conversation) = &self.conversation {
            freeze(conversation, frozen).await;
        }
        self.freezer.freeze(frozen).await;
    }

    /// Returns the part that is not done yet.
    pub(crate) fn awaited(&self) -> Awaited {
        match self.uses_git.load(Ordering::Relaxed) {
            true if self.commits => Awaited::Commit,
            true => Awaited::Git,
            false => Awaited::Agent { pid: self.pid },
        }
    }

    /// Returns the shared deadline.
    pub(crate) fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// Waits for the end; `None` if the task failed. Cancel safe.
    pub(crate) async fn ended(&mut self) -> Option<Box<CleanupOutcome>> {
        (&mut self.task).await.ok()
    }
}

async fn clean_up(
    mut attempt: AttemptHandles,
    keep: bool,
    budget: Duration,
    mut deadline_changes: DeadlineReceiver,
) -> ProcessTreeEnd {
    let conversation = attempt.conversation.clone();
    let closing = conversation.close();
    tokio::pin!(closing);
    // Without an abort, wait for the agent itself; its last events are ignored.
    let abort_by = loop {
        tokio::select! {
            biased;
            Some(by) = deadline_changes.wait_for_deadline() => break Some(by),
            () = &mut closing => break None,
            Some(published) = attempt.next() => deny_all(&conversation, published).await,
        }
    };
    // An abort has no time to look for leftovers: the report names the ended processes.
    let leftovers = match abort_by {
        Some(_) => Vec::new(),
        None => tokio::select! {
            biased;
            Some(_) = deadline_changes.wait_for_deadline() => Vec::new(),
            leftovers = conversation.leftovers() => leftovers,
        },
    };
    let report = match keep && !leftovers.is_empty() {
        true => None,
        false => {
            let by = abort_by.unwrap_or_else(|| Instant::now() + budget);
            Some(crate::deadline::stop(&mut deadline_changes, &conversation, by).await)
        }
    };
    ProcessTreeEnd {
        attempt,
        leftovers,
        report,
    }
}

/// Denies the permission requests of the agent's background tasks: no person sees them any more.
async fn deny_all(conversation: &Conversation, published: Published) {
    let ConversationEvent::Observed(observation) = published.event else {
        return;
    };
    for event in observation.events {
        if let Event::PermissionRequested(ask) = event {
            // Answering fails if the agent is gone, which is fine.
            let _gone = conversation
                .answer(&ask.id, deny("the iteration has ended"))
                .await;
        }
    }
}

/// The maximum number of attempts with retained leftovers: each of them costs a guard process.
pub(crate) const MAX_RETAINED: usize = 8;

/// The retained leftovers of the last attempts, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RetainedLeftovers(VecDeque<RetainedTree>);

#[derive(Debug)]
struct RetainedTree {
    /// The shared deadline of the leftovers. Dropping it ends them.
    halt: Deadline,
    task: JoinHandle<(Vec<ProcessName>, StopReport)>,
}

impl RetainedLeftovers {
    /// Retains the leftovers of an ended attempt. If more than [`MAX_RETAINED`] attempts have leftovers, starts to end those of the oldest attempts.
    /// Returns the reports of those that have ended.
    ///
    /// Doesn't wait for these ends, so that a press is handled meanwhile. Only if there are more than twice [`MAX_RETAINED`] attempts, it waits.
    pub(crate) async fn keep(
        &mut self,
        attempt: AttemptHandles,
        budget: Duration,
    ) -> Vec<(Vec<ProcessName>, StopReport)> {
        let halt = Deadline::default();
        let task = tokio::spawn(drain_output(attempt, halt.subscribe(), budget));
        self.0.push_back(RetainedTree { halt, task });
        let surplus = self.0.len().saturating_sub(MAX_RETAINED);
        let oldest = self.0.iter().take(surplus);
        oldest.for_each(|oldest| oldest.halt.tighten_to(budget));
        let mut ended = Vec::new();
        while self.0.len() > 2 * MAX_RETAINED
            || self.0.front().is_some_and(|it| it.task.is_finished())
        {
            ended.extend(self.stop_oldest(budget).await);
        }
        ended
    }

    /// Ends the leftovers of the oldest attempt. Returns the processes that were alive, and the report.
    pub(crate) async fn stop_oldest(
        &mut self,
        budget: Duration,
    ) -> Option<(Vec<ProcessName>, StopReport)> {
        let oldest = self.0.pop_front()?;
        oldest.halt.tighten_to(budget);
        // A task that panicked has dropped its connection, which ends everything without a report.
        oldest.task.await.ok()
    }

    /// Returns the shared deadline of each attempt's leftovers.
    pub(crate) fn deadlines(&self) -> impl Iterator<Item = &Deadline> {
        self.0.iter().map(|attempt| &attempt.halt)
    }
}

/// Reads the output of the leftovers, so that none of them blocks, until they must end.
async fn drain_output(
    mut attempt: AttemptHandles,
    mut halted: DeadlineReceiver,
    default: Duration,
) -> (Vec<ProcessName>, StopReport) {
    let mut is_open = true;
    let by = loop {
        tokio::select! {
            biased;
            by = halted.wait_for_deadline() => break by.unwrap_or_else(|| Instant::now() + default),
            event = attempt.next(), if is_open => is_open = event.is_some(),
        }
    };
    let alive = attempt.conversation.leftovers().await;
    (
        alive,
        crate::deadline::stop(&mut halted, &attempt.conversation, by).await,
    )
}
