//! `rlm logs`

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use loop_runner::{Project, Record, transcripts};

use crate::args::LogsArgs;
use crate::command::no_run_yet;
use crate::exit::{Code, Failure};
use crate::render;

pub(crate) fn execute(directory: &Path, args: &LogsArgs) -> Result<ExitCode, Failure> {
    let project = Project::find(directory)?;
    let run = match &args.run {
        Some(name) => project.run(&name.parse()?)?.id,
        None => project.runs()?.pop().ok_or_else(no_run_yet)?.id,
    };
    let mut transcripts = transcripts(&project.run_dir(&run)).map_err(|e| unreadable(&e))?;
    if let Some(iteration) = args.iteration {
        transcripts.retain(|(number, ..)| *number == iteration);
        if transcripts.is_empty() {
            return Err(Failure::not_found(format!(
                "run `{run}` has no transcript of iteration {iteration}"
            )));
        }
    }
    let mut out = anstream::stdout().lock();
    for (iteration, attempt, path) in transcripts {
        if !args.json && writeln!(out, "── iteration {iteration}, attempt {attempt} ──").is_err()
        {
            break;
        }
        let file = fs_err::File::open(&path).map_err(|e| unreadable(&e))?;
        // Text as it was streamed is shown only where no message said it again: at the cut end of a turn.
        let mut streamed = String::new();
        for line in BufReader::new(file).lines() {
            // The last line of an attempt that was cut may be half a line: it is passed over like any other damage.
            let line = match line {
                Ok(line) if !line.is_empty() => line,
                Err(e) if e.kind() != ErrorKind::InvalidData => return Err(unreadable(&e)),
                _ => continue,
            };
            let text = if args.json {
                match serde_json::from_str::<serde::de::IgnoredAny>(&line) {
                    Ok(_) => line,
                    Err(_) => continue,
                }
            } else {
                match serde_json::from_str::<Record>(&line) {
                    Ok(record) if record.kind == "text" => {
                        streamed.push_str(&record.text);
                        continue;
                    }
                    Ok(record) => {
                        if record.kind == "message" {
                            streamed.clear();
                        }
                        render::record(&record)
                    }
                    Err(_) => continue,
                }
            };
            if !text.is_empty() && writeln!(out, "{text}").is_err() {
                return Ok(Code::Done.into());
            }
        }
        if !streamed.is_empty() && writeln!(out, "{}", render::streamed(&streamed)).is_err() {
            break;
        }
    }
    Ok(Code::Done.into())
}

fn unreadable(error: &io::Error) -> Failure {
    Failure {
        code: Code::Failed,
        message: format!("a transcript can't be read: {error}"),
    }
}
