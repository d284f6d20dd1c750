//! The directory in which an agent works. It resolves the paths of a model, and knows which of them leave the directory.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The directory in which an agent works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkingDirectory(PathBuf);

/// A path of a model after all links and `..` are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResolvedPath {
    /// The absolute path. No part of it is a link; the last parts may be missing.
    pub path: PathBuf,
    /// Whether the path is in the working directory.
    pub is_inside: bool,
}

impl WorkingDirectory {
    /// Takes an existing directory.
    ///
    /// # Errors
    ///
    /// Fails if the directory is missing or can't be read.
    pub fn new(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().canonicalize()?;
        match path.is_dir() {
            true => Ok(Self(path)),
            false => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        }
    }

    /// Returns the absolute path, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Resolves a path that a model wrote, relative to this directory.
    ///
    /// # Errors
    ///
    /// A message for the model, if the path is empty, has a NUL, or goes through a file or an unreadable directory.
    pub fn resolve(&self, path: &str) -> Result<ResolvedPath, String> {
        if path.is_empty() || path.contains('\0') {
            return Err("the path is empty or has a NUL character".to_owned());
        }
        let mut existing = self.0.join(path);
        let mut missing: Vec<OsString> = Vec::new();
        loop {
            match existing.canonicalize() {
                Ok(mut resolved) => {
                    let is_directory = missing.is_empty() || resolved.is_dir();
                    if !is_directory {
                        return Err(format!("`{}` is no directory", resolved.display()));
                    }
                    resolved.extend(missing.iter().rev());
                    let is_inside = resolved.starts_with(&self.0);
                    return Ok(ResolvedPath {
                        path: resolved,
                        is_inside,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // A link to a missing file also counts as missing, but it must not be followed later.
                    if existing.symlink_metadata().is_ok() {
                        return Err(format!("`{path}` is a link to a file that doesn't exist"));
                    }
                    match existing.components().next_back() {
                        Some(Component::Normal(name)) => missing.push(name.to_owned()),
                        _ => return Err(format!("`{path}` goes through a missing directory")),
                    }
                    existing.pop();
                }
                Err(error) => return Err(format!("`{path}` can't be used: {error}")),
            }
        }
    }

    /// Returns a path as the model should see it: relative to this directory if it is inside.
    #[must_use]
    pub fn shown(&self, path: &Path) -> String {
        let shown = path.strip_prefix(&self.0).unwrap_or(path);
        match shown.as_os_str().is_empty() {
            true => ".".to_owned(),
            false => shown.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a12_paths_are_resolved_before_they_are_judged() {
        let root = tempfile::tempdir().unwrap();
        let inside = root.path().join("work");
        let outside = root.path().join("other");
        for dir in [&inside, &outside] {
            std::fs::create_dir_all(dir.join("sub")).unwrap();
            std::fs::write(dir.join("sub/file"), "text").unwrap();
        }
        symlink(&outside, inside.join("out")).unwrap();
        symlink("sub/file", inside.join("in")).unwrap();
        symlink(outside.join("missing"), inside.join("dangling")).unwrap();
        symlink("loop", inside.join("loop")).unwrap();
        let directory = WorkingDirectory::new(&inside).unwrap();
        let judge = |path: &str| directory.resolve(path).map(|it| it.is_inside);

        for path in [
            ".",
            "sub/file",
            "in",
            "new",
            "a/b/new",
            "sub/../sub/file",
            "sub/./file",
            "ünïcode ✓",
        ] {
            assert_eq!(judge(path), Ok(true), "{path}");
        }
        let absolute = inside.join("sub/file");
        assert_eq!(judge(absolute.to_str().unwrap()), Ok(true));
        for path in [
            "..",
            "../other/sub/file",
            "../work2",
            "out",
            "out/new",
            "out/sub/file",
            "sub/../../other",
            "/etc/passwd",
        ] {
            assert_eq!(judge(path), Ok(false), "{path}");
        }
        for path in [
            "",
            "a\0b",
            "dangling",
            "loop",
            "sub/file/x",
            "missing/../new",
        ] {
            assert!(
                judge(path).is_err(),
                "{path}: {:?}",
                directory.resolve(path)
            );
        }
        assert_eq!(
            directory.shown(&directory.path().join("sub/file")),
            "sub/file"
        );
        assert_eq!(directory.shown(directory.path()), ".");
    }
}
