//! An agent dies in the middle of its answer. The next agent continues its session, and the program prints the end of each input.
//!
//! `cargo run -p agent-duplex --example restart --features test-util` ends by itself, after a second. The agents follow scripts; for a real agent,
//! only the driver is different.
#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::time::Duration;

use agent_duplex::scripted::{Script, ScriptedDriver};
use agent_duplex::{Capabilities, Capability, Conversation, ConversationOptions, EndReason, Error};
use agent_duplex::{ConversationEvent, Event, Input, RestartPolicy};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    run().await
}

pub(crate) async fn run() -> Result<(), Error> {
    let dies = Script::new().session("s1").message().begin();
    let dies = dies.report_message("Let me look at the").ends(); // the output ends here, without an end of the turn
    let answers = Script::new().message().begin();
    let answers = answers
        .report_message("It is in parse.rs.")
        .end(EndReason::Completed);
    let driver = ScriptedDriver::new(Capabilities::none().with(Capability::Resume));
    let driver = driver.with_script(dies).with_repeating_script(answers);

    let options = ConversationOptions::default().with_restart(RestartPolicy::default());
    let (conversation, mut primary) = Conversation::with_primary(Box::new(driver.clone()), options);
    for question in ["Where is the bug?", "Go on."] {
        let receipt = conversation.send(Input::new(question))?; // returns immediately
        println!("input: {question:?}, receipt {}", receipt.id);
        while let Some(published) = primary.next().await {
            match published.event {
                ConversationEvent::Assigned(assigned) => {
                    println!("  turn {} contains it", assigned.turn)
                }
                ConversationEvent::Observed(seen) => seen.events.iter().for_each(print_event),
                ConversationEvent::Lifecycle(now) => println!("  the agent: {now}"),
                ConversationEvent::Completed(completion) => {
                    println!("  turn {}: {}", completion.turn, completion.end);
                    break;
                }
                _ => {}
            }
        }
    }
    println!("sessions: {:?}", driver.sessions());
    println!("{}", conversation.stop(Duration::from_secs(8)).await);
    Ok(())
}

fn print_event(event: &Event) {
    if let Event::Message { text, .. } = event {
        println!("  agent: {text}");
    }
}
