//! Ours: lines from an agent, events from its driver, and events to the readers of a conversation.

use std::time::{Duration, Instant};

use agent_drivers::claude::ClaudeDriver;
use agent_duplex::{
    Conversation, ConversationEvent, ConversationOptions, Driver as _, Event, Input, Message,
    SessionChoice,
};
use agent_subprocess::{Marker, ProcessContext, StdinMode, StopPolicy, Stream, TreeCommand};
use tokio::io::AsyncWriteExt as _;

use super::expected::{Expected, Read};
use crate::harness::{Result, one_thread, workers};
use crate::scripted_agent::{GO, INTRODUCTION, words};

const STOP: Duration = Duration::from_secs(5);

pub(super) fn agent(expected: &Expected) -> Result<Read> {
    one_thread()?.block_on(async {
        let mut words = words(&["pour", &expected.file, &expected.times])?.into_iter();
        let program = words.next().ok_or("no program")?;
        let command = TreeCommand::new(program)
            .args(words)
            .stdin(StdinMode::Piped);
        let mut agent = command.max_line(64 << 20).spawn().await?;
        let mut input = agent.take_stdin().ok_or("standard input is piped")?;
        input.write_all(INTRODUCTION).await?;
        agent
            .next_output()
            .await
            .ok_or("the agent printed nothing")?;
        let begun = Instant::now();
        input.write_all(GO).await?;
        let mut lines = 0;
        while lines < expected.lines {
            let output = agent
                .next_output()
                .await
                .ok_or("the agent ended too soon")?;
            lines += usize::from(output.stream == Stream::Stdout);
        }
        let took = begun.elapsed();
        agent.stop(&StopPolicy::kill()).await;
        Ok(Read {
            took,
            lines,
            dropped: 0,
        })
    })
}

/// Returns a driver of Claude Code for a scripted agent of this program.
pub(crate) fn claude(part: &[&str]) -> Result<ClaudeDriver> {
    let context = ProcessContext {
        cwd: std::env::current_dir()?,
        marker: Some(Marker {
            variable: "RLM_BENCH_AGENT".to_owned(),
            scope: std::process::id().to_string(),
            member: "1".to_owned(),
        }),
        stop: StopPolicy::kill(),
        ..ProcessContext::new("", std::env::temp_dir().join("rlm-bench"))
    };
    Ok(ClaudeDriver::new(words(part)?, context))
}

pub(super) fn driver(expected: &Expected) -> Result<Read> {
    let driver = claude(&["pour", &expected.file, &expected.times])?;
    one_thread()?.block_on(async {
        let mut connection = driver.connect(SessionChoice::Fresh).await?;
        connection.ready().await?;
        let begun = Instant::now();
        connection.send(Message::new("go")).await?;
        let (mut lines, mut turns) = (0, 0);
        while turns < expected.turns {
            let seen = connection.next().await.ok_or("the agent ended too soon")?;
            lines += usize::from(seen.raw.is_some());
            let ends = seen
                .events
                .iter()
                .filter(|event| matches!(event, Event::TurnCompleted(_)));
            turns += ends.count();
        }
        let took = begun.elapsed();
        connection.stop(STOP).await;
        // The response to the introduction is one more line.
        Ok(Read {
            took,
            lines: lines - 1,
            dropped: 0,
        })
    })
}

/// Reads with a conversation that has a primary and `readers` subscribers; if there are several, one is stalled.
pub(super) fn conversation(expected: &Expected, readers: usize) -> Result<Read> {
    let driver = claude(&["pour", &expected.file, &expected.times])?;
    let runtime = if readers > 1 {
        workers()?
    } else {
        one_thread()?
    };
    let turns = expected.turns;
    runtime.block_on(async {
        let (conversation, mut primary) = Conversation::with_primary(
            Box::new(driver),
            ConversationOptions::default().with_manual_start(),
        );
        let mut stalled = (readers > 1).then(|| conversation.subscribe(10_000));
        let mut reading = Vec::new();
        for _ in 0..readers - usize::from(stalled.is_some()) {
            let mut subscription = conversation.subscribe(10_000);
            reading.push(tokio::spawn(async move {
                let mut ended = 0;
                while let Some(Ok(published)) = subscription.next_shared().await {
                    ended +=
                        usize::from(matches!(published.event, ConversationEvent::Completed(_)));
                    if ended == turns {
                        return true;
                    }
                }
                false
            }));
        }
        conversation.start(SessionChoice::Fresh).await?;
        let begun = Instant::now();
        conversation.send(Input::new("go"))?;
        let (mut lines, mut ended) = (0, 0);
        while ended < turns {
            match &primary
                .next_shared()
                .await
                .ok_or("the agent ended too soon")?
                .event
            {
                ConversationEvent::Observed(seen) => lines += usize::from(seen.raw.is_some()),
                ConversationEvent::Completed(_) => ended += 1,
                _ => {}
            }
        }
        let mut dropped = 0;
        for reading in reading {
            dropped += usize::from(!reading.await?);
        }
        let took = begun.elapsed();
        conversation.stop(STOP).await;
        if let Some(stalled) = &mut stalled {
            while let Some(Ok(_)) = stalled.next_shared().await {}
        }
        // The response to the introduction is one more line.
        Ok(Read {
            took,
            lines: lines - 1,
            dropped,
        })
    })
}
