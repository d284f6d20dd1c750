//! The pure records of a conversation: the place of each input, the running turn, and the open tools and permission requests in it.
//!
//! A message that is delivered while no turn runs is assigned to a turn immediately. A message that is delivered during a turn is *sent*: the message
//! belongs to no turn until the agent reports its turn. An agent can also start turns by itself; if such a turn runs first, the assigned turn waits
//! as the *next turn*.

mod agent;
mod event_batch;
mod sent;
mod session;
#[cfg(test)]
mod tests;
mod turn;

use std::time::SystemTime;

use uuid::Uuid;

use crate::inbox::{AcceptedInput, Inbox};
use crate::published::{Completion, InputRef};
use crate::{
    ConversationEvent, Error, Event, ExitStatus, Input, InputPolicy, InputState, Message, Receipt,
    RecoveredConversation, SessionChoice, ToolOutcome, TurnEnd, TurnId,
};
use event_batch::EventBatch;
use sent::SentMessages;
use session::Sessions;
use turn::{Turn, TurnMessage, TurnStart};

/// The maximum number of tools, and of permission requests, that are tracked at once. More of them are a fault of the agent.
const MAX_OPEN: usize = 1000;

/// The settings of a ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LedgerConfig {
    /// The maximum number of pending inputs.
    pub(crate) capacity: usize,
    pub(crate) policy: InputPolicy,
    /// Whether an agent can continue a session.
    pub(crate) can_resume: bool,
    /// Whether messages that were delivered and are in no turn when their agent ends are for the next agent. Otherwise they belong to the turn that
    /// runs then.
    pub(crate) may_redeliver: bool,
}

#[derive(Debug)]
pub(crate) struct Ledger {
    config: LedgerConfig,
    inbox: Inbox,
    /// The message that is being delivered.
    in_delivery: Option<(Uuid, Vec<AcceptedInput>)>,
    sent: SentMessages,
    /// The turn of the agent's events.
    turn: Option<Turn>,
    /// An assigned turn that waits, because the agent runs another turn first.
    next_turn: Option<Turn>,
    tools: Vec<String>,
    permission_requests: Vec<String>,
    /// Permission requests to which the agent may still expect an answer, even from a turn that has ended: a background task can ask.
    open_requests: Vec<String>,
    turns: u64,
    last: Option<TurnId>,
    generation: u32,
    /// Whether this connection reports the starts of turns. Then a turn without a start can't be finished.
    reports_turn_starts: bool,
    /// The number of background tasks that the agent reported.
    background_tasks: u32,
    /// Whether the agent accepts messages within its turn now.
    accepts_messages: bool,
    sessions: Sessions,
    exit: Option<ExitStatus>,
}

impl Ledger {
    pub(crate) fn new(config: LedgerConfig, recovered: RecoveredConversation) -> Self {
        let mut inbox = Inbox::new(config.capacity);
        inbox.recover(recovered.accepted, recovered.pending);
        Self {
            config,
            inbox,
            in_delivery: None,
            sent: SentMessages::default(),
            turn: None,
            next_turn: None,
            tools: Vec::new(),
            permission_requests: Vec::new(),
            open_requests: Vec::new(),
            turns: recovered.turns,
            last: (recovered.turns > 0).then_some(TurnId(recovered.turns)),
            generation: 0,
            reports_turn_starts: false,
            background_tasks: 0,
            accepts_messages: false,
            sessions: Sessions::new(config.can_resume, recovered.session),
            exit: None,
        }
    }

    pub(crate) fn inbox(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    /// Returns the session that the next agent continues, unless a caller chooses another.
    pub(crate) fn session(&self) -> &SessionChoice {
        self.sessions.next()
    }

    /// Records the session of an agent that starts now, or will start.
    pub(crate) fn set_session(&mut self, session: SessionChoice) {
        self.sessions.set_session(session);
    }

    /// Returns whether inputs wait.
    pub(crate) fn has_waiting(&self) -> bool {
        self.inbox.len() > 0
    }

    /// Removes all traces of an accepted input, unless the agent has it.
    pub(crate) fn withdraw(&mut self, receipt: Uuid) {
        self.inbox.withdraw(receipt);
        if let Some((_, inputs)) = &mut self.in_delivery {
            inputs.retain(|accepted| accepted.receipt != receipt);
        }
    }

    /// Returns whether a turn runs, or will start because a message was delivered.
    pub(crate) fn in_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Returns whether the agent is known to have work.
    pub(crate) fn is_busy(&self) -> bool {
        self.turn.is_some() || !self.sent.is_empty()
    }

    /// Returns whether the agent is known to have background tasks.
    pub(crate) fn has_background(&self) -> bool {
        self.background_tasks > 0
    }

    /// Iterates over the inputs that are in no turn, oldest first.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &Input> {
        let handed = self.sent.iter().chain(&self.in_delivery);
        handed
            .flat_map(|(_, inputs)| inputs)
            .chain(self.inbox.iter())
            .map(|accepted| &accepted.input)
    }

    /// Returns the number of inputs that are in no turn.
    fn pending_count(&self) -> usize {
        let handing = self
            .in_delivery
            .as_ref()
            .map_or(0, |(_, inputs)| inputs.len());
        self.sent.inputs() + handing + self.inbox.len()
    }

    /// Accepts an input. The error is [`Error::is_full`].
    pub(crate) fn accept(
        &mut self,
        input: Input,
        id: Uuid,
        at: SystemTime,
    ) -> Result<Receipt, Error> {
        let elsewhere = self.pending_count() - self.inbox.len();
        self.inbox.accept(input, elsewhere, id, at)
    }

    /// Records a new connection, in the session that was [chosen](Self::set_session).
    pub(crate) fn connected(&mut self) {
        self.generation += 1;
        self.reports_turn_starts = false;
        self.background_tasks = 0;
        self.accepts_messages = false;
        self.exit = None;
        if matches!(
            self.session(),
            SessionChoice::Fresh | SessionChoice::Create(_)
        ) {
            self.last = None;
        }
    }

    /// Records the end of the connection: writes the missing events. Messages that are in no turn wait again, or belong to the turn that ends.
    pub(crate) fn connection_ended(&mut self, mut end: TurnEnd) -> Vec<ConversationEvent> {
        let mut report = EventBatch::default();
        let sent = self.sent.drain().into_iter();
        if self.config.may_redeliver {
            self.not_delivered();
            sent.rev()
                .for_each(|(_, inputs)| self.inbox.put_back(inputs));
        } else {
            let sent = sent.chain(self.in_delivery.take());
            let lost: Vec<_> = sent
                .map(|(id, inputs)| TurnMessage::new(id, &inputs))
                .collect();
            if self.turn.is_some() {
                self.inject(lost, &mut report);
            } else if !lost.is_empty() {
                self.open(lost, TurnStart::No, &mut report);
            }
        }
        end.exit = end.exit.or(self.exit);
        while self.turn.is_some() {
            self.complete(&end, &mut report);
        }
        self.close_open(&mut report);
        self.open_requests.clear();
        report.finish()
    }

    /// Ends the running turn. Also ends the next turn if the running turn took all its messages.
    fn complete(&mut self, end: &TurnEnd, report: &mut EventBatch) {
        self.close_open(report);
        let turn = self.turn.take();
        self.completion(turn, end, report);
        self.turn = self.next_turn.take();
        if self.turn.as_ref().is_some_and(Turn::is_empty) {
            let folded = self.turn.take();
            self.completion(folded, end, report);
        }
    }

    fn completion(&mut self, turn: Option<Turn>, end: &TurnEnd, report: &mut EventBatch) {
        let Some(turn) = turn else {
            return;
        };
        self.last = Some(turn.id);
        let ahead = self.next_turn.iter().flat_map(|turn| &turn.messages);
        let ahead: usize = ahead.map(|parcel| parcel.names().len()).sum();
        report.add(ConversationEvent::Completed(Completion {
            turn: turn.id,
            end: end.clone(),
            pending: self.pending_count() + ahead,
        }));
    }

    /// Writes the missing ends of the tools and permission requests of a turn.
    fn close_open(&mut self, report: &mut EventBatch) {
        for id in self.tools.drain(..) {
            report.add_event(Event::ToolFinished {
                id,
                outcome: ToolOutcome::Interrupted,
                text: String::new(),
            });
        }
        for id in std::mem::take(&mut self.permission_requests) {
            let id = self.request_id(&id);
            report.add_event(Event::PermissionWithdrawn { id });
        }
    }

    fn open(&mut self, messages: Vec<TurnMessage>, begun: TurnStart, report: &mut EventBatch) {
        self.turns += 1;
        let chosen = messages.iter().flat_map(TurnMessage::parents).next();
        let turn = self.turn.insert(Turn {
            id: TurnId(self.turns),
            parent: chosen.or(self.last),
            forked: chosen.is_some(),
            messages: Vec::new(),
            start: begun,
            queued: false,
        });
        turn.assign(messages, self.generation, false, report);
    }

    fn inject(&mut self, messages: Vec<TurnMessage>, report: &mut EventBatch) {
        if let Some(turn) = self.turn.as_mut().filter(|_| !messages.is_empty()) {
            turn.assign(messages, self.generation, true, report);
        }
    }

    /// Removes messages from the lists in which they wait for their turn, so that the caller can put them into a turn.
    fn take(&mut self, messages: &[Uuid]) -> Vec<TurnMessage> {
        let mut taken = Vec::new();
        if let Some(ahead) = &mut self.next_turn {
            taken.extend(ahead.messages.extract_if(.., |p| messages.contains(&p.id)));
        }
        let sent = self.sent.take(messages).into_iter();
        taken.extend(sent.map(|(id, inputs)| TurnMessage::new(id, &inputs)));
        taken
    }

    /// Returns the inputs of a message while the ledger still tracks it.
    fn names(&self, message: Uuid) -> Vec<InputRef> {
        let turns = self.turn.iter().chain(&self.next_turn);
        if let Some(parcel) = turns
            .flat_map(|turn| &turn.messages)
            .find(|p| p.id == message)
        {
            return parcel.names().to_vec();
        }
        let sent = self.sent.iter().find(|(id, _)| *id == message);
        sent.map_or_else(Vec::new, |(_, inputs)| {
            inputs.iter().map(AcceptedInput::name).collect()
        })
    }
}

/// Records that a tool or request with this id is open; returns false if it was already open, or if there is no room.
fn open(list: &mut Vec<String>, id: &str) -> bool {
    let new = list.len() < MAX_OPEN && !list.iter().any(|open| open == id);
    if new {
        list.push(id.to_owned());
    }
    new
}

/// Records that a tool or request has ended; returns false if it was not open.
fn close(list: &mut Vec<String>, id: &str) -> bool {
    let at = list.iter().position(|open| open == id);
    at.map(|at| list.remove(at)).is_some()
}

impl Ledger {
    /// Returns the next message to deliver, if there is one. The message contains all waiting inputs if no turn runs, or if the running turn
    /// accepts messages now. During a turn of an agent with [`InputPolicy::Push`], the message contains one input. An input with parts is a message of
    /// its own.
    ///
    /// The caller must call [`delivered`](Self::delivered) or [`not_delivered`](Self::not_delivered) next.
    pub(crate) fn next_message(&mut self, id: Uuid) -> Option<(Message, Vec<Uuid>)> {
        if self.in_delivery.is_some() {
            // A stop came in between; the end of the connection decides what happens to the message.
            return None;
        }
        let ready = self.inbox.joinable();
        let count = match self.config.policy {
            _ if self.turn.is_none() => ready,
            InputPolicy::Push => ready.min(1),
            InputPolicy::Poll if self.accepts_messages => ready,
            InputPolicy::Poll | InputPolicy::AfterTurn => 0,
        };
        if count == 0 {
            return None;
        }
        let inputs = self.inbox.take(count);
        let texts: Vec<&str> = inputs.iter().map(|i| i.input.text.as_str()).collect();
        let text = texts.join("\n\n");
        let parts = inputs.iter().flat_map(|i| i.input.parts.iter().cloned());
        let parts = parts.collect();
        let receipts = inputs.iter().map(|input| input.receipt).collect();
        let input_ids = inputs.iter().map(|input| input.input.id.clone()).collect();
        self.in_delivery = Some((id, inputs));
        let message = Message {
            id,
            text,
            parts,
            input_ids,
        };
        Some((message, receipts))
    }

    /// Records that the agent continues its turn.
    pub(crate) fn turn_continues(&mut self) {
        self.accepts_messages = false;
    }

    /// Records that the agent has the offered message.
    pub(crate) fn delivered(&mut self) -> Vec<ConversationEvent> {
        let mut report = EventBatch::default();
        if let Some((id, inputs)) = self.in_delivery.take() {
            let parcel = TurnMessage::new(id, &inputs);
            if self.turn.is_none() {
                self.open(vec![parcel], TurnStart::No, &mut report);
            } else if self.config.policy == InputPolicy::Poll {
                self.inject(vec![parcel], &mut report);
            } else {
                self.sent.push(id, inputs);
            }
        }
        report.finish()
    }

    /// Records that the agent did not get the offered message.
    pub(crate) fn not_delivered(&mut self) {
        if let Some((_, inputs)) = self.in_delivery.take() {
            self.inbox.put_back(inputs);
        }
    }

    /// Drops the waiting inputs, because a caller requested it.
    pub(crate) fn drop_waiting(&mut self, why: &str) -> Vec<ConversationEvent> {
        let waiting = self.inbox.take(usize::MAX);
        drop_inputs(&waiting, why, None)
    }

    /// Drops the waiting inputs that an execution follows.
    pub(crate) fn drop_followed(&mut self, refusal: &Error) -> Vec<ConversationEvent> {
        let followed = self.inbox.take_followed();
        drop_inputs(&followed, &refusal.to_string(), Some(refusal))
    }

    /// Drops the inputs of the offered message, which the agent can never take.
    pub(crate) fn drop_offered(&mut self, refusal: &Error) -> Vec<ConversationEvent> {
        let offered = self.in_delivery.take().map(|(_, inputs)| inputs);
        let offered = offered.unwrap_or_default();
        drop_inputs(&offered, &refusal.to_string(), Some(refusal))
    }
}

fn drop_inputs(
    inputs: &[AcceptedInput],
    why: &str,
    refusal: Option<&Error>,
) -> Vec<ConversationEvent> {
    let mut report = EventBatch::default();
    for accepted in inputs {
        if let (Some(follower), Some(refusal)) = (&accepted.follower, refusal) {
            // An input is dropped once.
            let _first = follower.set(refusal.clone());
        }
        report.add_event(Event::Input {
            id: accepted.receipt,
            state: InputState::Dropped(why.to_owned()),
        });
    }
    report.finish()
}
