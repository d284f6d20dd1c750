//! A path that leads elsewhere after the user has permitted its call.

use std::os::unix::fs::symlink;

use agent_api::{Bash, Dialect, coding_tools};
use agent_duplex::{Decision, EndReason, Event, Permissions, ToolOutcome};
use agent_subprocess::ProcessContext;

use crate::scene::{Scene, Talk};
use crate::server::{Reply, Server};

#[tokio::test]
async fn a12_a13_path_that_leads_elsewhere_after_the_permission_is_refused() {
    for (tool, arguments) in [
        ("read", r#"{"path":"link/file"}"#),
        ("grep", r#"{"path":"link","pattern":"other"}"#),
        ("glob", r#"{"path":"link","pattern":"*"}"#),
        (
            "edit",
            r#"{"path":"link/file","old":"other","new":"broken"}"#,
        ),
        ("write", r#"{"path":"link/new","content":"broken"}"#),
    ] {
        let scene = Scene::new();
        let [permitted, other] = ["permitted", "other"].map(|name| {
            let directory = scene.work().with_file_name(name);
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(directory.join("file"), format!("the {name} file")).unwrap();
            directory
        });
        let link = scene.work().join("link");
        symlink(permitted, &link).unwrap();
        let server = Server::replying(Dialect::Chat, [Reply::call(tool, arguments)]).await;
        let processes = ProcessContext::new(scene.work(), scene.work().with_file_name("scratch"));
        let mut options = scene.options(&server, coding_tools(Bash::new(processes)));
        options.permissions = Permissions::Edits;
        let mut talk = Talk::new(options);
        talk.send("go");
        let asked = |event: &Event| match event {
            Event::PermissionRequested(request) => Some(request.clone()),
            _ => None,
        };
        let ask = talk.until(asked).await;
        assert!(ask.reason.contains("permitted"), "{tool}: {}", ask.reason);
        std::fs::remove_file(&link).unwrap();
        symlink(&other, &link).unwrap();
        let answered = talk.conversation.answer(&ask.id, Decision::Allow);
        answered.await.unwrap();
        let finished = |event: &Event| match event {
            Event::ToolFinished { outcome, text, .. } => Some((*outcome, text.clone())),
            _ => None,
        };
        let (outcome, text) = talk.until(finished).await;
        assert_eq!(outcome, ToolOutcome::Failed, "{tool}: {text}");
        assert!(text.contains("leads to another place"), "{tool}: {text}");
        assert_eq!(talk.end().await.reason, EndReason::Completed);
        let file = std::fs::read_to_string(other.join("file")).unwrap();
        assert_eq!(file, "the other file", "{tool}");
        assert!(!other.join("new").exists(), "{tool}");
    }
}
