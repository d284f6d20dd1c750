//! Talks with an agent that speaks Claude Code's stream-json: `duplex claude --model=sonnet`.
//!
//! A line that is typed is said to the agent at once, also while it works; after a question it is the answer; an empty one interrupts the turn.
//! Ctrl-D waits for what runs and ends everything. So does Ctrl-C, at once: the guard sees to it.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::collections::VecDeque;
use std::error::Error;
use std::ffi::OsString;
use std::io::Write as _;
use std::time::Duration;
use std::{env, io, mem, thread};

use agent_duplex::{
    Ask, Completion, Conversation, ConversationOptions, Decision, Event, Input, Lifecycle, Queued,
    SessionChoice, What,
};
use agent_subprocess::claude::ClaudeDriver;
use agent_subprocess::{Context, StopPolicy, guard};
use tokio::sync::mpsc;

fn main() -> Result<(), Box<dyn Error>> {
    guard::run_if_guard();
    tokio::runtime::Runtime::new()?.block_on(talk(env::args_os().skip(1).collect()))
}

async fn talk(program: Vec<OsString>) -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let context = Context {
        cwd: env::current_dir()?,
        env: Vec::new(),
        marker: None,
        hold: None,
        scratch: scratch.path().to_owned(),
        survivors_file: None,
        stop: StopPolicy::default(),
    };
    let driver = Box::new(ClaudeDriver::new(program, context));
    let (conversation, mut primary) = Conversation::new(driver, ConversationOptions::default());
    conversation.start(SessionChoice::Fresh).await?;

    let (lines, mut typed) = mpsc::channel(1);
    thread::spawn(move || {
        io::stdin()
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| lines.blocking_send(line))
    });
    let mut screen = Screen::default();
    let mut typing = true;
    loop {
        match conversation.lifecycle() {
            // It is gone, and nobody here starts another one.
            Lifecycle::Idle | Lifecycle::Ended => break,
            // What was said is answered first, however long that takes; `close` would wait 30 s, and for one turn.
            Lifecycle::Ready if !typing && conversation.pending().is_empty() => break,
            _ => {}
        }
        if !typing && let Some(ask) = screen.asked.pop_front() {
            let message = "nobody is there to be asked".into();
            conversation
                .answer(&ask.id, Decision::Deny { message })
                .await?;
        }
        tokio::select! {
            Some(published) = primary.next() => screen.show(published.what)?,
            line = typed.recv(), if typing => match line {
                Some(line) => say(&conversation, screen.asked.pop_front(), line).await?,
                None => typing = false,
            },
            else => break,
        }
    }
    let end = async {
        conversation.close().await;
        conversation.stop(Duration::from_secs(8)).await
    };
    let rest = async {
        while let Some(published) = primary.next().await {
            screen.show(published.what)?;
        }
        io::Result::Ok(())
    };
    let (report, rest) = tokio::join!(end, rest);
    for input in conversation.pending() {
        println!("not answered: {}", input.text);
    }
    println!("{report}");
    Ok(rest?)
}

async fn say(
    conversation: &Conversation,
    ask: Option<Ask>,
    line: String,
) -> Result<(), agent_duplex::Error> {
    match (ask, line.as_str()) {
        (Some(ask), "y") => conversation.answer(&ask.id, Decision::Allow).await,
        (Some(ask), _) => {
            let decision = Decision::Deny { message: line };
            conversation.answer(&ask.id, decision).await
        }
        (None, "") => {
            drop(conversation.interrupt(Queued::Keep)); // asked for at once; its end is read
            Ok(())
        }
        (None, _) => conversation.send(Input::new(line)).map(drop),
    }
}

#[derive(Default)]
struct Screen {
    asked: VecDeque<Ask>,
    streamed: bool,
}

impl Screen {
    fn show(&mut self, what: What) -> io::Result<()> {
        match what {
            What::Observed(seen) => seen.events.into_iter().for_each(|event| self.hear(event)),
            What::Completed(Completion { end, .. }) => {
                let exit = end.exit.map(|exit| exit.to_string());
                println!(
                    "[{}] {}{}",
                    end.reason,
                    end.detail,
                    exit.unwrap_or_default()
                );
            }
            _ => {}
        }
        io::stdout().flush()
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::TextDelta(text) => {
                print!("{text}");
                self.streamed = true;
            }
            Event::Message { .. } if mem::take(&mut self.streamed) => println!(),
            Event::Message { text, .. } => println!("{text}"),
            Event::ToolStarted { name, summary, .. } => println!("({name}: {summary})"),
            Event::PermissionAsked(ask) => {
                println!("May it? {}: {} (y, or why not)", ask.tool, ask.summary);
                self.asked.push_back(ask);
            }
            Event::PermissionWithdrawn { id } => self.asked.retain(|ask| ask.id != id),
            _ => {}
        }
    }
}
