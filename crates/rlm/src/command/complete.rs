//! `rlm completions` prints the completions of a shell. Its script calls a hidden command of `rlm` for the words that no script can contain: the ids of
//! runs, and the keys of `rlm set`.
//!
//! The hidden command runs while a person types. So it is quick, creates nothing and prints no error: without an answer, the shell offers what it
//! always offers.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Arg, Command};
use clap_complete::Shell;
use rlm_store::{Project, RunEntry, RunId, RunState};
use rlm_text::duration::approximate;
use rlm_text::escape::plain;

use crate::args::{COMPLETE, CompleteArgs, CompletionsArgs};
use crate::command::man::visible;
use crate::command::written;
use crate::config::{LIMITS, trust_safe_directories};
use crate::exit::{Code, Failure};
use crate::output;
use crate::render;

/// The time in which the runs are read. Then the command prints the runs that it has.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum number of characters of a title beside a run id.
const MAX_TITLE: usize = 60;

const BASH: &str = include_str!("complete/rlm.bash");
const ZSH: &str = include_str!("complete/rlm.zsh");
const FISH: &str = include_str!("complete/rlm.fish");

pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    Ok(written(script(args.shell).as_bytes()))
}

/// Returns the script of a shell: the script of clap for commands, options and fixed values, and ours for the other words.
fn script(shell: Shell) -> String {
    let mut fixed = Vec::new();
    clap_complete::generate(shell, &mut visible(), "rlm", &mut fixed);
    let fixed = String::from_utf8_lossy(&fixed).into_owned();
    let own = |text: &str| text.replace("COMPLETE", COMPLETE);
    match shell {
        Shell::Bash => fixed + "\n" + &own(BASH),
        // The function `_rlm` is ours, and calls the one of clap.
        Shell::Zsh => fixed
            .replacen(ZSH_FUNCTION, "\n_rlm_arguments() {\n", 1)
            .replacen(ZSH_END, &format!("\n{}{ZSH_END}", own(ZSH)), 1),
        Shell::Fish => fixed + "\n" + &own(FISH),
        _ => fixed,
    }
}

/// The beginning of the function of clap, and of the lines after all its functions.
const ZSH_FUNCTION: &str = "\n_rlm() {\n";
const ZSH_END: &str = "\nif [ \"$funcstack[1]\" = \"_rlm\" ]";

/// Prints the candidates for the word at the cursor, one on each line: the word, a tab, and a description.
pub(crate) fn execute(args: &CompleteArgs) -> ExitCode {
    // A message would appear in the middle of the line that the person types.
    std::panic::set_hook(Box::new(|_| ()));
    let words = args.words.iter().map(|word| word.to_string_lossy());
    let words: Vec<String> = words.map(Into::into).collect();
    let Some((typed, before)) = words.split_last() else {
        return Code::Done.into();
    };
    let wanted = wanted(before, typed);
    let mut candidates = match wanted.runs {
        Some(which) => runs(wanted.directory, which),
        None => Vec::new(),
    };
    candidates.extend(wanted.fixed);
    // The shell itself selects among these.
    candidates.retain(|it| it.word.contains(typed.as_str()));
    let lines = candidates
        .iter()
        .map(|it| format!("{}\t{}\n", it.word, it.what));
    let mut out = output::bytes();
    let _unread = out.write_all(lines.collect::<String>().as_bytes());
    let _unread = out.flush();
    rlm_store::stop_git_processes();
    Code::Done.into()
}

/// A word that can be at the cursor, with a description.
#[derive(Debug)]
struct Candidate {
    word: String,
    what: String,
}

impl Candidate {
    fn new(word: impl Into<String>) -> Self {
        Self {
            word: word.into(),
            what: String::new(),
        }
    }
}

/// The runs that a command accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunFilter {
    All,
    Live,
    NotLive,
    Resumable,
    WithWorktree,
}

impl RunFilter {
    /// Returns the filter of a command.
    fn of(command: &str) -> Self {
        match command {
            "stop" | "pause" | "interrupt" | "attach" | "steer" | "set" => Self::Live,
            "resume" => Self::Resumable,
            "merge" | "drop" => Self::WithWorktree,
            "clean" => Self::NotLive,
            _ => Self::All,
        }
    }

    fn accepts(self, run: &RunEntry) -> bool {
        let has_worktree = || { run.head.as_ref() }.is_ok_and(|it| it.settings.worktree.is_some());
        match self {
            Self::All => true,
            Self::Live => run.is_live(),
            Self::NotLive => !run.is_live(),
            Self::Resumable => run.is_resumable() || run.state == RunState::Paused,
            Self::WithWorktree => !run.is_live() && has_worktree(),
        }
    }
}

/// The candidates for a word, as far as the command line decides them.
#[derive(Debug, Default)]
struct Wanted {
    fixed: Vec<Candidate>,
    runs: Option<RunFilter>,
    /// The directory of `-C`.
    directory: PathBuf,
}

/// Returns the candidates for the word at the cursor, of which `typed` is typed, after the words `before`.
fn wanted(before: &[String], typed: &str) -> Wanted {
    let mut root = visible();
    root.build();
    let mut command = &root;
    let (mut option, mut arguments) = (None, Vec::new());
    let mut wanted = Wanted {
        directory: ".".into(),
        ..Wanted::default()
    };
    for word in before {
        if let Some(of) = option.take() {
            match word.as_str() {
                // bash splits words at `=`.
                "=" => option = Some(of),
                value if is_directory(of) => wanted.directory = value.into(),
                _ => {}
            }
        } else if word == "--" {
            // The command of an agent follows.
            return Wanted::default();
        } else if word.len() > 1 && word.starts_with('-') {
            let (of, value) = option_of(command, word);
            match (of, value) {
                (Some(of), Some(value)) if is_directory(of) => wanted.directory = value.into(),
                (of, None) => option = of,
                _ => {}
            }
        } else if let Some(below) = command.find_subcommand(word) {
            command = below;
        } else {
            arguments.push(word.as_str());
        }
    }
    if let Some(option) = option {
        wanted.fixed = values(option);
        return wanted;
    }
    if typed.starts_with('-') {
        return wanted;
    }
    let mut positionals: Vec<&Arg> = command.get_positionals().collect();
    positionals.retain(|it| !it.is_last_set());
    let last = positionals.last().copied();
    let is_several = |it: &&Arg| it.get_num_args().is_some_and(|num| num.max_values() > 1);
    let at = positionals.get(arguments.len()).copied();
    let Some(argument) = at.or_else(|| last.filter(is_several)) else {
        return wanted;
    };
    match (command.get_name(), argument.get_id().as_str()) {
        ("set", _) => {
            // The value of a key.
            if arguments.last() == Some(&"=") || typed.contains('=') {
                return wanted;
            }
            let keys = LIMITS.iter();
            wanted.fixed = keys
                .map(|it| Candidate::new(format!("{}=", it.key)))
                .collect();
            wanted.runs = arguments.is_empty().then_some(RunFilter::Live);
        }
        // A message follows the run.
        ("steer", _) => wanted.runs = arguments.is_empty().then_some(RunFilter::Live),
        (name, "run" | "runs") => wanted.runs = Some(RunFilter::of(name)),
        _ => wanted.fixed = values(argument),
    }
    wanted
}

/// Returns the option of a word, if a value follows, and the value if it is in the same word.
fn option_of<'a, 'b>(command: &'a Command, word: &'b str) -> (Option<&'a Arg>, Option<&'b str>) {
    let takes_value = |it: &Arg| it.get_num_args().is_some_and(|num| num.takes_values());
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        let found = command.get_opts().find(|it| it.get_long() == Some(name));
        return (found.filter(|it| takes_value(it)), value);
    }
    for (at, c) in word.char_indices().skip(1) {
        let found = command.get_opts().find(|it| it.get_short() == Some(c));
        if let Some(found) = found.filter(|it| takes_value(it)) {
            let rest = &word[at + c.len_utf8()..];
            return (Some(found), Some(rest).filter(|rest| !rest.is_empty()));
        }
    }
    (None, None)
}

fn is_directory(option: &Arg) -> bool {
    option.get_id() == "directory"
}

/// Returns the fixed values of an argument, such as the agents of `--agent`.
fn values(argument: &Arg) -> Vec<Candidate> {
    let values = argument.get_possible_values().into_iter();
    let shown = values.filter(|value| !value.is_hide_set());
    let shown = shown.map(|value| Candidate {
        word: value.get_name().to_owned(),
        what: { value.get_help() }.map_or_else(String::new, |help| plain(&help.to_string())),
    });
    shown.collect()
}

/// A result of the thread that reads the runs.
enum Found {
    Ids(Vec<RunId>),
    Run(Box<RunEntry>),
}

/// Returns the runs of a project, the newest first. It takes at most [`READ_TIMEOUT`]: a thread reads the runs, because a read can hang on a slow file
/// system.
fn runs(directory: PathBuf, which: RunFilter) -> Vec<Candidate> {
    rlm_store::track_git_processes();
    let (sender, found) = mpsc::channel();
    let read = move || {
        trust_safe_directories();
        let project = Project::find(&directory).ok()?;
        let mut ids = project.matching_runs("").ok()?;
        // By default, ids begin with the time.
        ids.reverse();
        sender.send(Found::Ids(ids.clone())).ok()?;
        for id in ids {
            let run = project.run(&id).ok()?;
            sender.send(Found::Run(Box::new(run))).ok()?;
        }
        Some(())
    };
    let (mut ids, mut runs) = (Vec::new(), Vec::new());
    let by = Instant::now() + READ_TIMEOUT;
    if thread::Builder::new().spawn(read).is_ok() {
        while let Ok(it) = found.recv_timeout(by.saturating_duration_since(Instant::now())) {
            match it {
                Found::Ids(all) => ids = all,
                Found::Run(run) => runs.push(run),
            }
        }
    }
    let is_complete = ids.len() == runs.len();
    ids.retain(|id| runs.iter().all(|run| run.id != *id));
    runs.sort_by(|a, b| (b.last_at, &b.id).cmp(&(a.last_at, &a.id)));
    let newest = runs.first().map(|run| run.id.clone());
    if runs.iter().any(|run| which.accepts(run)) || which != RunFilter::Resumable {
        runs.retain(|run| which.accepts(run));
    } else {
        // A run that ended at a limit can be resumed with a higher one.
        runs.retain(|run| !run.is_live());
    }
    let mut candidates: Vec<Candidate> = runs.iter().map(|run| candidate(run)).collect();
    if is_complete && newest.is_some() && newest.as_ref() == runs.first().map(|run| &run.id) {
        candidates.push(Candidate {
            word: "last".into(),
            what: "the run that was active last".into(),
        });
    }
    if which == RunFilter::All {
        candidates.extend(ids.iter().map(|id| Candidate::new(id.as_str())));
    }
    candidates
}

/// Returns a run with its state, its age and its title.
fn candidate(run: &RunEntry) -> Candidate {
    let title = { run.head.as_ref().ok() }.and_then(|head| head.settings.title.as_deref());
    let title: String = plain(title.unwrap_or_default())
        .chars()
        .take(MAX_TITLE)
        .collect();
    let since = jiff::Timestamp::now().as_millisecond();
    let since = u64::try_from(since).unwrap_or_default();
    let age = Duration::from_millis(since.saturating_sub(run.last_at.as_millis()));
    let separator = if title.is_empty() { "" } else { ": " };
    Candidate {
        word: run.id.to_string(),
        what: format!(
            "{}, {} ago{separator}{title}",
            render::state(run.state),
            approximate(age)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the candidates for the last word of a command line: the filter of the runs, the fixed words and the directory.
    fn completed(line: &str) -> String {
        let mut words: Vec<String> = line.split(' ').map(Into::into).collect();
        let typed = words.pop().unwrap();
        let wanted = wanted(&words, &typed);
        let mut all: Vec<String> = wanted.fixed.into_iter().map(|it| it.word).collect();
        all.truncate(3);
        all.extend(wanted.runs.map(|runs| format!("{runs:?}")));
        all.extend((wanted.directory != *".").then(|| format!("{:?}", wanted.directory)));
        all.join(" ")
    }

    #[test]
    fn command_line_decides_the_candidates() {
        let lines = [
            "stop ",
            "stop --now ",
            "stop --wait 5 r",
            "stop r ",
            "stop --wait ",
            "stop -",
            "-C ../there attach ",
            "-C../there attach -qv ",
            "resume ",
            "resume --agent ",
            "resume --agent = cl",
            "resume --agent=claude ",
            "clean r1 ",
            "merge ",
            "checkpoints show ",
            "checkpoints show --at 3 ",
            "steer ",
            "steer r1 ",
            "set ",
            "set r1 ",
            "set r1 sleep=5m ",
            "set max-iterations = ",
            "set max-iterations = 2",
            "set max-iterations=",
            "doctor ",
            "doctor claude ",
            "init --preset ",
            "run ",
            "run -- stop ",
            "completions ",
            "",
            "nothing ",
        ];
        let shown = lines.map(|line| format!("{line}| {}", completed(line)));
        insta::assert_snapshot!(shown.join("\n"));
    }

    #[test]
    fn each_command_with_a_run_completes_it() {
        fn check(command: &Command, path: &str) -> usize {
            let below = command.get_subcommands();
            let below: usize = below
                .map(|it| check(it, &format!("{path}{} ", it.get_name())))
                .sum();
            let has_run = command.get_positionals().any(|it| it.get_id() == "run");
            if has_run {
                let wanted = completed(path);
                assert!(!wanted.is_empty(), "{path}: {wanted}");
            }
            below + usize::from(has_run)
        }
        let mut root = visible();
        root.build();
        assert!(check(&root, "") > 10);
    }

    #[test]
    fn own_functions_are_in_the_scripts() {
        for (shell, function) in [
            (Shell::Bash, "complete -F _rlm_words"),
            (Shell::Zsh, "_rlm_arguments \"$@\""),
            (Shell::Fish, "complete -c rlm -n __rlm_find_words"),
        ] {
            let script = script(shell);
            assert!(
                script.contains(function) && script.contains(COMPLETE),
                "{script}"
            );
        }
        let zsh = script(Shell::Zsh);
        assert_eq!(zsh.matches(ZSH_FUNCTION).count(), 1, "{zsh}");
        assert_eq!(zsh.matches("\n_rlm_arguments() {").count(), 1, "{zsh}");
    }
}
