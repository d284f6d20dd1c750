//! `survivors`: stops a loop runner in eight ways, and prints the survivors. Run by `cargo xtask survivors`; see `README.md`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for maintainers that prints its results"
)]

mod progress;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::Parser;
use clap::error::ErrorKind;
use rlm_survivors::{Plan, Score, StopMethod, StopMoment};

use crate::progress::Progress;

/// Stop a loop runner in eight ways, and count the survivors
#[derive(Debug, Parser)]
#[command(name = "cargo xtask survivors")]
struct Arguments {
    /// The loop runner: a command for bash with {agent} in place of the agent's program [default: rlm]
    #[arg(long, value_name = "CMD")]
    tool: Option<String>,
    /// Name of the agent's program, for a tool that finds its agent on the PATH
    #[arg(long, value_name = "NAME")]
    agent_name: Option<String>,
    /// Number of stops in each way
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// Two stops in each way; done within 60 s
    #[arg(long, conflicts_with = "runs")]
    quick: bool,
    /// When to stop the loop; `gate` and `sleep` work only for rlm
    #[arg(long, value_enum, default_value_t = StopMoment::Turn)]
    moment: StopMoment,
    /// Stop only in this way; repeatable [default: all ways]
    #[arg(long, value_enum, value_name = "WAY")]
    way: Vec<StopMethod>,
    /// Make the agent and its children ignore SIGINT, SIGTERM and SIGHUP
    #[arg(long)]
    stubborn: bool,
    /// Number of stops at the same time; they mostly wait
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=32))]
    jobs: u8,
    /// Also write the score as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let plan = match plan(&arguments) {
        Ok(plan) => plan,
        Err(why) => {
            eprintln!(
                "{}",
                clap::Error::raw(ErrorKind::InvalidValue, why + "\n").render()
            );
            return ExitCode::from(2);
        }
    };
    // Each scene sees this flag and kills the processes that it started, so that this program has no survivors either.
    let given_up = match rlm_survivors::given_up_by_signal() {
        Ok(given_up) => given_up,
        Err(error) => {
            eprintln!("error: can't handle signals: {error}");
            return ExitCode::from(2);
        }
    };
    println!(
        "{}\n{} stops in each way, time limit {} s. Each cell: stops with such a survivor / judged stops. Times after the stop: median / maximum\n",
        plan.command,
        plan.runs,
        plan.time_limit.as_secs()
    );
    let progress = Progress::of(plan.all().len());
    let jobs = usize::from(arguments.jobs);
    let runs = plan.run_all(jobs, &given_up, |done| progress.show(done));
    drop(progress);
    let score = Score::of(&plan.ways, runs);
    let coloured = std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    println!("{}", score.table(coloured));
    if let Some(path) = &arguments.json
        && let Err(error) = fs_err::write(path, format!("{:#}\n", score.json(&plan)))
    {
        eprintln!("error: {error}");
        return ExitCode::from(2);
    }
    if given_up.load(Ordering::Relaxed) {
        println!("interrupted: all started processes were killed");
        return ExitCode::from(130);
    }
    if score.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn plan(arguments: &Arguments) -> Result<Plan, String> {
    let command = match &arguments.tool {
        Some(_) if matches!(arguments.moment, StopMoment::Gate | StopMoment::Sleep) => {
            return Err(
                "--moment gate and sleep work only for rlm; for another tool, write a --tool command that reaches this moment"
                    .into(),
            );
        }
        Some(tool) if !Plan::names_agent(tool) && arguments.agent_name.is_none() => {
            return Err("--tool needs {agent} in place of the agent's program, or --agent-name with the name by which the tool finds it".into());
        }
        Some(tool) => tool.clone(),
        None => Plan::ours(&beside("rlm")?, arguments.moment),
    };
    let name = arguments.agent_name.as_deref().unwrap_or("agent");
    if name.is_empty() || Path::new(name).file_name() != Some(name.as_ref()) {
        return Err("--agent-name must be a name, not a path".into());
    }
    let is_plain = arguments
        .way
        .iter()
        .all(|way| StopMethod::PLAIN.contains(way));
    let ways = match arguments.moment {
        _ if !arguments.way.is_empty() && is_plain => arguments.way.clone(),
        StopMoment::Turn if arguments.way.is_empty() => StopMethod::ALL.into(),
        StopMoment::Turn => arguments.way.clone(),
        _ if is_plain => StopMethod::PLAIN.into(),
        _ => {
            return Err(
                "--way git-filter, killed-guard and setuid-child need --moment turn".into(),
            );
        }
    };
    let plan = Plan::new(command, beside("survivors-agent")?);
    let plan = match arguments.quick {
        true => plan.quick(),
        false => Plan {
            runs: arguments.runs.into(),
            ..plan
        },
    };
    Ok(Plan {
        agent_name: name.into(),
        moment: arguments.moment,
        stubborn: arguments.stubborn,
        ways,
        ..plan
    })
}

/// Returns the path of a program that was built beside this one.
fn beside(name: &str) -> Result<PathBuf, String> {
    let me = std::env::current_exe().map_err(|error| error.to_string())?;
    let path = me.with_file_name(name);
    match path.exists() {
        true => Ok(path),
        false => Err(format!(
            "{} does not exist: build it, or run `cargo xtask survivors`",
            path.display()
        )),
    }
}
