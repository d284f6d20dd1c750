//! Ending what an attempt left running, beside everything else, so that no press waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_duplex::{Conversation, Event, ProcessName, Published, StopReport, What};
use loop_state::{AgentState, Happening, Tree};
use rlm_store::Leftovers;
use rlm_store::deadline::{Hurried, Hurry};
use rlm_store::processes::gone;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::Awaited;
use crate::check::Freezer;
use crate::news::News;
use crate::runner::ask::deny;
use crate::runner::attempt::Attempt;
use crate::runner::commit::{Commit, CommitEnd};
use crate::runner::{Runner, person};

/// A finished attempt whose tree is being ended, and whose work is committed then.
#[derive(Debug)]
pub(super) struct Settling {
    conversation: Option<Conversation>,
    /// The process id of the agent, where it is known.
    pid: Option<u32>,
    /// Whether the tree is gone, and the commit is made.
    commits: Arc<AtomicBool>,
    /// Has both end; the commit is given up for that. Dropping it gives up the commit too.
    hurry: Hurry,
    freezer: Freezer,
    task: JoinHandle<Box<Settled>>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Settled {
    tree: Option<TreeEnd>,
    commit: Option<CommitEnd>,
}

#[derive(Debug)]
struct TreeEnd {
    attempt: Attempt,
    leftovers: Vec<ProcessName>,
    /// `None` when the leftovers are to be kept.
    report: Option<StopReport>,
}

impl Settling {
    /// Stops what runs where it stands, or lets it go on.
    pub(super) async fn freeze(&self, frozen: bool) {
        if let Some(conversation) = &self.conversation {
            person::freeze(conversation, frozen).await;
        }
        self.freezer.freeze(frozen).await;
    }

    /// Returns what it has not done yet.
    pub(super) fn awaited(&self) -> Awaited {
        match self.commits.load(Ordering::Relaxed) {
            true => Awaited::Commit,
            false => Awaited::Agent { pid: self.pid },
        }
    }

    /// Returns what has it end.
    pub(super) fn hurry(&self) -> &Hurry {
        &self.hurry
    }

    /// Waits for the end; `None` when it came to none. Cancel safe.
    pub(super) async fn ended(&mut self) -> Option<Box<Settled>> {
        (&mut self.task).await.ok()
    }
}

async fn settle(
    mut attempt: Attempt,
    keep: bool,
    budget: Duration,
    mut hurried: Hurried,
) -> TreeEnd {
    let conversation = attempt.conversation.clone();
    let closing = conversation.close();
    tokio::pin!(closing);
    // The agent itself is waited for, as long as nobody is in a hurry; what it says last is for nobody.
    let hurry = loop {
        tokio::select! {
            biased;
            Some(by) = hurried.told() => break Some(by),
            () = &mut closing => break None,
            Some(published) = attempt.next() => deny_all(&conversation, published).await,
        }
    };
    // In a hurry nobody asks what was left: the report names what was ended.
    let leftovers = match hurry {
        Some(_) => Vec::new(),
        None => tokio::select! {
            biased;
            Some(_) = hurried.told() => Vec::new(),
            leftovers = conversation.leftovers() => leftovers,
        },
    };
    let report = match keep && !leftovers.is_empty() {
        true => None,
        false => {
            let by = hurry.unwrap_or_else(|| Instant::now() + budget);
            Some(crate::hurry::stop(&mut hurried, &conversation, by).await)
        }
    };
    TreeEnd {
        attempt,
        leftovers,
        report,
    }
}

/// Answers what the agent's background tasks still ask: nobody looks any more.
async fn deny_all(conversation: &Conversation, published: Published) {
    let What::Observed(seen) = published.what else {
        return;
    };
    for event in seen.events {
        if let Event::PermissionAsked(ask) = event {
            // One that is gone needs no answer.
            let _gone = conversation
                .answer(&ask.id, deny("the iteration is over"))
                .await;
        }
    }
}

impl Runner {
    /// Begins to end what the attempt left running, or to carry it on. Returns what happened when there is nothing to end.
    pub(super) fn begin_settling(&mut self) -> Option<Happening> {
        let budget = self.budget();
        let commit = self.due_commit();
        let attempt = self.agent_io.attempt.take();
        if attempt.is_none() && commit.is_none() {
            return Some(Happening::Settled(Tree::default()));
        }
        self.agent_io.idle_look = None;
        let keep = self.saved.settings.leftovers == Leftovers::Keep && !self.stop.is_stop();
        let hurry = Hurry::default();
        let hurried = hurry.hurried();
        let (freezer, freezes) = Freezer::new();
        let conversation = attempt.as_ref().map(|it| it.conversation.clone());
        let pid = attempt.as_ref().and_then(|it| it.heard.pid);
        let commits = Arc::new(AtomicBool::new(false));
        let is_committing = Arc::clone(&commits);
        let task = tokio::spawn(async move {
            let tree = match attempt {
                Some(attempt) => Some(settle(attempt, keep, budget, hurried.clone()).await),
                None => None,
            };
            is_committing.store(commit.is_some(), Ordering::Relaxed);
            let commit = match commit {
                Some(commit) => Some(Commit::make(commit, hurried, freezes).await),
                None => None,
            };
            Box::new(Settled { tree, commit })
        });
        let settling = Settling {
            conversation,
            pid,
            commits,
            hurry,
            freezer,
            task,
        };
        if self.stop.is_stop() {
            settling.hurry().within(budget);
        }
        self.agent_io.settling = Some(settling);
        None
    }

    pub(super) async fn settled(&mut self, settled: Option<Box<Settled>>) -> Happening {
        self.agent_io.settling = None;
        let before = self.ends.survivors.len();
        let mut ended = 0;
        let (tree, commit) = settled.map_or((None, None), |it| (it.tree, it.commit));
        if let Some(settled) = tree {
            match settled.report {
                None => {
                    let budget = self.budget();
                    let oldest = self.agent_io.kept.keep(settled.attempt, budget).await;
                    for end in oldest {
                        ended += self.tell_kept_ended(end);
                    }
                }
                Some(report) => {
                    let processes = gone(settled.leftovers, &report.survivors);
                    ended = processes.len();
                    if !processes.is_empty() {
                        self.tell(News::Ended {
                            why: "left running by the agent".into(),
                            processes,
                        });
                    }
                    if settled.attempt.machine.agent() != AgentState::Gone {
                        self.ends.ended.extend(report.ended);
                        self.ends.proven &= report.proven;
                    }
                    self.note_survivors(report.survivors);
                }
            }
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let settled = Happening::Settled(Tree {
            ended: count(ended),
            survivors: count(self.ends.survivors.len() - before),
        });
        if let Some(commit) = commit {
            self.committed(commit, &settled);
        }
        settled
    }
}
