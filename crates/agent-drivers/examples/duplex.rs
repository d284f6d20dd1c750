//! A conversation with Claude Code: a person types lines, and the program prints the events of the agent.
//!
//! `cargo run -p agent-drivers --example duplex -- claude --model=sonnet` starts the program `claude` that is on the `PATH`.
//! The program sends each line to the agent immediately, also during a turn. After a permission request a line is the answer. An empty line
//! interrupts the turn. Ctrl-D waits for the open answers and ends everything. Ctrl-C ends everything immediately: the guard kills the process tree.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::error::Error;
use std::ffi::OsString;
use std::io::Write as _;
use std::time::Duration;
use std::{env, io, thread};

use agent_drivers::claude::ClaudeDriver;
use agent_duplex::{
    Conversation, ConversationEvent, ConversationOptions, Decision, Event, Input,
    PermissionRequest, QueuedMessages, RestartPolicy,
};
use agent_subprocess::{ProcessContext, guard};
use tokio::sync::mpsc;

fn main() -> Result<(), Box<dyn Error>> {
    guard::run_if_guard();
    tokio::runtime::Runtime::new()?.block_on(talk(env::args_os().skip(1).collect()))
}

async fn talk(program: Vec<OsString>) -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let context = ProcessContext::new(env::current_dir()?, scratch.path());
    let driver = ClaudeDriver::new(program, context);
    let options = ConversationOptions::default().with_restart(RestartPolicy::default());
    let (conversation, mut primary) = Conversation::with_primary(Box::new(driver), options);
    let asks = Asks::default();

    let say = async {
        let mut lines = typed();
        while let Some(line) = lines.recv().await {
            let ask = asks.open.borrow_mut().pop_front();
            say(&conversation, ask, line).await?;
        }
        asks.input_ended.set(true);
        for ask in asks.open.take() {
            deny(&conversation, &ask).await?;
        }
        let answered = conversation.wait_until_idle().await;
        conversation.close().await;
        let report = conversation.stop(Duration::from_secs(8)).await;
        answered.map(|()| report)
    };
    let hear = async {
        while let Some(published) = primary.next().await {
            match published.event {
                ConversationEvent::Observed(seen) => {
                    for event in seen.events {
                        if let Some(ask) = asks.print_event(event) {
                            deny(&conversation, &ask).await?;
                        }
                    }
                }
                ConversationEvent::Completed(completion) => println!("\n[{}]", completion.end),
                _ => {}
            }
            io::stdout()
                .flush()
                .map_err(|e| Box::new(e) as Box<dyn Error>)?;
        }
        Ok::<_, Box<dyn Error>>(())
    };
    let (report, ()) = tokio::try_join!(async { say.await.map_err(Into::into) }, hear)?;
    println!("{report}");
    Ok(())
}

/// Returns the lines of standard input as they arrive.
fn typed() -> mpsc::Receiver<String> {
    let (lines, typed) = mpsc::channel(1);
    thread::spawn(move || {
        let mut input = io::stdin().lines().map_while(Result::ok);
        input.try_for_each(|line| lines.blocking_send(line))
    });
    typed
}

async fn say(
    conversation: &Conversation,
    ask: Option<PermissionRequest>,
    line: String,
) -> Result<(), agent_duplex::Error> {
    match (ask, line.as_str()) {
        (Some(ask), "y") => conversation.answer(&ask.id, Decision::Allow).await,
        (Some(ask), _) => {
            let decision = Decision::Deny { message: line };
            conversation.answer(&ask.id, decision).await
        }
        (None, "") => {
            drop(conversation.interrupt(QueuedMessages::Keep)); // returns immediately; `print_event` reads the end of the turn
            Ok(())
        }
        (None, _) => conversation.send(Input::new(line)).map(drop),
    }
}

async fn deny(
    conversation: &Conversation,
    ask: &PermissionRequest,
) -> Result<(), agent_duplex::Error> {
    let message = "there is no one to ask".to_owned();
    conversation
        .answer(&ask.id, Decision::Deny { message })
        .await
}

/// The permission requests of the agent that have no answer yet.
#[derive(Default)]
struct Asks {
    open: RefCell<VecDeque<PermissionRequest>>,
    /// Whether standard input has ended.
    input_ended: Cell<bool>,
}

impl Asks {
    /// Prints an event. Returns a permission request that no person can answer any more.
    fn print_event(&self, event: Event) -> Option<PermissionRequest> {
        match event {
            Event::TextDelta(text) => print!("{text}"),
            Event::ToolStarted { name, summary, .. } => println!("\n({name}: {summary})"),
            Event::Warning(text) => println!("\n! {text}"),
            Event::PermissionRequested(ask) if self.input_ended.get() => return Some(ask),
            Event::PermissionRequested(ask) => {
                println!(
                    "\nAllow {}: {}? (y, or the reason for a denial)",
                    ask.tool, ask.summary
                );
                self.open.borrow_mut().push_back(ask);
            }
            Event::PermissionWithdrawn { id } => {
                self.open.borrow_mut().retain(|ask| ask.id != id);
            }
            _ => {}
        }
        None
    }
}
