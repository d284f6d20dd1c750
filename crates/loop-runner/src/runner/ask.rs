//! What the agent asks, and who answers.

use agent_duplex::{Ask, Decision, Event, Permissions};
use loop_state::Happening;

use crate::news::News;
use crate::runner::Runner;
use crate::runner::parts::attempt::deny;

impl Runner {
    /// Puts a question to the person, or answers it for them.
    pub(super) async fn asked(&mut self, ask: Ask) -> Option<Happening> {
        let permissions = self.phase().permissions;
        let interactive = self.options.interactive || self.machine.head().attended;
        let attempt = self.agent_io.attempt.as_mut()?;
        let decision = match permissions {
            Permissions::Ask if interactive => {
                attempt.heard.asks.push(ask.clone());
                self.tell(News::Agent(Event::PermissionAsked(ask)));
                self.refresh_view();
                return None;
            }
            Permissions::All => Decision::Allow,
            Permissions::Ask => deny("nobody is there to be asked"),
            Permissions::Edits => deny("only file edits are allowed in this loop"),
            Permissions::Deny => deny("this loop allows nothing that has to be asked for"),
        };
        self.answer(&ask, decision).await
    }

    /// Takes notice that somebody is there who can be asked, or nobody any more: what is open is answered with no then.
    pub(super) async fn attended(&mut self, attended: bool) -> Happening {
        let open = self
            .agent_io
            .attempt
            .iter()
            .flat_map(|attempt| attempt.heard.asks.clone());
        // Who has the run's own terminal comes back to it.
        let has_nobody = !attended && !self.options.interactive;
        let open: Vec<Ask> = open.filter(|_| has_nobody).collect();
        for ask in &open {
            // The denial is told; that it is not counted harms nobody.
            self.answer(ask, deny("nobody is there to be asked any more"))
                .await;
        }
        Happening::Attended(attended)
    }

    /// Answers a question; a denial is counted.
    pub(super) async fn answer(&mut self, ask: &Ask, decision: Decision) -> Option<Happening> {
        let attempt = self.agent_io.attempt.as_mut()?;
        attempt.heard.asks.retain(|open| open.id != ask.id);
        let denied = match &decision {
            Decision::Deny { message } => Some(message.clone()),
            _ => None,
        };
        if let Err(e) = attempt.conversation.answer(&ask.id, decision).await {
            self.tell(News::Warning(format!("the agent was not answered: {e}")));
        }
        self.sign(Happening::Alive);
        self.note_busy();
        self.refresh_view();
        let message = denied?;
        let tool = format!("{}: {}", ask.tool, ask.summary);
        self.tell(News::Agent(Event::PermissionDenied { tool, message }));
        Some(Happening::Denied)
    }
}
