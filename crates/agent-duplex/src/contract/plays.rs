//! The scenarios of the contract, one function for each: the messages to the agent, and the required events.

use std::time::Duration;

use uuid::Uuid;

use super::cell::{Deed, Stage};
use super::record::Seen;
use super::scene::{Played, Scene, broken, handed, holds};
use super::{beside, cell::Cell, cell::Scenario};
use crate::{
    Capability, Decision, EndReason, Event, InputPolicy, Receipt, SessionChoice, ToolOutcome,
    TurnId,
};

/// Longer than any wait: the action must be ended, or the contract is broken.
const ENDLESS: Duration = Duration::from_secs(600);
/// Long enough for a message in the middle of the action.
const WHILE: Duration = Duration::from_secs(3);
const FLOOD: usize = 4 << 20;

/// Plays one scenario with a conversation of its own, and ends everything that it started.
///
/// # Panics
///
/// Panics outside of a tokio runtime with a timer.
///
/// # Cancel safety
///
/// Dropping the future ends the agent, without a report.
pub async fn play(stage: &dyn Stage, scenario: Scenario) -> Cell {
    let mut scene = Scene::new(stage);
    let played = match scenario {
        Scenario::Turn => turn(&mut scene).await,
        Scenario::Tool => tool(&mut scene).await,
        Scenario::TwoMessages => two_messages(&mut scene).await,
        Scenario::Steer => steer(&mut scene).await,
        Scenario::InterruptText => interrupt_text(&mut scene).await,
        Scenario::InterruptTool => interrupt_tool(&mut scene).await,
        Scenario::Resume => resume(&mut scene).await,
        Scenario::Retry => retry(&mut scene).await,
        Scenario::RateLimit => rate_limit(&mut scene).await,
        Scenario::Death => death(&mut scene).await,
        Scenario::CutLine => cut_line(&mut scene).await,
        Scenario::SlowReader => slow_reader(&mut scene).await,
        Scenario::Stop => stop(&mut scene).await,
        Scenario::Ask => ask(&mut scene).await,
        Scenario::Usage => usage(&mut scene).await,
        Scenario::Fork => fork(&mut scene).await,
        Scenario::LostSession => lost_session(&mut scene).await,
    };
    conclude(scene, played).await
}

/// Ends a conversation, and returns the result of its scenario.
async fn conclude(scene: Scene<'_>, played: Played) -> Cell {
    let record = scene.record.clone();
    let finished = scene.finish().await;
    match (played, finished) {
        // Report the failure of the scenario first; faults at its end can follow from it.
        (Err(Cell::Broken(what)), _) | (_, Err(Cell::Broken(what))) => {
            Cell::Broken(record.lock().explain(what))
        }
        (Ok(cell) | Err(cell), _) => cell,
    }
}

/// Returns a session id that does not exist.
fn nobody() -> String {
    Uuid::new_v4().to_string()
}

fn held(what: impl Into<String>) -> Played {
    Ok(Cell::Held(what.into()))
}

async fn turn(scene: &mut Scene<'_>) -> Played {
    scene.words(&Deed::Say("pear".to_owned()))?;
    scene.begin().await?;
    let turn = scene.say("pear").await?;
    let connections = scene.record.lock().generation(turn);
    holds(connections == Some(1), || {
        "the started agent was gone before it got a message".to_owned()
    })?;
    let named = scene.record.lock().session().is_some();
    holds(named || !scene.has(Capability::Resume), || {
        "it declares resume, but names no session".to_owned()
    })?;
    held(match scene.is_bare() {
        true => "answered in its output, which has no known form",
        false => "answered by a message",
    })
}

async fn tool(scene: &mut Scene<'_>) -> Played {
    scene.words(&Deed::Tool)?;
    scene.begin().await?;
    let turn = scene.perform(&Deed::Tool).await?;
    if !scene.has(Capability::Tools) {
        let seen = "the turn is completed, without a report of a tool".to_owned();
        return Ok(Cell::Undeclared(Capability::Tools, seen));
    }
    let seen = scene.record.lock();
    let started = seen.events(turn).find_map(|event| match event {
        Event::ToolStarted { id, .. } => Some(id),
        _ => None,
    });
    let outcome = seen.events(turn).find_map(|event| match event {
        Event::ToolFinished { id, outcome, .. } if Some(id) == started => Some(*outcome),
        _ => None,
    });
    match (started, outcome) {
        (Some(_), Some(ToolOutcome::Done)) => held("its start and its end are reported"),
        (Some(_), outcome) => broken(format!("a successful tool is reported as {outcome:?}")),
        (None, _) => broken("it declares tools, but reported none"),
    }
}

async fn two_messages(scene: &mut Scene<'_>) -> Played {
    scene.words(&Deed::Say("pear".to_owned()))?;
    scene.begin().await?;
    let turns = [scene.say("pear").await?, scene.say("plum").await?];
    holds(turns[0] < turns[1], || {
        "two consecutive messages are in one turn".to_owned()
    })?;
    held(match same_agent(scene, turns) {
        true => "two turns of one agent",
        false => "two turns, each with its own agent",
    })
}

fn same_agent(scene: &Scene<'_>, turns: [TurnId; 2]) -> bool {
    let seen = scene.record.lock();
    let [first, second] = turns.map(|turn| seen.generation(turn));
    first == second
}

async fn steer(scene: &mut Scene<'_>) -> Played {
    const TOOL: &str = "steered";
    let work = Deed::ToolFor {
        name: TOOL.to_owned(),
        time: WHILE,
    };
    let words = scene.words(&work)?;
    let plum = scene.words(&Deed::Say("plum".to_owned()))?;
    let policy = scene.stage.driver().input_policy();
    if policy == InputPolicy::AfterTurn {
        match beside::second_message(scene.stage, TOOL, [words, plum]).await? {
            Err(e) if e.is_unsupported() => {}
            Err(e) => return broken(format!("wrong error for a second message: {e}")),
            Ok(()) => return broken("it accepts a second message, but does not declare steer"),
        }
    }
    scene.begin().await?;
    let first = scene.send(&work)?;
    let turn = scene.turn(&first).await?;
    match scene.works(turn, TOOL).await {
        // Any time in the turn is good enough.
        Err(Cell::Impossible(_)) => scene.speaks(turn).await?,
        works => works?,
    }
    let second = scene.send(&Deed::Say("plum".to_owned()))?;
    let [first, second] = [
        scene.ends(&first, EndReason::Completed).await?.turn,
        scene.ends(&second, EndReason::Completed).await?.turn,
    ];
    let heard = scene
        .heard(second, "plum")
        .or_else(|cell| scene.heard(first, "plum").map_err(|_| cell));
    heard?;
    let (_, busy) = handed(&scene.record.lock());
    match (policy, first == second) {
        (InputPolicy::Push, _) if !busy => broken("it gets the message only after the turn"),
        (InputPolicy::AfterTurn, true) => broken("it waits for the turn's end, but is in the turn"),
        (InputPolicy::AfterTurn, false) => {
            let seen = "rejected during the turn, and answered after it".to_owned();
            Ok(Cell::Undeclared(Capability::Steer, seen))
        }
        (_, true) => held("part of the running turn"),
        (_, false) => held("a separate turn, after the running turn"),
    }
}

/// Starts with a turn in which the agent writes text until the turn is ended.
async fn talks(scene: &mut Scene<'_>) -> Played<Receipt> {
    let receipt = scene.begin_with(&Deed::TalkFor(ENDLESS)).await?;
    scene.speaks(scene.turn(&receipt).await?).await?;
    Ok(receipt)
}

/// Starts with a turn in which a tool runs until it is ended.
async fn works(scene: &mut Scene<'_>, tool: &str) -> Played<Receipt> {
    let work = Deed::ToolFor {
        name: tool.to_owned(),
        time: ENDLESS,
    };
    let receipt = scene.begin_with(&work).await?;
    scene.works(scene.turn(&receipt).await?, tool).await?;
    Ok(receipt)
}

async fn interrupt_text(scene: &mut Scene<'_>) -> Played {
    let receipt = talks(scene).await?;
    interrupted(scene, &receipt).await
}

async fn interrupt_tool(scene: &mut Scene<'_>) -> Played {
    const TOOL: &str = "interrupted";
    let receipt = works(scene, TOOL).await?;
    let cell = interrupted(scene, &receipt).await?;
    let seen = scene.ceases(TOOL).await?;
    let gone = if seen { "its process is gone; " } else { "" };
    Ok(match cell {
        Cell::Held(what) => Cell::Held(format!("{gone}{what}")),
        Cell::Undeclared(capability, what) => Cell::Undeclared(capability, format!("{gone}{what}")),
        cell => cell,
    })
}

/// Interrupts a turn, and then requires an answer to the next message.
async fn interrupted(scene: &Scene<'_>, receipt: &Receipt) -> Played {
    let declared = scene.has(Capability::Interrupt);
    match scene.interrupt().await? {
        Ok(()) => {}
        Err(e) if !declared && e.is_unsupported() => {
            let seen = "rejected; the turn continues until it ends or is stopped".to_owned();
            return Ok(Cell::Undeclared(Capability::Interrupt, seen));
        }
        Err(e) => return broken(format!("an interrupt is rejected: {e}")),
    }
    let first = scene.ends(receipt, EndReason::Interrupted).await?.turn;
    scene.silence().await;
    holds(!scene.record.lock().talks_on(), || {
        "it was interrupted, but writes text after the end of its turn".to_owned()
    })?;
    let second = scene.say("plum").await?;
    match (declared, same_agent(scene, [first, second])) {
        (true, true) => held("interrupted, and the same agent continues"),
        (true, false) => broken("the interrupted agent did not continue"),
        (false, true) => broken("the agent continues, but its driver does not declare interrupt"),
        (false, false) => {
            let seen =
                "interrupted together with its agent; the next message goes to another agent"
                    .to_owned();
            Ok(Cell::Undeclared(Capability::Interrupt, seen))
        }
    }
}

async fn resume(scene: &mut Scene<'_>) -> Played {
    let declared = scene.has(Capability::Resume);
    scene.words(&Deed::Say("pear".to_owned()))?;
    if declared {
        scene.words(&Deed::Recall)?;
    } else {
        beside::refuses(scene.stage, SessionChoice::Resume(nobody())).await?;
    }
    scene.begin().await?;
    scene.say("pear").await?;
    let ended = |seen: &Seen| seen.last_connection_ended().then_some(());
    if ended(&scene.record.lock()).is_none() {
        scene.kill().await?;
        scene.until("the end of a killed agent", ended).await?;
    }
    let session = scene.record.lock().session().map(str::to_owned);
    if !declared {
        scene.say("plum").await?;
        let sessions = scene.record.lock().sessions();
        holds(
            sessions == [SessionChoice::Fresh, SessionChoice::Fresh],
            || format!("the agents were started with {sessions:?}"),
        )?;
        let seen = "rejected; the next agent starts a new session".to_owned();
        return Ok(Cell::Undeclared(Capability::Resume, seen));
    }
    let turn = scene.perform(&Deed::Recall).await?;
    let resumed = session.map(SessionChoice::Resume);
    let sessions = scene.record.lock().sessions();
    holds(
        sessions.len() == 2 && sessions.last() == resumed.as_ref(),
        || format!("the agents were started with {sessions:?}, but {resumed:?} was expected"),
    )?;
    scene.heard(turn, "pear")?;
    held("the next agent knows the earlier message")
}

async fn retry(scene: &mut Scene<'_>) -> Played {
    let limited = Deed::LimitOnce("pear".to_owned());
    let receipt = scene.begin_with(&limited).await?;
    let turn = scene.ends(&receipt, EndReason::Completed).await?.turn;
    scene.heard(turn, "pear")?;
    let told = |event: &Event| matches!(event, Event::Retrying { .. } | Event::RateLimited { .. });
    held(match scene.record.lock().events(turn).any(told) {
        true => "reported, and answered afterwards",
        false => "answered afterwards, without a report",
    })
}

async fn rate_limit(scene: &mut Scene<'_>) -> Played {
    let receipt = scene.begin_with(&Deed::Limit).await?;
    scene.ends(&receipt, EndReason::RateLimited).await?;
    scene.say("plum").await?;
    held("the turn ends because of it, and the next message is answered")
}

async fn death(scene: &mut Scene<'_>) -> Played {
    let receipt = talks(scene).await?;
    scene.kill().await?;
    let end = scene.ends(&receipt, EndReason::Died).await?.end;
    holds(end.exit.is_some(), || {
        "it died without an exit status".to_owned()
    })?;
    scene.say("plum").await?;
    let (sent, _) = handed(&scene.record.lock());
    holds(sent == 2, || {
        format!("two messages were delivered {sent} times")
    })?;
    held("the turn died with the agent, and the next message goes to another agent")
}

async fn cut_line(scene: &mut Scene<'_>) -> Played {
    let receipt = scene.begin_with(&Deed::CutLine).await?;
    let end = scene.completion(&receipt).await?.end;
    match end.reason {
        EndReason::Died | EndReason::ProtocolError => {}
        _ => return broken(format!("a truncated line is reported as: {end}")),
    }
    scene.say("plum").await?;
    held(format!("{}; the next message is answered", end.reason))
}

async fn slow_reader(scene: &mut Scene<'_>) -> Played {
    let flood = Deed::Flood(FLOOD);
    scene.words(&flood)?;
    scene.start(SessionChoice::Fresh).await?;
    let receipt = scene.send(&flood)?;
    // Wait until the driver isn't read any more because of back-pressure, or has finished.
    scene.stalls().await?;
    scene.read();
    let turn = scene.ends(&receipt, EndReason::Completed).await?.turn;
    let said = scene.said(turn).len();
    holds(said >= FLOOD, || {
        format!("only {said} of {FLOOD} bytes arrived")
    })?;
    held(format!("all {} MiB arrive", FLOOD >> 20))
}

async fn stop(scene: &mut Scene<'_>) -> Played {
    const TOOL: &str = "stopped";
    let receipt = works(scene, TOOL).await?;
    drop(scene.stop().await?);
    let end = scene.completion(&receipt).await?.end;
    holds(end.reason != EndReason::Completed, || {
        "a stopped turn is reported as completed".to_owned()
    })?;
    let seen = scene.ceases(TOOL).await?;
    let gone = if seen { "; the tool is gone" } else { "" };
    held(format!("{}{gone}", end.reason))
}

async fn ask(scene: &mut Scene<'_>) -> Played {
    if !scene.has(Capability::Permissions) {
        beside::refuses_answers(scene.stage).await?;
        let seen = "it asks nothing, and rejects answers".to_owned();
        return Ok(Cell::Undeclared(Capability::Permissions, seen));
    }
    scene.words(&Deed::Ask)?;
    scene.begin().await?;
    let message = "not now".to_owned();
    let denied = answered(scene, Decision::Deny { message }).await?;
    let allowed = answered(scene, Decision::Allow).await?;
    let done = |turn| {
        let seen = scene.record.lock();
        let done = |event: &Event| matches!(event, Event::ToolFinished { outcome, .. } if *outcome == ToolOutcome::Done);
        seen.events(turn).any(done)
    };
    holds(!done(denied), || {
        "a denied tool is reported as successful".to_owned()
    })?;
    holds(done(allowed) || !scene.has(Capability::Tools), || {
        "an allowed tool is not reported as successful".to_owned()
    })?;
    if !scene.has(Capability::Interrupt) {
        return held("denied and allowed");
    }
    let receipt = scene.send(&Deed::Ask)?;
    asked(scene, &receipt).await?;
    let interrupted = scene.interrupt().await?;
    interrupted.or_else(|e| broken(format!("an interrupt is rejected: {e}")))?;
    scene.ends(&receipt, EndReason::Interrupted).await?;
    held("denied, allowed, and withdrawn by an interrupt")
}

/// Waits for a permission request in the turn of an input.
async fn asked(scene: &Scene<'_>, receipt: &Receipt) -> Played<String> {
    let turn = scene.turn(receipt).await?;
    let ask = |event: &Event| match event {
        Event::PermissionAsked(ask) => Some(ask.id.clone()),
        _ => None,
    };
    scene
        .until("a request", |seen| seen.events(turn).find_map(ask))
        .await
}

async fn answered(scene: &Scene<'_>, decision: Decision) -> Played<TurnId> {
    let receipt = scene.send(&Deed::Ask)?;
    let ask = asked(scene, &receipt).await?;
    scene.record.change(|seen| seen.audit.answered(&ask));
    let answering = scene.conversation.answer(&ask, decision);
    let answered = scene.within("the result of an answer", answering).await?;
    answered.or_else(|e| broken(format!("an answer is rejected: {e}")))?;
    Ok(scene.ends(&receipt, EndReason::Completed).await?.turn)
}

async fn usage(scene: &mut Scene<'_>) -> Played {
    scene.words(&Deed::Say("pear".to_owned()))?;
    scene.begin().await?;
    scene.say("pear").await?;
    if !scene.has(Capability::Usage) {
        // The rules check that the driver reports no usage.
        let seen = "none is reported".to_owned();
        return Ok(Cell::Undeclared(Capability::Usage, seen));
    }
    let used = scene.until("a usage report", |seen| seen.used()).await?;
    match (used.input_tokens + used.output_tokens, used.cost_microusd) {
        (0, 0) => broken("the reported usage is zero"),
        (0, _) => held("reported as cost"),
        (_, 0) => held("reported as tokens"),
        (_, _) => held("reported as tokens and cost"),
    }
}

async fn fork(scene: &mut Scene<'_>) -> Played {
    if !scene.has(Capability::Fork) {
        beside::refuses(scene.stage, SessionChoice::Fork(nobody())).await?;
        return Ok(Cell::Undeclared(Capability::Fork, "rejected".to_owned()));
    }
    scene.words(&Deed::Say("pear".to_owned()))?;
    scene.words(&Deed::Recall)?;
    scene.begin().await?;
    scene.say("pear").await?;
    let session = scene.record.lock().session().map(str::to_owned);
    let Some(session) = session else {
        return broken("it declares fork, but names no session");
    };
    let mut copy = Scene::new(scene.stage);
    let played = copied(&mut copy, session).await;
    let cell = conclude(copy, played).await;
    // The original session must not change.
    scene.say("plum").await?;
    match cell {
        Cell::Held(_) => Ok(cell),
        _ => Err(cell),
    }
}

async fn copied(copy: &mut Scene<'_>, session: String) -> Played {
    copy.read();
    copy.start(SessionChoice::Fork(session.clone())).await?;
    let turn = copy.perform(&Deed::Recall).await?;
    copy.heard(turn, "pear")?;
    let own = copy.record.lock().session().map(str::to_owned);
    holds(own.is_some() && own.as_ref() != Some(&session), || {
        format!("the fork of session {session} is named {own:?}")
    })?;
    held("the fork knows the earlier message, and the original continues")
}

async fn lost_session(scene: &mut Scene<'_>) -> Played {
    if !scene.has(Capability::Resume) {
        beside::refuses(scene.stage, SessionChoice::Resume(nobody())).await?;
        return Ok(Cell::Undeclared(Capability::Resume, "rejected".to_owned()));
    }
    let say = Deed::Say("pear".to_owned());
    scene.words(&say)?;
    scene.read();
    scene.start(SessionChoice::Resume(nobody())).await?;
    let receipt = scene.send(&say)?;
    scene.ends(&receipt, EndReason::SessionNotFound).await?;
    held("reported as the end of the first turn")
}
