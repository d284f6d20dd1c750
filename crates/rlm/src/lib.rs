//! The `rlm` command: runs a coding agent in a loop until your own check passes; you can interrupt, stop and resume it.
//!
//! The public interface of this package is its command line. This library exists so that another binary (a test, a bundle) can run the same program.
//!
//! It contains no rule of a run, no HTML and no line editor: those are in `loop-state`, `rlm-report` and `rlm-terminal`. Only this package installs
//! signal handlers. Only this package and `rlm-terminal` print.
//!
//! The modules in reading order:
//!
//! - `args` is the command line, and `config` has the layers of configuration. `config/settings.rs` defines every setting once.
//! - `resolve` turns both into the settings of a run; `saved_settings` handles each saved setting. They use `agents` and `programs`.
//! - `command` has one file per command. `session` runs a run in the foreground, with `observers` and `detach`. `notify` has the channels of
//!   notifications.
//! - `render` turns results into text, and `output` writes it. `exit` has the exit codes, and `hint` the suggested commands.
//! - `demo` has the agent and the project of `rlm demo`. Its `protocol` is the only protocol of an agent outside of `agent-drivers`: it speaks
//!   Claude's protocol from the agent's side.

mod agents;
mod args;
mod command;
mod config;
mod demo;
mod detach;
mod exit;
mod hint;
mod notify;
mod observers;
mod output;
mod preset;
mod programs;
mod render;
mod resolve;
mod saved_settings;
mod session;
mod stdin;
mod ulimits;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use crate::args::Command;
use crate::exit::Failure;

/// Runs the program: the whole of `main`.
///
/// Must be the first call in a process: the process may be a guard, or the init of a container.
#[must_use]
pub fn main_impl() -> ExitCode {
    agent_subprocess::guard::run_if_guard();
    agent_subprocess::guard::run_if_init();
    ulimits::block_file_size_signal();
    // If this fails, a sweep finds the orphans of a killed guard only by their marker.
    let _by_marker = agent_subprocess::guard::adopt_orphans();
    args::choose_color(std::env::args_os());
    hint::set_program(std::env::args_os().next().as_deref());
    // An unusual version of a packager changes only what `rlm` says to another version.
    let _default = loop_runner::set_program_name("rlm", args::VERSION);
    let args = match args::parse(std::env::args_os()) {
        Ok(args) => args,
        Err(help) if !help.use_stderr() => {
            let _noted = write!(output::text(), "{}", help.render().ansi());
            return output::final_exit_code(ExitCode::SUCCESS);
        }
        Err(error) => error.exit(),
    };
    // Comes before everything that can wait or print.
    if let Command::Complete(args) = &args.command {
        return command::complete::execute(args);
    }
    let directory = &args.directory;
    hint::set_directory(directory);
    config::trust_safe_directories();
    let result = ulimits::check().and_then(|()| execute(directory, args.command));
    let code = result.unwrap_or_else(|failure: Failure| {
        let _unseen = writeln!(anstream::stderr(), "{}", render::failure(&failure));
        failure.code.into()
    });
    output::final_exit_code(code)
}

fn execute(directory: &Path, command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(run) => command::run::execute(directory, *run),
        Command::Resume(resume) => command::resume::execute(directory, *resume),
        Command::Status(status) => command::status::execute(directory, &status),
        Command::Checkpoints(args) => command::checkpoints::execute(directory, &args.what),
        Command::Merge(args) => command::worktree::merge(directory, &args),
        Command::Drop(args) => command::worktree::discard(directory, &args),
        Command::Clean(clean) => command::clean::execute(directory, &clean),
        Command::Logs(logs) => command::logs::execute(directory, &logs),
        Command::Report(report) => command::report::execute(directory, &report),
        Command::Attach(attach) => command::attach::execute(directory, &attach),
        Command::Ps(ps) => command::status::ps(directory, &ps),
        Command::View(view) => command::view::execute(&view),
        Command::Pause(pause) => command::control::pause(directory, pause),
        Command::Interrupt(interrupt) => command::control::interrupt(directory, &interrupt),
        Command::Set(set) => command::set::execute(directory, &set),
        Command::Steer(steer) => command::control::steer(directory, steer),
        Command::Stop(stop) => command::stop::execute(directory, &stop),
        Command::Fleet(args) => command::fleet::execute(directory, *args),
        Command::Init(args) => command::init::execute(directory, &args),
        Command::Config(config) => command::config::execute(directory, &config.config),
        Command::Doctor(doctor) => command::doctor::execute(directory, &doctor),
        Command::Demo(demo) => command::demo::execute(directory, demo),
        Command::Completions(args) => command::complete::completions(&args),
        Command::Man(args) => command::man::execute(&args),
        Command::FleetWork => command::fleet::work(),
        Command::Complete(args) => Ok(command::complete::execute(&args)),
        Command::DemoAgent(agent) => demo::be_agent(agent.pace, &agent.flags),
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
