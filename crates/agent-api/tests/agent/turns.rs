//! Whole turns: text, tools, interrupts, messages during a turn.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent_api::{
    BoxFuture, FileChange, JsonObject, Prepared, Tool, ToolContext, ToolDefinition, ToolOutput,
};
use agent_duplex::{EndReason, Event, QueuedMessages, SessionChoice, ToolOutcome};
use tokio_util::sync::CancellationToken;

use crate::scene::{Count, DIALECTS, Scene, Talk, Wait, definition};
use crate::server::{Reply, Request, Server};

#[tokio::test]
async fn turn_runs_tools_until_the_model_calls_none() {
    for dialect in DIALECTS {
        let scene = Scene::new();
        let replies = [
            Reply::call("count", r#"{"n":1}"#),
            Reply::calls([("count", r#"{"n":2}"#), ("count", r#"{"n":3}"#)]),
            Reply::text("three runs"),
        ];
        let server = Server::replying(dialect, replies).await;
        let count = Arc::new(Count::default());
        let mut talk = Talk::new(scene.options(&server, [count.clone() as _]));
        let receipt = talk.send("count to three");
        let end = talk.end().await;
        drop(receipt);
        assert_eq!(end.reason, EndReason::Completed, "{end}");
        assert_eq!(count.runs.load(Ordering::SeqCst), 3);
        let started = talk
            .seen
            .iter()
            .filter(|event| matches!(event, Event::ToolStarted { .. }));
        assert_eq!(started.count(), 3, "{:?}", talk.seen);
        let done = |event: &&Event| {
            matches!(
                event,
                Event::ToolFinished {
                    outcome: ToolOutcome::Succeeded,
                    ..
                }
            )
        };
        assert_eq!(talk.seen.iter().filter(done).count(), 3);
        let text = Event::Message {
            text: "three runs".to_owned(),
            partial: false,
        };
        assert!(talk.seen.contains(&text));
        let last = server.requests().pop().unwrap().text();
        for result in [r#"run 1 with {\"n\":1}"#, r#"run 3 with {\"n\":3}"#] {
            assert!(last.contains(result), "{dialect:?}: {last}");
        }
        assert!(talk.stop().await.proven);
    }
}

#[tokio::test]
async fn a2_text_arrives_while_it_is_written() {
    for dialect in DIALECTS {
        let scene = Scene::new();
        let hold = CancellationToken::new();
        let reply = Reply::text("half").held(&hold);
        let server = Server::replying(dialect, [reply]).await;
        let mut talk = Talk::new(scene.options(&server, []));
        talk.send("say");
        talk.until(|event| (*event == Event::TextDelta("half".into())).then_some(()))
            .await;
        hold.cancel();
        assert_eq!(talk.end().await.reason, EndReason::Completed);
    }
}

#[tokio::test]
async fn a3_interrupt_keeps_the_text_and_ends_the_deltas() {
    for dialect in DIALECTS {
        let scene = Scene::new();
        let never = CancellationToken::new();
        let server = Server::replying(dialect, [Reply::text("half a sentence").held(&never)]).await;
        let mut talk = Talk::new(scene.options(&server, []));
        talk.send("say");
        talk.until(|event| matches!(event, Event::TextDelta(_)).then_some(()))
            .await;
        talk.conversation
            .interrupt(QueuedMessages::Keep)
            .await
            .unwrap();
        let end = talk.end().await;
        assert_eq!(end.reason, EndReason::Interrupted, "{end}");
        let acknowledged = |event: &Event| matches!(event, Event::InterruptAcknowledged { .. });
        let at = talk.seen.iter().position(acknowledged).unwrap();
        let late = talk.seen[at..].iter();
        assert!(
            !late
                .clone()
                .any(|event| matches!(event, Event::TextDelta(_))),
            "{late:?}"
        );
        assert_eq!(talk.ask("go on").await.text, "done");
        let request = server.requests().pop().unwrap().text();
        assert_eq!(request.matches("half a sentence").count(), 1, "{request}");
    }
}

/// A tool that writes a large file.
#[derive(Debug)]
struct WriteLarge(PathBuf);

const LARGE: usize = 24 << 20;

impl Tool for WriteLarge {
    fn definition(&self) -> ToolDefinition {
        definition("write_large")
    }

    fn prepare<'a>(
        &'a self,
        _: &'a JsonObject,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolOutput>> {
        let change = FileChange::new(&self.0, None, vec![b'x'; LARGE], "the file is written");
        Box::pin(async { Ok(Prepared::Change(change)) })
    }

    fn run<'a>(&'a self, _: &'a JsonObject, _: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        unreachable!("the agent makes the change itself")
    }
}

#[tokio::test]
async fn a4_interrupt_during_a_change_leaves_the_whole_file_or_none() {
    for dialect in DIALECTS {
        let scene = Scene::new();
        let server = Server::replying(dialect, [Reply::call("write_large", "{}")]).await;
        let file = scene.work().canonicalize().unwrap().join("file");
        let tool = Arc::new(WriteLarge(file.clone()));
        let mut talk = Talk::new(scene.options(&server, [tool as _]));
        talk.send("write");
        // The change has begun, under another name.
        while std::fs::read_dir(scene.work()).unwrap().count() == 0 {
            tokio::task::yield_now().await;
        }
        talk.conversation
            .interrupt(QueuedMessages::Keep)
            .await
            .unwrap();
        assert_eq!(talk.end().await.reason, EndReason::Interrupted);
        let written = file.metadata().map(|it| it.len() as usize).ok();
        talk.ask("go on").await;
        let request = server.requests().pop().unwrap().text();
        let (told, other) = match written {
            None => ("interrupted by the user", "the file is written"),
            Some(_) => ("the file is written", "interrupted by the user"),
        };
        assert!(request.contains(told), "{written:?}: {request}");
        assert!(!request.contains(other), "{written:?}: {request}");
        assert!(written.is_none_or(|written| written == LARGE));
        let files = std::fs::read_dir(scene.work()).unwrap().count();
        assert_eq!(
            files,
            usize::from(written.is_some()),
            "no other file is left"
        );
    }
}

#[tokio::test]
async fn a4_interrupt_ends_a_tool_and_the_next_turn_works() {
    for dialect in DIALECTS {
        let scene = Scene::new();
        let calls = [("wait", "{}"), ("count", "{}")];
        let server = Server::replying(dialect, [Reply::calls(calls)]).await;
        let (wait, count) = (Arc::new(Wait::default()), Arc::new(Count::default()));
        let mut talk = Talk::new(scene.options(&server, [wait.clone() as _, count.clone() as _]));
        talk.send("wait");
        while wait.started.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        talk.conversation
            .interrupt(QueuedMessages::Keep)
            .await
            .unwrap();
        assert_eq!(talk.end().await.reason, EndReason::Interrupted);
        assert_eq!(wait.cancelled.load(Ordering::SeqCst), 1);
        let interrupted = |event: &Event| {
            matches!(
                event,
                Event::ToolFinished {
                    outcome: ToolOutcome::Interrupted,
                    ..
                }
            )
        };
        assert!(talk.seen.iter().any(interrupted));
        let answer = talk.ask("go on").await;
        assert_eq!(
            (answer.text.as_str(), answer.end.reason),
            ("done", EndReason::Completed)
        );
        assert_eq!(
            count.runs.load(Ordering::SeqCst),
            0,
            "a call after the interrupt is not run"
        );
        let request = server.requests().pop().unwrap().text();
        assert_eq!(
            request.matches("interrupted by the user").count(),
            2,
            "{request}"
        );
    }
}

#[tokio::test]
async fn a5_messages_are_taken_between_two_calls() {
    for dialect in DIALECTS {
        let scene = Scene::new();
        let hold = CancellationToken::new();
        let first = Reply {
            texts: vec!["busy".into()],
            ..Reply::call("count", "{}")
        };
        let server = Server::replying(dialect, [first.held(&hold), Reply::text("with both")]).await;
        let mut talk = Talk::new(scene.options(&server, [Arc::new(Count::default()) as _]));
        talk.send("begin");
        talk.until(|event| matches!(event, Event::TextDelta(_)).then_some(()))
            .await;
        talk.send("use tabs");
        talk.send("and be brief");
        hold.cancel();
        let end = talk.end().await;
        assert_eq!(end.reason, EndReason::Completed, "{end}");
        let requests = server.requests();
        assert_eq!(requests.len(), 2, "one turn of two calls");
        let text = requests[1].text();
        assert!(text.contains("use tabs\\n\\nand be brief"), "{text}");
        talk.conversation.wait_until_idle().await.unwrap();
        assert_eq!(server.requests().len(), 2, "no message is answered twice");
    }
}

#[tokio::test]
async fn a5_no_message_of_fifty_is_lost() {
    let scene = Scene::new();
    // Each second request has a call, so turns have both kinds of ends.
    let respond = |request: &Request| match request.number % 2 {
        0 => Reply::call("count", &format!(r#"{{"n":{}}}"#, request.number)),
        _ => Reply::text("ok"),
    };
    let server = Server::start(agent_api::Dialect::Chat, respond).await;
    let options = scene.options(&server, [Arc::new(Count::default()) as _]);
    let talk = Talk::started(options, SessionChoice::Fresh).await;
    for number in 0..50_u32 {
        talk.send(&format!("message <{number}>"));
        for _ in 0..(number.wrapping_mul(2_654_435_761) >> 27) {
            tokio::task::yield_now().await;
        }
        if number % 7 == 0 {
            talk.conversation.wait_until_idle().await.unwrap();
        }
    }
    talk.conversation.wait_until_idle().await.unwrap();
    let last = server.requests().pop().unwrap().text();
    for number in 0..50 {
        assert_eq!(
            last.matches(&format!("message <{number}>")).count(),
            1,
            "{number}: {last}"
        );
    }
}
