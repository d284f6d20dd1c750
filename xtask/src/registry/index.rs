//! The lines of a registry's index: where a crate's stand, what an upload adds to them, and what cargo has kept of crates.io's.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::workspace::{array, text};

/// Where a crate's lines stand below the root of an index.
pub(super) fn path_of(name: &str) -> String {
    let name = name.to_lowercase();
    match name.len() {
        1 | 2 => format!("{}/{name}", name.len()),
        3 => format!("3/{}/{name}", &name[..1]),
        _ if name.is_char_boundary(2) && name.is_char_boundary(4) => {
            format!("{}/{}/{name}", &name[..2], &name[2..4])
        }
        _ => name,
    }
}

/// An upload's two parts, each behind its length: what it tells of itself, and the package.
pub(super) fn upload(body: &[u8]) -> Option<(Value, &[u8])> {
    let (told, rest) = part(body)?;
    let (package, rest) = part(rest)?;
    rest.is_empty().then_some(())?;
    Some((serde_json::from_slice(told).ok()?, package))
}

fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length).try_into().ok()?)
}

/// The line of a crate that is uploaded.
pub(super) fn line(told: &Value, package: &[u8]) -> Value {
    let dependencies: Vec<Value> = array(&told["deps"]).map(dependency).collect();
    // `dep:x` and `x?/y` stand where old cargos do not look.
    let is_new =
        |value: &Value| array(value).any(|it| text(it).contains("dep:") || text(it).contains("?/"));
    let features = told["features"].as_object().cloned().unwrap_or_default();
    let (new, old): (serde_json::Map<_, _>, _) =
        features.into_iter().partition(|(_, value)| is_new(value));
    let mut line = json!({
        "name": told["name"], "vers": told["vers"], "deps": dependencies, "cksum": digest(package), "features": old,
        "yanked": false, "links": told["links"], "rust_version": told["rust_version"],
    });
    if !new.is_empty() {
        line["features2"] = Value::Object(new);
        line["v"] = json!(2);
    }
    line
}

fn dependency(told: &Value) -> Value {
    let renamed = !told["explicit_name_in_toml"].is_null();
    json!({
        "name": if renamed { &told["explicit_name_in_toml"] } else { &told["name"] },
        "package": if renamed { &told["name"] } else { &Value::Null },
        "req": told["version_req"], "features": told["features"], "optional": told["optional"],
        "default_features": told["default_features"], "target": told["target"], "kind": told["kind"],
        "registry": told["registry"],
    })
}

/// SHA-256, in hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut digits = String::new();
    for byte in Sha256::digest(bytes) {
        write!(digits, "{byte:02x}").expect("a string takes all");
    }
    digits
}

/// What cargo keeps of crates.io, of which a registry can be served without it.
#[derive(Debug)]
pub(super) struct Kept {
    /// `$CARGO_HOME/registry`.
    folder: PathBuf,
    /// `name-version` of what the lock file names: what was resolved once can be again.
    locked: BTreeSet<String>,
}

impl Kept {
    pub(super) fn new(home: &Path, lock: &str) -> Self {
        let mut locked = BTreeSet::new();
        let mut name = "";
        for line in lock.lines() {
            let value = |key| line.strip_prefix(key).map(|it: &str| it.trim_matches('"'));
            if let Some(found) = value("name = ") {
                name = found;
            } else if let Some(version) = value("version = ") {
                locked.insert(format!("{name}-{version}"));
            }
        }
        Self {
            folder: home.join("registry"),
            locked,
        }
    }

    /// Returns the lines of the versions that can be had: locked, or fetched before. All that are known if there is none of these.
    pub(super) fn lines(&self, name: &str) -> Option<Vec<String>> {
        let path = Path::new(".cache").join(path_of(name));
        let bytes = self
            .find("index", &path)
            .and_then(|file| fs::read(file).ok())?;
        let known: Vec<String> = known(&bytes);
        let can_be_had = |line: &&String| {
            let version = serde_json::from_str(line)
                .map_or_else(|_| String::new(), |it: Value| text(&it["vers"]));
            let stem = format!("{name}-{version}");
            self.locked.contains(&stem) || self.package(&stem).is_some()
        };
        let had: Vec<String> = known.iter().filter(can_be_had).cloned().collect();
        Some(if had.is_empty() { known } else { had })
    }

    /// Returns where the package of `name-version` is.
    pub(super) fn package(&self, stem: &str) -> Option<PathBuf> {
        self.find("cache", Path::new(&format!("{stem}.crate")))
    }

    /// A file of one of the folders that cargo keeps for crates.io.
    fn find(&self, what: &str, path: &Path) -> Option<PathBuf> {
        let folders = fs::read_dir(self.folder.join(what)).ok()?.flatten();
        let ours = folders.filter(|it| {
            it.file_name()
                .to_string_lossy()
                .starts_with("index.crates.io-")
        });
        ours.map(|it| it.path().join(path)).find(|it| it.is_file())
    }
}

/// Reads a file of cargo's own: two numbers and a mark, then each version and its line, all ended by a zero.
fn known(bytes: &[u8]) -> Vec<String> {
    let parts = bytes.split(|byte| *byte == 0);
    let lines = parts.filter(|part| part.starts_with(b"{"));
    lines
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn body(told: &Value, package: &[u8]) -> Vec<u8> {
        let told = told.to_string();
        let mut body = u32::try_from(told.len()).unwrap().to_le_bytes().to_vec();
        body.extend(told.as_bytes());
        body.extend(u32::try_from(package.len()).unwrap().to_le_bytes());
        body.extend(package);
        body
    }

    #[test]
    fn lines_stand_where_cargo_looks() {
        for (name, path) in [
            ("a", "1/a"),
            ("ab", "2/ab"),
            ("abc", "3/a/abc"),
            ("Rlm-Loop", "rl/m-/rlm-loop"),
        ] {
            assert_eq!(path_of(name), path);
        }
    }

    #[test]
    fn what_an_upload_tells_becomes_its_line() {
        let told = json!({
            "name": "leaf", "vers": "0.1.0", "links": null, "rust_version": "1.89",
            "features": { "default": ["x"], "x": ["dep:other"] },
            "deps": [{ "name": "other", "version_req": "^1", "features": [], "optional": true, "default_features": true,
                       "target": null, "kind": "normal", "registry": null, "explicit_name_in_toml": "renamed" }],
        });
        let expected = json!({
            "name": "leaf", "vers": "0.1.0", "cksum": digest(b"package"), "yanked": false, "links": null, "rust_version": "1.89",
            "features": { "default": ["x"] }, "features2": { "x": ["dep:other"] }, "v": 2,
            "deps": [{ "name": "renamed", "package": "other", "req": "^1", "features": [], "optional": true,
                       "default_features": true, "target": null, "kind": "normal", "registry": null }],
        });
        assert_eq!(line(&told, b"package"), expected);
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest(b""), empty);
    }

    #[test]
    fn what_cargo_kept_is_read_and_what_cannot_be_had_left_out() {
        let home = tempfile::tempdir().unwrap();
        let registry = home.path().join("registry");
        let index = registry.join("index/index.crates.io-1/.cache/le/af");
        let cache = registry.join("cache/index.crates.io-1");
        fs::create_dir_all(&index).unwrap();
        fs::create_dir_all(&cache).unwrap();
        let lines =
            ["0.1.0", "0.2.0", "0.3.0"].map(|it| json!({ "name": "leaf", "vers": it }).to_string());
        let file = format!(
            "\u{3}\u{2}\0\0\0Unknown\x000.1.0\0{}\x000.2.0\0{}\x000.3.0\0{}\0",
            lines[0], lines[1], lines[2]
        );
        fs::write(index.join("leaf"), file).unwrap();
        let none = Kept::new(home.path(), "");
        assert_eq!(none.lines("leaf").unwrap(), lines);
        fs::write(cache.join("leaf-0.3.0.crate"), "").unwrap();
        let some = Kept::new(
            home.path(),
            "[[package]]\nname = \"leaf\"\nversion = \"0.1.0\"\n",
        );
        assert_eq!(
            some.lines("leaf").unwrap(),
            [lines[0].clone(), lines[2].clone()]
        );
        assert!(some.package("leaf-0.3.0").is_some() && some.package("leaf-0.1.0").is_none());
        assert_eq!(some.lines("other"), None);
    }

    proptest! {
        /// Whatever comes in, an upload is read whole or not at all.
        #[test]
        fn uploads_are_whole(package in prop::collection::vec(any::<u8>(), 0..64), cut in 0..200_usize, noise in prop::collection::vec(any::<u8>(), 0..64)) {
            let told = json!({ "name": "leaf" });
            let body = body(&told, &package);
            prop_assert_eq!(upload(&body), Some((told, &package[..])));
            if cut < body.len() {
                prop_assert_eq!(upload(&body[..cut]), None);
            }
            upload(&noise);
        }
    }
}
