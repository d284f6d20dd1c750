//! The bookkeeping of a conversation, pure: which input is where, which turn runs, what is open in it.
//!
//! A message that is handed on while no turn runs is assigned a turn at once. One that is handed on during a turn is *sent*: it belongs to no turn
//! until the agent names it. An agent may also begin turns by itself; when one of those turns out to run first, the assigned turn waits *ahead*.

mod agent;
mod report;
mod sent;
mod session;
#[cfg(test)]
mod tests;
mod turn;

use std::time::SystemTime;

use uuid::Uuid;

use crate::inbox::{Accepted, Inbox};
use crate::published::{Completion, InputRef};
use crate::{
    Error, Event, ExitStatus, Input, InputPolicy, InputState, Message, Receipt, Recovered,
    SessionChoice, ToolOutcome, TurnEnd, TurnId, What,
};
use report::Report;
use sent::Sent;
use session::Sessions;
use turn::{Begun, Parcel, Turn};

/// How many tools, and how many asks, are kept track of at once; an agent that opens more is out of its mind.
const MAX_OPEN: usize = 1000;

/// What a ledger has to know of its conversation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// How many inputs may be pending.
    pub(crate) capacity: usize,
    pub(crate) policy: InputPolicy,
    /// Whether an agent can go on with a session.
    pub(crate) resumes: bool,
    /// Whether what was handed to an agent, and is in no turn when it ends, is for the next one. Otherwise the turn that runs then took it.
    pub(crate) redelivers: bool,
}

#[derive(Debug)]
pub(crate) struct Ledger {
    terms: Terms,
    inbox: Inbox,
    /// On its way to the agent.
    handing: Option<(Uuid, Vec<Accepted>)>,
    sent: Sent,
    /// The one that the agent's events belong to.
    turn: Option<Turn>,
    /// Assigned, but the agent runs another one first.
    ahead: Option<Turn>,
    tools: Vec<String>,
    asks: Vec<String>,
    /// Asks that the agent waits for, as far as is known: also those of a turn that is over, for it may ask on behalf of something else.
    unanswered: Vec<String>,
    turns: u64,
    last: Option<TurnId>,
    generation: u32,
    /// Whether this connection says when turns begin. Then one that did not begin can't be finished.
    announces: bool,
    /// How many tasks the agent said to have running in the background.
    background: u32,
    /// Whether the agent takes messages within its turn just now.
    polled: bool,
    sessions: Sessions,
    exit: Option<ExitStatus>,
}

impl Ledger {
    pub(crate) fn new(terms: Terms, recovered: Recovered) -> Self {
        let mut inbox = Inbox::new(terms.capacity);
        inbox.recover(recovered.accepted, recovered.pending);
        Self {
            terms,
            inbox,
            handing: None,
            sent: Sent::default(),
            turn: None,
            ahead: None,
            tools: Vec::new(),
            asks: Vec::new(),
            unanswered: Vec::new(),
            turns: recovered.turns,
            last: (recovered.turns > 0).then_some(TurnId(recovered.turns)),
            generation: 0,
            announces: false,
            background: 0,
            polled: false,
            sessions: Sessions::new(terms.resumes, recovered.session),
            exit: None,
        }
    }

    pub(crate) fn inbox(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    /// Returns the session that the next agent goes on with, unless somebody says otherwise.
    pub(crate) fn session(&self) -> &SessionChoice {
        self.sessions.next()
    }

    /// An agent is being started in this session, or is to be.
    pub(crate) fn chosen(&mut self, session: SessionChoice) {
        self.sessions.chosen(session);
    }

    /// Returns whether inputs wait.
    pub(crate) fn has_waiting(&self) -> bool {
        self.inbox.len() > 0
    }

    /// Forgets that an input was ever accepted, unless the agent has it.
    pub(crate) fn withdraw(&mut self, receipt: Uuid) {
        self.inbox.withdraw(receipt);
        if let Some((_, inputs)) = &mut self.handing {
            inputs.retain(|accepted| accepted.receipt != receipt);
        }
    }

    /// Returns whether a turn runs, or one was promised by handing a message on.
    pub(crate) fn in_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Returns whether the agent has anything to do, as far as is known.
    pub(crate) fn is_busy(&self) -> bool {
        self.turn.is_some() || !self.sent.is_empty()
    }

    /// Returns whether the agent has something running in the background, as far as is known.
    pub(crate) fn has_background(&self) -> bool {
        self.background > 0
    }

    /// Iterates over the inputs that no turn took, oldest first.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &Input> {
        let handed = self.sent.iter().chain(&self.handing);
        handed
            .flat_map(|(_, inputs)| inputs)
            .chain(self.inbox.iter())
            .map(|accepted| &accepted.input)
    }

    /// Returns how many those are.
    fn pending_count(&self) -> usize {
        let handing = self.handing.as_ref().map_or(0, |(_, inputs)| inputs.len());
        self.sent.inputs() + handing + self.inbox.len()
    }

    /// Takes an input. The error is [`Error::is_full`].
    pub(crate) fn accept(
        &mut self,
        input: Input,
        id: Uuid,
        at: SystemTime,
    ) -> Result<Receipt, Error> {
        let elsewhere = self.pending_count() - self.inbox.len();
        self.inbox.accept(input, elsewhere, id, at)
    }

    /// A new connection is open, in the session that was [chosen](Self::chosen).
    pub(crate) fn connected(&mut self) {
        self.generation += 1;
        self.announces = false;
        self.background = 0;
        self.polled = false;
        self.exit = None;
        if *self.session() == SessionChoice::Fresh {
            self.last = None;
        }
    }

    /// The connection has nothing more to say: what is owed is written, and what no turn took waits again, or is in the one that ends like this.
    pub(crate) fn connection_ended(&mut self, mut end: TurnEnd) -> Vec<What> {
        let mut report = Report::default();
        let sent = self.sent.drain().into_iter();
        if self.terms.redelivers {
            self.kept_back();
            sent.rev()
                .for_each(|(_, inputs)| self.inbox.put_back(inputs));
        } else {
            let sent = sent.chain(self.handing.take());
            let lost: Vec<_> = sent.map(|(id, inputs)| Parcel::new(id, &inputs)).collect();
            if self.turn.is_some() {
                self.inject(lost, &mut report);
            } else if !lost.is_empty() {
                self.open(lost, Begun::No, &mut report);
            }
        }
        end.exit = end.exit.or(self.exit);
        while self.turn.is_some() {
            self.complete(&end, &mut report);
        }
        self.close_open(&mut report);
        self.unanswered.clear();
        report.finish()
    }

    /// Ends the turn that runs, and with it one whose messages all went into it.
    fn complete(&mut self, end: &TurnEnd, report: &mut Report) {
        self.close_open(report);
        let turn = self.turn.take();
        self.completion(turn, end, report);
        self.turn = self.ahead.take();
        if self.turn.as_ref().is_some_and(Turn::is_empty) {
            let folded = self.turn.take();
            self.completion(folded, end, report);
        }
    }

    fn completion(&mut self, turn: Option<Turn>, end: &TurnEnd, report: &mut Report) {
        let Some(turn) = turn else {
            return;
        };
        self.last = Some(turn.id);
        let ahead = self.ahead.iter().flat_map(|turn| &turn.messages);
        let ahead: usize = ahead.map(|parcel| parcel.names().len()).sum();
        report.say(What::Completed(Completion {
            turn: turn.id,
            end: end.clone(),
            pending: self.pending_count() + ahead,
        }));
    }

    /// Writes the ends that a turn owes to its readers.
    fn close_open(&mut self, report: &mut Report) {
        for id in self.tools.drain(..) {
            report.pass(Event::ToolFinished {
                id,
                outcome: ToolOutcome::Cut,
                text: String::new(),
            });
        }
        for id in std::mem::take(&mut self.asks) {
            let id = self.ask_name(&id);
            report.pass(Event::PermissionWithdrawn { id });
        }
    }

    fn open(&mut self, messages: Vec<Parcel>, begun: Begun, report: &mut Report) {
        self.turns += 1;
        let chosen = messages.iter().flat_map(Parcel::parents).next();
        let turn = self.turn.insert(Turn {
            id: TurnId(self.turns),
            parent: chosen.or(self.last),
            forked: chosen.is_some(),
            messages: Vec::new(),
            begun,
            queued: false,
        });
        turn.assign(messages, self.generation, false, report);
    }

    fn inject(&mut self, messages: Vec<Parcel>, report: &mut Report) {
        if let Some(turn) = self.turn.as_mut().filter(|_| !messages.is_empty()) {
            turn.assign(messages, self.generation, true, report);
        }
    }

    /// Takes messages out of where they wait for their turn, to put them into one.
    fn take(&mut self, messages: &[Uuid]) -> Vec<Parcel> {
        let mut taken = Vec::new();
        if let Some(ahead) = &mut self.ahead {
            taken.extend(ahead.messages.extract_if(.., |p| messages.contains(&p.id)));
        }
        let sent = self.sent.take(messages).into_iter();
        taken.extend(sent.map(|(id, inputs)| Parcel::new(id, &inputs)));
        taken
    }

    /// Returns the inputs that a message is made of, as long as it is of any concern.
    fn names(&self, message: Uuid) -> Vec<InputRef> {
        let turns = self.turn.iter().chain(&self.ahead);
        if let Some(parcel) = turns
            .flat_map(|turn| &turn.messages)
            .find(|p| p.id == message)
        {
            return parcel.names().to_vec();
        }
        let sent = self.sent.iter().find(|(id, _)| *id == message);
        sent.map_or_else(Vec::new, |(_, inputs)| {
            inputs.iter().map(Accepted::name).collect()
        })
    }
}

/// Notes that something with this id is open; false when it was before, or when there is no room to note it.
fn open(list: &mut Vec<String>, id: &str) -> bool {
    let new = list.len() < MAX_OPEN && !list.iter().any(|open| open == id);
    if new {
        list.push(id.to_owned());
    }
    new
}

/// Notes that something is over; false when it was not open.
fn close(list: &mut Vec<String>, id: &str) -> bool {
    let at = list.iter().position(|open| open == id);
    at.map(|at| list.remove(at)).is_some()
}

impl Ledger {
    /// Returns what is to be handed on next, if there is anything: everything that may be when no turn runs, or when one runs that takes messages just
    /// now; one input at a time when the agent can be steered.
    ///
    /// One of [`handed_on`](Self::handed_on) and [`kept_back`](Self::kept_back) has to follow.
    pub(crate) fn offer(&mut self, id: Uuid) -> Option<(Message, Vec<Uuid>)> {
        if self.handing.is_some() {
            // A halt came in between; the end of the connection says what becomes of it.
            return None;
        }
        let ready = self.inbox.len();
        let count = match self.terms.policy {
            _ if self.turn.is_none() => ready,
            InputPolicy::Push => ready.min(1),
            InputPolicy::Poll if self.polled => ready,
            InputPolicy::Poll | InputPolicy::AfterTurn => 0,
        };
        if count == 0 {
            return None;
        }
        let inputs = self.inbox.take(count);
        let texts: Vec<&str> = inputs.iter().map(|i| i.input.text.as_str()).collect();
        let text = texts.join("\n\n");
        let receipts = inputs.iter().map(|input| input.receipt).collect();
        self.handing = Some((id, inputs));
        Some((Message { id, text }, receipts))
    }

    /// The agent goes on with its turn.
    pub(crate) fn goes_on(&mut self) {
        self.polled = false;
    }

    /// The agent has the message that was offered.
    pub(crate) fn handed_on(&mut self) -> Vec<What> {
        let mut report = Report::default();
        if let Some((id, inputs)) = self.handing.take() {
            let parcel = Parcel::new(id, &inputs);
            if self.turn.is_none() {
                self.open(vec![parcel], Begun::No, &mut report);
            } else if self.terms.policy == InputPolicy::Poll {
                self.inject(vec![parcel], &mut report);
            } else {
                self.sent.push(id, inputs);
            }
        }
        report.finish()
    }

    /// The agent did not get the message that was offered.
    pub(crate) fn kept_back(&mut self) {
        if let Some((_, inputs)) = self.handing.take() {
            self.inbox.put_back(inputs);
        }
    }

    /// Forgets the inputs that wait.
    pub(crate) fn drop_waiting(&mut self, why: &str) -> Vec<What> {
        let waiting = self.inbox.take(usize::MAX);
        throw_away(&waiting, why)
    }

    /// Forgets the inputs that wait and that somebody follows.
    pub(crate) fn drop_followed(&mut self, why: &str) -> Vec<What> {
        let followed = self.inbox.take_followed();
        throw_away(&followed, why)
    }
}

fn throw_away(inputs: &[Accepted], why: &str) -> Vec<What> {
    let mut report = Report::default();
    for accepted in inputs {
        report.pass(Event::Input {
            id: accepted.receipt,
            state: InputState::Dropped(why.to_owned()),
        });
    }
    report.finish()
}
