//! The helpers of the tests: a conversation with a scripted agent, and the events that were read.

use std::time::Duration;

use agent_duplex::scripted::{ContractChecker, ScriptedDriver};
use agent_duplex::{
    Capabilities, Capability, Completion, Conversation, ConversationEvent, ConversationOptions,
    Event, Input, Lifecycle, Persistence, Primary, Receipt, RecoveredConversation, RestartPolicy,
    SessionChoice,
};

/// The time limit for every wait that normally ends immediately.
const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) fn steered() -> Capabilities {
    Capabilities::none()
        .with(Capability::Steer)
        .with(Capability::Interrupt)
}

pub(crate) fn resumable() -> Capabilities {
    steered().with(Capability::Resume)
}

pub(crate) fn restarting() -> ConversationOptions {
    ConversationOptions::default().with_restart(RestartPolicy::default())
}

pub(crate) fn delta(text: &str) -> Event {
    Event::TextDelta(text.into())
}

/// Waits for an event that must come soon.
#[track_caller]
pub(crate) fn soon<T>(what: impl Future<Output = T>) -> impl Future<Output = T> {
    let asked = std::panic::Location::caller();
    async move {
        let came = tokio::time::timeout(DEADLINE, what).await;
        came.unwrap_or_else(|_| panic!("the wait at {asked} never ended"))
    }
}

pub(crate) struct TestConversation {
    pub(crate) conversation: Conversation,
    pub(crate) primary: Primary,
    pub(crate) driver: ScriptedDriver,
    pub(crate) audit: ContractChecker,
    pub(crate) read: Vec<ConversationEvent>,
    sequence: u64,
}

impl TestConversation {
    pub(crate) fn with(driver: ScriptedDriver) -> Self {
        Self::limited(driver, ConversationOptions::default().with_manual_start())
    }

    pub(crate) fn limited(driver: ScriptedDriver, options: ConversationOptions) -> Self {
        let (conversation, primary) = Conversation::with_primary(Box::new(driver.clone()), options);
        Self::of(conversation, primary, driver)
    }

    /// Returns a conversation that starts its agents automatically.
    pub(crate) fn restarting(driver: ScriptedDriver) -> Self {
        Self::limited(driver, restarting())
    }

    pub(crate) async fn stored(
        driver: ScriptedDriver,
        options: ConversationOptions,
        persistence: impl Persistence,
    ) -> (Self, RecoveredConversation) {
        let opened = Conversation::open_with_primary(
            Box::new(driver.clone()),
            options,
            Box::new(persistence),
        );
        let (conversation, primary, recovered) = soon(opened).await.expect("the store can be read");
        let mut talk = Self::of(conversation, primary, driver);
        for (receipt, _) in &recovered.pending {
            talk.audit.accepted(receipt);
        }
        (talk, recovered)
    }

    fn of(conversation: Conversation, primary: Primary, driver: ScriptedDriver) -> Self {
        Self {
            conversation,
            primary,
            driver,
            audit: ContractChecker::new(),
            read: Vec::new(),
            sequence: 0,
        }
    }

    pub(crate) fn send(&mut self, text: &str) -> Receipt {
        let receipt = self
            .conversation
            .send(Input::new(text))
            .expect("there is room");
        self.audit.accepted(&receipt);
        receipt
    }

    pub(crate) async fn start(&self) {
        soon(self.conversation.start(SessionChoice::Fresh))
            .await
            .expect("there is a script");
    }

    /// Reads one more event; returns false at the end.
    pub(crate) async fn read(&mut self) -> bool {
        let Some(published) = soon(self.primary.next()).await else {
            return false;
        };
        self.sequence += 1;
        assert_eq!(published.sequence, self.sequence);
        self.audit.observe(&published.event);
        self.read.push(published.event);
        true
    }

    pub(crate) async fn read_until(
        &mut self,
        wanted: impl Fn(&ConversationEvent) -> bool,
    ) -> ConversationEvent {
        loop {
            assert!(
                self.read().await,
                "the conversation ended before: {:#?}",
                self.read
            );
            let last = self.read.last().expect("an event was read");
            if wanted(last) {
                return last.clone();
            }
        }
    }

    pub(crate) async fn completed(&mut self) -> Completion {
        let what = self.read_until(|what| matches!(what, ConversationEvent::Completed(_)));
        let ConversationEvent::Completed(completion) = what.await else {
            unreachable!()
        };
        completion
    }

    pub(crate) async fn observed(&mut self, event: Event) {
        self.read_until(
            |what| matches!(what, ConversationEvent::Observed(seen) if seen.events.contains(&event)),
        )
        .await;
    }

    pub(crate) async fn warned(&mut self) -> String {
        let warned = self.read_until(|what| warning(what).is_some()).await;
        warning(&warned).expect("the event is a warning")
    }

    pub(crate) async fn warns(&mut self, text: &str) {
        let says =
            |what: &ConversationEvent| warning(what).is_some_and(|warning| warning.contains(text));
        self.read_until(says).await;
    }

    pub(crate) async fn becomes(&mut self, lifecycle: Lifecycle) {
        self.read_until(|what| *what == ConversationEvent::Lifecycle(lifecycle))
            .await;
    }

    pub(crate) async fn read_all(&mut self) {
        while self.read().await {}
        assert_eq!(self.audit.running(), 0);
        assert_eq!(
            self.read.last(),
            Some(&ConversationEvent::Lifecycle(Lifecycle::Ended))
        );
        assert_eq!(self.conversation.lifecycle(), Lifecycle::Ended);
    }

    /// Returns the turns in the order of their assignments, each with the number of its inputs, and whether it was injected.
    pub(crate) fn assignments(&self) -> Vec<(String, usize, bool)> {
        let assigned = self.read.iter().filter_map(|what| match what {
            ConversationEvent::Assigned(a) => {
                Some((a.turn.to_string(), a.inputs.len(), a.injected))
            }
            _ => None,
        });
        assigned.collect()
    }
}

pub(crate) fn warning(what: &ConversationEvent) -> Option<String> {
    let ConversationEvent::Observed(seen) = what else {
        return None;
    };
    seen.events.iter().find_map(|event| match event {
        Event::Warning(text) => Some(text.clone()),
        _ => None,
    })
}
