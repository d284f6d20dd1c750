//! `rlm init`

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use loop_runner::Project;

use crate::config;
use crate::exit::{Code, Failure};

const PROMPT: &str = "\
Work on this repository until the check passes.

- Read what earlier iterations left in the working tree and in git's log before you begin.
- Do the one most useful next step, and leave the tree better than you found it.
- Write down what the next iteration must know.
";

pub(crate) fn execute(directory: &Path) -> Result<ExitCode, Failure> {
    let project = Project::find(directory)?;
    let mut out = anstream::stdout();
    for (name, text) in [(config::FILE_NAME, config::TEMPLATE), ("PROMPT.md", PROMPT)] {
        let made = write_new(&project.root().join(name), text)?;
        let _gone = writeln!(out, "{} {name}", if made { "wrote" } else { "kept " });
    }
    let _gone = writeln!(
        out,
        "next: edit PROMPT.md, then: rlm run --until 'YOUR CHECK' (with the agent that is installed, or -- YOUR-AGENT)"
    );
    Ok(Code::Done.into())
}

/// Writes a file that is not there yet; says whether it did.
fn write_new(path: &Path, text: &str) -> Result<bool, Failure> {
    let file = fs_err::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path);
    match file.and_then(|mut file| file.write_all(text.as_bytes())) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(Failure {
            code: Code::Failed,
            message: format!(
                "`{}` can't be written: {}; mend that, or name another place with -C",
                path.display(),
                e.kind()
            ),
        }),
    }
}
