//! Recognises `rlm`'s own files in a working tree: archives and reports.
//!
//! These files are not an agent's work, and an archive contains the values of environment variables. So no commit of a loop includes them, and they
//! don't count as uncommitted.

use std::io::Read;
use std::path::Path;

use tar::Header;
use uuid::Uuid;

use crate::{RunId, state_dir, state_directory};

/// The number of bytes at the beginning of a file that show whether it is a report.
pub const BEGINNING: u64 = 2048;
/// The beginning of the element that marks a page as a report.
const REPORT: &str = "<meta name=\"generator\" content=\"rlm-report ";
/// The name of the first file of an archive.
pub(crate) const MANIFEST: &str = "manifest.json";

/// Returns the beginning of the name of an unfinished archive.
pub(crate) fn unfinished_archive() -> String {
    format!("{}-export-", state_directory())
}

/// Returns whether a file unknown to git is an archive or a report, by its name and its first bytes. An unfinished file has a random name, and may be
/// empty; in all other cases the name alone is not enough.
pub(crate) fn is_own_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let is = |begin: &str, end: &str| {
        name.is_some_and(|name| name.starts_with(begin) && name.ends_with(end))
    };
    let is_random = |begin: &str, end: &str| {
        { name.and_then(|name| name.strip_prefix(begin)?.strip_suffix(end)) }
            .is_some_and(|id| id.len() == 32 && Uuid::try_parse(id).is_ok())
    };
    let may_be_archive = is("", ".zst") || is_random(&unfinished_archive(), ".partial");
    let may_be_report = is("rlm-", ".html") || is_random(".rlm-report-", ".new");
    let is_begun = |may_be: bool| may_be && !is("", ".zst") && !is("rlm-", ".html");
    may_be_archive && is_archive(path)
        || may_be_report && is_report(path)
        || is_begun(may_be_archive || may_be_report) && is_empty(path)
}

/// Returns whether a line of git's status, relative to `top`, is about an archive or a report.
pub(super) fn is_status_line_of_own_file(top: &Path, line: &str) -> bool {
    let new = line.strip_prefix("?? ").or_else(|| line.strip_prefix("? "));
    new.is_some_and(|path| is_own_file(&top.join(path)))
}

/// Returns whether nothing is written to the file yet.
fn is_empty(path: &Path) -> bool {
    fs_err::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == 0)
}

/// Returns whether a file is an archive, by its first bytes.
pub(crate) fn is_archive(path: &Path) -> bool {
    let file = state_dir::open(path).ok();
    let unpacker = file.and_then(|file| zstd::Decoder::new(file).ok());
    let mut header = Header::new_old();
    let read = unpacker.map(|mut it| it.read_exact(header.as_mut_bytes()));
    matches!(read, Some(Ok(()))) && *header.path_bytes() == *MANIFEST.as_bytes()
}

fn is_report(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let read =
        state_dir::open(path).and_then(|file| file.take(BEGINNING).read_to_end(&mut beginning));
    read.is_ok() && begins_report(&beginning, None)
}

/// Returns the element that marks a page as a report of this run.
#[must_use]
pub fn report_mark(run: &RunId) -> String {
    format!("{REPORT}{run}\">")
}

/// Returns whether a file with this beginning is a report: of this run, or of any run.
#[must_use]
pub fn begins_report(beginning: &[u8], run: Option<&RunId>) -> bool {
    let mark = run.map_or_else(|| REPORT.to_owned(), report_mark);
    let beginning = String::from_utf8_lossy(beginning);
    beginning.starts_with("<!doctype html>") && beginning.contains(&mark)
}
