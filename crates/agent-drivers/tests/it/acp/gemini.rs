//! Tests of the special case for Gemini CLI: a session can be resumed immediately, and again.

use super::*;

/// Stores sessions as Gemini CLI does. A record begins in a file whose name has the minute. At a start, the CLI deletes empty records, together with
/// all files that have the same id in their names.
const GEMINI: &str = r#"
chats=$HOME/.gemini/tmp/place/chats; mkdir -p "$chats"
is_said() { [ "$(tail -n 1 "$1")" = said ]; }
for file in "$chats"/session-*-4b4cc8ec.jsonl; do
  if [ -e "$file" ] && ! is_said "$file"; then rm -f "$chats"/*-4b4cc8ec.jsonl; fi
done
begin() { file=$chats/session-$(date -u +%Y-%m-%dT%H-%M)-4b4cc8ec.jsonl; echo begun >> "$file"; }
on_new() { begin; ok '{"sessionId":"4b4cc8ec-7dc4-45b3-b610-95d59aa55516"}'; }
on_prompt() { echo said >> "$file"; ok '{"stopReason":"end_turn"}'; }
on_load() {
  begin
  for file in "$chats"/*; do
    if is_said "$file"; then ok '{}'; return; fi
  done
  fail -32603 "No previous sessions found for this project."
}
"#;

#[tokio::test]
async fn p27_gemini_session_can_be_resumed_at_once_and_repeatedly() {
    let scene = Scene::new();
    let script = format!("{AGENT}{GEMINI}{LOOP}");
    let program = ["sh", "-c", &script, "sh"].map(OsString::from);
    let mut context = context(&scene);
    let home = scene.path("home").into_os_string();
    context.env.push(("HOME".into(), home));
    let driver = AcpDriver::gemini(program.into(), context);
    let mut session = SessionChoice::Fresh;
    for _ in 0..4 {
        let mut connection = open(&driver, session).await.unwrap();
        connection.send(Message::new("hello")).await.unwrap();
        let (events, end) = turn(&mut *connection).await;
        assert_eq!(end.reason, EndReason::Completed, "{end:?}");
        let id = { events.iter() }.find_map(|event| match event {
            Event::Session { id } => Some(id.clone()),
            _ => None,
        });
        session = SessionChoice::Resume(id.unwrap());
        connection.stop(DEADLINE).await;
    }
}
