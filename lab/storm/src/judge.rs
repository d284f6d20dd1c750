//! The judgement of a run: pure functions from what the agents wrote and what git has to findings. It asks nothing of the fleet.
//!
//! Each start of an agent names the work that it found in its working tree. So a start of iteration 5 proves that the fleet had committed iteration 4,
//! and whose work that was. A committed iteration is lost if the branch has other work for it. It was done twice if two starts found different work
//! for it, or the branch has it twice.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::evidence::AgentEvent;

/// A broken promise, or another fault of a storm.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case", tag = "finding")]
pub enum Finding {
    /// A committed iteration is not in the branch.
    Lost {
        /// The run.
        run: String,
        /// The number of the iteration.
        iteration: u32,
    },
    /// An iteration was committed twice.
    Twice {
        /// The run.
        run: String,
        /// The number of the iteration.
        iteration: u32,
    },
    /// Two agents of the run were alive at the same time.
    Overlap {
        /// The run.
        run: String,
        /// The number of the iteration of the second agent.
        iteration: u32,
    },
    /// The run did not end as it should.
    NotEnded {
        /// The run.
        run: String,
        /// Its state.
        state: String,
    },
    /// The branch and the lines of the agents contradict each other in another way.
    Contradiction {
        /// The run.
        run: String,
        /// The details.
        why: String,
    },
    /// Processes were alive after the end of all workers and servers.
    Left {
        /// Their names and pids.
        processes: Vec<String>,
    },
    /// The storm could not continue.
    Stalled {
        /// The details.
        why: String,
    },
}

impl Finding {
    /// Returns the run; `None` if the finding is about the whole storm.
    #[must_use]
    pub fn run(&self) -> Option<&str> {
        match self {
            Self::Lost { run, .. }
            | Self::Twice { run, .. }
            | Self::Overlap { run, .. }
            | Self::NotEnded { run, .. }
            | Self::Contradiction { run, .. } => Some(run),
            Self::Left { .. } | Self::Stalled { .. } => None,
        }
    }
}

/// The end of a run, as `rlm fleet ps` and git report it.
#[derive(Debug, Clone, Default)]
pub struct RunResult {
    /// The number of iterations that the run should have.
    pub iterations: u32,
    /// Whether the run ended with exit code 0.
    pub is_done: bool,
    /// The state of the run, for the message.
    pub state: String,
    /// The lines of the file `work` that each commit of the branch adds, oldest commit first.
    pub commits: Vec<Vec<String>>,
}

/// The lines of the agents about one run.
#[derive(Debug, Default)]
struct Lines<'a> {
    /// The work that the starts found for each iteration.
    found: BTreeMap<u32, BTreeSet<&'a str>>,
    /// The iterations that an agent finished, and its start.
    ended: BTreeSet<(u32, &'a str)>,
    /// The iterations of agents that were not alone.
    overlaps: BTreeSet<u32>,
}

impl<'a> Lines<'a> {
    fn of(run: &str, events: &'a [AgentEvent]) -> Self {
        let mut lines = Self::default();
        for event in events.iter().filter(|event| event.run() == run) {
            match event {
                AgentEvent::Start {
                    iteration,
                    is_alone,
                    parent,
                    ..
                } => {
                    if !is_alone {
                        lines.overlaps.insert(*iteration);
                    }
                    let before = lines.found.entry(iteration - 1).or_default();
                    before.insert(parent);
                }
                AgentEvent::End { iteration, id, .. } => {
                    lines.ended.insert((*iteration, id));
                }
            }
        }
        lines
    }

    fn judge(&self, run: &str) -> BTreeSet<Finding> {
        let run = || run.to_owned();
        let mut findings = BTreeSet::new();
        for iteration in self.overlaps.iter().copied() {
            findings.insert(Finding::Overlap {
                run: run(),
                iteration,
            });
        }
        for (iteration, works) in &self.found {
            let iteration = *iteration;
            if works.len() > 1 {
                findings.insert(Finding::Twice {
                    run: run(),
                    iteration,
                });
            }
            let is_work = |work: &&str| match iteration {
                0 => *work == "-",
                _ => self.ended.contains(&(iteration, work)),
            };
            if !works.iter().all(is_work) {
                findings.insert(Finding::Lost {
                    run: run(),
                    iteration,
                });
            }
        }
        findings
    }
}

/// Judges the lines of the agents of one run. The run can continue meanwhile. `events` are the lines of all agents, in order.
pub(crate) fn judge_lines(run: &str, events: &[AgentEvent]) -> Vec<Finding> {
    let findings = Lines::of(run, events).judge(run);
    findings.into_iter().collect()
}

/// Judges one run after its end. `events` are the lines of all agents, in order.
#[must_use]
pub fn judge(run: &str, result: &RunResult, events: &[AgentEvent]) -> Vec<Finding> {
    let lines = Lines::of(run, events);
    let mut findings = lines.judge(run);
    let name = || run.to_owned();
    if !result.is_done {
        let state = result.state.clone();
        findings.insert(Finding::NotEnded { run: name(), state });
    }
    let contradiction = |why: String| Finding::Contradiction { run: name(), why };
    let mut branch: BTreeMap<u32, &str> = BTreeMap::new();
    for (number, added) in (1_u32..).zip(&result.commits) {
        let line = match added.as_slice() {
            [line] => line.split_once(' '),
            _ => None,
        };
        let Some((iteration, id)) = line.and_then(|(it, id)| Some((it.parse().ok()?, id))) else {
            findings.insert(contradiction(format!("commit {number} adds {added:?}")));
            continue;
        };
        if !lines.ended.contains(&(iteration, id)) {
            let why = format!("commit {number} has work that no agent did: {iteration} {id}");
            findings.insert(contradiction(why));
        }
        if branch.insert(iteration, id).is_some() {
            findings.insert(Finding::Twice {
                run: name(),
                iteration,
            });
        } else if iteration != number {
            let why = format!("commit {number} has iteration {iteration}");
            findings.insert(contradiction(why));
        }
    }
    let is_in_branch = |iteration: &u32, works: &BTreeSet<&str>| {
        branch.get(iteration).is_some_and(|id| works.contains(id))
    };
    let begun = lines.found.iter().filter(|(iteration, _)| **iteration > 0);
    let replaced = begun.filter(|(iteration, works)| !is_in_branch(iteration, works));
    let replaced = replaced.map(|(iteration, _)| *iteration);
    let planned = 1..=if result.is_done { result.iterations } else { 0 };
    let missing = planned.filter(|iteration| !branch.contains_key(iteration));
    for iteration in replaced.chain(missing) {
        findings.insert(Finding::Lost {
            run: name(),
            iteration,
        });
    }
    findings.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of agents: an iteration, the id of the start, the parent, whether it ended, and whether it was alone.
    fn events(starts: &[(u32, &str, &str, bool, bool)]) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        for (iteration, id, parent, ends, is_alone) in starts {
            events.push(AgentEvent::Start {
                run: "r".into(),
                iteration: *iteration,
                id: (*id).into(),
                pid: 1,
                is_alone: *is_alone,
                parent: (*parent).into(),
                place: "/w1/r.1.x".into(),
            });
            if *ends {
                let (run, id) = ("r".into(), (*id).into());
                let iteration = *iteration;
                events.push(AgentEvent::End { run, iteration, id });
            }
        }
        events
    }

    fn done(commits: &[&str]) -> RunResult {
        RunResult {
            iterations: u32::try_from(commits.len()).unwrap(),
            is_done: true,
            state: "ended".into(),
            commits: commits.iter().map(|line| vec![(*line).into()]).collect(),
        }
    }

    const CLEAN: [(u32, &str, &str, bool, bool); 4] = [
        (1, "a", "-", true, true),
        (2, "b", "a", false, true),
        (2, "c", "a", true, true),
        (3, "d", "c", true, true),
    ];

    #[test]
    fn unfinished_iteration_that_runs_again_is_clean() {
        let commits = ["1 a", "2 c", "3 d"];
        assert_eq!(judge("r", &done(&commits), &events(&CLEAN)), []);
    }

    #[test]
    fn each_fault_is_found() {
        let run = || "r".to_owned();
        let lost = |iteration| Finding::Lost {
            run: run(),
            iteration,
        };
        let twice = |iteration| Finding::Twice {
            run: run(),
            iteration,
        };
        // The third iteration began on work that the branch does not have.
        let found = judge("r", &done(&["1 a", "2 b", "3 d"]), &events(&CLEAN));
        assert!(found.contains(&lost(2)), "{found:?}");
        let found = judge("r", &done(&["1 a", "2 c", "2 c", "3 d"]), &events(&CLEAN));
        assert!(found.contains(&twice(2)), "{found:?}");
        let mut short = done(&["1 a", "2 c"]);
        short.iterations = 3;
        assert_eq!(judge("r", &short, &events(&CLEAN)), [lost(3)]);
        // Two starts found different work of iteration 1.
        let mut starts = CLEAN;
        starts[1].2 = "x";
        let found = judge("r", &done(&["1 a", "2 c", "3 d"]), &events(&starts));
        assert_eq!(found, [lost(1), twice(1)]);
        let mut starts = CLEAN;
        starts[2].4 = false;
        let found = judge("r", &done(&["1 a", "2 c", "3 d"]), &events(&starts));
        assert_eq!(
            found,
            [Finding::Overlap {
                run: run(),
                iteration: 2
            }]
        );
        // The second iteration began without the work of the first one.
        let mut starts = CLEAN;
        (starts[1].2, starts[2].2) = ("-", "-");
        assert_eq!(judge_lines("r", &events(&starts)), [lost(1)]);
        let mut open = done(&["1 a", "2 c", "3 d"]);
        (open.is_done, open.state) = (false, "parked".into());
        let state = "parked".into();
        let found = judge("r", &open, &events(&CLEAN));
        assert_eq!(found, [Finding::NotEnded { run: run(), state }]);
        let found = judge("r", &done(&["1 a", "2 b", "3 d"]), &events(&CLEAN));
        let is_contradiction = |it: &Finding| matches!(it, Finding::Contradiction { .. });
        assert!(found.iter().any(is_contradiction), "{found:?}");
    }
}
