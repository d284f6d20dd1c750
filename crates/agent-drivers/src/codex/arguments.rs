//! The command line of an agent. It contains no user's text and no secret: those go through standard input.

use super::options::CodexOptions;
use crate::choices::Choices;
use agent_duplex::Error;
use std::ffi::OsString;

/// The longest argument that Linux accepts, with its final zero byte.
const MAX_ARG: usize = 128 << 10;

/// The variables of the host's environment that this agent needs besides those that every agent needs.
pub(super) const REQUIRED_ENV: [&str; 2] = ["CODEX_*", "OPENAI_*"];

/// The arguments that the driver sets itself, and those that start another mode of the program.
const DRIVER_FLAGS: [&str; 6] = [
    "app-server",
    "exec",
    "mcp-server",
    "--listen",
    "--stdio",
    "--remote",
];

/// The arguments for permissions. They are refused, because they would silently override the option `permissions`.
const PERMISSIONS: [&str; 8] = [
    "--dangerously-bypass-approvals-and-sandbox",
    "--yolo",
    "--full-auto",
    "--sandbox",
    "-s",
    "--ask-for-approval",
    "-a",
    "--approve-all",
];

/// The settings for permissions.
const SETTINGS: [&str; 5] = [
    "approval_policy",
    "sandbox_mode",
    "approvals_reviewer",
    "default_permissions",
    "permissions",
];

/// Composes the arguments.
pub(super) fn compose(options: &CodexOptions, choices: &Choices) -> Result<Vec<OsString>, Error> {
    let mut words: Vec<OsString> = vec!["app-server".into()];
    if !options.analytics {
        words.extend(["-c", "analytics.enabled=false"].map(OsString::from));
    }
    let keys = options.config.0.keys();
    let mut chosen = keys.filter_map(|key| setting(key, options, choices));
    if let Some((what, hint)) = chosen.next() {
        return Err(refused(&what, hint));
    }
    let mut is_setting = false;
    for arg in &choices.args {
        let arg = arg.to_string_lossy();
        let refusal = match std::mem::take(&mut is_setting) {
            true => setting(&arg, options, choices),
            false => {
                is_setting = ["-c", "--config"].contains(&&*arg);
                word(&arg, options, choices)
            }
        };
        if let Some((what, hint)) = refusal {
            return Err(refused(&what, hint));
        }
    }
    words.extend_from_slice(&choices.args);
    match words.iter().find(|word| word.len() >= MAX_ARG) {
        None => Ok(words),
        Some(word) => {
            let what = format!("an argument of the agent is {} bytes long", word.len());
            let hint = "one argument must be shorter than 128 KiB; use the `config` option";
            Err(Error::start(format!("{what}: {hint}"), None))
        }
    }
}

fn refused(what: &str, hint: &str) -> Error {
    let what = what.escape_debug();
    Error::start(format!("the driver sets `{what}` itself: {hint}"), None)
}

/// Returns the part of an argument that the driver sets itself, and the fix.
fn word(arg: &str, options: &CodexOptions, choices: &Choices) -> Option<(String, &'static str)> {
    let value = ["-c", "--config="].iter().find_map(|flag| {
        let rest = arg.strip_prefix(flag)?;
        Some(rest.trim_start_matches('=')).filter(|rest| !rest.is_empty())
    });
    if let Some(value) = value {
        return setting(value, options, choices);
    }
    let flag = arg.split('=').next().unwrap_or_default();
    let model = ["-m", "--model"].contains(&flag) && choices.model.is_some();
    let hint = if PERMISSIONS.contains(&flag) {
        "use --permissions instead"
    } else if model {
        "use only the driver's own option"
    } else if DRIVER_FLAGS.contains(&flag)
        || (flag == "--analytics-default-enabled" && !options.analytics)
    {
        "remove it from the agent's extra arguments"
    } else {
        return None;
    };
    Some((flag.to_owned(), hint))
}

/// Returns the same for a setting in the form `key=value`.
fn setting(
    text: &str,
    options: &CodexOptions,
    choices: &Choices,
) -> Option<(String, &'static str)> {
    let key = text.split('=').next().unwrap_or_default().trim();
    let first = key
        .split('.')
        .next()
        .unwrap_or_default()
        .trim_matches(['"', '\'', ' ']);
    let hint = if SETTINGS.contains(&first) {
        "use --permissions instead"
    } else if first == "analytics" && !options.analytics {
        "use the `analytics` option"
    } else if first == "model" && choices.model.is_some() {
        "use only the driver's own option"
    } else if first == "mcp_servers" && !choices.mcp_servers.is_empty() {
        "configure all MCP servers in one place"
    } else {
        return None;
    };
    Some((key.to_owned(), hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codex::CodexDriver;
    use agent_subprocess::ProcessContext;

    fn composed(change: impl Fn(&mut CodexDriver)) -> Result<String, String> {
        let mut driver = CodexDriver::new(Vec::new(), ProcessContext::new("", ""));
        change(&mut driver);
        let words = compose(&driver.options, &driver.choices).map_err(|e| e.to_string())?;
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        Ok(words.join(" "))
    }

    fn with(args: &'static [&'static str]) -> Result<String, String> {
        composed(|driver| driver.choices.args = args.iter().map(OsString::from).collect())
    }

    #[test]
    fn p31d_p31e_repeated_driver_flags_are_refused() {
        let refused: Vec<String> = [
            with(&["--listen=ws://0.0.0.0:1"]),
            with(&["--yolo"]),
            with(&["-c", "approval_policy=\"never\""]),
            with(&["-csandbox_mode=\"danger-full-access\""]),
            with(&["--config=\"sandbox_mode\"=1"]),
            with(&["-c=permissions.x=1"]),
            with(&["-c", "analytics.enabled=true"]),
            with(&["--sandbox", "danger-full-access"]),
            composed(|driver| {
                driver.choices.model = Some("m".to_owned());
                driver.choices.args = vec!["-c".into(), "model=n".into()];
            }),
            composed(|driver| driver.choices.args = vec!["x".repeat(MAX_ARG).into()]),
            composed(|driver| {
                let policy = serde_json::json!("never");
                driver
                    .options
                    .config
                    .0
                    .insert("approval_policy".to_owned(), policy);
            }),
        ]
        .into_iter()
        .map(Result::unwrap_err)
        .collect();
        insta::assert_snapshot!(refused.join("\n"));
    }

    #[test]
    fn p31e_unstartable_options_are_refused_early() {
        let checked = |change: &dyn Fn(&mut CodexDriver)| {
            let mut driver = CodexDriver::new(Vec::new(), ProcessContext::new("", ""));
            change(&mut driver);
            driver.check().map_err(|e| e.to_string())
        };
        checked(&|_| {}).unwrap();
        let refused = [
            checked(&|driver| {
                drop(
                    driver
                        .options
                        .env
                        .0
                        .insert("A=B".to_owned(), "1".to_owned()),
                )
            }),
            checked(&|driver| driver.choices.args = vec!["--yolo".into()]),
            checked(&|driver| {
                let sse = crate::mcp::McpServer::sse("http://localhost:1");
                driver.choices.mcp_servers.insert("old", sse).unwrap();
            }),
        ];
        insta::assert_snapshot!(refused.map(Result::unwrap_err).join("\n"));
    }

    #[test]
    fn p31a_other_arguments_are_passed_on_unchanged() {
        let words = with(&["-c", "model_provider=x", "--enable", "a", "--strict-config"]).unwrap();
        assert_eq!(
            words,
            "app-server -c analytics.enabled=false -c model_provider=x --enable a --strict-config"
        );
        let words = composed(|driver| driver.options.analytics = true).unwrap();
        assert_eq!(words, "app-server");
    }
}
