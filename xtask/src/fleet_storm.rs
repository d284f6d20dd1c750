//! Builds and runs the storm on fleets, a program of `rlm-storm`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::command;
use crate::nats_server;
use crate::tally::Tally;
use crate::workspace::Workspace;

/// The number of kills that `nightly` needs.
const NIGHTLY: u32 = 1000;

/// The faults, and the fleets that get them.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Number of kills of workers that must land, over all fleets; the other faults come in proportion [default: 100]
    #[arg(long, value_name = "N")]
    kills: Option<u32>,
    /// Number of servers of a fleet, 1 or 3; can be repeated [default: both, each with half of the kills]
    #[arg(long, value_name = "N")]
    servers: Vec<String>,
    /// Seed of all choices [default: 1]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Lease of the workers in milliseconds, at least 2000 [default: 3000]
    #[arg(long, value_name = "MS")]
    lease: Option<u64>,
    /// Number of runs at a time, and of workers [default: 4]
    #[arg(long, value_name = "N")]
    runs: Option<u8>,
    /// The rlm to judge, built with the feature fleet [default: the one of this source]
    #[arg(long, value_name = "FILE", value_parser = crate::bench::absolute)]
    rlm: Option<PathBuf>,
    /// Mistakes of the fleet to switch on, separated by commas
    #[arg(long, value_name = "NAMES")]
    mistakes: Option<String>,
    /// Also write the score as JSON
    #[arg(long, value_name = "FILE", value_parser = crate::bench::absolute)]
    json: Option<PathBuf>,
}

impl Arguments {
    /// Returns the arguments for the program, which also validates them.
    fn words(&self) -> Vec<OsString> {
        let number = |name, value: Option<u64>| Some((name, value?.to_string().into()));
        let servers = self.servers.iter();
        let pairs = [
            number("--kills", self.kills.map(u64::from)),
            number("--seed", self.seed),
            number("--lease", self.lease),
            number("--runs", self.runs.map(u64::from)),
        ];
        let mut pairs: Vec<(&str, OsString)> = pairs.into_iter().flatten().collect();
        pairs.extend(servers.map(|count| ("--servers", count.into())));
        pairs.extend(self.rlm.iter().map(|path| ("--rlm", path.into())));
        pairs.extend(self.mistakes.iter().map(|it| ("--mistakes", it.into())));
        pairs.extend(self.json.iter().map(|path| ("--json", path.into())));
        let words = pairs.into_iter();
        words
            .flat_map(|(name, value)| [name.into(), value])
            .collect()
    }
}

/// Plays the storm of `nightly`.
pub(crate) fn thousand(workspace: &Workspace) -> Tally {
    let kills = Some(NIGHTLY);
    run(
        workspace,
        &Arguments {
            kills,
            ..Arguments::default()
        },
    )
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Tally {
    if let Err(why) = nats_server::find_or_install(workspace) {
        return Tally::skipped(format!("fleet-storm: {why}"));
    }
    for program in ["storm-agent", "storm-subject"] {
        if !command::build_in(command::Profile::Dev, "rlm-storm", &["--bin", program]) {
            return Tally::failed(format!("fleet-storm: {program} doesn't compile"));
        }
    }
    command::run_program(
        command::Profile::Dev,
        ("rlm-storm", "fleet-storm"),
        arguments.words(),
        "an iteration was lost or done twice, or something else went wrong",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_passed_on() {
        let arguments = Arguments {
            kills: Some(3),
            servers: vec!["1".into(), "3".into()],
            seed: Some(4),
            lease: Some(2500),
            runs: Some(5),
            rlm: Some("/bin/rlm".into()),
            mistakes: Some("NeverKill".into()),
            json: Some("/score.json".into()),
        };
        let expected = [
            "--kills",
            "3",
            "--seed",
            "4",
            "--lease",
            "2500",
            "--runs",
            "5",
            "--servers",
            "1",
            "--servers",
            "3",
            "--rlm",
            "/bin/rlm",
            "--mistakes",
            "NeverKill",
            "--json",
            "/score.json",
        ];
        assert_eq!(arguments.words(), expected);
    }
}
