//! Checks of a connection without a conversation, because a conversation would prevent these calls.

use tokio::time::timeout;

use super::scenario::TestAgent;
use super::scenario_run::{BUDGET, POLL, ScenarioCheck, failure};
use crate::{Connection, Decision, Error, Event, Message, SessionChoice};

/// Sends two messages to a connection without a conversation. The first message makes the agent run a tool. Returns the result of the second one.
pub(super) async fn second_message(
    test_agent: &dyn TestAgent,
    tool: &str,
    words: [String; 2],
) -> ScenarioCheck<Result<(), Error>> {
    let [first, second] = words.map(Message::new);
    let mut connection = match open(test_agent, SessionChoice::Fresh).await? {
        Ok(connection) => connection,
        Err(e) => return failure(format!("the connection fails without a conversation: {e}")),
    };
    let talk = async {
        connection.send(first).await?;
        while test_agent.alive(tool) != Some(true) {
            // The processes of some tools can't be observed; then the first output is enough.
            match timeout(POLL, connection.next()).await {
                Ok(Some(seen)) if test_agent.alive(tool).is_none() && starts(&seen.events) => break,
                Ok(None) => return Err(Error::agent_gone("it ended")),
                _ => {}
            }
        }
        Ok(connection.send(second).await)
    };
    let talked = timeout(test_agent.timeout(), talk).await;
    drop(connection.stop(BUDGET).await);
    match talked {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(e)) => failure(format!("the connection fails without a conversation: {e}")),
        Err(_) => late(test_agent),
    }
}

fn starts(events: &[Event]) -> bool {
    let starts = |event| matches!(event, &Event::ToolStarted { .. } | &Event::TextDelta(_));
    events.iter().any(starts)
}

/// Checks that the driver rejects this session choice, before its agent gets any message.
pub(super) async fn refuses(
    test_agent: &dyn TestAgent,
    session: SessionChoice,
) -> ScenarioCheck<()> {
    let what = match &session {
        SessionChoice::Fork(_) => "a session to fork",
        _ => "a session to resume",
    };
    let opened = match open(test_agent, session).await? {
        Ok(mut connection) => {
            drop(connection.stop(BUDGET).await);
            Ok(())
        }
        Err(e) => Err(e),
    };
    refused(what, opened)
}

/// Checks that the driver rejects answers to permission requests.
pub(super) async fn refuses_answers(test_agent: &dyn TestAgent) -> ScenarioCheck<()> {
    let mut connection = match open(test_agent, SessionChoice::Fresh).await? {
        Ok(connection) => connection,
        Err(e) => return failure(format!("the agent does not start: {e}")),
    };
    let answering = connection.answer("nobody's", Decision::Allow);
    let answered = timeout(test_agent.timeout(), answering).await;
    drop(connection.stop(BUDGET).await);
    match answered {
        Ok(answered) => refused("an answer", answered),
        Err(_) => late(test_agent),
    }
}

fn refused(what: &str, answer: Result<(), Error>) -> ScenarioCheck<()> {
    match answer {
        Err(e) if e.is_unsupported() => Ok(()),
        Err(e) => failure(format!("wrong error for {what}: {e}")),
        Ok(()) => failure(format!(
            "{what} is accepted, but the capability is undeclared"
        )),
    }
}

/// Opens a connection and waits until its agent could start.
async fn open(
    test_agent: &dyn TestAgent,
    session: SessionChoice,
) -> ScenarioCheck<Result<Box<dyn Connection>, Error>> {
    let driver = test_agent.driver();
    let opening = async {
        let mut connection = driver.connect(session).await?;
        connection.ready().await?;
        Ok(connection)
    };
    let opened = timeout(test_agent.timeout(), opening).await;
    opened.or_else(|_| late(test_agent))
}

fn late<T>(test_agent: &dyn TestAgent) -> ScenarioCheck<T> {
    let limit = test_agent.timeout();
    failure(format!(
        "no result within {limit:?} from a connection without a conversation"
    ))
}
