//! The scenarios of the contract, one function for each: the messages to the agent, and the required events.

use std::time::Duration;

use uuid::Uuid;

use super::record::Recorded;
use super::scenario::{TestAction, TestAgent};
use super::scenario_run::{ScenarioCheck, ScenarioRun, delivered_count, failure, require};
use super::{scenario::Scenario, scenario::ScenarioResult, second_connection};
use crate::{
    Capability, Decision, EndReason, Event, InputPolicy, Receipt, SessionChoice, ToolOutcome,
    TurnId,
};

/// Longer than any wait of a scenario, so an action of this length must be ended.
const LONGER_THAN_ANY_WAIT: Duration = Duration::from_secs(600);
/// Long enough to send a message during the action.
const SHORT_DELAY: Duration = Duration::from_secs(3);
const FLOOD: usize = 4 << 20;

/// Plays one scenario in a new conversation, and ends everything that the conversation started.
///
/// # Panics
///
/// Panics outside of a tokio runtime with a timer.
///
/// # Cancel safety
///
/// Dropping the future ends the agent, without a report.
pub async fn play(test_agent: &dyn TestAgent, scenario: Scenario) -> ScenarioResult {
    let mut scene = ScenarioRun::new(test_agent);
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
        Scenario::TruncatedLine => truncated_line(&mut scene).await,
        Scenario::SlowReader => slow_reader(&mut scene).await,
        Scenario::Stop => stop(&mut scene).await,
        Scenario::PermissionRequest => ask(&mut scene).await,
        Scenario::Usage => usage(&mut scene).await,
        Scenario::Fork => fork(&mut scene).await,
        Scenario::LostSession => lost_session(&mut scene).await,
    };
    conclude(scene, played).await
}

/// Ends a conversation, and returns the result of its scenario.
async fn conclude(scene: ScenarioRun<'_>, played: ScenarioCheck) -> ScenarioResult {
    let record = scene.record.clone();
    let finished = scene.finish().await;
    match (played, finished) {
        // Report the failure of the scenario first: it can be the cause of a fault at the end.
        (Err(ScenarioResult::Failed(what)), _) | (_, Err(ScenarioResult::Failed(what))) => {
            ScenarioResult::Failed(record.lock().explain(what))
        }
        (Ok(cell) | Err(cell), _) => cell,
    }
}

/// Returns a session id that does not exist.
fn unknown_session() -> String {
    Uuid::new_v4().to_string()
}

fn passed(what: impl Into<String>) -> ScenarioCheck {
    Ok(ScenarioResult::Passed(what.into()))
}

async fn turn(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    scene.prompt_for(&TestAction::Say("pear".to_owned()))?;
    scene.begin().await?;
    let turn = scene.say("pear").await?;
    let connections = scene.record.lock().generation(turn);
    require(connections == Some(1), || {
        "the started agent was gone before it got a message".to_owned()
    })?;
    let named = scene.record.lock().session().is_some();
    require(named || !scene.has(Capability::Resume), || {
        "the driver declares resume, but names no session".to_owned()
    })?;
    passed(match scene.is_opaque() {
        true => "answered in its raw output",
        false => "answered by a message",
    })
}

async fn tool(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    scene.prompt_for(&TestAction::CallTool)?;
    scene.begin().await?;
    let turn = scene.perform(&TestAction::CallTool).await?;
    if !scene.has(Capability::Tools) {
        let seen = "the turn is completed, without a report of a tool".to_owned();
        return Ok(ScenarioResult::Undeclared(Capability::Tools, seen));
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
        (Some(_), Some(ToolOutcome::Succeeded)) => passed("its start and its end are reported"),
        (Some(_), outcome) => failure(format!("a successful tool is reported as {outcome:?}")),
        (None, _) => failure("the declared tools are not reported"),
    }
}

async fn two_messages(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    scene.prompt_for(&TestAction::Say("pear".to_owned()))?;
    scene.begin().await?;
    let turns = [scene.say("pear").await?, scene.say("plum").await?];
    require(turns[0] < turns[1], || {
        "two consecutive messages are in one turn".to_owned()
    })?;
    passed(match same_agent(scene, turns) {
        true => "two turns of one agent",
        false => "two turns, each with its own agent",
    })
}

fn same_agent(scene: &ScenarioRun<'_>, turns: [TurnId; 2]) -> bool {
    let seen = scene.record.lock();
    let [first, second] = turns.map(|turn| seen.generation(turn));
    first == second
}

async fn steer(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    const TOOL: &str = "steered";
    let work = TestAction::RunToolFor {
        name: TOOL.to_owned(),
        time: SHORT_DELAY,
    };
    let words = scene.prompt_for(&work)?;
    let plum = scene.prompt_for(&TestAction::Say("plum".to_owned()))?;
    let policy = scene.test_agent.driver().input_policy();
    if policy == InputPolicy::AfterTurn {
        match second_connection::second_message(scene.test_agent, TOOL, [words, plum]).await? {
            Err(e) if e.is_unsupported() => {}
            Err(e) => return failure(format!("wrong error for a second message: {e}")),
            Ok(()) => return failure("a second message is accepted, but steer is undeclared"),
        }
    }
    scene.begin().await?;
    let first = scene.send(&work)?;
    let turn = scene.turn(&first).await?;
    match scene.wait_for_tool(turn, TOOL).await {
        // Any time in the turn is good enough.
        Err(ScenarioResult::NotApplicable(_)) => scene.wait_for_output(turn).await?,
        works => works?,
    }
    let second = scene.send(&TestAction::Say("plum".to_owned()))?;
    let [first, second] = [
        scene.ends(&first, EndReason::Completed).await?.turn,
        scene.ends(&second, EndReason::Completed).await?.turn,
    ];
    scene
        .expect_text(second, "plum")
        .or_else(|cell| scene.expect_text(first, "plum").map_err(|_| cell))?;
    let (_, busy) = delivered_count(&scene.record.lock());
    match (policy, first == second) {
        (InputPolicy::Push, _) if !busy => failure("it got the pushed message after the turn"),
        (InputPolicy::AfterTurn, true) => {
            failure("its policy is after the turn, but the message joined the turn")
        }
        (InputPolicy::AfterTurn, false) => {
            let seen = "rejected during the turn, and answered after it".to_owned();
            Ok(ScenarioResult::Undeclared(Capability::Steer, seen))
        }
        (_, true) => passed("part of the running turn"),
        (_, false) => passed("a separate turn, after the running turn"),
    }
}

/// Starts with a turn in which the agent writes text until the turn is ended.
async fn start_text(scene: &mut ScenarioRun<'_>) -> ScenarioCheck<Receipt> {
    let receipt = scene
        .begin_with(&TestAction::TalkFor(LONGER_THAN_ANY_WAIT))
        .await?;
    scene.wait_for_output(scene.turn(&receipt).await?).await?;
    Ok(receipt)
}

/// Starts with a turn in which a tool runs until it is ended.
async fn start_tool(scene: &mut ScenarioRun<'_>, tool: &str) -> ScenarioCheck<Receipt> {
    let work = TestAction::RunToolFor {
        name: tool.to_owned(),
        time: LONGER_THAN_ANY_WAIT,
    };
    let receipt = scene.begin_with(&work).await?;
    scene
        .wait_for_tool(scene.turn(&receipt).await?, tool)
        .await?;
    Ok(receipt)
}

async fn interrupt_text(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    let receipt = start_text(scene).await?;
    interrupted(scene, &receipt).await
}

async fn interrupt_tool(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    const TOOL: &str = "interrupted";
    let receipt = start_tool(scene, TOOL).await?;
    let cell = interrupted(scene, &receipt).await?;
    let seen = scene.wait_for_tool_exit(TOOL).await?;
    let gone = if seen { "its process is gone; " } else { "" };
    Ok(match cell {
        ScenarioResult::Passed(what) => ScenarioResult::Passed(format!("{gone}{what}")),
        ScenarioResult::Undeclared(capability, what) => {
            ScenarioResult::Undeclared(capability, format!("{gone}{what}"))
        }
        cell => cell,
    })
}

/// Interrupts a turn, and then requires an answer to the next message.
async fn interrupted(scene: &ScenarioRun<'_>, receipt: &Receipt) -> ScenarioCheck {
    let declared = scene.has(Capability::Interrupt);
    match scene.interrupt().await? {
        Ok(()) => {}
        Err(e) if !declared && e.is_unsupported() => {
            let seen = "rejected; the turn continues until it ends or is stopped".to_owned();
            return Ok(ScenarioResult::Undeclared(Capability::Interrupt, seen));
        }
        Err(e) => return failure(format!("an interrupt is rejected: {e}")),
    }
    let first = scene.ends(receipt, EndReason::Interrupted).await?.turn;
    scene.silence().await;
    require(!scene.record.lock().reports_after_turn_end(), || {
        "the agent was interrupted, but writes text after the end of its turn".to_owned()
    })?;
    let second = scene.say("plum").await?;
    match (declared, same_agent(scene, [first, second])) {
        (true, true) => passed("interrupted, and the same agent continues"),
        (true, false) => failure("the interrupted agent did not continue"),
        (false, true) => failure("the agent continues, but its driver does not declare interrupt"),
        (false, false) => {
            let seen =
                "interrupted together with its agent; the next message goes to another agent"
                    .to_owned();
            Ok(ScenarioResult::Undeclared(Capability::Interrupt, seen))
        }
    }
}

async fn resume(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    let declared = scene.has(Capability::Resume);
    scene.prompt_for(&TestAction::Say("pear".to_owned()))?;
    if declared {
        scene.prompt_for(&TestAction::Recall)?;
    } else {
        second_connection::refuses(scene.test_agent, SessionChoice::Resume(unknown_session()))
            .await?;
    }
    scene.begin().await?;
    scene.say("pear").await?;
    if declared && !scene.test_agent.has_process() {
        return resume_elsewhere(scene).await;
    }
    let ended = |seen: &Recorded| seen.last_connection_ended().then_some(());
    if ended(&scene.record.lock()).is_none() {
        scene.kill().await?;
        scene.until("the end of a killed agent", ended).await?;
    }
    let session = scene.record.lock().session().map(str::to_owned);
    if !declared {
        scene.say("plum").await?;
        let sessions = scene.record.lock().sessions();
        require(
            sessions == [SessionChoice::Fresh, SessionChoice::Fresh],
            || format!("the agents were started with {sessions:?}"),
        )?;
        let seen = "rejected; the next agent starts a new session".to_owned();
        return Ok(ScenarioResult::Undeclared(Capability::Resume, seen));
    }
    let turn = scene.perform(&TestAction::Recall).await?;
    let resumed = session.map(SessionChoice::Resume);
    let sessions = scene.record.lock().sessions();
    require(
        sessions.len() == 2 && sessions.last() == resumed.as_ref(),
        || format!("the agents were started with {sessions:?}, but {resumed:?} was expected"),
    )?;
    scene.expect_text(turn, "pear")?;
    passed("the next agent knows the earlier message")
}

/// Resumes a session of an agent without a process in a second conversation.
async fn resume_elsewhere(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    let session = scene.record.lock().session().map(str::to_owned);
    let Some(session) = session else {
        return failure("the driver declares resume, but names no session");
    };
    drop(scene.stop().await?);
    let mut next = ScenarioRun::new(scene.test_agent);
    let played = resumed(&mut next, session).await;
    conclude(next, played).await.into_check()
}

async fn resumed(next: &mut ScenarioRun<'_>, session: String) -> ScenarioCheck {
    next.read();
    next.start(SessionChoice::Resume(session)).await?;
    let turn = next.perform(&TestAction::Recall).await?;
    next.expect_text(turn, "pear")?;
    passed("another conversation knows the earlier message")
}

async fn retry(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    let limited = TestAction::RateLimitOnce("pear".to_owned());
    let receipt = scene.begin_with(&limited).await?;
    let turn = scene.ends(&receipt, EndReason::Completed).await?.turn;
    scene.expect_text(turn, "pear")?;
    let is_reported =
        |event: &Event| matches!(event, Event::Retrying { .. } | Event::RateLimited { .. });
    passed(match scene.record.lock().events(turn).any(is_reported) {
        true => "reported, and answered afterwards",
        false => "answered afterwards, without a report",
    })
}

async fn rate_limit(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    let receipt = scene.begin_with(&TestAction::RateLimit).await?;
    scene.ends(&receipt, EndReason::RateLimited).await?;
    scene.say("plum").await?;
    passed("the turn ends because of it, and the next message is answered")
}

async fn death(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    let receipt = start_text(scene).await?;
    scene.kill().await?;
    let end = scene.ends(&receipt, EndReason::Died).await?.end;
    require(end.exit.is_some(), || {
        "the agent died without an exit status".to_owned()
    })?;
    scene.say("plum").await?;
    let (sent, _) = delivered_count(&scene.record.lock());
    require(sent == 2, || {
        format!("two messages were delivered {sent} times")
    })?;
    passed("the turn died with the agent, and the next message goes to another agent")
}

async fn truncated_line(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    let receipt = scene.begin_with(&TestAction::EndMidLine).await?;
    let end = scene.completion(&receipt).await?.end;
    match end.reason {
        EndReason::Died | EndReason::ProtocolError => {}
        _ => return failure(format!("a truncated line is reported as: {end}")),
    }
    scene.say("plum").await?;
    passed(format!("{}; the next message is answered", end.reason))
}

async fn slow_reader(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    let flood = TestAction::Flood(FLOOD);
    scene.prompt_for(&flood)?;
    scene.start(SessionChoice::Fresh).await?;
    let receipt = scene.send(&flood)?;
    // Wait until the driver isn't read any more because of back-pressure, or has finished.
    scene.wait_for_backpressure().await?;
    scene.read();
    let turn = scene.ends(&receipt, EndReason::Completed).await?.turn;
    let received = scene.text_of(turn).len();
    require(received >= FLOOD, || {
        format!("only {received} of {FLOOD} bytes arrived")
    })?;
    passed(format!("all {} MiB arrive", FLOOD >> 20))
}

async fn stop(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    const TOOL: &str = "stopped";
    let receipt = start_tool(scene, TOOL).await?;
    drop(scene.stop().await?);
    let end = scene.completion(&receipt).await?.end;
    require(end.reason != EndReason::Completed, || {
        "a stopped turn is reported as completed".to_owned()
    })?;
    let seen = scene.wait_for_tool_exit(TOOL).await?;
    let gone = if seen { "; the tool is gone" } else { "" };
    passed(format!("{}{gone}", end.reason))
}

async fn ask(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    if !scene.has(Capability::Permissions) {
        second_connection::refuses_answers(scene.test_agent).await?;
        let seen = "no permission is requested, and answers are rejected".to_owned();
        return Ok(ScenarioResult::Undeclared(Capability::Permissions, seen));
    }
    scene.prompt_for(&TestAction::CallToolWithPermission)?;
    scene.begin().await?;
    let message = "not now".to_owned();
    let denied = answered(scene, Decision::Deny { message }).await?;
    let allowed = answered(scene, Decision::Allow).await?;
    let done = |turn| {
        let seen = scene.record.lock();
        let done = |event: &Event| matches!(event, Event::ToolFinished { outcome, .. } if *outcome == ToolOutcome::Succeeded);
        seen.events(turn).any(done)
    };
    require(!done(denied), || {
        "a denied tool is reported as successful".to_owned()
    })?;
    require(done(allowed) || !scene.has(Capability::Tools), || {
        "an allowed tool is not reported as successful".to_owned()
    })?;
    if !scene.has(Capability::Interrupt) {
        return passed("denied and allowed");
    }
    let receipt = scene.send(&TestAction::CallToolWithPermission)?;
    wait_for_request(scene, &receipt).await?;
    let interrupted = scene.interrupt().await?;
    interrupted.or_else(|e| failure(format!("an interrupt is rejected: {e}")))?;
    scene.ends(&receipt, EndReason::Interrupted).await?;
    passed("denied, allowed, and withdrawn by an interrupt")
}

/// Waits for a permission request in the turn of an input.
async fn wait_for_request(scene: &ScenarioRun<'_>, receipt: &Receipt) -> ScenarioCheck<String> {
    let turn = scene.turn(receipt).await?;
    let ask = |event: &Event| match event {
        Event::PermissionRequested(ask) => Some(ask.id.clone()),
        _ => None,
    };
    scene
        .until("a request", |seen| seen.events(turn).find_map(ask))
        .await
}

async fn answered(scene: &ScenarioRun<'_>, decision: Decision) -> ScenarioCheck<TurnId> {
    let receipt = scene.send(&TestAction::CallToolWithPermission)?;
    let ask = wait_for_request(scene, &receipt).await?;
    scene.record.change(|seen| seen.checker.answered(&ask));
    let answering = scene.conversation.answer(&ask, decision);
    let answered = scene.within("the result of an answer", answering).await?;
    answered.or_else(|e| failure(format!("an answer is rejected: {e}")))?;
    Ok(scene.ends(&receipt, EndReason::Completed).await?.turn)
}

async fn usage(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    scene.prompt_for(&TestAction::Say("pear".to_owned()))?;
    scene.begin().await?;
    scene.say("pear").await?;
    if !scene.has(Capability::Usage) {
        // The rules check that the driver reports no usage.
        let seen = "none is reported".to_owned();
        return Ok(ScenarioResult::Undeclared(Capability::Usage, seen));
    }
    let used = scene.until("a usage report", |seen| seen.used()).await?;
    match (used.input_tokens + used.output_tokens, used.cost_microusd) {
        (0, 0) => failure("the reported usage is zero"),
        (0, _) => passed("reported as cost"),
        (_, 0) => passed("reported as tokens"),
        (_, _) => passed("reported as tokens and cost"),
    }
}

async fn fork(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    if !scene.has(Capability::Fork) {
        second_connection::refuses(scene.test_agent, SessionChoice::Fork(unknown_session()))
            .await?;
        return Ok(ScenarioResult::Undeclared(
            Capability::Fork,
            "rejected".to_owned(),
        ));
    }
    scene.prompt_for(&TestAction::Say("pear".to_owned()))?;
    scene.prompt_for(&TestAction::Recall)?;
    scene.begin().await?;
    scene.say("pear").await?;
    let session = scene.record.lock().session().map(str::to_owned);
    let Some(session) = session else {
        return failure("the driver declares fork, but names no session");
    };
    let mut copy = ScenarioRun::new(scene.test_agent);
    let played = copied(&mut copy, session).await;
    let cell = conclude(copy, played).await;
    // The original session must not change.
    scene.say("plum").await?;
    cell.into_check()
}

async fn copied(copy: &mut ScenarioRun<'_>, session: String) -> ScenarioCheck {
    copy.read();
    copy.start(SessionChoice::Fork(session.clone())).await?;
    let turn = copy.perform(&TestAction::Recall).await?;
    copy.expect_text(turn, "pear")?;
    let own = copy.record.lock().session().map(str::to_owned);
    require(own.is_some() && own.as_ref() != Some(&session), || {
        format!("the fork of session {session} has the id {own:?}")
    })?;
    passed("the fork knows the earlier message, and the original continues")
}

async fn lost_session(scene: &mut ScenarioRun<'_>) -> ScenarioCheck {
    if !scene.has(Capability::Resume) {
        second_connection::refuses(scene.test_agent, SessionChoice::Resume(unknown_session()))
            .await?;
        return Ok(ScenarioResult::Undeclared(
            Capability::Resume,
            "rejected".to_owned(),
        ));
    }
    let say = TestAction::Say("pear".to_owned());
    scene.prompt_for(&say)?;
    scene.read();
    scene
        .start(SessionChoice::Resume(unknown_session()))
        .await?;
    let receipt = scene.send(&say)?;
    scene.ends(&receipt, EndReason::SessionNotFound).await?;
    passed("reported as the end of the first turn")
}
