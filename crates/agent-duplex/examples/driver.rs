//! A driver of an agent without capabilities, and a program that asks it. The agent repeats what it is asked.
//!
//! `cargo run -p agent-duplex --example driver` prints the answer and ends. The agent lives in this program; a driver of a real agent has a process, as
//! those of `agent-drivers`.
#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::time::Duration;

use agent_duplex::{
    BoxFuture, Connection, Driver, Message, Observation, SessionChoice, StopReport,
};
use agent_duplex::{Conversation, ConversationOptions, EndReason, Error, Event};

/// The agent's settings; this one has none.
#[derive(Debug)]
pub(crate) struct Echo;

/// A running agent: the observations that nobody has read yet.
#[derive(Debug)]
struct EchoConnection(Vec<Observation>);

impl Driver for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    fn connect(&self, _: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async { Ok(Box::new(EchoConnection(Vec::new())) as Box<dyn Connection>) })
    }
}

impl Connection for EchoConnection {
    fn send(&mut self, message: Message) -> BoxFuture<'_, Result<(), Error>> {
        let (text, partial) = (format!("You said: {}", message.text), false);
        let end = Event::TurnCompleted(EndReason::Completed.into());
        self.0 = vec![end.into(), Event::Message { text, partial }.into()];
        Box::pin(async { Ok(()) })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Observation>> {
        match self.0.pop() {
            Some(observation) => Box::pin(async { Some(observation) }),
            None => Box::pin(std::future::pending()), // dropped and called again after the next message
        }
    }

    fn stop(&mut self, _: Duration) -> BoxFuture<'_, StopReport> {
        Box::pin(async { StopReport::without_processes() })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    run().await
}

pub(crate) async fn run() -> Result<(), Error> {
    let conversation = Conversation::new(Box::new(Echo), ConversationOptions::default());
    let answer = conversation.ask("Is anybody there?").await?;
    println!("{} ({})", answer.text, answer.end);
    println!("{}", conversation.stop(Duration::from_secs(8)).await);
    Ok(())
}
