//! The path of a run's socket, and a shorter path to it if the path is too long for a socket address.

use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rlm_store::{program_name, state_dir};
use uuid::Uuid;

pub(crate) use rlm_store::state_dir::Identity;

const NAME: &str = "control.sock";
/// The name of the link in a short directory.
const LINK: &str = "run";
/// The longest path that fits into a socket address: 103 bytes on macOS, 107 on Linux.
const LONGEST: usize = 100;

/// Returns the path of the run's socket; `run_dir` is the directory of the run.
pub(crate) fn socket(run_dir: &Path) -> PathBuf {
    run_dir.join(NAME)
}

/// Returns the identity of the file at the path of the run's socket.
pub(crate) fn identity(run_dir: &Path) -> io::Result<Identity> {
    Ok(state_dir::metadata(&socket(run_dir))?.identity())
}

/// Creates the socket of a run that this process works on. Removes a file that is at the path: it belongs to a dead process.
pub(crate) fn bind_socket(run_dir: &Path) -> io::Result<(UnixListener, Identity)> {
    let path = socket(run_dir);
    match state_dir::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = with_short_path(run_dir, |path| UnixListener::bind(path))?;
    // The directory is private, so no other user can connect before this call.
    state_dir::make_private_socket(&path)?;
    listener.set_nonblocking(true)?;
    Ok((listener, identity(run_dir)?))
}

/// Returns an error if the file at the path of the run's socket is not a socket, such as a link to the socket of another program.
pub(crate) fn check(run_dir: &Path) -> io::Result<()> {
    match state_dir::metadata(&socket(run_dir))?.is_socket() {
        true => Ok(()),
        false => Err(io::Error::other("it is not a socket; remove it")),
    }
}

/// Calls `f` with a path to the run's socket that fits into a socket address.
///
/// Reaches a long path through a link in a directory with a short path, so that the socket itself is always in the run's directory.
pub(crate) fn with_short_path<T>(
    run_dir: &Path,
    f: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let path = socket(run_dir);
    if path.as_os_str().len() <= LONGEST {
        return f(&path);
    }
    let way = ShortPathLink::to(run_dir)?;
    f(&way.link().join(NAME))
}

/// A private directory with a short path that has a link to the run's directory. Dropping it removes both.
#[derive(Debug)]
struct ShortPathLink(PathBuf);

impl ShortPathLink {
    fn to(run_dir: &Path) -> io::Result<Self> {
        let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let places = own
            .into_iter()
            .chain([std::env::temp_dir(), PathBuf::from("/tmp")]);
        let mut failed = io::Error::from(io::ErrorKind::InvalidFilename);
        for place in places.filter(|place| place.is_absolute()) {
            let name = Uuid::new_v4().simple().to_string();
            let short = place.join(format!("{}-{}", program_name(), &name[..16]));
            if socket(&short.join(LINK)).as_os_str().len() > LONGEST {
                continue;
            }
            let made = std::fs::DirBuilder::new().mode(0o700).create(&short);
            let way = made.map(|()| Self(short));
            match way.and_then(|way| symlink(run_dir, way.link()).map(|()| way)) {
                Ok(way) => return Ok(way),
                Err(e) => failed = e,
            }
        }
        Err(failed)
    }

    fn link(&self) -> PathBuf {
        self.0.join(LINK)
    }
}

impl Drop for ShortPathLink {
    fn drop(&mut self) {
        // If this fails, a small temporary directory stays.
        let _left = std::fs::remove_file(self.link());
        let _left = std::fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn x118f_socket_with_a_long_path_works_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["short", &"long-".repeat(40)] {
            let run_dir = dir.path().join(name);
            fs_err::create_dir(&run_dir).unwrap();
            let (_first, before) = bind_socket(&run_dir).unwrap();
            let (listener, now) = bind_socket(&run_dir).expect("replaces the old one");
            assert_ne!(before, now);
            let meta = fs_err::symlink_metadata(socket(&run_dir)).unwrap();
            assert_eq!(meta.permissions().mode() & 0o777, 0o600);
            with_short_path(&run_dir, |path| UnixStream::connect(path)).unwrap();
            listener.accept().unwrap();
        }
    }

    #[test]
    fn directory_at_the_socket_path_is_an_error_and_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        fs_err::create_dir(socket(dir.path())).unwrap();
        assert!(bind_socket(dir.path()).is_err());
        assert!(socket(dir.path()).is_dir());
    }
}
