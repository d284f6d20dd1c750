//! `rlm logs`

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use loop_runner::{Project, Record};

use crate::args::LogsArgs;
use crate::exit::{Code, Failure};
use crate::render;

pub(crate) fn execute(directory: &Path, args: &LogsArgs) -> Result<ExitCode, Failure> {
    let project = Project::find(directory)?;
    let run = match &args.run {
        Some(name) => project.run(&name.parse()?)?.id,
        None => match project.runs()?.pop() {
            Some(newest) => newest.id,
            None => {
                return Err(Failure::not_found(
                    "no run here yet; `rlm run --help` shows how to start one",
                ));
            }
        },
    };
    let mut transcripts = transcripts(&project.run_dir(&run).join("transcripts"))?;
    if let Some(iteration) = args.iteration {
        transcripts.retain(|((i, _), _)| *i == iteration);
        if transcripts.is_empty() {
            return Err(Failure::not_found(format!(
                "run `{run}` has no transcript of iteration {iteration}"
            )));
        }
    }
    let mut out = anstream::stdout().lock();
    for ((iteration, attempt), path) in transcripts {
        if !args.json && writeln!(out, "── iteration {iteration}, attempt {attempt} ──").is_err()
        {
            break;
        }
        let file = fs_err::File::open(&path).map_err(|e| unreadable(&e))?;
        for line in BufReader::new(file).lines() {
            // The last line of an attempt that was cut may be half a line: it is passed over like any other damage.
            let line = match line {
                Ok(line) if !line.is_empty() => line,
                Err(e) if e.kind() != ErrorKind::InvalidData => return Err(unreadable(&e)),
                _ => continue,
            };
            let text = if args.json {
                line
            } else {
                match serde_json::from_str::<Record>(&line) {
                    Ok(record) => render::record(&record),
                    Err(_) => continue,
                }
            };
            if writeln!(out, "{text}").is_err() {
                return Ok(Code::Done.into());
            }
        }
    }
    Ok(Code::Done.into())
}

type Named = ((u32, u32), PathBuf);

/// Lists the transcripts in the order of their attempts.
fn transcripts(dir: &Path) -> Result<Vec<Named>, Failure> {
    let entries = match fs_err::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|e| unreadable(&e))?,
    };
    let named = |path: PathBuf| {
        let (iteration, attempt) = path.file_stem()?.to_str()?.split_once('-')?;
        Some(((iteration.parse().ok()?, attempt.parse().ok()?), path))
    };
    let mut found: Vec<Named> = entries
        .filter_map(|entry| named(entry.ok()?.path()))
        .collect();
    found.sort_by_key(|((iteration, attempt), _)| (*iteration, *attempt));
    Ok(found)
}

fn unreadable(error: &io::Error) -> Failure {
    Failure {
        code: Code::Failed,
        message: format!("a transcript can't be read: {error}"),
    }
}
