//! What a person has had written into a working tree about runs: archives and reports.
//!
//! They are no work of an agent, and an archive holds the values of variables: no commit of a loop takes them in, and nobody counts them as uncommitted.

use std::io::Read;
use std::path::Path;

use crate::moving::is_archive;
use crate::state_dir;

/// As much of a file is looked at to see whether it is a report.
const BEGINNING: u64 = 2048;
const REPORT: &str = "<meta name=\"generator\" content=\"rlm-report ";

/// Returns whether a file that git does not know is one of those, by its name and by how it begins; a file that is not finished by its name alone.
pub(crate) fn is_written(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let is = |begin: &str, end: &str| {
        name.is_some_and(|name| name.starts_with(begin) && name.ends_with(end))
    };
    let is_unfinished = is(".rlm-export-", ".partial") || is(".rlm-report-", ".new");
    is_unfinished || is("", ".zst") && is_archive(path) || is("rlm-", ".html") && is_report(path)
}

/// Returns whether a line of git's status, found from `top` on, says that such a file is there.
pub(super) fn is_line_of_written(top: &Path, line: &str) -> bool {
    let new = line.strip_prefix("?? ").or_else(|| line.strip_prefix("? "));
    new.is_some_and(|path| is_written(&top.join(path)))
}

fn is_report(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let read = state_dir::open(path)
        .ok()
        .map(|file| file.take(BEGINNING).read_to_end(&mut beginning));
    let beginning = String::from_utf8_lossy(&beginning);
    read.is_some() && beginning.starts_with("<!doctype html>") && beginning.contains(REPORT)
}
