//! Builds and runs the stops, which are a program of `rlm-survivors`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::command;
use crate::tally::Tally;

/// What is stopped, when, and how often.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// The loop runner, a command for bash with {agent} in place of the agent's program [default: rlm].
    #[arg(long, value_name = "CMD")]
    tool: Option<String>,
    /// Calls the agent's program so, for a tool that finds its agent on the PATH.
    #[arg(long, value_name = "NAME")]
    agent_name: Option<String>,
    /// Stops it so often in each way [default: 20].
    #[arg(long, value_name = "N")]
    runs: Option<String>,
    /// Two stops in each way; ends within 40 s.
    #[arg(long)]
    quick: bool,
    /// What the loop is at when it is stopped: turn, start, gate or sleep; the last two are for rlm [default: turn].
    #[arg(long, value_name = "WHEN")]
    moment: Option<String>,
    /// Stops it only in this way: one-press, three-presses, term, hang-up, kill, git-filter, killed-guard or setuid-child; may be given again.
    #[arg(long, value_name = "WAY")]
    way: Vec<String>,
    /// The agent and its children ignore SIGINT, SIGTERM and SIGHUP.
    #[arg(long)]
    stubborn: bool,
    /// Runs so many at the same time; they mostly wait [default: 5].
    #[arg(long, value_name = "N")]
    jobs: Option<String>,
    /// Also writes the score as JSON.
    #[arg(long, value_name = "FILE", value_parser = crate::bench::absolute)]
    json: Option<PathBuf>,
}

impl Arguments {
    /// As the program behind this command takes them, which also judges them.
    fn words(&self) -> Vec<OsString> {
        let options = [
            ("--tool", &self.tool),
            ("--agent-name", &self.agent_name),
            ("--runs", &self.runs),
            ("--moment", &self.moment),
            ("--jobs", &self.jobs),
        ];
        let json = self.json.iter().map(|path| ("--json", path.into()));
        let texts = options
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?.into())));
        let pairs = texts.chain(json);
        let mut words: Vec<OsString> = pairs
            .flat_map(|(name, value): (&str, OsString)| [name.into(), value])
            .collect();
        for way in &self.way {
            words.extend(["--way".into(), way.into()]);
        }
        for (flag, is_given) in [("--quick", self.quick), ("--stubborn", self.stubborn)] {
            words.extend(is_given.then(|| flag.into()));
        }
        words
    }
}

/// Stops `rlm` a hundred times in each way.
pub(crate) fn hundred() -> Tally {
    run(&Arguments {
        runs: Some("100".into()),
        ..Arguments::default()
    })
}

pub(crate) fn run(arguments: &Arguments) -> Tally {
    // The program as it is shipped; without it there is nothing to score.
    if arguments.tool.is_none() && !command::build("rlm-loop", &["--bin", "rlm"]) {
        return Tally::failed("survivors: rlm does not compile");
    }
    if !command::build("rlm-survivors", &[]) {
        return Tally::failed("survivors: it does not compile");
    }
    // Its own terminal, for the line of progress.
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--release", "-p", "rlm-survivors"]);
    command
        .args(["--bin", "survivors", "--"])
        .args(arguments.words());
    match command.status() {
        Ok(status) if status.success() => Tally::passed(1),
        Ok(_) => Tally::failed("survivors: stop did not mean stop, or it could not be seen"),
        Err(error) => Tally::failed(format!("cargo: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_passed_on() {
        let text = |text: &str| Some(text.to_owned());
        let arguments = Arguments {
            tool: text("while :; do {agent}; done"),
            agent_name: text("some"),
            runs: text("3"),
            quick: true,
            moment: text("start"),
            stubborn: true,
            jobs: text("2"),
            json: Some("/score.json".into()),
            way: vec!["kill".into(), "git-filter".into()],
        };
        let expected = [
            "--tool",
            "while :; do {agent}; done",
            "--agent-name",
            "some",
            "--runs",
            "3",
            "--moment",
            "start",
            "--jobs",
            "2",
            "--json",
            "/score.json",
            "--way",
            "kill",
            "--way",
            "git-filter",
            "--quick",
            "--stubborn",
        ];
        assert_eq!(arguments.words(), expected);
    }
}
