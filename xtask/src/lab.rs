//! Builds and runs the lab, a program of `rlm-score`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::Value;

use crate::command::Profile;
use crate::tally::Tally;
use crate::workspace::{Workspace, array};
use crate::{command, tables};

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
    /// Real agent CLI instead of the scripted agent: claude, codex, gemini or opencode, installed from npm; one fault of each score
    #[arg(long, value_name = "PROGRAM")]
    real_agent: Option<String>,
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
    /// Play nothing, and write the reports of `--json` in this folder, and those with a real agent in its folder `agents`, into docs/proof.md; the columns are in the order of the file names
    #[arg(long, value_name = "FOLDER", exclusive = true, value_parser = crate::bench::absolute)]
    proof: Option<PathBuf>,
}

impl Arguments {
    /// Returns the arguments for the lab, which also validates them.
    fn words(&self) -> Vec<OsString> {
        let texts = [
            ("--tool", &self.tool),
            ("--agent-name", &self.agent_name),
            ("--real-agent", &self.real_agent),
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

/// Runs the tests of the lab that take too long for `ci`: its controls, and the scores of `rlm` with its known broken cells.
pub(crate) fn nightly() -> Tally {
    let tests = ["-p", "rlm-score", "--test", "it", "--", "--include-ignored"];
    let cargo = [&["test", "--quiet"], &tests[..]].concat();
    let ended = command::run("cargo", &cargo, command::Show::OnFailure);
    match ended.success {
        true => Tally::of_libtest(&ended.output).unwrap_or_default(),
        false => Tally::failed("lab: a control or a score of rlm failed"),
    }
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Tally {
    let Some(folder) = &arguments.proof else {
        return play(arguments);
    };
    let written = [
        ("lab", folder.clone()),
        ("lab-agents", folder.join("agents")),
    ];
    let written = written.map(|(name, folder)| {
        let table = table(&reports(&folder)?, &tables::when());
        tables::replace(&workspace.root, name, &table)
    });
    match written.into_iter().collect::<Result<(), String>>() {
        Ok(()) => Tally::passed(1),
        Err(why) => Tally::failed(format!("lab: {why}")),
    }
}

/// Reads the reports of a folder, in the order of their names.
fn reports(folder: &Path) -> Result<Vec<Value>, String> {
    let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
    let paths = entries.flatten().map(|entry| entry.path());
    let is_json = |path: &PathBuf| path.extension().is_some_and(|it| it == "json");
    let mut paths: Vec<PathBuf> = paths.filter(is_json).collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    };
    match paths.as_slice() {
        [] => Err(format!("no report in {}", folder.display())),
        paths => paths.iter().map(read).collect(),
    }
}

/// Returns the table, with a column for each report and a row for each cell.
fn table(reports: &[Value], when: &str) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names = reports.iter().map(|it| text(&it["tool"]["name"]));
    let names: Vec<String> = names.collect();
    let mut table = format!(
        "Each row is one fault ([the lab](../lab/score/README.md), {when}). A dash means that the tool or the machine doesn't allow the fault, and a question mark that no receipt shows that the fault landed.\n\n\
         | | fault | {} |\n|---|---|{}\n",
        names.join(" | "),
        "---|".repeat(reports.len())
    );
    for score in array(&reports[0]["scores"]) {
        for cell in array(&score["cells"]) {
            let (score, cell) = (text(&score["score"]), text(&cell["cell"]));
            let verdicts = reports.iter().map(|it| verdict(it, &score, &cell));
            let verdicts = verdicts.collect::<Vec<_>>().join(" | ");
            table += &format!("| {score} | {cell} | {verdicts} |\n");
        }
    }
    table
}

/// Returns the words for a verdict in the table.
fn verdict(report: &Value, score: &str, cell: &str) -> &'static str {
    let mut scores = array(&report["scores"]).filter(|it| it["score"] == *score);
    let cells = scores.next().map(|it| array(&it["cells"]));
    let mut cells = cells.into_iter().flatten();
    let found = cells.find(|it| it["cell"] == *cell);
    match found.and_then(|it| it["verdict"].as_str()) {
        Some("kept") => "kept",
        Some("broken") => "**broken**",
        Some("skipped") => "–",
        _ => "?",
    }
}

/// Builds the lab and the `rlm` of its package, and plays the faults.
///
/// The lab measures behaviour, not speed, and a release build takes longer than all scores. The tests share this build.
fn play(arguments: &Arguments) -> Tally {
    let is_ours = arguments.tool.is_none() && arguments.verbs.is_none();
    if is_ours && !command::build_in(Profile::Dev, "rlm-score", &["--bins"]) {
        return Tally::failed("lab: rlm doesn't compile");
    }
    command::run_program(
        Profile::Dev,
        ("rlm-score", "lab"),
        arguments.words(),
        "a promise is broken or not shown",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_option_is_passed_on() {
        let text = |text: &str| Some(text.to_owned());
        let arguments = Arguments {
            tool: text("x {agent}"),
            agent_name: text("some"),
            real_agent: text("codex"),
            verbs: Some("/verbs.toml".into()),
            only: vec!["done".into(), "stop".into()],
            quick: true,
            jobs: text("2"),
            seed: text("7"),
            json: Some("/report.json".into()),
            proof: None,
        };
        let expected = [
            "--tool",
            "x {agent}",
            "--agent-name",
            "some",
            "--real-agent",
            "codex",
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

    #[test]
    fn reports_become_the_columns_of_the_table() {
        let report = |name: &str, verdict: &str| {
            let cells = json!([{"cell": "lying agent", "verdict": verdict}]);
            json!({"tool": {"name": name}, "scores": [{"score": "done", "cells": cells}]})
        };
        let none = json!({"tool": {"name": "c"}, "scores": []});
        let reports = [report("a", "kept"), report("b", "broken"), none];
        let table = table(&reports, "today");
        let expected = "| | fault | a | b | c |\n|---|---|---|---|---|\n| done | lying agent | kept | **broken** | ? |\n";
        assert!(table.ends_with(expected), "{table}");
    }
}
