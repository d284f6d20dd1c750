//! Packs `rlm` for people without cargo: one archive with the program, completions, manual pages, README with `docs`, licences and changelog, and a
//! file with its SHA-256. The same commit gives the same archive: it contains no detail of the machine, and its only time is `SOURCE_DATE_EPOCH`, or
//! else the time of the commit.
//!
//! The guard needs no file of its own: `rlm` starts itself as the guard.
//!
//! With `--lab`, it builds the lab instead, as one program without an archive.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::{Compression, GzBuilder};
use fs_err as fs;
use sha2::{Digest, Sha256};

use crate::command::{self, Show};
use crate::date;
use crate::release::crates;
use crate::tally::Tally;
use crate::workspace::{self, Workspace};

/// The options of the build.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Link the C library statically: the program runs on any Linux of this processor, and a guard starts faster. Not the default, since the tests of
    /// a release run with the dynamic build
    #[arg(long = "static")]
    is_static: bool,
    /// The platform, as rustc names it [default: this one].
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// Build the lab instead: one static program, which scores any loop runner on a machine without cargo
    #[arg(long, conflicts_with = "is_static")]
    lab: bool,
}

/// A program to build.
struct Program<'a> {
    package: &'a str,
    name: &'static str,
    features: &'static str,
    is_static: bool,
}

const SHELLS: [(&str, &str); 5] = [
    ("bash", "rlm.bash"),
    ("elvish", "rlm.elv"),
    ("fish", "rlm.fish"),
    ("powershell", "_rlm.ps1"),
    ("zsh", "_rlm"),
];

/// Builds and tries the lab as one static program.
pub(crate) fn lab_program(workspace: &Workspace) -> Tally {
    let arguments = Arguments {
        lab: true,
        is_static: false,
        target: None,
    };
    run(workspace, &arguments)
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Tally {
    let built = match arguments.lab {
        true => lab(workspace, arguments),
        false => try_run(workspace, arguments),
    };
    match built {
        Ok(file) => {
            println!("{}", file.display());
            Tally::passed(1)
        }
        Err(why) => Tally::failed(format!("dist: {why}")),
    }
}

/// The version data of the sources.
struct Stamp {
    version: String,
    commit: Option<String>,
    /// Seconds since 1970.
    time: u64,
}

impl Stamp {
    fn find(version: String) -> Result<Self, String> {
        let git = |arguments: &[&str]| {
            let ended = command::run("git", arguments, Show::Never);
            ended.success.then(|| ended.stdout.trim().to_owned())
        };
        let clean = git(&["status", "--porcelain"]).is_some_and(|it| it.is_empty());
        let commit = git(&["rev-parse", "--short=10", "HEAD"]);
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(epoch) => Some(epoch),
            Err(_) => git(&["log", "-1", "--format=%ct"]),
        };
        let time = epoch.unwrap_or_else(|| "0".into());
        Ok(Self {
            version,
            commit: commit.map(|it| if clean { it } else { format!("{it}+") }),
            time: time
                .parse()
                .map_err(|_| format!("SOURCE_DATE_EPOCH is not a number of seconds: `{time}`"))?,
        })
    }

    /// Returns the text of `rlm --version` after the program name.
    fn words(&self) -> String {
        match &self.commit {
            Some(commit) => format!("{} ({commit} {})", self.version, date::of(self.time)),
            None => self.version.clone(),
        }
    }
}

fn try_run(workspace: &Workspace, arguments: &Arguments) -> Result<PathBuf, String> {
    let crates = workspace::metadata().and_then(|metadata| crates::read(&metadata))?;
    let found = crates
        .iter()
        .find(|it| it.programs.iter().any(|name| name == "rlm"));
    let found = found.ok_or("no crate has the program `rlm`")?;
    let stamp = Stamp::find(found.version.to_string())?;
    let host = host()?;
    let target = arguments.target.as_ref().unwrap_or(&host);
    println!(
        "rlm {} for {target} is being built, which takes minutes",
        stamp.words()
    );
    let rlm = Program {
        package: &found.name,
        name: "rlm",
        features: "api,fleet,view,webhook",
        is_static: arguments.is_static,
    };
    let program = build(workspace, &rlm, target, Some(&stamp.words()))?;
    let mut files = BTreeMap::new();
    if *target == host {
        tried(&program, &stamp)?;
        made(&program, &mut files)?;
    } else {
        println!(
            "can't run {target} here: the archive has no completions and no manual, and the program is untested"
        );
    }
    let read = |path: &Path| fs::read(path).map_err(|error| error.to_string());
    files.insert("rlm".into(), read(&program)?);
    for (name, path) in [
        ("CHANGELOG.md", found.folder.join("CHANGELOG.md")),
        ("README.md", workspace.root.join("README.md")),
        ("LICENSE-APACHE", workspace.root.join("LICENSE-APACHE")),
        ("LICENSE-MIT", workspace.root.join("LICENSE-MIT")),
    ] {
        files.insert(name.into(), read(&path)?);
    }
    // README.md links to these pages, and they link to the files for the servers and workers of a fleet.
    for folder in ["docs", "deploy"] {
        collect(&workspace.root, &workspace.root.join(folder), &mut files)?;
    }
    let suffix = if arguments.is_static { "-static" } else { "" };
    let stem = format!("rlm-{}-{target}{suffix}", stamp.version);
    let folder = workspace.target.join("dist");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let archive = folder.join(format!("{stem}.tar.gz"));
    let bytes = pack(&stem, &files, stamp.time).map_err(|error| error.to_string())?;
    println!("{} files, {:.1} MB", files.len(), bytes.len() as f64 / 1e6);
    fs::write(&archive, &bytes).map_err(|error| error.to_string())?;
    write_digest(&archive, &bytes)?;
    Ok(archive)
}

/// Builds the lab as one static program.
fn lab(workspace: &Workspace, arguments: &Arguments) -> Result<PathBuf, String> {
    let host = host()?;
    let target = arguments.target.as_ref().unwrap_or(&host);
    println!("the lab for {target} is being built, which takes minutes");
    let program = Program {
        package: "rlm-score",
        name: "lab",
        features: "",
        is_static: true,
    };
    let built = build(workspace, &program, target, None)?;
    if *target == host {
        tried_lab(&built)?;
    }
    let bytes = fs::read(&built).map_err(|error| error.to_string())?;
    println!("{:.1} MB", bytes.len() as f64 / 1e6);
    let folder = workspace.target.join("dist");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let file = folder.join(format!("lab-{target}"));
    fs::copy(built, &file).map_err(|error| error.to_string())?;
    write_digest(&file, &bytes)?;
    Ok(file)
}

/// Writes and prints the SHA-256 of a file, in the form that `sha256sum --check` reads.
fn write_digest(file: &Path, bytes: &[u8]) -> Result<(), String> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let sum = format!("{}  {name}\n", digest(bytes));
    print!("{sum}");
    let beside = file.with_file_name(format!("{name}.sha256"));
    fs::write(beside, sum).map_err(|error| error.to_string())
}

/// Returns the SHA-256 in hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut digits = String::new();
    for byte in Sha256::digest(bytes) {
        write!(digits, "{byte:02x}").expect("writing to a string can't fail");
    }
    digits
}

/// Adds the files below a directory, with paths relative to the root.
fn collect(
    root: &Path,
    folder: &Path,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> Result<(), String> {
    for entry in fs::read_dir(folder)
        .map_err(|error| error.to_string())?
        .flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else {
            let name = path
                .strip_prefix(root)
                .unwrap_or(&path)
                .to_string_lossy()
                .into_owned();
            files.insert(name, fs::read(&path).map_err(|error| error.to_string())?);
        }
    }
    Ok(())
}

fn host() -> Result<String, String> {
    let rustc = command::run("rustc", &["--version", "--verbose"], Show::Never);
    let host = rustc
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("host: "));
    host.map(Into::into).ok_or(rustc.output.clone())
}

fn build(
    workspace: &Workspace,
    program: &Program<'_>,
    target: &str,
    version: Option<&str>,
) -> Result<PathBuf, String> {
    let home = std::env::home_dir().unwrap_or_default();
    let cargo_home =
        std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    // Panic messages name source files. Replacing this machine's paths protects private names and makes the build reproducible.
    let mut flags = vec![
        format!(
            "--remap-path-prefix={}=",
            cargo_home.join("registry/src").display()
        ),
        format!("--remap-path-prefix={}=", workspace.root.display()),
    ];
    if program.is_static {
        flags.push("-Ctarget-feature=+crt-static".into());
    }
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--color=never", "--locked", "--release"])
        .args(["-p", program.package, "--bin", program.name])
        .args(["--features", program.features, "--target", target])
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .envs(version.map(|version| ("RLM_VERSION", version)));
    let ended = command::finish(&mut cargo, Show::Steps("Compiling"));
    if !ended.success {
        return Err(format!(
            "the build failed: {}",
            command::errors(&ended.output)
        ));
    }
    Ok(workspace
        .target
        .join(target)
        .join("release")
        .join(program.name))
}

/// Runs the program: its version must match the stamp, and it must be able to guard an agent, for which it starts itself.
fn tried(program: &Path, stamp: &Stamp) -> Result<(), String> {
    let version = said(program, &["--version"], Path::new("."))?;
    if version.trim() != format!("rlm {}", stamp.words()) {
        return Err(format!("wrong version: {version}"));
    }
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let agent = "cat >/dev/null; echo done";
    let run = ["run", "--once", "-p", "Say done.", "--", "sh", "-c", agent];
    said(program, &run, folder.path())?;
    // It refuses this address only if it has the page.
    let view = ["view", "--no-open", "--listen", "192.0.2.1:80"];
    match said(program, &view, folder.path()) {
        Err(refused) if refused.contains("ssh -L 80") => Ok(()),
        Err(other) => Err(other),
        Ok(_) => Err("rlm view listens on the address of another machine".into()),
    }
}

/// Scores a bare loop, which keeps one cell and breaks another one.
fn tried_lab(program: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let program = std::path::absolute(program).map_err(|error| error.to_string())?;
    let tool = "for i in $(seq {iterations}); do cat {prompt} | {agent}; done";
    let mut command = Command::new(program);
    command.args(["--quick", "--only", "done", "--tool", tool]);
    command.current_dir(&folder).env("HOME", folder.path());
    let printed = command::finish(&mut command, Show::Never).output;
    match printed.contains("kept       honest agent") && printed.contains("broken     lying agent")
    {
        true => Ok(()),
        false => Err(format!("wrong score of a bare loop: {printed}")),
    }
}

/// Adds the completions and manual pages, which the program generates.
fn made(program: &Path, files: &mut BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    for (shell, name) in SHELLS {
        let script = said(program, &["completions", shell], Path::new("."))?;
        files.insert(format!("completions/{name}"), script.into_bytes());
    }
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    said(
        program,
        &["man", "--dir", &folder.path().to_string_lossy()],
        Path::new("."),
    )?;
    for entry in fs::read_dir(folder.path())
        .map_err(|error| error.to_string())?
        .flatten()
    {
        let page = fs::read(entry.path()).map_err(|error| error.to_string())?;
        files.insert(format!("man/{}", entry.file_name().to_string_lossy()), page);
    }
    Ok(())
}

fn said(program: &Path, arguments: &[&str], folder: &Path) -> Result<String, String> {
    let program = std::path::absolute(program).map_err(|error| error.to_string())?;
    let mut command = Command::new(&program);
    command.args(arguments).current_dir(folder);
    let ended = command::finish(&mut command, Show::Never);
    match ended.success {
        true => Ok(ended.stdout),
        false => Err(format!(
            "{} {}: {}",
            program.display(),
            arguments.join(" "),
            ended.output.trim()
        )),
    }
}

/// Packs files below a directory, sorted by name, with owner nobody and one modification time.
fn pack(stem: &str, files: &BTreeMap<String, Vec<u8>>, time: u64) -> std::io::Result<Vec<u8>> {
    let gzip = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::best());
    let mut archive = tar::Builder::new(gzip);
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(if name == "rlm" { 0o755 } else { 0o644 });
        header.set_mtime(time);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, format!("{stem}/{name}"), bytes.as_slice())?;
    }
    archive.into_inner()?.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The archive extracts to the same files, the program is executable, and the same files give the same bytes.
        #[test]
        fn archive_has_its_files_and_no_machine_details(files in prop::collection::btree_map("[a-z]{1,8}", prop::collection::vec(any::<u8>(), 0..64), 0..6), time in 0..4_000_000_000_u64) {
            let mut files: BTreeMap<String, Vec<u8>> = files;
            files.insert("rlm".into(), b"program".to_vec());
            let packed = pack("rlm-0.1.0", &files, time).unwrap();
            prop_assert_eq!(&packed, &pack("rlm-0.1.0", &files, time).unwrap());
            let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
            let mut found = BTreeMap::new();
            for entry in archive.entries().unwrap() {
                let mut entry = entry.unwrap();
                let path = entry.path().unwrap().strip_prefix("rlm-0.1.0").unwrap().to_string_lossy().into_owned();
                let header = entry.header().clone();
                prop_assert_eq!(header.mode().unwrap(), if path == "rlm" { 0o755 } else { 0o644 });
                prop_assert_eq!((header.mtime().unwrap(), header.uid().unwrap()), (time, 0));
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).unwrap();
                found.insert(path, bytes);
            }
            prop_assert_eq!(found, files);
        }
    }
}
