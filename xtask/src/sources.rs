//! The Rust sources of the workspace, and their tests.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use fs_err as fs;

use crate::command::{self, Show};

/// A source file, with its path relative to the root.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// Reads all `.rs` files below the directories of the members, sorted by path.
pub(crate) fn read(root: &Path) -> Vec<Source> {
    with_extensions(root, &["rs"])
}

/// Reads the files with other extensions in the same way.
pub(crate) fn with_extensions(root: &Path, extensions: &[&str]) -> Vec<Source> {
    let mut sources = Vec::new();
    for folder in ["crates", "lab", "tests", "xtask"] {
        collect(root, &root.join(folder), extensions, &mut sources);
    }
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    sources
}

/// Reads the documents of the repository: the Markdown files of its directories and of its root.
pub(crate) fn documents(root: &Path) -> Vec<Source> {
    let mut sources = with_extensions(root, &["md"]);
    collect(root, &root.join("docs"), &["md"], &mut sources);
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let path = PathBuf::from(entry.file_name());
        if path.extension().is_some_and(|it| it == "md")
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            sources.push(Source { path, text });
        }
    }
    sources
}

fn collect(root: &Path, folder: &Path, extensions: &[&str], sources: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let wanted = path
            .extension()
            .is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted));
        if path.is_dir() && entry.file_name() != "target" {
            collect(root, &path, extensions, sources);
        } else if wanted && let Ok(text) = fs::read_to_string(&path) {
            let path = path.strip_prefix(root).unwrap_or(&path).to_owned();
            sources.push(Source { path, text });
        }
    }
}

/// Copies the sources of the workspace for a command that changes them, and replaces an older copy.
pub(crate) fn copy_afresh(from: &Path, to: &Path) -> io::Result<()> {
    crate::workspace::remove(to)?;
    copy(from, to)
}

/// Updates a copy without new times for files that are equal, so that cargo doesn't compile them again. The caller writes the files of `is_left_out`.
pub(crate) fn update(
    from: &Path,
    to: &Path,
    is_left_out: impl Fn(&Path) -> bool,
) -> io::Result<()> {
    let files = tracked(from)?;
    // A file that is gone can be a test or a snapshot, so the copy starts afresh.
    let list = to.with_extension("list");
    let names = files.join("\n");
    if fs::read_to_string(&list).unwrap_or_default() != names {
        crate::workspace::remove(to)?;
    }
    for file in files.iter().filter(|file| !is_left_out(Path::new(file))) {
        let is_equal = match (fs::read(from.join(file)), fs::read(to.join(file))) {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        };
        if !is_equal {
            copy_file(from, to, file)?;
        }
    }
    fs::write(list, names)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let files = tracked(from)?;
    files.iter().try_for_each(|file| copy_file(from, to, file))
}

fn copy_file(from: &Path, to: &Path, file: &str) -> io::Result<()> {
    let (file, copy) = (from.join(file), to.join(file));
    if file.is_file() {
        fs::create_dir_all(copy.parent().unwrap_or(to))?;
        fs::copy(&file, &copy)?;
    }
    Ok(())
}

/// Returns the files that git tracks or would track. Build output may be among the others, under any name.
fn tracked(root: &Path) -> io::Result<Vec<String>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z"]).args([
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let listed = command::finish(&mut git, Show::Never);
    match listed.success {
        true => Ok(listed
            .stdout
            .split_terminator('\0')
            .map(Into::into)
            .collect()),
        false => Err(io::Error::other(listed.output)),
    }
}

/// A test function in a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TestName<'a> {
    pub(crate) name: &'a str,
    /// Whether it has the attribute `#[ignore]`.
    pub(crate) is_ignored: bool,
}

impl Source {
    /// Returns the names of its test functions.
    pub(crate) fn tests(&self) -> impl Iterator<Item = &str> {
        self.test_functions().map(|test| test.name)
    }

    /// Returns its test functions.
    pub(crate) fn test_functions(&self) -> impl Iterator<Item = TestName<'_>> {
        let (mut marked, mut is_ignored) = (false, false);
        self.text.lines().filter_map(move |line| {
            let line = line.trim();
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                (marked, is_ignored) = (true, false);
                return None;
            }
            is_ignored |= line.starts_with("#[ignore");
            let (_, rest) = line
                .split_once("fn ")
                .filter(|_| marked && !line.starts_with("//"))?;
            marked = false;
            let name = rest.split(['(', '<', ' ']).next()?;
            Some(TestName { name, is_ignored })
        })
    }
}

/// Returns the acceptance items and clauses that a test of this name shows: `J31` for `j31_answered_press_…`, `J41a` for `j41a_…`, `S1` for `s1_…`
/// and `s01_…`, both `L88b` and `P12` for `l88b_p12_a_late_reader_…`.
pub(crate) fn items_of(test: &str) -> impl Iterator<Item = String> {
    let words = test.split_inclusive('_');
    words.map_while(|word| item(word.strip_suffix('_')?))
}

fn item(word: &str) -> Option<String> {
    const LETTERS: [char; 13] = [
        's', 'j', 'c', 'l', 'x', 'p', 'd', 'h', 'w', 'k', 'a', 'v', 'f',
    ];
    let number = word.strip_prefix(LETTERS)?;
    let digits = number.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    let clause = &number[digits.len()..];
    if clause.len() > 1 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u32 = digits.parse().ok()?;
    Some(format!("{}{number}{clause}", word[..1].to_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_copied_without_build_output() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let place = tempfile::tempdir().unwrap();
        copy(&root, place.path()).unwrap();
        let is_there = |file: &str| place.path().join(file).exists();
        assert!(is_there("Cargo.lock") && is_there("crates/rlm/src/lib.rs"));
        assert!(!is_there(".git") && !is_there("target"));
    }

    #[test]
    fn update_of_a_copy_changes_only_files_that_differ() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let place = tempfile::tempdir().unwrap();
        let copy = place.path().join("sources");
        let is_left_out = |file: &Path| file == Path::new("README.md");
        let update = || update(&root, &copy, is_left_out).unwrap();
        let read = |file: &str| fs::read_to_string(copy.join(file)).unwrap_or_default();
        update();
        assert!(!read("Cargo.lock").is_empty() && read("README.md").is_empty());
        let time = || fs::metadata(copy.join("Cargo.lock")).unwrap().modified();
        let before = time().unwrap();
        fs::write(copy.join("Cargo.toml"), "changed").unwrap();
        update();
        assert_ne!(read("Cargo.toml"), "changed");
        assert_eq!(time().unwrap(), before);
        // After a change of the list, nothing of the old copy is left.
        fs::write(copy.join("gone"), "").unwrap();
        fs::write(copy.with_extension("list"), "other").unwrap();
        update();
        assert!(!copy.join("gone").exists() && !read("Cargo.lock").is_empty());
    }

    #[test]
    fn tests_are_found_by_their_attribute() {
        let marker = "#[test]"; // in a variable, since this lint also reads this file
        let text = format!(
            "fn x1_helper() {{}}\n{marker}\n#[ignore]\nfn j31_a() {{\n  let s3_x = fn_b();\n}}\n  #[tokio::test(flavor = \"x\")]\n  async fn plain() {{}}\nfn c1_no() {{}}"
        );
        let source = Source {
            path: "a.rs".into(),
            text,
        };
        assert_eq!(source.tests().collect::<Vec<_>>(), ["j31_a", "plain"]);
        let ignored = source.test_functions().map(|test| test.is_ignored);
        assert_eq!(ignored.collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn numbers_of_items_and_clauses_are_parsed_from_test_names() {
        let items = |test| items_of(test).collect::<Vec<_>>();
        assert_eq!(items("j31_answered"), ["J31"]);
        assert_eq!(items("s01_repeats"), ["S1"]);
        assert_eq!(items("d0_model"), ["D0"]);
        assert_eq!(items("l88_p12_x101_late_s2_x"), ["L88", "P12", "X101"]);
        assert_eq!(items("j41a_prints"), ["J41a"]);
        assert_eq!(items("l88b_p12_h3_w012c_x"), ["L88b", "P12", "H3", "W12c"]);
        let others = [
            "j_31",
            "plain",
            "b31_b",
            "x86",
            "s3bc_x",
            "s3B_x",
            "s+3_x",
            "jb_x",
            "late_x101_x",
        ];
        for other in others {
            assert!(items(other).is_empty(), "{other}");
        }
    }
}
