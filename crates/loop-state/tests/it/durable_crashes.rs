//! Explores all short histories of some moves of a run whose agent keeps its session on disk, with a crash in each state. The model of the agent and of
//! its disk shows whether a message is lost or repeated.
//!
//! The model has no interrupt after which the turn continues, also with a new connection, and no check with its feedback. `durable_sessions` has
//! examples of both.

use std::collections::BTreeMap;

use foldhash::HashSet;
use loop_state::{
    Effect, Head, IterationStep, Machine, MachineInput, PhaseLimits, PromptContext, Request,
    ResumeOptions, SessionPolicy, SteerState, StopCause, StopRequest, StopTiming, Timer,
    TurnOutcome,
};

use crate::rules;

/// A record that the agent saved in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Record {
    /// The message of an attempt: the iteration whose prompt it has, if it has one, and its steers.
    Message {
        prompt: Option<u32>,
        steers: Vec<u32>,
    },
    /// The message that begins another turn of an attempt: this steer.
    Steer(u32),
    /// An answer or a tool result.
    Work,
}

impl Record {
    fn has_steer(&self, id: u32) -> bool {
        match self {
            Self::Message { steers, .. } => steers.contains(&id),
            Self::Steer(steer) => *steer == id,
            Self::Work => false,
        }
    }
}

/// An event of the real program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// The agent saves the message of its attempt.
    Save,
    /// The agent answers; before that, it saves its work.
    Answer,
    /// The agent doesn't start. If that ends the run, a new process resumes it.
    NotStarted,
    /// The turn completes, and the agent reports its position.
    Complete,
    /// A turn of the attempt ends while a steer waits, and the steer begins another one. The agent saves the steer, and hasn't reported it yet.
    SteerTurn,
    /// The time limit ends the turn, and the report of the position is lost: the runner reads the position from the session.
    TimeOut,
    /// The time limit begins to end the turn, and then a person stops the run. The report of the position is lost. Then a new process resumes the run.
    TimeOutAndStop,
    /// The model fails for a short time.
    Transient,
    /// A person stops the run, and the report of the position is lost. Then a new process resumes the run.
    Stop,
    /// The process is killed. Then a new process resumes the run.
    Kill,
    /// A person sends a message, which the next prompt contains.
    Steer,
    /// A person restarts the iteration.
    Redo,
}

const MOVES: [Move; 12] = [
    Move::Save,
    Move::Answer,
    Move::NotStarted,
    Move::Complete,
    Move::SteerTurn,
    Move::TimeOut,
    Move::TimeOutAndStop,
    Move::Transient,
    Move::Stop,
    Move::Kill,
    Move::Steer,
    Move::Redo,
];

/// Where the position comes from if the report of the agent is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LostReport {
    ReadFromDisk,
    Ignored,
}

#[derive(Clone, Debug)]
struct World {
    machine: Machine,
    /// The head that is on disk.
    saved: Head,
    sessions: BTreeMap<String, Vec<Record>>,
    /// The attempt whose agent runs, and whether the agent has saved its message.
    attempt: Option<(PromptContext, bool)>,
    lost_report: LostReport,
}

impl World {
    fn new(policy: SessionPolicy, lost_report: LostReport) -> Self {
        let machine = Machine::new(rules(|rules| {
            let phase = &mut rules.phases[0];
            phase.durable_session = true;
            phase.session = policy;
            phase.has_check = false;
            phase.limits = PhaseLimits {
                max_iterations: Some(3),
                iteration_timeout: Some(std::time::Duration::from_secs(9)),
                ..PhaseLimits::default()
            };
            rules.limits.max_failures = 0;
        }))
        .unwrap();
        let mut world = Self {
            saved: machine.head().clone(),
            machine,
            sessions: BTreeMap::new(),
            attempt: None,
            lost_report,
        };
        world.give(MachineInput::Started).unwrap();
        world
    }

    fn give(&mut self, what: MachineInput) -> Result<(), String> {
        // No rule of this model depends on the time, so that histories with the same result are one state.
        let effects = self.machine.step(crate::at(1_000, what));
        for effect in effects {
            match effect {
                Effect::Save | Effect::SavePhase { .. } => {
                    self.saved = self.machine.head().clone();
                }
                Effect::StartAttempt(brief) => {
                    if let Some(id) = &brief.new_session
                        && self.sessions.contains_key(id)
                    {
                        return Err(format!("the new session {id} exists already"));
                    }
                    self.attempt = Some((brief, false));
                }
                Effect::EndLeftovers => {
                    self.give(MachineInput::LeftoversEnded(Default::default()))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn position(&self) -> Option<u64> {
        let id = self.machine.head().session.as_ref()?;
        Some(self.sessions.get(id)?.len() as u64)
    }

    /// Returns the steers that began a turn, and that count as unread.
    fn unreported_steers(&self) -> Vec<u32> {
        let head = self.machine.head();
        let session = { head.session.as_ref() }.and_then(|id| self.sessions.get(id));
        let began = |id: &u32| session.is_some_and(|it| it.contains(&Record::Steer(*id)));
        let unseen = head.unseen_steers().map(|steer| steer.id);
        unseen.filter(began).collect()
    }

    /// Reports the position and the steers that began a turn to the machine, as the agent or the runner does.
    fn report_position(&mut self) -> Result<(), String> {
        let Some(position) = self.position() else {
            return Ok(());
        };
        self.give(MachineInput::SessionSaved { position })?;
        let state = SteerState::Seen;
        { self.unreported_steers().into_iter() }
            .try_for_each(|id| self.give(MachineInput::SteerAdvanced { id, state }))
    }

    fn end_turn(&mut self, outcome: TurnOutcome) -> Result<(), String> {
        self.attempt = None;
        self.give(MachineInput::TurnEnded(outcome))
    }

    /// A person stops the run at once, and resumes it later.
    fn stop_and_resume(&mut self) -> Result<(), String> {
        self.give(MachineInput::StopRequested(StopRequest {
            by: StopCause::Person,
            when: StopTiming::Now,
        }))?;
        self.end_turn(TurnOutcome::Stopped)?;
        self.resume()
    }

    fn resume(&mut self) -> Result<(), String> {
        self.machine = Machine::from(self.saved.clone());
        self.attempt = None;
        let (session_position, session_steers) = (self.position(), self.unreported_steers());
        self.give(MachineInput::Resumed(ResumeOptions {
            session_position,
            session_steers,
            ..ResumeOptions::default()
        }))
    }

    /// Saves the message of the attempt in its session, and checks that it neither repeats nor omits a message.
    fn save_message(&mut self) -> Result<(), String> {
        let (brief, is_saved) = self.attempt.as_mut().unwrap();
        *is_saved = true;
        let id = brief.session.as_ref().or(brief.new_session.as_ref());
        let session = self.sessions.entry(id.unwrap().clone()).or_default();
        let has_prompt = |record: &Record| matches!(record, Record::Message { prompt, .. } if *prompt == Some(brief.iteration));
        match (brief.has_prompt, session.iter().any(has_prompt)) {
            (true, false) => return Err("the prompt is lost".to_owned()),
            (false, true) => return Err("the prompt is repeated".to_owned()),
            _ => {}
        }
        let steers: Vec<u32> = brief.steers.iter().map(|steer| steer.id).collect();
        let has_steer = |id: u32| move |record: &Record| record.has_steer(id);
        if let Some(id) = { steers.iter() }.find(|id| session.iter().any(has_steer(**id))) {
            return Err(format!("steer {id} is repeated"));
        }
        session.push(Record::Message {
            prompt: (!brief.has_prompt).then_some(brief.iteration),
            steers,
        });
        let head = self.machine.head();
        let waits = |id: u32| {
            let steer = head.steers.iter().find(|steer| steer.id == id);
            steer.is_some_and(|steer| steer.state != SteerState::Seen)
        };
        let is_anywhere = |id: u32| self.sessions.values().flatten().any(has_steer(id));
        match (1..=head.counts.steers).find(|id| !waits(*id) && !is_anywhere(*id)) {
            Some(id) => Err(format!("steer {id} is lost")),
            None => Ok(()),
        }
    }

    fn save(&mut self, record: Record) {
        let id = self.machine.head().session.clone().unwrap();
        self.sessions.entry(id).or_default().push(record);
    }

    /// Returns the oldest steer that the agent doesn't have.
    fn waiting_steer(&self) -> Option<u32> {
        let unreported = self.unreported_steers();
        let mut unseen = self.machine.head().unseen_steers().map(|steer| steer.id);
        unseen.find(|id| !unreported.contains(id))
    }

    /// Makes a move; returns `None` if it is not possible now.
    fn make(&self, what: Move) -> Option<Result<Self, String>> {
        let is_turn = matches!(self.machine.head().step, IterationStep::Turn { .. });
        let has_message = self.attempt.as_ref().is_some_and(|(_, is_saved)| *is_saved);
        let is_possible = match what {
            Move::Save | Move::NotStarted => is_turn && !has_message,
            Move::Answer | Move::Complete => is_turn && has_message,
            Move::SteerTurn => is_turn && has_message && self.waiting_steer().is_some(),
            Move::TimeOut | Move::TimeOutAndStop | Move::Transient | Move::Stop | Move::Redo => {
                is_turn
            }
            Move::Steer => is_turn && self.machine.head().counts.steers < 2,
            Move::Kill => true,
        };
        let mut next = self.clone();
        let made = is_possible.then(|| next.carry_out(what))?;
        Some(made.map(|()| next))
    }

    fn carry_out(&mut self, what: Move) -> Result<(), String> {
        match what {
            Move::Save => self.save_message(),
            Move::Answer => {
                self.save(Record::Work);
                self.give(MachineInput::PromptReceived)
            }
            Move::NotStarted => {
                self.end_turn(TurnOutcome::NotStarted("no memory".to_owned()))?;
                match self.machine.head().end.is_some() {
                    true => self.resume(),
                    false => Ok(()),
                }
            }
            Move::Complete => {
                self.save(Record::Work);
                self.give(MachineInput::PromptReceived)?;
                self.report_position()?;
                self.end_turn(TurnOutcome::Completed)
            }
            Move::SteerTurn => {
                let id = self.waiting_steer().unwrap();
                let state = SteerState::Delivered;
                self.give(MachineInput::SteerAdvanced { id, state })?;
                self.save(Record::Work);
                self.give(MachineInput::PromptReceived)?;
                self.report_position()?;
                self.save(Record::Steer(id));
                Ok(())
            }
            Move::TimeOutAndStop => {
                self.give(MachineInput::TimerExpired(Timer::Iteration))?;
                self.stop_and_resume()
            }
            Move::TimeOut | Move::Redo => {
                self.give(match what {
                    Move::TimeOut => MachineInput::TimerExpired(Timer::Iteration),
                    _ => MachineInput::Requested(Request::Redo {
                        what: loop_state::RedoScope::Iteration,
                    }),
                })?;
                if self.lost_report == LostReport::ReadFromDisk {
                    self.report_position()?;
                }
                self.end_turn(TurnOutcome::Stopped)
            }
            Move::Transient => {
                self.report_position()?;
                self.end_turn(TurnOutcome::Transient("529".to_owned()))?;
                self.give(MachineInput::Requested(Request::Skip))
            }
            Move::Stop => self.stop_and_resume(),
            Move::Kill => self.resume(),
            Move::Steer => {
                let (text, now) = ("mind the docs".to_owned(), false);
                self.give(MachineInput::Requested(Request::Steer { text, now }))
            }
        }
    }
}

/// The moves of the first iteration.
const FIRST_ITERATION: [Move; 2] = [Move::Save, Move::Complete];

/// The moves after which only the session of an earlier attempt has a steer.
const STEER_IN_SESSION: [Move; 4] = [Move::Steer, Move::Kill, Move::Save, Move::Kill];

/// Explores all histories of `depth` moves after the moves `begin`; returns the number of states, or the first history that loses or repeats a message.
fn explore(
    policy: SessionPolicy,
    lost_report: LostReport,
    begin: &[Move],
    depth: usize,
) -> Result<usize, String> {
    let mut first = World::new(policy, lost_report);
    for what in begin {
        first = first.make(*what).unwrap()?;
    }
    let mut level = vec![(first, Vec::new())];
    let mut known = HashSet::default();
    for _ in 0..depth {
        let mut next = Vec::new();
        for (world, path) in &level {
            for what in MOVES {
                let path: Vec<Move> = path.iter().copied().chain([what]).collect();
                let Some(made) = world.make(what) else {
                    continue;
                };
                let after = made.map_err(|why| format!("{why} after {path:?}"))?;
                let seen = (&after.saved, after.machine.head(), &after.sessions);
                if known.insert(format!("{seen:?} {:?}", after.attempt)) {
                    next.push((after, path));
                }
            }
        }
        level = next;
    }
    Ok(known.len())
}

#[test]
fn a6_no_short_history_loses_or_repeats_a_message() {
    for policy in [SessionPolicy::Fresh, SessionPolicy::Continue] {
        for (begin, depth) in [(&[][..], 5), (&FIRST_ITERATION, 5), (&STEER_IN_SESSION, 4)] {
            let states = explore(policy, LostReport::ReadFromDisk, begin, depth).unwrap();
            println!("{policy:?}: {states} states");
            assert!(states > 1_000, "{states}");
        }
    }
}

/// The control: the position must be known before the next attempt begins.
#[test]
fn a6_search_finds_a_prompt_that_is_lost_with_the_position() {
    let found = explore(
        SessionPolicy::Continue,
        LostReport::Ignored,
        &FIRST_ITERATION,
        4,
    )
    .unwrap_err();
    assert!(found.starts_with("the prompt is lost"), "{found}");
}
