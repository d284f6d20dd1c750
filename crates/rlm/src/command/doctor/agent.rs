//! The examination of one agent.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::ask::{Program, Said, Silence, command, converse, run};
use super::known::{Facts, Question};
use super::login::{self, Login};
use crate::render::{AgentHealth, Health, LoggedIn};

/// How long a program may take to say its version.
const VERSION: Duration = Duration::from_secs(10);
/// From this version of Claude Code on it is certain that `auth status` is a command.
const STATUS_SINCE: [u64; 3] = [2, 1, 79];
/// The longest of an agent's words that are repeated.
const MAX_WORDS: usize = 200;

/// Who is examined.
#[derive(Debug)]
pub(super) struct Patient {
    pub(super) name: &'static str,
    /// What is started, or why that is not there.
    pub(super) program: Result<Program, String>,
    /// Why it is not started, though it is there.
    pub(super) unrun: Option<String>,
    /// The variables that the project's file names and that it does not get here, by name.
    pub(super) unset: Vec<String>,
    /// Why it can't be started as `rlm.toml` says.
    pub(super) refused: Option<String>,
    /// What else of that name is on `PATH`.
    pub(super) others: Vec<PathBuf>,
    /// The variables for its login that it would get, by name.
    pub(super) variables: Vec<String>,
    pub(super) capabilities: Vec<String>,
    pub(super) facts: Facts,
}

/// What an agent said of itself.
#[derive(Debug)]
pub(super) struct Answers {
    /// Its version, if it has one to tell; or why it can't be used.
    pub(super) version: Result<Option<String>, String>,
    pub(super) login: Login,
}

impl Answers {
    /// Of a program that was not run.
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

/// Asks the agent, until a moment at the latest.
pub(super) async fn ask(program: &Program, facts: &Facts, until: Instant) -> Answers {
    let soon = until.min(Instant::now() + VERSION);
    let version = async || version_of(run(command(program, &["--version"]), soon).await);
    match facts.question {
        Question::ClaudeStatus => {
            let (version, said) = version().await;
            // Another program, or an older one, would take the words for a prompt, and that costs money.
            let new = said.contains("Claude")
                && numbers_in(&said).and_then(numbers) >= Some(STATUS_SINCE);
            let login = match new {
                true => status(program, &["auth", "status"], until).await,
                false => Login::unknown("only Claude Code from 2.1.79 on can be asked"),
            };
            Answers { version, login }
        }
        Question::CodexAccount => {
            let (version, said) = version().await;
            let login = match said.contains("codex") {
                true => account(program, until).await,
                false => Login::unknown("it does not call itself Codex"),
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
                // What it says without the protocol tells more of why.
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

/// Returns the version, or why there is none, and what was printed.
fn version_of(said: Result<Said, Silence>) -> (Result<Option<String>, String>, String) {
    let said = match said {
        Ok(said) => said,
        Err(why) => return (Err(why), String::new()),
    };
    let version = match said.exit.success() {
        true => Ok(numbers_in(&said.stdout).map(str::to_owned)),
        false => {
            let why = words(&said.stderr);
            Err(format!("`--version` ended with {}{why}", said.exit))
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
        Ok(Err(_)) => Login::unknown("this version does not know `account/read`"),
        Err(why) => Login::unknown(why),
    }
}

/// Introduces us to an agent of the protocol, and opens a session if that says whether it is logged in.
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
                None => Login::unknown("its protocol tells it only when there is a message"),
            },
        },
        Ok((Err(error), _)) => Answers::none(&format!(
            "it refused to be introduced{}",
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

/// Returns the three numbers that a version begins with.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let core = version.split(['-', '+']).next()?;
    let numbers: Result<Vec<u64>, _> = core.split('.').map(str::parse).collect();
    numbers.ok()?.try_into().ok()
}

/// Returns the first line of what an agent said of its trouble, behind a colon.
fn words(text: &str) -> String {
    let line = { text.lines().map(str::trim) }.find(|line| !line.is_empty());
    line.map_or(String::new(), |line| {
        let line: String = line.chars().take(MAX_WORDS).collect();
        format!(": {line}")
    })
}

/// Judges by what was found and said.
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
        let what = format!("asked without the variables that rlm.toml sets for it: {unset}");
        note(&mut found, Health::Ok, what);
    }
    if !found.others.is_empty() {
        let others = found.others.join(", ");
        note(
            &mut found,
            Health::Warning,
            format!("also on PATH, and not started: {others}"),
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
    // Why an agent that does not even say its version was not asked further is clear, and said.
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
            Err("it did not answer within 10 s".to_owned()),
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
        `--version` ended with exit status 1: Error: claude native binary not installed.
        it did not answer within 10 s
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
        let unknown = || Login::unknown("nobody knows");
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
        true Warning Unknown Some("nobody knows") []
        true Ok Yes Some("KEY is set; not checked") []
        false Problem No None ["log in: claude auth login"]
        false Problem Unknown None ["it is broken"]
        false Absent Unknown None ["get it"]
        "#);
    }
}
