//! Tests of the conversation with the demo's agent, line by line, in real repositories.

use std::io::{self, Write};
use std::process::Command;
use std::sync::mpsc::{self, SyncSender};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::agent::{Agent, AgentInput, Setup, listen};
use super::script::{self, UserMessage};
use super::{project, protocol, value};

const TEST_TIMEOUT: Duration = Duration::from_secs(10);
const SESSION: &str = "11111111-1111-4111-8111-111111111111";

fn repository() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    project::make(Some(directory.path())).unwrap();
    directory
}

fn message(number: u32, text: &str) -> Value {
    let uuid = format!("00000000-0000-4000-8000-{number:012}");
    json!({"type": "user", "uuid": uuid, "message": {"role": "user", "content": text}})
}

fn steer(number: u32, words: &str) -> Value {
    message(number, &format!("{}{words}", script::PERSON))
}

fn request(subtype: &str) -> Value {
    json!({"type": "control_request", "request_id": subtype, "request": {"subtype": subtype}})
}

fn send(sender: &SyncSender<AgentInput>, value: &Value) {
    let line = value.to_string().into_bytes();
    sender.send(AgentInput::Line(line)).unwrap();
}

fn setup(directory: &TempDir) -> Setup {
    Setup {
        session: SESSION.into(),
        resumed: false,
        mode: "default".into(),
        pace: Duration::ZERO,
        tree: directory.path().to_owned(),
    }
}

/// Polls until there is a result.
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        match look() {
            Some(found) => return found,
            None => assert!(Instant::now() < deadline, "the result did not come in time"),
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Ends a conversation that hangs, so that its test fails. Drop the returned value at the end of the conversation.
fn watchdog(sender: &SyncSender<AgentInput>) -> mpsc::Sender<()> {
    let (over, is_over) = mpsc::channel();
    let sender = sender.clone();
    std::thread::spawn(move || {
        if is_over.recv_timeout(TEST_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
            send(&sender, &request("end_session"));
        }
    });
    over
}

/// The other side of the conversation: it reacts to each line.
struct Host<F> {
    sender: SyncSender<AgentInput>,
    input_words: Vec<Value>,
    react: F,
}

impl<F: FnMut(&Value) -> Vec<Value>> Write for &mut Host<F> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let value: Value = serde_json::from_slice(line).expect("each write is a whole line");
        for answer in (self.react)(&value) {
            match answer {
                Value::Null => self.sender.send(AgentInput::Closed).unwrap(),
                answer => send(&self.sender, &answer),
            }
        }
        self.input_words.push(value);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs a conversation that begins with these lines. `react` returns more input for each line of the agent; `null` ends the input.
fn with_conversation(
    directory: &TempDir,
    begin: &[Value],
    react: impl FnMut(&Value) -> Vec<Value>,
) -> (io::Result<()>, Vec<Value>) {
    let (sender, happenings) = mpsc::sync_channel(1000);
    for value in begin {
        send(&sender, value);
    }
    let _over = watchdog(&sender);
    let mut host = Host {
        sender: sender.clone(),
        input_words: Vec::new(),
        react,
    };
    let ended = Agent::new(setup(directory), &mut host, sender, happenings).run();
    (ended, host.input_words)
}

/// Runs one session of the loop: the prompt, and the end of the input after its turn.
fn session(directory: &TempDir, prompt: &str) -> Vec<Value> {
    let (ended, heard) = with_conversation(directory, &[message(1, prompt)], |value| {
        let over = value["type"] == "result";
        over.then_some(Value::Null).into_iter().collect()
    });
    ended.unwrap();
    heard
}

/// Returns the interesting parts of the lines; adjacent words are joined.
fn digest(lines: &[Value]) -> String {
    let mut digest = String::new();
    for line in lines {
        assert!(line["type"] == "control_response" || line["session_id"] == SESSION);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let block = &line["message"]["content"][0];
        let aborted = if line["aborted"] == true {
            " (aborted)"
        } else {
            ""
        };
        let new = match text(&line["type"]).as_str() {
            "command_lifecycle" => {
                let uuid = text(&line["command_uuid"]);
                format!("message {} {}", &uuid[35..], text(&line["state"]))
            }
            "stream_event" => match line["event"]["delta"]["text"].as_str() {
                Some(word) if digest.ends_with(' ') => {
                    digest.push_str(word);
                    continue;
                }
                Some(word) => format!("delta {word}"),
                None => continue,
            },
            "assistant" if block["type"] == "tool_use" => {
                format!("tool{aborted} {} {}", text(&block["name"]), block["input"])
            }
            "assistant" => format!("text{aborted} {}", text(&block["text"]).trim_end()),
            "user" if line["isReplay"] == true => format!("taken {:.40}", block["text"]),
            // The output names a commit.
            "user" if text(&block["content"]).starts_with("[main ") => "committed".to_owned(),
            "user" if block["is_error"] == true => format!("failed {:?}", text(&block["content"])),
            "user" if block["type"] == "tool_result" => {
                format!("result {:?}", text(&block["content"]))
            }
            "user" => text(&block["text"]),
            "result" => format!(
                "end {} {}",
                text(&line["subtype"]),
                text(&line["terminal_reason"])
            ),
            "control_response" => line["response"].to_string(),
            other => format!("{other} {}", text(&line["subtype"])),
        };
        if !digest.is_empty() {
            digest.push('\n');
        }
        digest.push_str(&new);
    }
    digest
        .lines()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

fn passes(directory: &TempDir) -> bool {
    let mut check = Command::new("sh");
    let output = check.arg("check.sh").current_dir(directory).output();
    output.unwrap().status.success()
}

fn commits(directory: &TempDir) -> Vec<String> {
    let mut git = Command::new("git");
    let log = project::isolate_git(git.args(["log", "--reverse", "--format=%an: %s"]));
    let output = log.current_dir(directory).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn check_passes_only_after_the_third_session() {
    let directory = repository();
    let mut digests = Vec::new();
    for expected in [false, false, true] {
        digests.push(digest(&session(&directory, script::PROMPT)));
        assert_eq!(passes(&directory), expected);
    }
    insta::assert_snapshot!(digests.join("\n"));
    insta::assert_debug_snapshot!(commits(&directory), @r#"
    [
        "demo: Describe the task",
        "demo: Print Roman numerals",
        "demo: Add the subtractive pairs",
        "demo: Reject numbers without a Roman numeral",
    ]
    "#);
    // With nothing left to do, the agent commits nothing.
    session(&directory, script::PROMPT);
    assert_eq!(commits(&directory).len(), 4);
}

#[test]
fn three_states_differ_in_their_check_output() {
    let directory = repository();
    let mut said = Vec::new();
    for _ in 0..4 {
        let mut check = Command::new("sh");
        let output = check
            .arg("check.sh")
            .current_dir(&directory)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        said.push(text.lines().last().unwrap().to_owned());
        session(&directory, script::PROMPT);
    }
    insta::assert_debug_snapshot!(said, @r#"
    [
        "FAIL there is no roman.sh",
        "FAIL roman.sh 4 printed 'IIII' instead of 'IV'",
        "FAIL roman.sh 0 was not refused",
        "all tests pass",
    ]
    "#);
}

#[test]
fn interrupt_during_text_ends_the_turn_and_next_message_continues() {
    let directory = repository();
    let mut words = 0;
    let (ended, heard) = with_conversation(&directory, &[message(1, script::PROMPT)], |value| {
        words += u32::from(!value["event"]["delta"]["text"].is_null());
        match value["type"].as_str() {
            Some("stream_event") if words == 3 => {
                words += 1;
                vec![request("interrupt")]
            }
            Some("result") if value["result_index"] == 0 => {
                vec![steer(2, "Use tabs.\nOnly tabs.")]
            }
            Some("result") => vec![request("end_session")],
            _ => vec![],
        }
    });
    ended.unwrap();
    insta::assert_snapshot!(digest(&heard));
    let notes = fs_err::read_to_string(directory.path().join("NOTES.md")).unwrap();
    assert_eq!(notes, "- Use tabs.\n  Only tabs.\n");
    assert_eq!(commits(&directory).len(), 2);
}

#[test]
fn interrupt_during_a_tool_rejects_it_and_next_session_keeps_the_work() {
    let directory = repository();
    let (ended, heard) = with_conversation(&directory, &[message(1, script::PROMPT)], |value| {
        let command = value["message"]["content"][0]["input"]["command"].as_str();
        match value["type"].as_str() {
            Some("assistant") if command.is_some_and(|c| c.contains("commit")) => {
                vec![request("interrupt")]
            }
            Some("result") => vec![Value::Null],
            _ => vec![],
        }
    });
    ended.unwrap();
    let ends: Vec<Value> = heard.into_iter().rev().take(5).rev().collect();
    insta::assert_snapshot!(digest(&ends), @r#"
    {"request_id":"interrupt","response":{"still_queued":[]},"subtype":"success"}
    failed "The user doesn't want to proceed with this tool use. The tool use was rejected."
    [Request interrupted by user for tool use]
    end error_during_execution aborted_tools
    message 1 cancelled
    "#);
    assert_eq!(commits(&directory).len(), 1);
    insta::assert_snapshot!(digest(&session(&directory, script::PROMPT)), @r#"
    message 1 queued
    message 1 started
    system init
    taken "Make `sh check.sh` pass.\n\nroman.sh prints a number as a Roman numeral.\n- Do one step, commit it and end your turn: another session continues after you.\n- Follow NOTES.md, if it exists.\n"
    delta I was interrupted before I could commit. I check the files.
    text I was interrupted before I could commit. I check the files.
    tool Bash {"command":"git status --short"}
    result "?? roman.sh\n"
    delta That work is good. I commit it, so that nothing is repeated.
    text That work is good. I commit it, so that nothing is repeated.
    tool Bash {"command":"git add . && git -c user.name=demo -c user.email=demo@localhost commit -m 'Keep the work of an unfinished attempt'"}
    committed
    end success completed
    message 1 completed
    "#);
    assert_eq!(
        commits(&directory)[1],
        "demo: Keep the work of an unfinished attempt"
    );
}

#[test]
fn interrupt_ends_a_running_command() {
    let directory = repository();
    let started = directory.path().join("started");
    fs_err::write(
        directory.path().join("check.sh"),
        "echo $$ >new; mv new started; exec sleep 600",
    )
    .unwrap();
    let (sender, happenings) = mpsc::sync_channel(1000);
    send(&sender, &message(1, script::PROMPT));
    let person = sender.clone();
    let interrupt = std::thread::spawn(move || {
        let pid = wait_for(|| fs_err::read_to_string(&started).ok());
        send(&person, &request("interrupt"));
        person.send(AgentInput::Closed).unwrap();
        pid
    });
    let _over = watchdog(&sender);
    let mut heard = Vec::new();
    let agent = Agent::new(setup(&directory), &mut heard, sender, happenings);
    agent.run().unwrap();
    let heard = String::from_utf8(heard).unwrap();
    assert!(heard.contains("aborted_tools"), "{heard}");
    let pid = interrupt.join().unwrap();
    wait_for(|| {
        let mut exists = Command::new("sh");
        // If PID 1 reaps nothing, as in a container without an init, a dead process stays as a zombie.
        let pid = pid.trim();
        let alive = format!("kill -0 {pid} && ! grep -qs '^State:.Z' /proc/{pid}/status");
        let exists = exists.args(["-c", &alive]);
        (!exists.output().unwrap().status.success()).then_some(())
    });
}

#[test]
fn message_during_a_tool_joins_the_turn_and_one_at_its_end_starts_another() {
    let directory = repository();
    let mut tools = 0;
    let (ended, heard) = with_conversation(&directory, &[message(1, script::PROMPT)], |value| {
        let is_tool = value["message"]["content"][0]["type"] == "tool_use";
        tools += u32::from(is_tool);
        match (value["type"].as_str(), tools) {
            (Some("assistant"), 1) if is_tool => vec![steer(2, "Mind the docs.")],
            // The agent answers that message with the second tool; then it writes the program and commits.
            (Some("assistant"), 4) if is_tool => vec![steer(3, "Be quick.")],
            (Some("result"), _) if value["result_index"] == 1 => vec![Value::Null],
            _ => vec![],
        }
    });
    ended.unwrap();
    insta::assert_snapshot!(digest(&heard));
    let last = commits(&directory).pop().unwrap();
    assert_eq!(last, "demo: Note the message of the user");
    // The next session has the note.
    let next = digest(&session(&directory, script::PROMPT));
    assert!(next.contains("NOTES.md says “Be quick.”"), "{next}");
}

#[test]
fn requests_between_turns_are_answered_without_a_turn() {
    let directory = repository();
    let dialogue = [
        request("initialize"),
        request("interrupt"),
        json!({"type": "keep_alive"}),
        json!({"type": "control_request", "request_id": "mode",
            "request": {"subtype": "set_permission_mode", "mode": "plan"}}),
        request("rewind_files"),
        request("end_session"),
        message(1, "too late"),
    ];
    let (ended, heard) = with_conversation(&directory, &dialogue, |_| vec![]);
    ended.unwrap();
    let text = digest(&heard).replace(&format!(":{},", std::process::id()), ":PID,");
    insta::assert_snapshot!(text, @r#"
    {"request_id":"initialize","response":{"account":{},"agents":[],"capabilities":["interrupt_receipt_v1","interrupt_cancel_queued_v1"],"claude_code_version":"(played by the demo)","commands":[],"models":[],"output_style":"default","pid":PID,"session_state":"idle"},"subtype":"success"}
    {"request_id":"interrupt","response":{"still_queued":[]},"subtype":"success"}
    system status
    {"request_id":"mode","response":{"mode":"plan"},"subtype":"success"}
    {"error":"unsupported request: rewind_files","error_code":"unsupported_request","request_id":"rewind_files","subtype":"error"}
    {"request_id":"end_session","response":{},"subtype":"success"}
    "#);
}

#[test]
fn interrupt_keeps_or_drops_queued_messages() {
    for drop in [false, true] {
        let directory = repository();
        let interrupt = json!({"type": "control_request", "request_id": "i",
            "request": {"subtype": "interrupt", "cancel_queued": drop}});
        let begin = [message(1, script::PROMPT), message(2, "second"), interrupt];
        let (ended, heard) = with_conversation(&directory, &begin, |value| {
            let over = value["type"] == "result";
            over.then_some(Value::Null).into_iter().collect()
        });
        ended.unwrap();
        let answers = heard.iter().filter(|line| line["type"] == "result").count();
        assert_eq!(answers, if drop { 1 } else { 2 });
        let text = digest(&heard);
        assert_eq!(text.contains("message 2 cancelled"), drop, "{text}");
    }
}

#[test]
fn turn_finishes_after_the_end_of_input() {
    let directory = repository();
    let (ended, heard) = with_conversation(&directory, &[message(1, script::PROMPT)], |value| {
        let begins = value["subtype"] == "init";
        begins.then_some(Value::Null).into_iter().collect()
    });
    ended.unwrap();
    let last = &heard[heard.len() - 2];
    assert_eq!(last["terminal_reason"], "completed");
    assert_eq!(commits(&directory).len(), 2);
}

#[test]
fn invalid_line_ends_the_agent() {
    let directory = tempfile::tempdir().unwrap();
    for line in ["", "{", "[]", "\u{feff}{}", "{} {}", r#"{"type":"news"}"#] {
        let (sender, happenings) = mpsc::sync_channel(10);
        listen(format!("{line}\n").as_bytes(), &sender);
        let ended = Agent::new(setup(&directory), io::sink(), sender, happenings).run();
        assert!(ended.is_err(), "{line}");
    }
}

#[test]
fn messages_of_the_loop_are_distinguished_from_a_persons() {
    let order = |work, words: &[&'static str]| UserMessage {
        work,
        words: words.to_vec(),
    };
    let person = "Note from the person who runs the loop: one\n\ntwo";
    let noted = |rest: &str| format!("Note from the loop: cut.\n\n{person}\n\n{rest}");
    assert_eq!(script::read(script::PROMPT), order(true, &[]));
    assert_eq!(script::read("Go on."), order(true, &[]));
    assert_eq!(script::read(person), order(false, &["one\n\ntwo"]));
    let twice = format!("{person}\n\n{person}");
    let both = ["one\n\ntwo"; 2];
    assert_eq!(script::read(&twice), order(false, &both));
    assert_eq!(
        script::read(&noted(script::PROMPT)),
        order(true, &both[..1])
    );
    assert_eq!(script::read(&noted("Rewritten.")), order(true, &["one"]));
}

#[test]
fn flags_are_found_in_both_spellings() {
    let flags = ["-p", "--session-id=a", "--resume", "b", "--resume-more=c"].map(Into::into);
    assert_eq!(value(&flags, "--session-id").as_deref(), Some("a"));
    assert_eq!(value(&flags, "--resume").as_deref(), Some("b"));
    assert_eq!(value(&flags, "--model"), None);
}

#[test]
fn only_an_empty_directory_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("a/b");
    project::make(Some(&made)).unwrap();
    let error = project::make(Some(&made)).unwrap_err();
    assert!(error.message.contains("is not empty"), "{}", error.message);
    let error = project::make(Some(&made.join("check.sh"))).unwrap_err();
    assert!(
        error.message.contains("can't be created"),
        "{}",
        error.message
    );
}

proptest::proptest! {
    #[test]
    fn no_line_and_no_argument_causes_a_panic(line: Vec<u8>, text: String) {
        let _any = protocol::parse(&line);
        let words = script::read(&text).words;
        proptest::prop_assert!(words.iter().all(|words| !script::note_message(words, "").is_empty()));
        let said = protocol::parse(message(1, &text).to_string().as_bytes());
        let message = protocol::Message { uuid: Some("00000000-0000-4000-8000-000000000001".into()), text };
        proptest::prop_assert_eq!(said, Ok(protocol::Incoming::Message(message)));
    }
}
