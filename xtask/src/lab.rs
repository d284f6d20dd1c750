//! Builds and runs the lab, a program of `rlm-score`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::command;
use crate::tally::Tally;

/// The loop runner, and the faults to play.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Loop runner: a bash command with {agent}, and with {prompt}, {check} and {iterations} if it takes them [default: rlm]
    #[arg(long, value_name = "CMD")]
    tool: Option<String>,
    /// Name of the agent's program, for a tool that finds its agent on the PATH
    #[arg(long, value_name = "NAME")]
    agent_name: Option<String>,
    /// TOML file with the verbs of the loop runner: start, kill, restart, finish, message
    #[arg(long, value_name = "FILE", conflicts_with = "tool", value_parser = crate::bench::absolute)]
    verbs: Option<PathBuf>,
    /// Only this score: stop, resume, done, night or control; can be repeated
    #[arg(long, value_name = "SCORE")]
    only: Vec<String>,
    /// Fewer repetitions; a first score in two minutes
    #[arg(long)]
    quick: bool,
    /// Number of parallel faults; they mostly wait [default: 4]
    #[arg(long, value_name = "N")]
    jobs: Option<String>,
    /// Seed of the random moments [default: a new one]
    #[arg(long, value_name = "N")]
    seed: Option<String>,
    /// Also write the report as JSON
    #[arg(long, value_name = "FILE", value_parser = crate::bench::absolute)]
    json: Option<PathBuf>,
}

impl Arguments {
    /// Returns the arguments for the lab, which also validates them.
    fn words(&self) -> Vec<OsString> {
        let texts = [
            ("--tool", &self.tool),
            ("--agent-name", &self.agent_name),
            ("--jobs", &self.jobs),
            ("--seed", &self.seed),
        ];
        let texts = texts
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?.into())));
        let paths = [("--verbs", &self.verbs), ("--json", &self.json)];
        let paths = paths
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?.into())));
        let only = self.only.iter().map(|score| ("--only", score.into()));
        let mut words: Vec<OsString> = texts
            .chain(paths)
            .chain(only)
            .flat_map(|(name, value): (&str, OsString)| [name.into(), value])
            .collect();
        words.extend(self.quick.then(|| "--quick".into()));
        words
    }
}

/// Runs the controls of the lab, and plays all faults for `rlm`.
pub(crate) fn nightly() -> Tally {
    let controls = [
        "test",
        "--quiet",
        "-p",
        "rlm-score",
        "--test",
        "it",
        "--",
        "--ignored",
    ];
    let ended = command::run("cargo", &controls, command::Show::OnFailure);
    let mut tally = match ended.success {
        true => Tally::of_libtest(&ended.output).unwrap_or_default(),
        false => Tally::failed("lab: a control or a score of rlm failed"),
    };
    tally += run(&Arguments::default());
    tally
}

pub(crate) fn run(arguments: &Arguments) -> Tally {
    let is_ours = arguments.tool.is_none() && arguments.verbs.is_none();
    if is_ours && !command::build("rlm-loop", &["--bin", "rlm"]) {
        return Tally::failed("lab: rlm doesn't compile");
    }
    if !command::build("rlm-score", &["--bin", "lab"]) {
        return Tally::failed("lab: the program doesn't compile");
    }
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--release", "-p", "rlm-score"]);
    command.args(["--bin", "lab", "--"]).args(arguments.words());
    match command.status() {
        Ok(status) if status.success() => Tally::passed(1),
        Ok(_) => Tally::failed("lab: a promise is broken or not shown"),
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
            tool: text("x {agent}"),
            agent_name: text("some"),
            verbs: Some("/verbs.toml".into()),
            only: vec!["done".into(), "stop".into()],
            quick: true,
            jobs: text("2"),
            seed: text("7"),
            json: Some("/report.json".into()),
        };
        let expected = [
            "--tool",
            "x {agent}",
            "--agent-name",
            "some",
            "--jobs",
            "2",
            "--seed",
            "7",
            "--verbs",
            "/verbs.toml",
            "--json",
            "/report.json",
            "--only",
            "done",
            "--only",
            "stop",
            "--quick",
        ];
        assert_eq!(arguments.words(), expected);
    }
}
