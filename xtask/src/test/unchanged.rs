//! Test binaries that did not change since all their tests passed: `ci` takes their results from that run, and `rustdoc` does so for the examples of a
//! library. A clean clone has no results.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, io};

use fs_err as fs;
use serde_json::{Value, json};

/// The results of the test binaries that passed, below the root of the workspace.
const PASSED: &str = "target/nextest/passed.json";

/// The packages whose tests read files of other packages, or start their programs. Their tests always run.
const READ_OTHER_PACKAGES: [&str; 7] = [
    "rlm-bench",
    "rlm-loop",
    "rlm-score",
    "rlm-storm",
    "rlm-survivors",
    "rlm-tests",
    "xtask",
];

/// The variables that change what a test does.
const VARIABLES: [&str; 2] = ["RLM_TEST_EFFORT", "RLM_TEST_SEED"];

/// The test binaries of a build, and the results of those that are unchanged.
#[derive(Debug)]
pub(super) struct TestBinaries {
    root: PathBuf,
    /// A description of all files that the tests of a binary depend on, by the name that nextest gives the binary.
    states: BTreeMap<String, String>,
    /// The part of the report of each unchanged binary.
    unchanged: BTreeMap<String, String>,
}

impl TestBinaries {
    /// Reads nextest's list of the test binaries, and the results of earlier runs. If anything can't be read, all tests run.
    pub(super) fn read(root: &Path, list: &str) -> Self {
        let states = states(root, list).unwrap_or_default();
        let passed = fs::read_to_string(root.join(PASSED)).unwrap_or_default();
        let passed: Value = serde_json::from_str(&passed).unwrap_or_default();
        let unchanged = states.iter().filter_map(|(binary, state)| {
            let earlier = &passed[binary];
            let report = earlier["report"].as_str()?;
            (earlier["state"] == **state).then(|| (binary.clone(), report.to_owned()))
        });
        Self {
            root: root.to_owned(),
            unchanged: unchanged.collect(),
            states,
        }
    }

    /// Returns nextest's filter for the other binaries; `None` if all have to run.
    pub(super) fn filter(&self) -> Option<String> {
        let names = self.unchanged.keys();
        let names: Vec<_> = names.map(|name| format!("binary_id(={name})")).collect();
        (!names.is_empty()).then(|| format!("not ({})", names.join(" or ")))
    }

    /// Returns the number of unchanged binaries, and the part of the report that describes them.
    pub(super) fn unchanged(&self) -> (usize, String) {
        let parts: Vec<&str> = self.unchanged.values().map(String::as_str).collect();
        (parts.len(), parts.concat())
    }

    /// Saves the results of a run in which all tests passed. A binary that changed during the run is not saved.
    ///
    /// After any failure nothing is saved: the report of an interrupted run has only a part of the tests.
    pub(super) fn save(&self, report: &Path, list: &str) -> io::Result<()> {
        let text = fs::read_to_string(report)?;
        let now = states(&self.root, list).unwrap_or_default();
        let ran = parts(&text).filter(|(binary, _)| {
            let state = self.states.get(*binary);
            state.is_some() && state == now.get(*binary)
        });
        let unchanged = self.unchanged.iter();
        let unchanged = unchanged.map(|(binary, part)| (binary.as_str(), part.as_str()));
        let passed: serde_json::Map<_, _> = { ran.chain(unchanged) }
            .map(|(binary, part)| {
                let state = &self.states[binary];
                (binary.to_owned(), json!({"state": state, "report": part}))
            })
            .collect();
        fs::write(self.root.join(PASSED), Value::Object(passed).to_string())
    }

    /// Adds the results of the unchanged binaries to the report of a run.
    pub(super) fn complete(&self, report: &Path) -> io::Result<()> {
        let text = fs::read_to_string(report)?;
        let (before, after) = text
            .rsplit_once("</testsuites>")
            .ok_or_else(|| io::Error::other("the report has no end"))?;
        let unchanged = self.unchanged().1;
        fs::write(report, format!("{before}{unchanged}</testsuites>{after}"))
    }
}

/// Returns the parts of a report with the names of their test binaries.
fn parts(report: &str) -> impl Iterator<Item = (&str, &str)> {
    const BEGINNING: &str = "<testsuite name=\"";
    const END: &str = "</testsuite>";
    let starts = report.match_indices(BEGINNING);
    starts.filter_map(move |(at, _)| {
        let part = &report[at..];
        let part = &part[..part.find(END)? + END.len()];
        Some((part[BEGINNING.len()..].split_once('"')?.0, part))
    })
}

/// Returns a description of each test binary whose tests depend only on files of its package.
fn states(root: &Path, list: &str) -> Option<BTreeMap<String, String>> {
    let list: Value = serde_json::from_str(list).ok()?;
    let meta = &list["rust-build-meta"];
    let target = Path::new(meta["target-directory"].as_str()?);
    let binaries = list["rust-binaries"].as_object()?.iter();
    let states = binaries.filter_map(|(name, binary)| {
        let package = name.split("::").next()?;
        if READ_OTHER_PACKAGES.contains(&package) {
            return None;
        }
        let id = binary["package-id"].as_str()?;
        let folder = id.split_once("file://")?.1.split('#').next()?;
        let mut files = BTreeSet::from([
            PathBuf::from(binary["binary-path"].as_str()?),
            root.join(".config/nextest.toml"),
        ]);
        let programs = meta["non-test-binaries"][id].as_array();
        for program in programs.into_iter().flatten() {
            files.insert(target.join(program["path"].as_str()?));
        }
        let state = state_of(Path::new(folder), files).ok()?;
        Some((name.clone(), state))
    });
    Some(states.collect())
}

/// Describes all files of a package, other files, and the variables that change what a test does.
pub(crate) fn state_of(package: &Path, mut files: BTreeSet<PathBuf>) -> io::Result<String> {
    add_files(package, &mut files)?;
    let described = files.iter().map(|file| describe(file));
    let described = described.collect::<io::Result<Vec<_>>>()?;
    let variables = VARIABLES.map(|name| format!("{name}={:?}", env::var_os(name)));
    Ok(format!(
        "{}\n{}",
        described.join("\n"),
        variables.join("\n")
    ))
}

fn add_files(folder: &Path, files: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true if entry.file_name() == "target" => {}
            true => add_files(&entry.path(), files)?,
            false => _ = files.insert(entry.path()),
        }
    }
    Ok(())
}

/// Describes a file by its length and by the time of its last change, as cargo does.
fn describe(file: &Path) -> io::Result<String> {
    let metadata = fs::metadata(file)?;
    let changed = metadata.modified()?;
    Ok(format!("{} {} {changed:?}", file.display(), metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{skips, sources};

    const REPORT: &str = "<testsuites>\n<testsuite name=\"a\">\
        <testcase name=\"one\" classname=\"a\"></testcase></testsuite>\n\
        <testsuite name=\"a::it\"><testcase name=\"two\" classname=\"a::it\"></testcase></testsuite>\n</testsuites>\n";

    #[test]
    fn binary_is_unchanged_after_it_passed_and_until_a_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let report = root.join("junit.xml");
        for directory in ["a/src", "target/nextest", ".config"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        for file in [
            "a/src/lib.rs",
            "target/a",
            "target/it",
            ".config/nextest.toml",
        ] {
            fs::write(root.join(file), "").unwrap();
        }
        let binary = |path| json!({"package-id": format!("path+file://{}/a#0.1.0", root.display()), "binary-path": root.join(path)});
        let list = json!({
            "rust-build-meta": {"target-directory": root.join("target"), "non-test-binaries": {}},
            "rust-binaries": {"a": binary("target/a"), "a::it": binary("target/it"), "xtask": binary("target/a")},
        })
        .to_string();

        let first = TestBinaries::read(root, &list);
        assert_eq!(first.filter(), None);
        fs::write(&report, REPORT).unwrap();
        first.save(&report, &list).unwrap();
        first.complete(&report).unwrap();
        assert_eq!(fs::read_to_string(&report).unwrap(), REPORT);

        let second = TestBinaries::read(root, &list);
        assert_eq!(
            second.filter().as_deref(),
            Some("not (binary_id(=a) or binary_id(=a::it))")
        );
        fs::write(&report, "<testsuites>\n</testsuites>\n").unwrap();
        second.save(&report, &list).unwrap();
        second.complete(&report).unwrap();
        let cases: Vec<_> = skips::cases(&fs::read_to_string(&report).unwrap())
            .map(|case| case.test)
            .collect();
        assert_eq!(cases, ["one", "two"]);
        assert!(TestBinaries::read(root, &list).filter().is_some());

        fs::write(root.join("a/src/lib.rs"), "// changed").unwrap();
        assert_eq!(TestBinaries::read(root, &list).filter(), None);
    }

    #[test]
    fn tests_that_read_other_packages_always_run() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for source in sources::read(&root) {
            let path = source.path.display().to_string();
            let text = &source.text;
            let outside = text.contains("CARGO_MANIFEST_DIR")
                && (text.contains("\"/..") || text.contains("\"../"));
            let folder = path.split('/').nth(1).unwrap_or_default();
            let package = match folder {
                "rlm" => "rlm-loop".to_owned(),
                folder if path.starts_with("lab/") => format!("rlm-{folder}"),
                folder => folder.to_owned(),
            };
            let is_listed = READ_OTHER_PACKAGES.contains(&package.as_str());
            assert!(
                !outside || is_listed || !path.starts_with("crates/") && !path.starts_with("lab/"),
                "{path}"
            );
        }
    }
}
