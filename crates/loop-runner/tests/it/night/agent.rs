//! A simulated agent: it works for minutes, reports its usage, takes messages, and fails in every way that agents fail.

use std::collections::VecDeque;
use std::future::pending;
use std::time::Duration;

use agent_duplex::{
    BoxFuture, Capabilities, Capability, Connection, Driver, EndReason, Error, Event, ExitStatus,
    InputState, Message, Observation, ProcessName, QueuedMessages, SessionChoice, StopReport,
    StopStage, ToolOutcome, TurnEnd, Usage,
};
use cancellable_sleep::SleepGate;
use tokio::time::Instant;

use super::dice::Dice;
use super::phases::Place;
use super::world::{AgentRecord, EVENING, Ending, Outage, PIECE, Shared, lock};

#[derive(Clone, Debug)]
pub(crate) struct NightDriver {
    pub(crate) world: Shared,
    pub(crate) capabilities: Capabilities,
    pub(crate) place: Place,
    pub(crate) promises: bool,
}

impl Driver for NightDriver {
    fn name(&self) -> &str {
        "night"
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn connect(&self, session: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async move {
            let (seat, mut dice) = {
                let mut world = lock(&self.world);
                let place = self.place;
                world.note(format!("an agent starts, {place:?}: {session:?}"));
                world.attempt_begins(place);
                let life = world.life;
                world.seats.push(AgentRecord {
                    life,
                    place,
                    ending: None,
                    began: false,
                    halted: false,
                    judged: false,
                    resumes: matches!(session, SessionChoice::Resume(_)),
                });
                let seat = world.seats.len() - 1;
                (seat, Dice::new(world.seed, 1000 + seat as u64))
            };
            let nap = dice.seconds(0, 4);
            rest(nap).await;
            let mut world = lock(&self.world);
            if dice.hits(4) {
                world.seats[seat].ending = Some(Ending::NotStarted);
                world.note("the agent can't be started");
                return Err(Error::start("the program is being replaced", None));
            }
            let session = match session {
                SessionChoice::Resume(id) => id,
                _ => format!("s{seat}"),
            };
            drop(world);
            Ok(Box::new(Agent {
                driver: self.clone(),
                seat,
                session,
                named: false,
                said: None,
                dice,
                plan: VecDeque::new(),
                inbox: Vec::new(),
                unread: Vec::new(),
                tool: None,
                in_turn: false,
                over: false,
                frozen: None,
            }) as Box<dyn Connection>)
        })
    }
}

/// A planned action of an agent.
#[derive(Clone, Debug)]
enum Act {
    Say,
    Delta,
    Tool(bool),
    Use,
    Retry,
    Take(Message),
    Report(Box<Event>),
    End(Ending),
    /// The agent ends without a report.
    Vanish,
}

#[derive(Debug)]
struct Agent {
    driver: NightDriver,
    seat: usize,
    session: String,
    named: bool,
    dice: Dice,
    plan: VecDeque<(Instant, Act)>,
    /// The messages that the agent received and has not read yet.
    inbox: Vec<Message>,
    /// The last text of the agent in its turn.
    said: Option<String>,
    /// The inputs of the turn, while the agent has not answered yet.
    unread: Vec<Message>,
    tool: Option<u64>,
    in_turn: bool,
    over: bool,
    /// The time at which the agent was frozen, if it is frozen.
    frozen: Option<Instant>,
}

impl Agent {
    fn after(&mut self, time: Duration, act: Act) {
        let last = self.plan.back().map_or_else(Instant::now, |(at, _)| *at);
        self.plan.push_back((last + time, act));
    }

    /// Plans the actions of this turn.
    fn make_plan(&mut self) {
        let outage = lock(&self.driver.world).outcome_of_outage();
        let quick = self.dice.seconds(1, 40);
        if let Some((to, kind)) = outage {
            let reset = std::time::SystemTime::UNIX_EPOCH + EVENING + to;
            let (resets_at, end) = match kind {
                Outage::Down => return self.after(quick, Act::End(Ending::Service)),
                Outage::Quota => (Some(reset), Ending::Limited),
                Outage::SilentQuota => (None, Ending::Limited),
            };
            self.after(quick, limited(resets_at));
            return self.after(Duration::ZERO, Act::End(end));
        }
        if self.dice.hits(15) {
            return self.after(quick, Act::Vanish);
        }
        let think = self.dice.seconds(0, 30);
        self.after(think, Act::Delta);
        for _ in 0..self.dice.below(7) {
            let pause = self.dice.seconds(1, 150);
            match self.dice.below(5) {
                0 => self.after(pause, Act::Say),
                1 => self.after(pause, Act::Use),
                2 if self.dice.hits(100) => self.after(pause, Act::Retry),
                _ => {
                    self.after(pause, Act::Tool(true));
                    let long = self.dice.seconds(1, 500);
                    self.after(long, Act::Tool(false));
                }
            }
        }
        let pause = self.dice.seconds(1, 200);
        self.after(pause, Act::Use);
        let end = match self.dice.below(1000) {
            0..15 => Act::End(Ending::Failed),
            15..35 => Act::Vanish,
            35..50 => Act::End(Ending::Died),
            50..70 => Act::End(Ending::Service),
            70..110 => {
                let told = self.dice.hits(700).then(|| self.dice.seconds(0, 4000));
                let now = lock(&self.driver.world).now();
                // Some limits name a time in the past.
                self.after(
                    pause,
                    limited(told.map(|it| now + it - Duration::from_secs(100))),
                );
                Act::End(Ending::Limited)
            }
            // The agent hangs, or works forever.
            110..120 => return,
            120..127 => {
                for _ in 0..200 {
                    self.after(Duration::from_secs(100), Act::Delta);
                }
                return;
            }
            127..128 => Act::End(Ending::Login),
            128..134 if self.driver.promises => Act::End(Ending::Claimed),
            _ => Act::End(Ending::Completed),
        };
        if end.is_good() {
            self.after(pause, Act::Say);
        }
        self.after(Duration::from_millis(5), end);
    }

    /// Executes an action, and returns its visible events.
    fn act(&mut self, act: Act) -> Vec<Event> {
        let world = self.driver.world.clone();
        let mut world = lock(&world);
        let text = "I work.".to_owned();
        match act {
            // An agent that answers has read its messages; for other actions this is unknown.
            Act::Say | Act::Delta | Act::Tool(true) => {
                for message in self.unread.drain(..) {
                    world.saw(&self.session, &message.text);
                }
            }
            Act::Tool(_) | Act::Use | Act::Retry | Act::Take(_) => {}
            _ => world.note(format!("the agent: {act:?}")),
        }
        match act {
            Act::Say => {
                self.said = Some(format!("RESULT{}x{}", self.seat, self.dice.below(1000)));
                let text = format!("{text} {}", self.said.as_deref().unwrap_or_default());
                let partial = false;
                vec![Event::Message { text, partial }]
            }
            Act::Delta => vec![Event::TextDelta(text)],
            Act::Tool(true) => {
                let id = self.dice.roll();
                self.tool = Some(id);
                let (id, name, summary) = (id.to_string(), "Bash".into(), "make".into());
                vec![Event::ToolStarted { id, name, summary }]
            }
            Act::Tool(false) => {
                let finished = |id: u64| Event::ToolFinished {
                    id: id.to_string(),
                    outcome: ToolOutcome::Succeeded,
                    text: String::new(),
                };
                self.tool.take().map(finished).into_iter().collect()
            }
            Act::Use => {
                let cost = 1 + self.dice.below(PIECE);
                world.used += cost;
                let mut used = Usage::default();
                (used.cost_microusd, used.input_tokens) = (cost, cost / 10);
                vec![Event::UsageReported(used)]
            }
            Act::Retry => vec![Event::Retrying {
                attempt: 1,
                max_attempts: 10,
                delay: Duration::from_secs(400),
                status: Some(529),
                error: "overloaded".into(),
            }],
            Act::Take(message) => {
                self.inbox.retain(|it| it.id != message.id);
                world.saw(&self.session, &message.text);
                let (id, state) = (message.id, InputState::InTurn);
                vec![Event::Input { id, state }]
            }
            Act::Report(event) => vec![*event],
            Act::Vanish => {
                self.over = true;
                let seat = &mut world.seats[self.seat];
                (seat.ending, seat.judged) = (Some(Ending::Died), true);
                Vec::new()
            }
            Act::End(ending) => {
                self.in_turn = false;
                self.tool = None;
                let seat = &mut world.seats[self.seat];
                seat.ending = Some(ending);
                seat.judged |= ending != Ending::Limited;
                let result = self.said.take().filter(|_| ending == Ending::Completed);
                world.results.insert(self.driver.place.phase, result);
                let said = Event::Message {
                    text: "<promise>DONE</promise>".into(),
                    partial: false,
                };
                let mut end = TurnEnd::from(match ending {
                    Ending::Completed | Ending::Claimed => EndReason::Completed,
                    Ending::Died => EndReason::Died,
                    Ending::Service => EndReason::ServiceFailed,
                    Ending::Limited => EndReason::RateLimited,
                    Ending::Interrupted => EndReason::Interrupted,
                    Ending::Login => EndReason::NotLoggedIn,
                    _ => EndReason::Failed,
                });
                if ending == Ending::Died {
                    end.exit = Some(ExitStatus::Signal(9));
                    self.over = true;
                }
                let said = (ending == Ending::Claimed).then_some(said);
                said.into_iter()
                    .chain([Event::TurnCompleted(end)])
                    .collect()
            }
        }
    }

    /// Begins a turn with all messages in the inbox.
    fn begin(&mut self) -> Vec<Event> {
        let messages = std::mem::take(&mut self.inbox);
        let inputs = messages.iter().map(|message| message.id).collect();
        let mut world = lock(&self.driver.world);
        let turn = world.seats[self.seat].place.turn();
        let is_first = { world.seats.iter() }.position(|seat| seat.place.turn() == turn);
        let seat = &mut world.seats[self.seat];
        // A turn after a failed one can end before the run knows that the agent saw its messages.
        let in_vain = seat.ending.is_some_and(|it| !it.is_good());
        // An agent that is not logged in stays so: it can begin a turn for a queued message before the run ends it.
        seat.ending = seat.ending.filter(|it| *it == Ending::Login);
        // An agent that begins a turn for a message has seen it; its first turn begins in any case.
        if std::mem::replace(&mut seat.began, true) {
            world.turns_after_failure += u32::from(in_vain);
            for message in &messages {
                world.saw(&self.session, &message.text);
            }
        } else {
            let told = |word: &String| messages.iter().any(|it| it.text.contains(word));
            let failed = world.commands.word_for(turn).map(str::to_owned);
            let failed = failed.filter(|_| is_first == Some(self.seat));
            let knows = world.seats[self.seat].resumes;
            let result = world.result_for(turn.0).filter(|_| turn.1 == 1 && !knows);
            for word in [failed, result].into_iter().flatten() {
                world.holds(told(&word), || {
                    format!("the agent of {turn:?} does not get {word}")
                });
            }
            let prompt = format!("Work for p{}.", turn.0);
            let is_continued = world.seats[self.seat].resumes;
            world.holds(
                is_continued || messages.iter().any(|it| it.text.contains(&prompt)),
                || format!("the agent of {turn:?} has the prompt of another phase"),
            );
            self.unread = messages;
        }
        drop(world);
        self.in_turn = true;
        self.said = None;
        self.make_plan();
        vec![Event::TurnStarted { inputs }]
    }
}

impl Act {
    fn is_good(&self) -> bool {
        matches!(self, Self::End(Ending::Completed | Ending::Claimed))
    }
}

/// Sleeps: nobody shuts this sleep gate.
async fn rest(time: Duration) {
    let _elapsed = SleepGate::new().sleep(time).await;
}

fn limited(resets_at: Option<std::time::SystemTime>) -> Act {
    Act::Report(Box::new(Event::RateLimited {
        rejected: true,
        resets_at,
        limit: "five hours".into(),
    }))
}

impl Connection for Agent {
    fn send(&mut self, message: Message) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            if self.over {
                return Err(Error::agent_gone("it is gone"));
            }
            let takes = self.driver.capabilities.has(Capability::Steer) && self.in_turn;
            let look = Instant::now() + self.dice.seconds(0, 30);
            let place = self.plan.iter().position(|(at, _)| *at > look);
            if let (true, Some(place)) = (takes, place) {
                self.plan.insert(place, (look, Act::Take(message.clone())));
            }
            self.inbox.push(message);
            Ok(())
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Observation>> {
        Box::pin(async move {
            loop {
                if self.frozen.is_some() {
                    return pending().await;
                }
                if self.over && self.plan.is_empty() {
                    return None;
                }
                if !std::mem::replace(&mut self.named, true) {
                    if self.dice.hits(10) {
                        self.over = true;
                        let mut world = lock(&self.driver.world);
                        world.note("the agent ends at once");
                        world.seats[self.seat].ending = Some(Ending::Died);
                        return None;
                    }
                    let id = self.session.clone();
                    return Some(Event::Session { id }.into());
                }
                let events = if !self.in_turn && !self.over && !self.inbox.is_empty() {
                    self.begin()
                } else {
                    let Some((at, _)) = self.plan.front() else {
                        return pending().await;
                    };
                    rest(at.saturating_duration_since(Instant::now())).await;
                    let (_, act) = self.plan.pop_front().expect("the plan is not empty");
                    self.act(act)
                };
                if !events.is_empty() {
                    return Some(Observation { raw: None, events });
                }
            }
        })
    }

    fn interrupt(&mut self, queued: QueuedMessages) -> BoxFuture<'_, Result<(), Error>> {
        let ignores_interrupt = self.dice.hits(80);
        if self.in_turn && !ignores_interrupt && !self.over {
            self.plan.clear();
            if queued == QueuedMessages::Drop {
                for message in std::mem::take(&mut self.inbox) {
                    let state = InputState::Dropped("interrupted".into());
                    let event = Event::Input {
                        id: message.id,
                        state,
                    };
                    self.after(Duration::ZERO, Act::Report(Box::new(event)));
                }
            }
            let time = self.dice.seconds(0, 2);
            self.after(time, Act::End(Ending::Interrupted));
        }
        let mut world = lock(&self.driver.world);
        world.note(format!(
            "the agent is interrupted ({queued:?}, ignores it: {ignores_interrupt})"
        ));
        world.seats[self.seat].halted = true;
        Box::pin(async { Ok(()) })
    }

    fn freeze(&mut self, frozen: bool) -> BoxFuture<'_, Result<(), Error>> {
        lock(&self.driver.world).note(format!("the agent is frozen: {frozen}"));
        if frozen {
            self.frozen.get_or_insert_with(Instant::now);
        } else if let Some(since) = self.frozen.take() {
            let frozen_for = since.elapsed();
            self.plan.iter_mut().for_each(|(at, _)| *at += frozen_for);
        }
        Box::pin(async { Ok(()) })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        if !self.over && !self.in_turn {
            self.over = true;
            self.plan.clear();
            let exited = Event::Exited(ExitStatus::Code(0));
            self.after(Duration::from_millis(3), Act::Report(Box::new(exited)));
        }
        Box::pin(async {})
    }

    fn leftovers(&mut self) -> BoxFuture<'_, Vec<ProcessName>> {
        let there = self.dice.hits(50);
        let server = ProcessName {
            pid: 1 << 30,
            name: "server".into(),
        };
        Box::pin(async move { there.then_some(server).into_iter().collect() })
    }

    fn stop(&mut self, budget: Duration) -> BoxFuture<'_, StopReport> {
        let time = self.dice.seconds(0, 3).min(budget);
        self.over = true;
        self.plan.clear();
        let mut world = lock(&self.driver.world);
        world.seats[self.seat].halted = true;
        drop(world);
        Box::pin(async move {
            rest(time).await;
            StopReport {
                stage: StopStage::Terminate,
                ended: Vec::new(),
                survivors: Vec::new(),
                proven: true,
            }
        })
    }
}
