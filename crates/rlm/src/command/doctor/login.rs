//! Reads what agents report about their login. The account itself is never read.

use serde_json::Value;

use crate::render::LoggedIn;

/// The maximum length of an agent's word that is repeated.
const MAX_WORD: usize = 40;

/// Whether an agent is logged in, with the method, or with the reason why that is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) is: LoggedIn,
    pub(super) how: Option<String>,
}

impl Login {
    pub(super) fn yes(how: impl Into<String>) -> Self {
        Self {
            is: LoggedIn::Yes,
            how: Some(how.into()),
        }
    }

    pub(super) fn no() -> Self {
        Self {
            is: LoggedIn::No,
            how: None,
        }
    }

    pub(super) fn unknown(why: impl Into<String>) -> Self {
        Self {
            is: LoggedIn::Unknown,
            how: Some(why.into()),
        }
    }
}

/// Reads the output of `claude auth status`.
pub(super) fn of_claude(stdout: &str) -> Login {
    let said: Value = serde_json::from_str(stdout.trim()).unwrap_or_default();
    let word = |key: &str| said[key].as_str().and_then(word);
    match said["loggedIn"].as_bool() {
        Some(true) => {
            let service = word("apiProvider").filter(|provider| *provider != "firstParty");
            let how = service.or(word("authMethod")).unwrap_or("method unknown");
            Login::yes(how)
        }
        Some(false) => Login::no(),
        None => Login::unknown("unexpected output of `auth status`"),
    }
}

/// Reads the response of Codex's app server to `account/read`.
pub(super) fn of_codex(answer: &Value) -> Login {
    let account = &answer["account"];
    match (account.is_null(), answer["requiresOpenaiAuth"].as_bool()) {
        (true, Some(true)) => Login::no(),
        (true, Some(false)) => Login::yes("its settings name a service without a login"),
        (false, _) => Login::yes(
            account["type"]
                .as_str()
                .and_then(word)
                .unwrap_or("method unknown"),
        ),
        (true, None) => Login::unknown("unexpected response to `account/read`"),
    }
}

/// Reads the output of `opencode auth list`: a list for people, with counts at the ends of its parts.
pub(super) fn of_opencode(stdout: &str) -> Login {
    let count = |what: &str| -> Option<u64> {
        let line = stdout.lines().find(|line| line.contains(what))?;
        { line.split_whitespace() }.find_map(|word| word.parse().ok())
    };
    let (stored, named) = (count(" credential"), count(" environment variable"));
    match (stored, named.unwrap_or(0)) {
        (None, 0) => Login::unknown("unexpected output of `auth list`"),
        (Some(0), 0) => {
            Login::unknown("no credentials: only models without a login; else: opencode auth login")
        }
        (stored, named) => Login::yes(format!(
            "credentials: {} stored, {named} in variables",
            stored.unwrap_or(0)
        )),
    }
}

/// Reads an agent's response to `session/new`.
pub(super) fn of_session(answer: &Result<Value, Value>) -> Login {
    match answer {
        Ok(_) => Login::yes("a session can be opened"),
        Err(error) if error["code"] == -32000 => Login::no(),
        Err(_) => Login::unknown("a session can not be opened, for another reason"),
    }
}

/// Returns the word if it is a plain name: no address, no key, no text.
fn word(text: &str) -> Option<&str> {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    (text.len() <= MAX_WORD && !text.is_empty() && text.chars().all(harmless)).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_agents_say_is_understood() {
        // The real output of the programs: Claude Code 2.1.329, Codex 0.169.0, OpenCode 1.18.33, Gemini CLI 0.61.0.
        let out = r#"{
  "loggedIn": false,
  "authMethod": "none",
  "apiProvider": "firstParty",
  "loginExpiresAt": null
}
"#;
        let inside = out.replace("false", "true").replace("none", "api_key");
        let cloud = inside.replace("firstParty", "bedrock");
        let empty = "┌  Credentials \u{1b}[90m~/auth.json\n│\n└  0 credentials\n";
        let named = "\n┌  Environment\n│\n●  Anthropic \u{1b}[90mANTHROPIC_API_KEY\n│\n└  1 environment variable\n";
        let refused =
            json!({"code": -32000, "message": "Gemini API key is missing or not configured."});
        let said = [
            of_claude(out),
            of_claude(&inside),
            of_claude(&cloud),
            of_claude("error: unknown command 'auth'"),
            of_codex(&json!({"account": null, "requiresOpenaiAuth": true})),
            of_codex(&json!({"account": null, "requiresOpenaiAuth": false})),
            of_codex(&json!({"account": {"type": "apiKey"}, "requiresOpenaiAuth": true})),
            of_codex(&json!({"account": {"type": "chatgpt", "email": "a@b.example"}})),
            of_codex(&json!({})),
            of_opencode(empty),
            of_opencode(&format!("{empty}{named}")),
            of_opencode(&empty.replace('0', "2")),
            of_opencode("no such command"),
            of_session(&Ok(json!({"sessionId": "s"}))),
            of_session(&Err(refused)),
            of_session(&Err(json!({"code": -32603}))),
        ];
        let shown = said.map(|login| format!("{:?} {}", login.is, login.how.unwrap_or_default()));
        insta::assert_snapshot!(shown.join("\n"));
    }

    proptest! {
        #[test]
        fn no_text_of_an_account_is_repeated(text in "\\PC{0,60}") {
            let said = [
                of_claude(&json!({"loggedIn": true, "authMethod": text}).to_string()),
                of_codex(&json!({"account": {"type": text}})),
                of_opencode(&text),
                of_session(&Err(json!({"code": -32000, "message": text}))),
            ];
            for login in said {
                let how = login.how.unwrap_or_default();
                let ours = |c: char| c.is_ascii_alphanumeric() || "_- :;,`".contains(c);
                prop_assert!(how.chars().all(ours) && how.len() < 100, "{how:?}");
            }
        }
    }
}
