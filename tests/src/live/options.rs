//! Checks of the project's settings for the agent, as the model's request shows them: tools, prompts, hooks, MCP servers, the model.

use std::path::Path;

use fs_err as fs;

use super::scene::{Check, LiveScene, RUN, expect};

/// The checks by name.
pub(super) const CHECKS: [(&str, Check); 6] = [
    (
        "claude's tools and variables restricted, its system prompt extended",
        restricted,
    ),
    ("claude's permissions, by --permissions", permissions),
    ("a hook of the project", hooks),
    ("an MCP server that is a program", program),
    ("an MCP server over HTTP", over_http),
    (
        "claude's model, named and changed while it runs",
        super::driver::model,
    ),
];

fn restricted(rlm: &Path, agent: &Path) -> String {
    let first = |settings: &str| {
        let scene = LiveScene::new(rlm, agent);
        scene.settings(settings);
        let prompt = "Look. [[sh env > variables]] [[text ahoy]]";
        let run = scene.run(prompt, &["--once", "--permissions", "all"]);
        let run = run.env("WANTED", "1").env("STRANGE", "1");
        run.run(RUN).expect_code(0);
        let variables = fs::read_to_string(scene.file("variables")).unwrap();
        let variables = ["WANTED=1", "STRANGE=1"].map(|set| variables.contains(set));
        (scene.requests().swap_remove(0), variables)
    };
    let (all, variables) = first("");
    assert_eq!(variables, [true, true]);
    let (less, variables) = first(
        r#"claude = { tools = ["Read", "Bash"], append-system-prompt = "Say ahoy.", env-allow = ["WANTED", "RLM_*"] }"#,
    );
    assert_eq!(variables, [true, false]);
    let mut tools = less.offered;
    tools.sort();
    // The placeholder stands for tools that Claude loads on demand.
    tools.retain(|tool| tool != "DeferredToolPlaceholder");
    assert_eq!(tools, ["Bash", "Read"]);
    assert!(less.system.contains("Say ahoy."), "{}", less.system);
    assert!(!all.system.contains("Say ahoy."));
    format!(
        "{tools:?} of {}; the text is in the system prompt; one of two variables",
        all.tools
    )
}

fn permissions(rlm: &Path, agent: &Path) -> String {
    let done = |permissions: &str| {
        let scene = LiveScene::new(rlm, agent);
        let write = serde_json::json!({"file_path": scene.file("written"), "content": "x"});
        let prompt = format!("Do. [[tool Write {write}]] [[sh env > ran]] [[text ok]]");
        let arguments = ["--once", "--permissions", permissions];
        let ended = scene.run(&prompt, &arguments).run(RUN).expect_code(0);
        let denied = ended.stdout.matches("denied:").count();
        let is_there = ["written", "ran"].map(|name| scene.file(name).exists());
        (is_there, denied > 0)
    };
    assert_eq!(done("all"), ([true, true], false));
    assert_eq!(done("edits"), ([true, false], true));
    assert_eq!(done("deny"), ([false, false], true));
    "all: a file and a command; edits: a file; deny: neither, with a report".into()
}

fn hooks(rlm: &Path, agent: &Path) -> String {
    let hooked = |settings: &str| {
        let scene = LiveScene::new(rlm, agent);
        scene.settings(settings);
        let hook = |name: &str| serde_json::json!([{"hooks": [{"type": "command", "command": format!("touch {name}")}]}]);
        let hooks = serde_json::json!({"hooks": {"UserPromptSubmit": hook("prompted"), "Stop": hook("stopped"), "SessionStart": hook("started")}});
        fs::create_dir_all(scene.file(".claude")).unwrap();
        fs::write(scene.file(".claude/settings.json"), hooks.to_string()).unwrap();
        scene
            .run("Say. [[text ahoy]]", &["--once"])
            .run(RUN)
            .expect_code(0);
        ["prompted", "stopped", "started"].map(|name| scene.file(name).exists())
    };
    assert_eq!(hooked(""), [false; 3]);
    let wanted = hooked("[claude]\nhooks = true\n");
    assert_eq!(wanted, [true; 3]);
    "three hooks do not run by default; all run if enabled".into()
}

/// The word that the servers return.
const WORD: &str = "s3cret-word";
const SETTINGS: &str = "[mcp-servers.tracker]\n";
const PROMPT: &str = "Ask it. [[tool mcp__tracker__recall {}]] [[sh touch begun; while ! test -e go; do sleep 0.05; done]] [[text It is done.]]";

/// Runs with this MCP server until the model got its word, and searches for the word in wrong places.
fn recalled(scene: &LiveScene, server: &str) -> String {
    scene.settings(&format!("{SETTINGS}{server}\n"));
    let run = scene.run(PROMPT, &["--once", "--permissions", "all"]);
    let running = run.env("TRACKER_WORD", WORD).spawn();
    scene.wait_for_file("begun");
    let count = scene.expect_hidden(WORD);
    let held = || holding(&scene.file(".rlm"));
    let files = held();
    assert!(
        !files.is_empty(),
        "the private file exists while claude runs"
    );
    fs::write(scene.file("go"), "").unwrap();
    let ended = running.wait(RUN).expect_code(0);
    let left = held();
    assert!(
        left.iter().all(|path| path.contains("transcripts")),
        "{left:?}"
    );
    let requests = scene.requests();
    // Claude lists the tools of servers by name, and loads them on demand.
    let tool = "mcp__tracker__recall";
    let mut notes = requests[0]
        .items
        .iter()
        .filter(|item| item.role == "system");
    let named = notes.any(|item| item.text.contains(tool));
    let offered = requests[0].offered.iter().any(|offered| offered == tool);
    assert!(named || offered, "{:#?}", requests[0]);
    expect(&requests[1], &["Ask it.", &format!("the word is {WORD}")]);
    scene.expect_nothing_alive();
    assert!(ended.stdout.contains("It is done."), "{ended}");
    format!(
        "offered, called, with its secret; in no command line of {count} processes, its file is gone"
    )
}

/// Returns the files below a directory that contain the word.
fn holding(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| {
            let path = entry.path();
            if path.is_dir() {
                return holding(&path);
            }
            let text = fs::read(&path).unwrap_or_default();
            let found = text.windows(WORD.len()).any(|part| part == WORD.as_bytes());
            found
                .then(|| path.display().to_string())
                .into_iter()
                .collect()
        })
        .collect()
}

fn program(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let server = rlm.with_file_name("fake-model").display().to_string();
    let server = format!(
        "command = {server:?}\nargs = [\"--tools\"]\nenv = {{ FAKE_TOOLS_WORD = \"${{TRACKER_WORD}}\" }}"
    );
    recalled(&scene, &server)
}

fn over_http(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let server = format!(
        "type = \"http\"\nurl = \"{}/mcp\"\nheaders = {{ Authorization = \"${{TRACKER_WORD}}\" }}",
        scene.model.url()
    );
    recalled(&scene, &server)
}
