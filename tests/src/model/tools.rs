//! The part of an MCP server that agent CLIs use: one tool, `recall`, which returns a given word.

use std::io::{self, BufRead, Write};

use serde_json::{Value, json};

/// The variable with the word of a server on stdin and stdout.
const WORD: &str = "FAKE_TOOLS_WORD";

/// Returns the response to a message; a notification has none.
pub(super) fn answer(message: &Value, word: &str) -> Option<Value> {
    let id = message.get("id")?;
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "scripted", "version": "1"},
        }),
        "tools/list" => {
            json!({"tools": [{"name": "recall", "description": "Recalls the word", "inputSchema": {"type": "object"}}]})
        }
        "tools/call" => {
            json!({"content": [{"type": "text", "text": format!("the word is {word}")}]})
        }
        "ping" => json!({}),
        _ => {
            let error = json!({"code": -32601, "message": "no such method"});
            return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// Runs the server until its stdin closes.
pub(super) fn serve() -> io::Result<()> {
    let word = std::env::var(WORD).unwrap_or_default();
    let mut stdout = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let message = serde_json::from_str(&line?).unwrap_or_default();
        if let Some(answer) = answer(&message, &word) {
            writeln!(stdout, "{answer}")?;
            stdout.flush()?;
        }
    }
    Ok(())
}
