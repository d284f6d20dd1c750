//! A stand-in for rustdoc, for the stage `doctests`: when cargo runs the examples of a published library, it also builds the library's public
//! documentation. rustdoc then reads the libraries that the stage `build` compiled. `cargo doc` would compile all of them once more for rustdoc alone.
//! If neither the library nor what it uses changed since both passed, it does nothing, and prints what it printed then.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, io, thread};

use fs_err as fs;

use crate::command::{self, Show};
use crate::test::unchanged;
use crate::workspace::Workspace;

/// The variable with the real rustdoc. Cargo and its stand-ins have it.
const REAL: &str = "XTASK_RUSTDOC";
/// The directory of the documentation, which nobody reads.
const DIRECTORY: &str = "XTASK_RUSTDOC_DIRECTORY";
/// The directories of the published packages, in the form of `PATH`.
const PUBLISHED: &str = "XTASK_RUSTDOC_PUBLISHED";

/// The options of cargo that are only for tests, and whether each has a value.
const FOR_TESTS: [(&str, bool); 7] = [
    ("--test", false),
    ("--no-run", false),
    ("--test-args", true),
    ("--test-run-directory", true),
    ("--test-runtool", true),
    ("--test-runtool-arg", true),
    ("--doctest-build-arg", true),
];

/// Makes cargo start this program as its rustdoc.
pub(crate) fn also_document(
    cargo: &mut Command,
    workspace: &Workspace,
    directory: &Path,
) -> Result<(), String> {
    let this = env::current_exe().map_err(|error| format!("can't find this program: {error}"))?;
    let sysroot = command::run("rustc", &["--print", "sysroot"], command::Show::Never);
    let real = Path::new(sysroot.stdout.trim()).join("bin/rustdoc");
    cargo.env("RUSTDOC", this).env(REAL, real);
    cargo.env(DIRECTORY, directory);
    let folders = workspace.published().map(|package| &package.folder);
    let folders = env::join_paths(folders).map_err(|error| error.to_string())?;
    cargo.env(PUBLISHED, folders);
    Ok(())
}

/// Does the work of rustdoc if cargo started this process for it.
pub(crate) fn run_if_stand_in() -> Option<ExitCode> {
    let real = env::var_os(REAL)?;
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let directory = env::var_os(DIRECTORY).unwrap_or_default();
    let inputs = Inputs::of(&arguments);
    let state = || inputs.as_ref()?.state(&real, &arguments).ok();
    let before = state();
    let passed = { inputs.as_ref() }.map(|it| Path::new(&directory).join("passed").join(&it.name));
    let earlier = passed.as_deref().and_then(|it| Passed::read(it).ok());
    if let Some(earlier) = earlier.filter(|it| Some(&it.state) == before.as_ref()) {
        print!("{}", earlier.printed);
        return Some(ExitCode::SUCCESS);
    }
    let rustdoc = || {
        let mut rustdoc = Command::new(&real);
        for variable in [REAL, DIRECTORY, PUBLISHED] {
            rustdoc.env_remove(variable);
        }
        rustdoc
    };
    let Some(documentation) = documentation(&arguments) else {
        let status = rustdoc().args(&arguments).status();
        return Some(exit_code(status.is_ok_and(|status| status.success())));
    };
    let published = env::var_os(PUBLISHED).unwrap_or_default();
    let is_published =
        |it: &Inputs| env::split_paths(&published).any(|folder| folder == it.package);
    let documentation = inputs.as_ref().is_some_and(is_published).then(|| {
        let mut rustdoc = rustdoc();
        // `cargo xtask nightly` also checks the links of private items, which take the larger part of the time.
        rustdoc
            .args(documentation)
            .args(["-Dwarnings", "--out-dir"]);
        rustdoc.arg(&directory);
        thread::spawn(move || command::finish(&mut rustdoc, Show::Never))
    });
    let tests = command::finish(rustdoc().args(&arguments), Show::AsItComes);
    let documented = documentation.is_none_or(|documentation| {
        let documentation = documentation.join().expect("a command does not panic");
        if !documentation.success {
            let _closed = std::io::stderr().write_all(documentation.output.as_bytes());
        }
        documentation.success
    });
    let success = tests.success && documented;
    // Nothing tested a file that changed in between.
    if let (true, Some(state), Some(passed)) = (success && before == state(), before, passed) {
        let printed = tests.stdout;
        // Without the file, the next run tests it again.
        let _full = Passed { state, printed }.write(&passed);
    }
    Some(exit_code(success))
}

fn exit_code(success: bool) -> ExitCode {
    match success {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// The files that the examples of a library depend on.
#[derive(Debug, PartialEq, Eq)]
struct Inputs {
    name: String,
    package: PathBuf,
    /// The compiled library, and those that it uses.
    libraries: BTreeSet<PathBuf>,
}

impl Inputs {
    /// Reads the arguments with which cargo runs examples. `None` for other arguments.
    fn of(arguments: &[OsString]) -> Option<Self> {
        let arguments: Vec<&str> = arguments
            .iter()
            .map(|it| it.to_str())
            .collect::<Option<_>>()?;
        let values = |option: &str| {
            let pairs = arguments.windows(2).filter(move |pair| pair[0] == option);
            pairs.map(|pair| pair[1]).collect::<Vec<_>>()
        };
        let libraries = values("--extern").into_iter();
        let libraries = libraries.filter_map(|it| Some(it.split_once('=')?.1.into()));
        Some(Self {
            name: (*values("--crate-name").first()?).to_owned(),
            package: PathBuf::from(values("--test-run-directory").first()?),
            libraries: libraries.collect(),
        })
    }

    /// Describes all that could change a result.
    fn state(&self, rustdoc: &OsStr, arguments: &[OsString]) -> io::Result<String> {
        let mut files = self.libraries.clone();
        files.insert(rustdoc.into());
        let files = unchanged::state_of(&self.package, files)?;
        Ok(format!("{files}\n{arguments:?}"))
    }
}

/// The result of examples that passed.
#[derive(Debug)]
struct Passed {
    state: String,
    printed: String,
}

/// Stands between the two parts of a saved result.
const PRINTED: &str = "\n-- printed\n";

impl Passed {
    fn read(file: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(file)?;
        let parts = text.split_once(PRINTED);
        let (state, printed) = parts.ok_or_else(|| io::Error::other("no result"))?;
        Ok(Self {
            state: state.to_owned(),
            printed: printed.to_owned(),
        })
    }

    fn write(&self, file: &Path) -> io::Result<()> {
        fs::create_dir_all(file.parent().unwrap_or(file))?;
        fs::write(file, format!("{}{PRINTED}{}", self.state, self.printed))
    }
}

/// Returns the arguments that document a library, from those that run its examples. `None` if they run no examples: cargo asks for the version.
fn documentation(arguments: &[OsString]) -> Option<Vec<OsString>> {
    if !arguments.iter().any(|argument| argument == "--test") {
        return None;
    }
    let mut kept = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match FOR_TESTS.iter().find(|(option, _)| argument == option) {
            Some((_, true)) => drop(arguments.next()),
            Some((_, false)) => {}
            None => kept.push(argument.clone()),
        }
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_keeps_all_arguments_but_those_for_tests() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let kept = documentation(&words(
            "--edition=2024 --crate-name a --test src/lib.rs --test-run-directory /a --extern b=/b.rlib --no-run --test-args --test",
        ));
        assert_eq!(
            kept,
            Some(words(
                "--edition=2024 --crate-name a src/lib.rs --extern b=/b.rlib"
            ))
        );
        assert_eq!(documentation(&words("--version --verbose")), None);
    }

    #[test]
    fn result_holds_until_the_package_a_library_or_an_argument_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        fs::create_dir(file("a")).unwrap();
        for name in ["a/lib.rs", "b.rlib", "rustdoc"] {
            fs::write(file(name), "").unwrap();
        }
        let external = format!("b={}", file("b.rlib").display());
        let package = file("a").display().to_string();
        let words = |edition: &str| {
            let words = [
                "--crate-name",
                "a",
                "--test",
                edition,
                "--extern",
                &external,
            ];
            let words = words.into_iter().chain(["--test-run-directory", &package]);
            words.map(OsString::from).collect::<Vec<_>>()
        };
        let state = |words: &[OsString]| {
            let inputs = Inputs::of(words).unwrap();
            inputs.state(file("rustdoc").as_os_str(), words).unwrap()
        };
        let first = state(&words("2024"));
        assert_eq!(state(&words("2024")), first);
        assert_ne!(state(&words("2021")), first);
        for name in ["a/lib.rs", "b.rlib", "rustdoc"] {
            let before = state(&words("2024"));
            fs::write(file(name), name).unwrap();
            assert_ne!(state(&words("2024")), before, "{name}");
        }
        fs::remove_file(file("b.rlib")).unwrap();
        let inputs = Inputs::of(&words("2024")).unwrap();
        assert!(inputs.state(OsStr::new("rustdoc"), &[]).is_err());
        assert_eq!(Inputs::of(&["--version".into()]), None);
    }

    #[test]
    fn saved_result_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("passed/a");
        let (state, printed) = ("x 1\ny 2".to_owned(), "ok\n\nall ran\n".to_owned());
        Passed { state, printed }.write(&file).unwrap();
        let read = Passed::read(&file).unwrap();
        assert_eq!(
            (&*read.state, &*read.printed),
            ("x 1\ny 2", "ok\n\nall ran\n")
        );
        fs::write(&file, "x 1\ny 2").unwrap();
        assert!(Passed::read(&file).is_err());
    }
}
