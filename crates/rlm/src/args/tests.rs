//! Tests that the examples in the help and in the documents can be typed: each is parsed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Command as Clap, CommandFactory, Parser};

use super::{Args, ColorArg, GROUPS, wanted};
use crate::command::man::{notes, visible};

mod schedulers;

/// The width of an ordinary terminal, in columns.
const WIDTH: usize = 80;

/// Splits a line as a shell does, as far as the examples need it.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    assert!(!quoted, "an open quote in {line}");
    words.extend(word);
    words
}

/// Returns the calls of `rlm` in a line: the commands that a shell runs, without the remark.
fn calls(line: &str) -> Vec<Vec<String>> {
    // A remark begins after two spaces, or with a `#`.
    let mut line = line.trim();
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        quoted ^= c == '\'';
        if !quoted && (line[at..].starts_with("  ") || line[at..].starts_with(" #")) {
            line = &line[..at];
            break;
        }
    }
    let mut calls: Vec<Vec<String>> = vec![Vec::new()];
    for word in words(line) {
        match word.as_str() {
            "|" | "&&" | ">" => calls.push(Vec::new()),
            _ => calls.last_mut().unwrap().push(word),
        }
    }
    calls.retain(|call| call.first().is_some_and(|word| word == "rlm"));
    calls
}

#[track_caller]
fn expect_calls(place: &str, line: &str) -> usize {
    let calls = calls(line);
    for call in &calls {
        if let Err(why) = Args::try_parse_from(call) {
            panic!("{place}: {line}\n{why}");
        }
    }
    calls.len()
}

fn every(command: &Clap) -> Vec<&Clap> {
    let below = command.get_subcommands().flat_map(every);
    std::iter::once(command).chain(below).collect()
}

#[test]
fn every_command_has_examples_that_parse() {
    let mut root = visible();
    root.build();
    for command in every(&root) {
        let name = command.get_bin_name().unwrap_or_default();
        let after = notes(command);
        let examples = after.split_once("Examples:\n").map_or("", |(_, rest)| rest);
        let lines = examples.lines().take_while(|line| line.starts_with("  "));
        let calls: usize = lines
            .map(|line| {
                assert!(
                    line.len() <= WIDTH,
                    "{name}: a line longer than the terminal: {line}"
                );
                expect_calls(name, line)
            })
            .sum();
        assert!(calls > 0, "`{name}` has no examples");
    }
}

/// Adds the Markdown files of a folder, and of those below it.
fn pages(folder: &Path, below: bool, found: &mut Vec<PathBuf>) {
    for entry in fs_err::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        } else if below && path.is_dir() {
            pages(&path, below, found);
        }
    }
}

#[test]
fn documented_commands_parse() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut documents = vec![root.join("crates/rlm/README.md")];
    pages(root, false, &mut documents);
    pages(&root.join("docs"), true, &mut documents);
    let mut calls = 0;
    for path in documents {
        let name = path.display().to_string();
        let text = fs_err::read_to_string(&path).unwrap();
        let mut is_code = false;
        for line in text.lines() {
            if line.starts_with("```") {
                is_code = !is_code;
            } else if is_code {
                let line = line.strip_prefix("$ ").unwrap_or(line);
                let line = line.replace("-n MORE", "-n 9");
                calls += if line.starts_with("rlm ") {
                    expect_calls(&name, &line)
                } else {
                    0
                };
            }
        }
    }
    assert!(calls > 50, "{calls}");
}

/// Returns what `COMMAND -h` prints on a terminal of this width.
fn short_help(command: &str, width: usize) -> String {
    let mut root = Args::command().term_width(width);
    root.build();
    let command = root.find_subcommand_mut(command).unwrap();
    command.render_help().to_string()
}

#[test]
fn short_help_of_run_fits_on_50_lines() {
    let help = short_help("run", WIDTH);
    assert!(
        help.lines().count() <= 50,
        "{}\n{help}",
        help.lines().count()
    );
    let longest = help.lines().map(str::len).max().unwrap_or(0);
    assert!(longest <= WIDTH, "{longest}\n{help}");
}

#[test]
fn help_lists_each_command_in_one_group() {
    let root = Args::command();
    let shown = root.get_subcommands().filter(|it| !it.is_hide_set());
    let mut names: Vec<&str> = shown.map(Clap::get_name).collect();
    let mut listed: Vec<&str> = GROUPS
        .iter()
        .flat_map(|(_, names)| *names)
        .copied()
        .collect();
    names.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, names);
}

#[test]
fn parser_definition_is_valid() {
    Args::command().debug_assert();
}

#[test]
fn last_color_option_wins_and_agent_arguments_are_ignored() {
    let of = |line: &str| wanted(line.split(' ').map(OsString::from));
    assert_eq!(of("rlm run -- agent --color never"), None);
    assert_eq!(of("rlm --color=always run"), Some(ColorArg::Always));
    assert_eq!(
        of("rlm --color never run --color always"),
        Some(ColorArg::Always)
    );
    assert_eq!(of("rlm --color --color never"), None);
    assert_eq!(of("rlm --colors=never --color=some"), None);
}
