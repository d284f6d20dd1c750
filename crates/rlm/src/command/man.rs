//! `rlm man`: manual pages, generated from the definition of the command line.

use std::io;
use std::io::Write;
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::{Args, ManArgs};
use crate::command::written;
use crate::exit::{Code, Failure};

/// The headings that become sections of a page.
const HEADINGS: [&str; 3] = ["Examples", "Environment", "Exit codes"];

pub(crate) fn execute(args: &ManArgs) -> Result<ExitCode, Failure> {
    let mut root = visible();
    root.build();
    let Some(dir) = &args.dir else {
        let page = page(find(&root, &args.command)?).map_err(|e| failed(&e))?;
        return Ok(written(&page));
    };
    fs_err::create_dir_all(dir).map_err(|e| failed(&e))?;
    let mut all = vec![&root];
    while let Some(command) = all.pop() {
        all.extend(command.get_subcommands());
        let path = dir.join(Man::new(command.clone()).get_filename());
        let write = || fs_err::write(path, page(command)?);
        write().map_err(|e| failed(&e))?;
    }
    Ok(Code::Done.into())
}

fn find<'a>(root: &'a Command, words: &[String]) -> Result<&'a Command, Failure> {
    words.iter().try_fold(root, |command, word| {
        command.find_subcommand(word).ok_or_else(|| {
            let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
            let names = match names.is_empty() {
                true => "it has no commands".to_owned(),
                false => format!("its commands are {}", names.join(", ")),
            };
            let of = command.get_bin_name().unwrap_or("rlm");
            Failure::usage(format!("`{word}` is not a command of `{of}`: {names}"))
        })
    })
}

fn failed(error: &io::Error) -> Failure {
    Failure::failed(format!(
        "the manual can't be written: {error}; choose another --dir, or omit it"
    ))
}

/// Renders one page. The text below the options keeps its line breaks, because joined lines would garble the examples.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone())
        .source(concat!("rlm ", env!("CARGO_PKG_VERSION")))
        .manual("")
        .date("");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut is_set = true;
    writeln!(page, ".SH NOTES")?;
    for line in notes(command).lines() {
        let heading = HEADINGS
            .into_iter()
            .find(|it| line.starts_with(it) && line.ends_with(':'));
        if let Some(heading) = heading {
            writeln!(page, ".fi\n.SH {}\n.nf", heading.to_uppercase())?;
            is_set = false;
            continue;
        }
        let starts = line.starts_with("  ");
        if starts == is_set {
            writeln!(page, "{}", if starts { ".nf" } else { ".fi" })?;
            is_set = !starts;
        }
        match line {
            "" => writeln!(page, ".PP")?,
            line => writeln!(page, "{}", escaped(line))?,
        }
    }
    writeln!(page, ".fi")?;
    Ok(page)
}

/// Returns the text below the options of `--help`.
pub(crate) fn notes(command: &Command) -> String {
    let notes = command.get_after_long_help();
    let notes = notes.or_else(|| command.get_after_help());
    notes.map_or(String::new(), ToString::to_string)
}

/// Escapes a line so that the typesetter prints it unchanged.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', r"\e").replace('-', r"\-");
    match line.starts_with(['.', '\'']) {
        true => format!(r"\&{line}"),
        false => line,
    }
}

/// Returns the command line without hidden commands, which a generator would show.
pub(crate) fn visible() -> Command {
    let whole = Args::command();
    let shown = whole.get_subcommands().filter(|it| !it.is_hide_set());
    let mut command = Command::new("rlm")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments().cloned())
        .subcommands(shown.cloned())
        .disable_help_flag(true)
        .disable_help_subcommand(true);
    if let Some(about) = whole.get_about() {
        command = command.about(about.clone());
    }
    command.after_help(notes(&whole)).subcommand_required(true)
}
