//! The command line of `rlm report`, with the examples of its help.

use std::path::PathBuf;

use clap::Args as ClapArgs;

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
One file that loads nothing and runs nothing: what happened in three sentences, when, what it cost, each attempt with its prompt, transcript, gates \
and commit, and the evidence of the end. Of a long run what went wrong and what is newest is in full. It is readable for you only, as the state of \
runs is: look through what was printed before you pass it on.

A file that is there is only replaced if it is an earlier report of the same run.

Exit codes: 0 written, 1 it can't be written, 2 the file is something else: --force, 10 no such run.

Examples:
  rlm report                    the newest run, into rlm-RUN.html
  rlm report RUN -o night.html
  rlm report RUN -o - | ssh web 'cat > report.html'
  rlm report --json | jq '.attempts[] | select(.outcome == \"failed\")'")]
pub(crate) struct ReportArgs {
    /// The run; when left out, the one of the project that was active last
    pub(crate) run: Option<String>,
    /// Write the page to this file; - is standard output [default: rlm-RUN.html]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the file whatever it is
    #[arg(long)]
    pub(crate) force: bool,
    /// Allow this inside another run's agent
    #[arg(long)]
    pub(crate) nested: bool,
    /// Print what happened as one JSON object instead
    #[arg(long, conflicts_with_all = ["output", "force"])]
    pub(crate) json: bool,
}
