//! Builds and runs the survivor measurement, a program of `rlm-survivors`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::command;
use crate::tally::Tally;

/// The tool to stop, the moment, and the number of stops.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Loop runner: a bash command with {agent} in place of the agent's program [default: rlm]
    #[arg(long, value_name = "CMD")]
    tool: Option<String>,
    /// Name of the agent's program, for a tool that finds its agent on the PATH
    #[arg(long, value_name = "NAME")]
    agent_name: Option<String>,
    /// Stops in each way [default: 20]
    #[arg(long, value_name = "N")]
    runs: Option<String>,
    /// Two stops in each way; done within 60 s
    #[arg(long)]
    quick: bool,
    /// Activity of the loop at the stop: turn, start, gate or sleep; the last two are for rlm [default: turn]
    #[arg(long, value_name = "WHEN")]
    moment: Option<String>,
    /// Stop only in this way: one-press, three-presses, term, hang-up, kill, git-filter, killed-guard or setuid-child; can be repeated
    #[arg(long, value_name = "WAY")]
    way: Vec<String>,
    /// Let the agent and its children ignore SIGINT, SIGTERM and SIGHUP
    #[arg(long)]
    stubborn: bool,
    /// Number of parallel stops; they mostly wait [default: 5]
    #[arg(long, value_name = "N")]
    jobs: Option<String>,
    /// Also write the score as JSON
    #[arg(long, value_name = "FILE", value_parser = crate::bench::absolute)]
    json: Option<PathBuf>,
}

impl Arguments {
    /// Returns the arguments for the measuring program, which also validates them.
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
    // Measures the release build. Without it there is nothing to measure.
    if arguments.tool.is_none() && !command::build("rlm-loop", &["--bin", "rlm"]) {
        return Tally::failed("survivors: rlm doesn't compile");
    }
    // The scored tool starts this agent.
    if !command::build("rlm-survivors", &["--bin", "survivors-agent"]) {
        return Tally::failed("survivors: the agent doesn't compile");
    }
    command::run_program(
        command::Profile::Release,
        ("rlm-survivors", "survivors"),
        arguments.words(),
        "a stop left processes, or the count failed",
    )
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
