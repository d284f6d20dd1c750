//! `lab`: scores a loop runner as a black box, and prints a table. Run by `cargo xtask lab`; see `README.md`. The same program is the scripted agent.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for maintainers that prints its results"
)]

mod progress;

use std::hash::{BuildHasher, RandomState};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::Parser;
use clap::error::ErrorKind;
use rlm_score::{Circumstances, Effort, Lab, Report, ScoreName, Tool};
use rlm_tests::live::OneShotAgent;

use crate::progress::Progress;

/// The first argument of the scripted agent.
const AGENT: &str = "--record";

/// The program `rlm`, as this package builds it.
const OURS: &str = "rlm-scored";

/// Score a loop runner as a black box: stop, resume, done, night and control
#[derive(Debug, Parser)]
#[command(name = "lab")]
struct Arguments {
    /// The loop runner: a command for bash with {agent}, and with {prompt}, {check} and {iterations} if it takes them [default: rlm]
    #[arg(long, value_name = "CMD")]
    tool: Option<String>,
    /// Name of the agent's program, for a tool that finds its agent on the PATH
    #[arg(long, value_name = "NAME", requires = "tool")]
    agent_name: Option<String>,
    /// A TOML file with the verbs of the loop runner: start, kill, restart, finish, message
    #[arg(long, value_name = "FILE", conflicts_with = "tool")]
    verbs: Option<PathBuf>,
    /// A real agent CLI instead of the scripted agent: claude, codex, gemini or opencode, installed from npm; one fault of each score
    #[arg(long, value_name = "PROGRAM")]
    real_agent: Option<String>,
    /// Only this score; repeatable [default: all]
    #[arg(long, value_enum, value_name = "SCORE")]
    only: Vec<ScoreName>,
    /// Fewer repetitions; done in about two minutes
    #[arg(long)]
    quick: bool,
    /// Number of faults at the same time; they mostly wait
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    jobs: u8,
    /// Seed of the random moments [default: a new one]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Also write the report as JSON; docs/schema/lab.json describes it
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == AGENT) {
        return rlm_tests::agent::main_impl();
    }
    let arguments = Arguments::parse();
    let prepared = tool(&arguments).and_then(|tool| {
        let me = std::env::current_exe().map_err(|error| error.to_string())?;
        let cli = arguments
            .real_agent
            .as_deref()
            .map(real_agent)
            .transpose()?;
        Ok((tool, me, cli))
    });
    let (tool, me, cli) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => {
            eprintln!(
                "{}",
                clap::Error::raw(ErrorKind::InvalidValue, why + "\n").render()
            );
            return ExitCode::from(2);
        }
    };
    // A real agent must not reach the internet.
    if cli.is_some() {
        match rlm_tests::live::isolated() {
            Ok(None) => {}
            Ok(Some(code)) => return code,
            Err(why) => {
                eprintln!("error: a real agent needs a network with only loopback: {why}");
                return ExitCode::from(2);
            }
        }
    }
    // Each scene sees this flag and kills the processes that it started, so that this program has no survivors either.
    let given_up = match rlm_survivors::given_up_by_signal() {
        Ok(given_up) => given_up,
        Err(error) => {
            eprintln!("error: can't handle signals: {error}");
            return ExitCode::from(2);
        }
    };
    let lab = Lab {
        tool: &tool,
        agent: &me,
        cli: cli.as_ref(),
        effort: match arguments.quick {
            true => Effort::Quick,
            false => Effort::Full,
        },
        seed: arguments
            .seed
            .unwrap_or_else(|| RandomState::new().hash_one(0) >> 12),
        given_up: &given_up,
    };
    let report = measured(lab, &arguments);
    println!("{}", report.summary());
    if let Some(path) = &arguments.json
        && let Err(why) = write(path, &report)
    {
        eprintln!("error: {}: {why}", path.display());
        return ExitCode::from(2);
    }
    if given_up.load(Ordering::Relaxed) {
        println!("interrupted: all started processes were killed");
        return ExitCode::from(130);
    }
    match report.kept {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Returns the real agent with this program.
fn real_agent(program: &str) -> Result<OneShotAgent, String> {
    OneShotAgent::find(program).map_err(|why| format!("--real-agent {program}: {why}"))
}

fn tool(arguments: &Arguments) -> Result<Tool, String> {
    match (&arguments.tool, &arguments.verbs) {
        (Some(command), _) => {
            let name = command.split_whitespace().next().unwrap_or_default();
            let agent = arguments.agent_name.as_deref();
            Tool::of_command(name, command, agent).map_err(|why| format!("--tool: {why}"))
        }
        (None, Some(path)) => {
            let text = fs_err::read_to_string(path).map_err(|error| error.to_string())?;
            Tool::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
        }
        (None, None) => {
            let me = std::env::current_exe().map_err(|error| error.to_string())?;
            let rlm = me.with_file_name(OURS);
            match (rlm.exists(), &arguments.real_agent) {
                (true, None) => Ok(Tool::ours(&rlm)),
                (true, Some(_)) => Ok(Tool::ours_with_real_agent(&rlm)),
                (false, _) => Err(format!(
                    "name the loop runner with --tool or --verbs: {} does not exist, so there is no default; `cargo xtask lab` builds it",
                    rlm.display()
                )),
            }
        }
    }
}

/// Plays all faults, and prints each score when it is complete.
fn measured(lab: Lab<'_>, arguments: &Arguments) -> Report {
    let begun = Instant::now();
    let coloured = std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    println!("{}: {}\nseed {}\n", lab.tool.name, lab.tool.start, lab.seed);
    let is_selected = |score: &ScoreName| {
        let only = &arguments.only;
        only.is_empty() || only.contains(score)
    };
    let mut scores = Vec::new();
    for name in ScoreName::ALL.into_iter().filter(is_selected) {
        if lab.given_up.load(Ordering::Relaxed) {
            break;
        }
        let progress = Progress::of(name.name());
        let score = lab.score(name, arguments.jobs.into(), |done, all| {
            progress.show(done, all);
        });
        drop(progress);
        println!("{}", score.table(coloured));
        scores.push(score);
    }
    let circumstances = Circumstances {
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        seed: lab.seed,
        seconds: begun.elapsed().as_secs_f64(),
    };
    let name = match lab.cli {
        Some(cli) => format!("{}, {}", lab.tool.name, cli.versioned()),
        None => lab.tool.name.clone(),
    };
    let tool = Tool {
        name,
        ..lab.tool.clone()
    };
    Report::new(tool, circumstances, scores)
}

fn write(path: &Path, report: &Report) -> Result<(), String> {
    let text = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    fs_err::write(path, text + "\n").map_err(|error| error.to_string())
}
