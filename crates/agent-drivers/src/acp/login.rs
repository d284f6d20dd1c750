//! The login of agents that implement the Agent Client Protocol. The protocol reports a missing login only when a session is opened, so each
//! known agent has its own query.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::AcpPreset;
use crate::claude::login as claude;
use crate::probe::{Login, LoginFacts, Probe, Program, after_colon, version, version_word};

/// Gemini loads no MCP server and no extension, because neither is needed for the login.
const GEMINI: [&str; 5] = ["--acp", "--allowed-mcp-server-names", "none", "-e", "none"];
/// The error code of the protocol for a missing login.
const AUTH_REQUIRED: i64 = -32000;

pub(crate) const fn facts(preset: AcpPreset) -> LoginFacts {
    match preset {
        AcpPreset::Gemini => LoginFacts {
            tested_version: Some("0.61.0"),
            how_to: "start gemini once and choose a login method, or set GEMINI_API_KEY",
            variables: &[
                "GEMINI_API_KEY",
                "GOOGLE_API_KEY",
                "GOOGLE_GENAI_USE_VERTEXAI",
                "GOOGLE_GENAI_USE_GCA",
            ],
        },
        AcpPreset::Opencode => LoginFacts {
            tested_version: Some("1.18.33"),
            how_to: "opencode auth login",
            variables: &[],
        },
        AcpPreset::Claude => LoginFacts {
            tested_version: Some("0.49.0"),
            how_to: "claude-agent-acp --cli auth login",
            variables: claude::VARIABLES,
        },
        AcpPreset::Other => LoginFacts {
            tested_version: None,
            how_to: "start it once in a terminal and log in",
            variables: &[],
        },
    }
}

pub(crate) async fn probe(preset: AcpPreset, program: Program<'_>) -> Probe {
    let env = preset.facts().env;
    let program = Program { env, ..program };
    match preset {
        AcpPreset::Gemini => gemini(program).await,
        AcpPreset::Opencode => {
            let list = program.run(&["auth", "list"]);
            let ((version, _), list) = tokio::join!(version(program), list);
            let login = list.map_or_else(Login::unknown, |list| login_in_list(&list.stdout));
            Probe { version, login }
        }
        AcpPreset::Claude => {
            // The adapter passes the arguments behind `--cli` to its own Claude Code.
            let status = claude::status(program, &["--cli", "auth", "status"]);
            let (probe, login) = tokio::join!(initialize(program, &[], false), status);
            Probe { login, ..probe }
        }
        AcpPreset::Other => initialize(program, &[], false).await,
    }
}

async fn gemini(program: Program<'_>) -> Probe {
    let probe = initialize(program, &GEMINI, true).await;
    match probe.version {
        // Without the protocol, Gemini prints more about why it can't start.
        Err(_) if Instant::now() < program.deadline => Probe {
            version: version(program).await.0,
            ..probe
        },
        _ => probe,
    }
}

/// Opens a connection, and a session too if that shows whether the agent is logged in.
async fn initialize(program: Program<'_>, arguments: &[&str], opens_session: bool) -> Probe {
    let answers = program.converse(arguments, async |requests| {
        let fs = json!({"readTextFile": false, "writeTextFile": false});
        let capabilities = json!({"fs": fs, "terminal": false});
        let client = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        let agent = requests.send("initialize", client).await?;
        let session = match opens_session && agent.is_ok() {
            true => {
                let params = json!({"cwd": "/", "mcpServers": []});
                Some(requests.send("session/new", params).await)
            }
            false => None,
        };
        Ok((agent, session))
    });
    match answers.await {
        Ok((Ok(agent), session)) => Probe {
            version: Ok(version_in(&agent)),
            login: match session {
                Some(Ok(response)) => login_in_session(&response),
                Some(Err(why)) => Login::unknown(why),
                None => Login::unknown("unknown before the first message"),
            },
        },
        Ok((Err(error), _)) => Probe::failed(&format!(
            "it refused to initialize{}",
            after_colon(error["message"].as_str().unwrap_or_default())
        )),
        Err(why) => Probe::failed(&why),
    }
}

fn version_in(agent: &Value) -> Option<String> {
    let version = agent["agentInfo"]["version"].as_str()?;
    version_word(version).map(str::to_owned)
}

/// Reads the output of `opencode auth list`: a list for people, with a count at the end of each part.
fn login_in_list(stdout: &str) -> Login {
    let count = |unit: &str| -> Option<u64> {
        let line = stdout.lines().find(|line| line.contains(unit))?;
        { line.split_whitespace() }.find_map(|word| word.parse().ok())
    };
    let (stored, variables) = (count(" credential"), count(" environment variable"));
    match (stored, variables.unwrap_or(0)) {
        (None, 0) => Login::unknown("unexpected output of `auth list`"),
        (Some(0), 0) => {
            Login::unknown("no credentials: only some models work; log in: opencode auth login")
        }
        (stored, variables) => Login::yes(format!(
            "credentials: {} stored, {variables} in variables",
            stored.unwrap_or(0)
        )),
    }
}

fn login_in_session(response: &Result<Value, Value>) -> Login {
    match response {
        Ok(_) => Login::yes("a session can be opened"),
        Err(error) if error["code"] == AUTH_REQUIRED => Login::no(),
        Err(_) => Login::unknown("a session can't be opened, for another reason"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_login_is_read_as_opencode_and_gemini_report_it() {
        // As OpenCode 1.18.33 and Gemini CLI 0.61.0 printed it.
        let empty = "┌  Credentials \u{1b}[90m~/auth.json\n│\n└  0 credentials\n";
        let named = "\n┌  Environment\n│\n●  Anthropic \u{1b}[90mANTHROPIC_API_KEY\n│\n└  1 environment variable\n";
        let refused =
            json!({"code": -32000, "message": "Gemini API key is missing or not configured."});
        let logins = [
            login_in_list(empty),
            login_in_list(&format!("{empty}{named}")),
            login_in_list(&empty.replace('0', "2")),
            login_in_list("no such command"),
            login_in_session(&Ok(json!({"sessionId": "s"}))),
            login_in_session(&Err(refused)),
            login_in_session(&Err(json!({"code": -32603}))),
        ];
        let shown = logins.map(|it| format!("{:?} {}", it.state, it.detail.unwrap_or_default()));
        insta::assert_snapshot!(shown.join("\n").replace(" \n", "\n"), @r"
        Unknown no credentials: only some models work; log in: opencode auth login
        Yes credentials: 0 stored, 1 in variables
        Yes credentials: 2 stored, 0 in variables
        Unknown unexpected output of `auth list`
        Yes a session can be opened
        No
        Unknown a session can't be opened, for another reason
        ");
    }

    proptest! {
        #[test]
        fn an_account_is_never_repeated(text in "\\PC{0,60}") {
            let logins = [
                login_in_list(&text),
                login_in_session(&Err(json!({"code": -32000, "message": text}))),
            ];
            for login in logins {
                let detail = login.detail.unwrap_or_default();
                let harmless = |c: char| c.is_ascii_alphanumeric() || "_- :;,`'".contains(c);
                prop_assert!(detail.chars().all(harmless) && detail.len() < 100, "{detail:?}");
            }
        }
    }
}
