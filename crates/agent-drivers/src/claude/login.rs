//! The login of Claude Code: `claude auth status` prints it as a JSON object.

use serde_json::Value;

use crate::probe::{
    Login, LoginFacts, Probe, Program, method_name, version, version_numbers, version_word,
};

/// The first version that is known to have the command `auth status`.
const STATUS_SINCE: [u64; 3] = [2, 1, 79];

pub(crate) const VARIABLES: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
];

pub(crate) const FACTS: LoginFacts = LoginFacts {
    tested_version: Some("2.1.329"),
    how_to: "claude auth login",
    variables: VARIABLES,
};

pub(crate) async fn probe(program: Program<'_>) -> Probe {
    let (version, output) = version(program).await;
    // Another program, or an older version, would take the arguments for a prompt, and a prompt costs money.
    let login = match &version {
        Err(why) => Login::unknown(why),
        Ok(_) if output.contains("Claude") && has_status(&output) => {
            status(program, &["auth", "status"]).await
        }
        Ok(_) => Login::unknown("only Claude Code 2.1.79 and later can report it"),
    };
    Probe { version, login }
}

fn has_status(output: &str) -> bool {
    version_word(output).and_then(version_numbers) >= Some(STATUS_SINCE)
}

/// Runs a command that prints the login as `claude auth status` does.
pub(crate) async fn status(program: Program<'_>, arguments: &[&str]) -> Login {
    match program.run(arguments).await {
        Ok(output) => login_in(&output.stdout),
        Err(why) => Login::unknown(why),
    }
}

fn login_in(stdout: &str) -> Login {
    let status: Value = serde_json::from_str(stdout.trim()).unwrap_or_default();
    let name = |key: &str| status[key].as_str().and_then(method_name);
    match status["loggedIn"].as_bool() {
        Some(true) => {
            let service = name("apiProvider").filter(|provider| *provider != "firstParty");
            let method = service.or(name("authMethod"));
            Login::yes(method.unwrap_or("by an unknown method"))
        }
        Some(false) => Login::no(),
        None => Login::unknown("unexpected output of `auth status`"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_login_is_read_as_claude_code_prints_it() {
        // As Claude Code 2.1.329 printed it.
        let out = r#"{
  "loggedIn": false,
  "authMethod": "none",
  "apiProvider": "firstParty",
  "loginExpiresAt": null
}
"#;
        let key = out.replace("false", "true").replace("none", "api_key");
        let cloud = key.replace("firstParty", "bedrock");
        assert_eq!(login_in(out), Login::no());
        assert_eq!(login_in(&key), Login::yes("api_key"));
        assert_eq!(login_in(&cloud), Login::yes("bedrock"));
        let other = login_in("error: unknown command 'auth'");
        assert_eq!(other.state, crate::LoggedIn::Unknown);
    }

    #[test]
    fn only_a_version_that_has_the_command_is_asked() {
        assert!(has_status("2.1.100 (Claude Code)") && has_status("2.1.79"));
        assert!(!has_status("2.1.9 (Claude Code)") && !has_status("Claude Code"));
    }

    proptest! {
        #[test]
        fn an_account_is_never_repeated(text in "\\PC{0,60}") {
            let status = json!({"loggedIn": true, "authMethod": text}).to_string();
            let detail = login_in(&status).detail.unwrap_or_default();
            let harmless = |c: char| c.is_ascii_alphanumeric() || "_- ".contains(c);
            prop_assert!(detail.chars().all(harmless) && detail.len() < 100, "{detail:?}");
        }
    }
}
