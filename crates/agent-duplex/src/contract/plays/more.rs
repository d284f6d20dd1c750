//! Scenarios of single capabilities: who lacks one is held to what is promised instead.

use super::{conclude, held, nobody};
use crate::contract::scene::{Played, Scene, broken, holds};
use crate::contract::{Cell, Deed, beside};
use crate::{Capability, Decision, EndReason, Event, Receipt, SessionChoice, ToolOutcome, TurnId};

pub(super) async fn ask(scene: &mut Scene<'_>) -> Played {
    if !scene.has(Capability::Permissions) {
        beside::refuses_answers(scene.stage).await?;
        let seen = "it asks nothing, and refuses answers".to_owned();
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
        "a tool that was denied is told as done".to_owned()
    })?;
    holds(done(allowed) || !scene.has(Capability::Tools), || {
        "a tool that was allowed is not told as done".to_owned()
    })?;
    if !scene.has(Capability::Interrupt) {
        return held("denied and allowed");
    }
    let receipt = scene.send(&Deed::Ask)?;
    asked(scene, &receipt).await?;
    let interrupted = scene.interrupt().await?;
    interrupted.or_else(|e| broken(format!("an interrupt is refused: {e}")))?;
    scene.ends(&receipt, EndReason::Interrupted).await?;
    held("denied, allowed, and withdrawn by an interrupt")
}

/// Waits for an ask in the turn of an input.
async fn asked(scene: &Scene<'_>, receipt: &Receipt) -> Played<String> {
    let turn = scene.turn(receipt).await?;
    let ask = |event: &Event| match event {
        Event::PermissionAsked(ask) => Some(ask.id.clone()),
        _ => None,
    };
    scene
        .until("a question", |seen| seen.events(turn).find_map(ask))
        .await
}

async fn answered(scene: &Scene<'_>, decision: Decision) -> Played<TurnId> {
    let receipt = scene.send(&Deed::Ask)?;
    let ask = asked(scene, &receipt).await?;
    scene.record.change(|seen| seen.audit.answered(&ask));
    let answering = scene.conversation.answer(&ask, decision);
    let answered = scene.within("the end of an answer", answering).await?;
    answered.or_else(|e| broken(format!("an answer is refused: {e}")))?;
    Ok(scene.ends(&receipt, EndReason::Completed).await?.turn)
}

pub(super) async fn usage(scene: &mut Scene<'_>) -> Played {
    scene.words(&Deed::Say("pear".to_owned()))?;
    scene.begin().await?;
    scene.say("pear").await?;
    if !scene.has(Capability::Usage) {
        // Whether it is told all the same is seen by the rules.
        let seen = "nothing is told of it".to_owned();
        return Ok(Cell::Undeclared(Capability::Usage, seen));
    }
    let used = scene
        .until("word of what was used", |seen| seen.used())
        .await?;
    match (used.input_tokens + used.output_tokens, used.cost_microusd) {
        (0, 0) => broken("nothing was used"),
        (0, _) => held("told in money"),
        (_, 0) => held("told in tokens"),
        (_, _) => held("told in tokens and money"),
    }
}

pub(super) async fn fork(scene: &mut Scene<'_>) -> Played {
    if !scene.has(Capability::Fork) {
        beside::refuses(scene.stage, SessionChoice::Fork(nobody())).await?;
        return Ok(Cell::Undeclared(Capability::Fork, "refused".to_owned()));
    }
    scene.words(&Deed::Say("pear".to_owned()))?;
    scene.words(&Deed::Recall)?;
    scene.begin().await?;
    scene.say("pear").await?;
    let session = scene.record.lock().session().map(str::to_owned);
    let Some(session) = session else {
        return broken("it declares fork, and names no session");
    };
    let mut copy = Scene::new(scene.stage);
    let played = copied(&mut copy, session).await;
    let cell = conclude(copy, played).await;
    // The first one stays as it is.
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
        format!("the copy of the session {session} is named {own:?}")
    })?;
    held("the copy knows what was said, and the first one goes on")
}

pub(super) async fn lost_session(scene: &mut Scene<'_>) -> Played {
    if !scene.has(Capability::Resume) {
        beside::refuses(scene.stage, SessionChoice::Resume(nobody())).await?;
        return Ok(Cell::Undeclared(Capability::Resume, "refused".to_owned()));
    }
    let say = Deed::Say("pear".to_owned());
    scene.words(&say)?;
    scene.read();
    scene.start(SessionChoice::Resume(nobody())).await?;
    let receipt = scene.send(&say)?;
    scene.ends(&receipt, EndReason::SessionNotFound).await?;
    held("told as the end of the first turn")
}
