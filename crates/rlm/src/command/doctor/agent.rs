//! The examination of one agent: its version and its login.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::ask::{Program, Said, Silence, command, converse, run};
use super::known::{Facts, Question};
use super::login::{self, Login};
use crate::render::{AgentHealth, Health, LoggedIn};

/// The time in which a program must print its version.
const VERSION: Duration = Duration::from_secs(10);
/// The first version of Claude Code that certainly has the command `auth status`.
const STATUS_SINCE: [u64; 3] = [2, 1, 79];
/// The maximum length of an agent's text that is repeated.
const MAX_WORDS: usize = 200;

/// An agent to examine.
#[derive(Debug)]
pub(super) struct Patient {
    pub(super) name: &'static str,
    /// The program, or the reason why it is missing.
    pub(super) program: Result<Program, String>,
    /// The reason why an existing program is not run.
    pub(super) unrun: Option<String>,
    /// The names of the variables that the project's file sets, but that the program doesn't get here.
    pub(super) unset: Vec<String>,
    /// The error of its section in `rlm.toml`.
    pub(super) refused: Option<String>,
    /// The other programs of that name on `PATH`.
    pub(super) others: Vec<PathBuf>,
    /// The names of the variables for its login that it would get.
    pub(super) variables: Vec<String>,
    pub(super) capabilities: Vec<String>,
    pub(super) facts: Facts,
}

/// The responses of an agent.
#[derive(Debug)]
pub(super) struct Answers {
    /// Its version, if it reports one; or the reason why it can't be used.
    pub(super) version: Result<Option<String>, String>,
    pub(super) login: Login,
}

impl Answers {
    /// Returns the responses of a program that was not run.
    pub(super) fn unasked() -> Self {
        Self {
            version: Ok(None),
            login: Login::unknown("not run"),
        }
    }

    pub(super) fn none(why: &str) -> Self {
        Self {
            version: Err(why.to_owned()),
            login: Login::unknown(why),
        }
    }
}

/// Asks the agent, until `until` at the latest.
pub(super) async fn ask(program: &Program, facts: &Facts, until: Instant) -> Answers {
    let soon = until.min(Instant::now() + VERSION);
    let version = async || version_of(run(command(program, &["--version"]), soon).await);
    match facts.question {
        Question::ClaudeStatus => {
            let (version, said) = version().await;
            // Another program, or an older version, would take the words for a prompt, which costs money.
            let new = said.contains("Claude")
                && numbers_in(&said).and_then(numbers) >= Some(STATUS_SINCE);
            let login = match new {
                true => status(program, &["auth", "status"], until).await,
                false => Login::unknown("only Claude Code 2.1.79 and later can report it"),
            };
            Answers { version, login }
        }
        Question::CodexAccount => {
            let (version, said) = version().await;
            let login = match said.contains("codex") {
                true => account(program, until).await,
                false => Login::unknown("the program is not Codex"),
            };
            Answers { version, login }
        }
        Question::OpencodeList => {
            let list = run(command(program, &["auth", "list"]), until);
            let ((version, _), said) = tokio::join!(version(), list);
            let login = said.map_or_else(Login::unknown, |said| login::of_opencode(&said.stdout));
            Answers { version, login }
        }
        Question::GeminiSession => {
            let arguments = ["--acp", "--allowed-mcp-server-names", "none", "-e", "none"];
            let answers = introduced(program, &arguments, true, until).await;
            match answers.version {
                // Without the protocol the program prints more about the cause.
                Err(_) => Answers {
                    version: version().await.0,
                    ..answers
                },
                Ok(_) => answers,
            }
        }
        Question::AdapterStatus => {
            let (answers, login) = tokio::join!(
                introduced(program, &[], false, until),
                status(program, &["--cli", "auth", "status"], until)
            );
            Answers { login, ..answers }
        }
        Question::Introduction => introduced(program, &[], false, until).await,
        Question::None => Answers {
            version: Ok(None),
            login: Login {
                is: LoggedIn::Unknown,
                how: None,
            },
        },
    }
}

/// Returns the version, or the reason why there is none, and the output.
fn version_of(said: Result<Said, Silence>) -> (Result<Option<String>, String>, String) {
    let said = match said {
        Ok(said) => said,
        Err(why) => return (Err(why), String::new()),
    };
    let version = match said.exit.success() {
        true => Ok(numbers_in(&said.stdout).map(str::to_owned)),
        false => {
            let why = words(&said.stderr);
            Err(format!("`--version` failed: {}{why}", said.exit))
        }
    };
    (version, said.stdout)
}

async fn status(program: &Program, arguments: &[&str], until: Instant) -> Login {
    match run(command(program, arguments), until).await {
        Ok(said) => login::of_claude(&said.stdout),
        Err(why) => Login::unknown(why),
    }
}

async fn account(program: &Program, until: Instant) -> Login {
    let server = command(program, &["app-server", "-c", "analytics.enabled=false"]);
    let asked = converse(server, until, async |talk| {
        let client = json!({"clientInfo": {"name": "rlm", "version": env!("CARGO_PKG_VERSION")}});
        let _introduced = talk.ask("initialize", client).await?;
        talk.ask("account/read", json!({})).await
    });
    match asked.await {
        Ok(Ok(account)) => login::of_codex(&account),
        Ok(Err(_)) => Login::unknown("this version does not support `account/read`"),
        Err(why) => Login::unknown(why),
    }
}

/// Initialises an agent of the protocol, and opens a session if that shows whether the agent is logged in.
async fn introduced(
    program: &Program,
    arguments: &[&str],
    session: bool,
    until: Instant,
) -> Answers {
    let quick = command(program, arguments).env("GEMINI_CLI_NO_RELAUNCH", "true");
    let asked = converse(quick, until, async |talk| {
        let fs = json!({"readTextFile": false, "writeTextFile": false});
        let can = json!({"fs": fs, "terminal": false});
        let client = json!({"protocolVersion": 1, "clientCapabilities": can});
        let agent = talk.ask("initialize", client).await?;
        let opened = match session && agent.is_ok() {
            true => {
                let nothing = json!({"cwd": "/", "mcpServers": []});
                Some(talk.ask("session/new", nothing).await)
            }
            false => None,
        };
        Ok((agent, opened))
    });
    match asked.await {
        Ok((Ok(agent), opened)) => Answers {
            version: Ok(version_in(&agent)),
            login: match opened {
                Some(Ok(answer)) => login::of_session(&answer),
                Some(Err(why)) => Login::unknown(why),
                None => Login::unknown("unknown before the first message"),
            },
        },
        Ok((Err(error), _)) => Answers::none(&format!(
            "it refused to initialize{}",
            words(error["message"].as_str().unwrap_or_default())
        )),
        Err(why) => Answers::none(&why),
    }
}

fn version_in(agent: &Value) -> Option<String> {
    let version = agent["agentInfo"]["version"].as_str()?;
    numbers_in(version).map(str::to_owned)
}

/// Returns the first word of a text that looks like a version.
fn numbers_in(text: &str) -> Option<&str> {
    let mut words = text.split_whitespace();
    words.find(|word| numbers(word).is_some() && word.len() <= MAX_WORDS / 4)
}

/// Returns the three numbers at the start of a version.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let core = version.split(['-', '+']).next()?;
    let numbers: Result<Vec<u64>, _> = core.split('.').map(str::parse).collect();
    numbers.ok()?.try_into().ok()
}

/// Returns the first line of an agent's error text, after a colon.
fn words(text: &str) -> String {
    let line = { text.lines().map(str::trim) }.find(|line| !line.is_empty());
    line.map_or(String::new(), |line| {
        let line: String = line.chars().take(MAX_WORDS).collect();
        format!(": {line}")
    })
}

/// Combines what was found with the responses.
pub(super) fn judge(patient: Patient, answers: Option<Answers>) -> AgentHealth {
    let Patient {
        name,
        program,
        unrun,
        unset,
        refused,
        others,
        variables,
        capabilities,
        facts,
    } = patient;
    let shown = |path: PathBuf| path.to_string_lossy().into_owned();
    let mut found = AgentHealth {
        agent: name,
        health: Health::Ok,
        program: None,
        others: others.into_iter().map(shown).collect(),
        version: None,
        tried: facts.tried,
        logged_in: LoggedIn::Unknown,
        login: None,
        variables,
        capabilities,
        notes: Vec::new(),
    };
    let (program, answers) = match (program, answers) {
        (Ok(program), Some(answers)) => (program, answers),
        (missing, _) => {
            found.health = Health::Absent;
            found.notes.extend(missing.err());
            return found;
        }
    };
    if let Some(refused) = refused {
        note(&mut found, Health::Problem, refused);
    }
    let is_run = unrun.is_none();
    if let Some(unrun) = unrun {
        note(&mut found, Health::Warning, unrun);
    }
    if is_run && !unset.is_empty() {
        let unset = unset.join(", ");
        let what = format!("checked without the variables that rlm.toml sets for it: {unset}");
        note(&mut found, Health::Ok, what);
    }
    if !found.others.is_empty() {
        let others = found.others.join(", ");
        note(
            &mut found,
            Health::Warning,
            format!("also on PATH, but not used: {others}"),
        );
    }
    let path = program.words.first().map(PathBuf::from);
    found.program = path.map(shown);
    let is_there = answers.version.is_ok();
    match answers.version {
        Ok(version) => found.version = version,
        Err(why) => note(&mut found, Health::Problem, why),
    }
    found.logged_in = answers.login.is;
    // For an agent that doesn't report its version, the notes already have the reason why the login is unknown.
    let is_known = found.logged_in != LoggedIn::Unknown;
    found.login = answers.login.how.filter(|_| is_known || is_there);
    match found.logged_in {
        LoggedIn::No => {
            let log_in = format!("log in: {}", facts.log_in);
            note(&mut found, Health::Problem, log_in);
        }
        LoggedIn::Unknown if !found.variables.is_empty() => {
            found.logged_in = LoggedIn::Yes;
            let names = found.variables.join(", ");
            found.login = Some(format!("{names} is set; not checked"));
        }
        LoggedIn::Unknown if found.login.is_some() => {
            found.health = found.health.max(Health::Warning);
        }
        _ => {}
    }
    found
}

fn note(found: &mut AgentHealth, health: Health, what: impl Into<String>) {
    found.health = found.health.max(health);
    found.notes.push(what.into());
}

#[cfg(test)]
mod tests {
    use agent_subprocess::Exit;

    use super::*;

    fn said(code: i32, stdout: &str, stderr: &str) -> Result<Said, Silence> {
        Ok(Said {
            exit: Exit {
                code: Some(code),
                signal: None,
            },
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        })
    }

    #[test]
    fn a_version_is_found_in_what_agents_print() {
        let printed = [
            said(0, "2.1.329 (Claude Code)\n", ""),
            said(0, "codex-cli 0.169.0-alpha.2\n", ""),
            said(0, "1.18.33\n", "a warning"),
            said(0, "", ""),
            said(
                1,
                "",
                "\n  Error: claude native binary not installed.\n\nEither",
            ),
            Err("no response within 10 s".to_owned()),
        ];
        let found: Vec<_> = printed
            .map(|said| match version_of(said).0 {
                Ok(version) => version.unwrap_or_else(|| "none".to_owned()),
                Err(why) => why,
            })
            .into();
        insta::assert_snapshot!(found.join("\n"), @r"
        2.1.329
        0.169.0-alpha.2
        1.18.33
        none
        `--version` failed: exit status 1: Error: claude native binary not installed.
        no response within 10 s
        ");
        assert!(numbers("2.1.100") > Some(STATUS_SINCE) && numbers("2.1.9") < Some(STATUS_SINCE));
        assert_eq!(numbers("2.1"), None);
    }

    fn patient(variables: &[&str]) -> Patient {
        Patient {
            name: "claude",
            program: Ok(Program::new(vec!["/bin/claude".into()])),
            unrun: None,
            unset: Vec::new(),
            refused: None,
            others: Vec::new(),
            variables: variables.iter().map(|name| (*name).to_owned()).collect(),
            capabilities: Vec::new(),
            facts: Facts {
                tried: Some("1.0.0"),
                question: Question::ClaudeStatus,
                log_in: "claude auth login",
                variables: &[],
            },
        }
    }

    #[test]
    fn an_agent_is_usable_unless_it_is_missing_broken_or_not_logged_in() {
        let answers = |version: Result<&str, &str>, login| Answers {
            version: version
                .map(|version| Some(version.to_owned()))
                .map_err(str::to_owned),
            login,
        };
        let unknown = || Login::unknown("not reported");
        let judged = [
            judge(
                patient(&[]),
                Some(answers(Ok("1.0.0"), Login::yes("api_key"))),
            ),
            judge(patient(&[]), Some(answers(Ok("2.0.0"), unknown()))),
            judge(patient(&["KEY"]), Some(answers(Ok("1.0.0"), unknown()))),
            judge(patient(&["KEY"]), Some(answers(Ok("1.0.0"), Login::no()))),
            judge(patient(&[]), Some(answers(Err("it is broken"), unknown()))),
            judge(
                Patient {
                    program: Err("get it".to_owned()),
                    ..patient(&[])
                },
                None,
            ),
        ];
        let shown = judged.map(|found| {
            let AgentHealth {
                health,
                logged_in,
                login,
                notes,
                ..
            } = &found;
            format!(
                "{} {health:?} {logged_in:?} {login:?} {notes:?}",
                found.is_usable()
            )
        });
        insta::assert_snapshot!(shown.join("\n"), @r#"
        true Ok Yes Some("api_key") []
        true Warning Unknown Some("not reported") []
        true Ok Yes Some("KEY is set; not checked") []
        false Problem No None ["log in: claude auth login"]
        false Problem Unknown None ["it is broken"]
        false Absent Unknown None ["get it"]
        "#);
    }
}
