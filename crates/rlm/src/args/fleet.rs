//! The arguments of `rlm fleet`: runs on several machines.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use rlm_store::RunId;
use rlm_text::{duration, money};

use super::RunArgs;

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
A fleet runs the loops of a project on several machines. Its queue and the state of its runs are on a NATS server (version 2.12 or later, with \
JetStream). If a worker dies, another one continues its runs from their last save.

Examples:
  rlm fleet init --nats nats://nats.example:4222     # once
  rlm fleet worker --pool main --slots 4             # on each machine
  rlm fleet run --until 'cargo test' --agent claude
  rlm fleet ps")]
pub(crate) struct FleetArgs {
    #[command(subcommand)]
    pub(crate) what: FleetCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Create the streams of a fleet on the server
    #[command(after_help = "\
Can be repeated: it changes existing streams to these settings, removes nothing, and prints what it did.

Examples:
  rlm fleet init --nats nats://nats.example:4222 --replicas 3
  rlm fleet init --pool main --pool gpu --lease 30s")]
    Init(FleetInitArgs),
    /// Work on the runs of a pool
    #[command(after_help = "\
The worker uses the agents, logins and tools of this machine, and needs no open port. SIGTERM and Ctrl-C hand its runs over to other workers.

Examples:
  rlm fleet worker --pool main --slots 4
  rlm fleet worker --pool claude=2 --pool codex=4
  rlm -C /var/lib/rlm fleet worker --name build-7")]
    Worker(FleetWorkerArgs),
    /// Submit a run to a pool
    #[command(after_help = "\
The run begins with the current commit, and commits each iteration. It needs no longer connection: close the laptop.

Examples:
  rlm fleet run --until 'cargo test' --agent claude --pool main
  rlm fleet run --run-id nightly --until 'make check' --max-cost 20
  rlm fleet wait nightly && rlm fleet fetch nightly")]
    Run(Box<FleetRunArgs>),
    /// List the runs of the fleet
    #[command(after_help = "\
Examples:
  rlm fleet ps
  rlm fleet ps --json")]
    Ps(FleetPsArgs),
    /// Wait for the end of a run, and exit with its code
    #[command(after_help = "\
Examples:
  rlm fleet wait RUN && rlm fleet fetch RUN")]
    Wait(FleetWaitArgs),
    /// Fetch the commits of a run into the branch rlm/RUN
    #[command(after_help = "\
Examples:
  rlm fleet fetch RUN      # and then: git merge rlm/RUN")]
    Fetch(FleetFetchArgs),
    /// Continue an ended, parked or paused run
    #[command(after_help = "\
A worker continues the run from its last save. Changes of limits apply from then on; `rlm set --help` lists the keys.

Examples:
  rlm fleet resume RUN
  rlm fleet resume RUN max-cost=50 max-iterations=200")]
    Resume(FleetResumeArgs),
    /// Take a run that no worker owns out of the fleet
    #[command(after_help = "\
The run goes into a new directory with its code, as a local run that needs no server. No worker claims it until it returns.

Examples:
  rlm fleet export RUN      # into the directory RUN
  rlm -C RUN resume RUN
  rlm -C RUN fleet import RUN")]
    Export(FleetExportArgs),
    /// Return an exported run to the fleet
    #[command(after_help = "\
A worker of its pool continues the run, unless it has ended. Only what is committed returns.

Examples:
  rlm -C RUN fleet import RUN")]
    Import(FleetImportArgs),
    /// Let a worker hand its runs over and end
    #[command(after_help = "\
The worker does what it does after SIGTERM. Other workers continue its runs.

Examples:
  rlm fleet drain build-7")]
    Drain(FleetDrainArgs),
    /// Remove a run that has ended from the server
    #[command(after_help = "\
Removes its records, and the objects that no other run uses. Fetch its commits before. Its name is free afterwards.

Examples:
  rlm fleet fetch RUN && rlm fleet remove RUN")]
    Remove(FleetRemoveArgs),
    /// Limit the cost of all runs together
    #[command(after_help = "\
When the budget is spent, all runs wait, and the workers take no new ones. No run ends: they continue when the budget is raised, or when the next day \
begins (in UTC).

Examples:
  rlm fleet budget set 500 --per day
  rlm fleet budget show
  rlm fleet budget set none")]
    Budget(FleetBudgetArgs),
}

/// The hidden command under which this program works on a claimed run.
pub(crate) const FLEET_WORK: &str = "__fleet-work";

/// The address of a fleet.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct FleetServerArgs {
    /// The NATS server of the fleet
    #[arg(
        long = "nats",
        value_name = "URL",
        env = "RLM_FLEET_NATS",
        hide_env_values = true,
        default_value = "nats://127.0.0.1:4222",
        hide_default_value = true,
        long_help = "The NATS server of the fleet, or several separated by commas; a user and a password can be in the URL, and are \
            then better given in the variable [default: RLM_FLEET_NATS, or nats://127.0.0.1:4222]"
    )]
    pub(crate) servers: String,
    /// The certificates of a private authority that signed those of the servers
    #[arg(
        long,
        value_name = "FILE",
        env = "RLM_FLEET_TLS_CA",
        hide_env = true,
        long_help = "The certificates of a private authority that signed those of the servers, as PEM; a server without TLS is refused then [default: \
            RLM_FLEET_TLS_CA, or the authorities of the system]"
    )]
    pub(crate) tls_ca: Option<PathBuf>,
    /// The name of the fleet, if several use one server
    #[arg(
        long,
        value_name = "NAME",
        env = "RLM_FLEET_NAMESPACE",
        default_value = "rlm"
    )]
    pub(crate) namespace: String,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FleetInitArgs {
    #[command(flatten)]
    pub(crate) server: FleetServerArgs,
    /// The number of servers that have each stream: 1 or 3
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) replicas: usize,
    /// The time after which another worker takes over the runs of a dead one; at least 2s
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "60s")]
    pub(crate) lease: Duration,
    /// A pool of workers; can be repeated
    #[arg(long = "pool", value_name = "NAME", default_value = "main")]
    pub(crate) pools: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FleetWorkerArgs {
    #[command(flatten)]
    pub(crate) server: FleetServerArgs,
    /// A pool whose runs this worker takes, perhaps with a number of slots; can be repeated
    #[arg(long = "pool", value_name = "NAME[=SLOTS]", default_value = "main")]
    pub(crate) pools: Vec<String>,
    /// The number of runs of each pool at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) slots: u32,
    /// The name of this worker, for people [default: the pid]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The directory for the working trees of its runs
    #[arg(long, value_name = "DIR", default_value = "rlm-worker")]
    pub(crate) place: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FleetRunArgs {
    #[command(flatten)]
    pub(crate) server: FleetServerArgs,
    /// The pool whose workers may take the run
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub(crate) pool: String,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FleetPsArgs {
    #[command(flatten)]
    pub(crate) server: FleetServerArgs,
    /// Print one JSON object for each run
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FleetWaitArgs {
    /// The run
    pub(crate) run: RunId,
    #[command(flatten)]
    pub(crate) server: FleetServerArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FleetFetchArgs {
    /// The run
    pub(crate) run: RunId,
    #[command(flatten)]
    pub(crate) server: FleetServerArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FleetRemoveArgs {
    /// The run
    pub(crate) run: RunId,
    #[command(flatten)]
    pub(crate) server: FleetServerArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FleetBudgetArgs {
    #[command(subcommand)]
    pub(crate) what: FleetBudgetCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FleetBudgetCommand {
    /// Set the budget
    #[command(after_help = "\
Examples:
  rlm fleet budget set 500 --per day
  rlm fleet budget set none")]
    Set(FleetBudgetSetArgs),
    /// Print the budget, and what is spent
    #[command(after_help = "\
Examples:
  rlm fleet budget show --json")]
    Show(FleetBudgetShowArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FleetBudgetSetArgs {
    /// The most that all runs together may spend, in US dollars; none for no budget
    #[arg(value_name = "USD", value_parser = budget)]
    pub(crate) limit: FleetBudgetLimit,
    /// The period: day (of UTC) or total
    #[arg(long, value_name = "PERIOD", default_value = "total")]
    pub(crate) per: String,
    #[command(flatten)]
    pub(crate) server: FleetServerArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FleetBudgetShowArgs {
    #[command(flatten)]
    pub(crate) server: FleetServerArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FleetResumeArgs {
    /// The run
    pub(crate) run: RunId,
    /// Changes of limits
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) changes: Vec<String>,
    #[command(flatten)]
    pub(crate) server: FleetServerArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A budget in millionths of a US dollar; `None` for no budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetBudgetLimit(
    #[cfg_attr(
        not(feature = "fleet"),
        expect(dead_code, reason = "a program without a fleet only parses it")
    )]
    pub(crate) Option<u64>,
);

fn budget(text: &str) -> Result<FleetBudgetLimit, String> {
    match text {
        "none" => Ok(FleetBudgetLimit(None)),
        text => money::parse(text).map(|limit| FleetBudgetLimit(Some(limit))),
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FleetDrainArgs {
    /// The name of the worker
    pub(crate) worker: String,
    #[command(flatten)]
    pub(crate) server: FleetServerArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FleetExportArgs {
    /// The run
    pub(crate) run: RunId,
    /// The new directory [default: the name of the run]
    #[arg(value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: FleetServerArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FleetImportArgs {
    /// The run
    pub(crate) run: RunId,
    #[command(flatten)]
    pub(crate) server: FleetServerArgs,
}
