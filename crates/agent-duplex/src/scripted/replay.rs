//! Turns recorded observations into a script: the agent does again what it did, and waits where it waited for its caller.

use uuid::Uuid;

use super::Script;
use crate::{EndReason, Event, Observation};

/// The recorded ids of messages, in the order in which the agent got the messages.
#[derive(Debug, Default)]
struct KnownMessages(Vec<Uuid>);

impl KnownMessages {
    /// Returns the number of a message, and the script that waits for the message if it is new.
    fn number(&mut self, id: Uuid, script: Script) -> (usize, Script) {
        match self.0.iter().position(|known| *known == id) {
            Some(number) => (number, script),
            None => {
                self.0.push(id);
                (self.0.len() - 1, script.message())
            }
        }
    }
}

impl Script {
    /// Plays recorded observations of a driver again, for example those of a real agent.
    ///
    /// The agent waits for a message where the recording mentions one for the first time, for an interrupt where it acknowledged one or ended a turn
    /// for one, and for an answer after each permission request that it did not withdraw. The ids of the recorded messages are replaced by those
    /// of the new messages. After the last observation the agent is idle, or gone if the recording contains its exit.
    ///
    /// # Examples
    ///
    /// ```
    /// use agent_duplex::scripted::{Script, ScriptedDriver};
    /// use agent_duplex::{Capabilities, Conversation, ConversationOptions, EndReason, Event};
    /// use uuid::Uuid;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), agent_duplex::Error> {
    /// let recorded = [
    ///     Event::TurnStarted { inputs: vec![Uuid::new_v4()] },
    ///     Event::Message { text: "It is a parser.".to_owned(), partial: false },
    ///     Event::TurnCompleted(EndReason::Completed.into()),
    /// ];
    /// let script = Script::replaying(recorded.map(Into::into));
    /// let driver = ScriptedDriver::new(Capabilities::none()).with_script(script);
    /// let conversation = Conversation::new(Box::new(driver), ConversationOptions::default());
    /// assert_eq!(conversation.ask("What is it?").await?.text, "It is a parser.");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn replaying(observations: impl IntoIterator<Item = Observation>) -> Self {
        let observations: Vec<Observation> = observations.into_iter().collect();
        let events = || observations.iter().flat_map(|seen| &seen.events);
        let withdrawn: Vec<String> = { events() }
            .filter_map(|event| match event {
                Event::PermissionWithdrawn { id } => Some(id.clone()),
                _ => None,
            })
            .collect();
        let is_gone = events().any(|event| match event {
            Event::Exited(_) => true,
            Event::TurnCompleted(end) => end.exit.is_some(),
            _ => false,
        });
        let (mut script, mut known) = (Self::new(), KnownMessages::default());
        let mut is_acknowledged = false;
        for seen in observations {
            if seen.raw.is_some() {
                let events = Vec::new();
                script = script.observe(Observation { events, ..seen });
            }
            for event in seen.events {
                script = match event {
                    Event::TurnStarted { inputs } => {
                        is_acknowledged = false;
                        let mut numbers = Vec::new();
                        for id in inputs {
                            let number;
                            (number, script) = known.number(id, script);
                            numbers.push(number);
                        }
                        script.make(move |messages| {
                            let ids = numbers.iter().map(|number| messages[*number].id);
                            let inputs = ids.collect();
                            Event::TurnStarted { inputs }.into()
                        })
                    }
                    Event::Input { id, state } => {
                        let (number, script) = known.number(id, script);
                        script.input(number, state)
                    }
                    Event::InterruptAcknowledged { queued } => {
                        is_acknowledged = true;
                        let numbers: Vec<usize> = { queued.iter() }
                            .filter_map(|id| known.0.iter().position(|known| known == id))
                            .collect();
                        script.interrupted().make(move |messages| {
                            let ids = numbers.iter().map(|number| messages[*number].id);
                            let queued = ids.collect();
                            Event::InterruptAcknowledged { queued }.into()
                        })
                    }
                    Event::TurnCompleted(end) => {
                        let is_interrupt = end.reason == EndReason::Interrupted;
                        if is_interrupt && !std::mem::replace(&mut is_acknowledged, false) {
                            script = script.interrupted();
                        }
                        script.observe(Event::TurnCompleted(end))
                    }
                    Event::PermissionRequested(ask) if !withdrawn.contains(&ask.id) => {
                        script.observe(Event::PermissionRequested(ask)).answered()
                    }
                    event => script.observe(event),
                };
            }
        }
        if is_gone { script.ends() } else { script }
    }
}
