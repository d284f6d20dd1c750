//! Each planted file is an error or is replaced, and its target stays unchanged.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

struct Planted {
    dir: tempfile::TempDir,
    target: PathBuf,
}

impl Planted {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs_err::create_dir_all(dir.path().join(".rlm/runs/r1")).unwrap();
        let target = dir.path().join("precious");
        fs_err::write(&target, "precious").unwrap();
        Self { dir, target }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(".rlm/runs/r1").join(name)
    }

    fn unharmed(&self) {
        assert_eq!(fs_err::read_to_string(&self.target).unwrap(), "precious");
        assert_eq!(
            fs_err::metadata(&self.target).unwrap().permissions().mode() & 0o777,
            0o644
        );
    }
}

#[test]
fn h1_h9_non_regular_files_are_not_opened() {
    let planted = Planted::new();
    fs_err::set_permissions(&planted.target, std::fs::Permissions::from_mode(0o644)).unwrap();
    let path = |name: &str| planted.path(name);
    symlink(&planted.target, path("link")).unwrap();
    symlink(planted.dir.path().join("none"), path("dangling")).unwrap();
    symlink("/dev/zero", path("zero")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, path("fifo"), PRIVATE_FILE).unwrap();
    fs_err::create_dir(path("directory")).unwrap();
    for name in ["link", "dangling", "zero", "fifo", "directory"] {
        let path = path(name);
        assert!(open(&path).is_err(), "{name}");
        assert!(read(&path, 10).is_err(), "{name}");
        assert!(append(&path).is_err(), "{name}");
        assert!(create_new(&path).is_err(), "{name}");
        assert!(exists(&path) && !is_file(&path), "{name}");
    }
    assert!(!is_dir(&path("link")) && is_dir(&path("directory")));
    assert!(!planted.dir.path().join("none").exists());
    for name in ["link", "dangling", "zero", "fifo"] {
        replace(&path(name), b"new").unwrap();
        assert_eq!(read(&path(name), 3).unwrap(), b"new", "{name}");
    }
    planted.unharmed();
    let names = entries(&path("")).unwrap();
    assert_eq!(names.len(), 5, "no temporary file is left: {names:?}");
}

#[test]
fn h2_new_file_overwrites_no_file() {
    let planted = Planted::new();
    let path = planted.path("file");
    fs_err::write(&path, "precious").unwrap();
    let taken = create_new(&path).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
    let other = planted.path("other");
    fs_err::write(&other, "x").unwrap();
    let taken = rename_new(&other, &path).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs_err::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn h1_a_hard_link_is_not_appended_to() {
    let planted = Planted::new();
    fs_err::set_permissions(&planted.target, std::fs::Permissions::from_mode(0o644)).unwrap();
    fs_err::hard_link(&planted.target, planted.path("output.log")).unwrap();
    append(&planted.path("output.log")).unwrap_err();
    planted.unharmed();
}

#[test]
fn h2_no_component_below_the_state_directory_is_a_link() {
    let planted = Planted::new();
    let other = planted.dir.path().join("other");
    fs_err::create_dir_all(other.join("r1")).unwrap();
    fs_err::write(other.join("r1/file"), "x").unwrap();
    let state = planted.dir.path().join(".rlm");
    symlink(&other, state.join("linked")).unwrap();
    for path in [
        state.join("linked/r1/file"),
        state.join("runs/../linked/r1/file"),
        state.join("runs/../../other/r1/file"),
    ] {
        open(&path).unwrap_err();
        replace(&path, b"y").unwrap_err();
        remove_file(&path).unwrap_err();
        entries(path.parent().unwrap()).unwrap_err();
        make_private_directory(&path.with_file_name("new")).unwrap_err();
    }
    fs_err::remove_dir_all(&state).unwrap();
    symlink(&other, &state).unwrap();
    for refused in [
        open(&state.join("r1/file")).map(drop),
        entries(&state).map(drop),
        make_private_directory(&state),
    ] {
        let why = refused.unwrap_err().to_string();
        assert!(
            why.contains("`.rlm` is a symbolic link, which rlm does not follow; remove the link"),
            "{why}"
        );
    }
    assert_eq!(fs_err::read_to_string(other.join("r1/file")).unwrap(), "x");
    assert!(!other.join("r1/new").exists());
}

#[test]
fn h9_file_beyond_its_limit_is_not_read() {
    let planted = Planted::new();
    let path = planted.path("sparse");
    fs_err::File::create(&path)
        .unwrap()
        .set_len(20 << 30)
        .unwrap();
    let refused = read(&path, 1 << 20).unwrap_err().to_string();
    let words = "the file has 21474836480 bytes, more than the limit of 1048576";
    assert!(refused.contains(words), "{refused}");
    let refused = open_bounded(&path, 1 << 20).unwrap_err().to_string();
    assert!(refused.contains(words), "{refused}");
    // Files of `/proc` have length 0 before they are read, like a growing file.
    #[cfg(target_os = "linux")]
    {
        let refused = read(Path::new("/proc/version"), 10).unwrap_err();
        assert!(refused.to_string().contains("11 bytes"), "{refused}");
    }
}

#[test]
fn removed_directory_keeps_targets_of_its_links() {
    let planted = Planted::new();
    let other = planted.dir.path().join("other");
    fs_err::create_dir_all(other.join("a")).unwrap();
    fs_err::create_dir_all(planted.path("deep/er")).unwrap();
    fs_err::write(planted.path("deep/er/file"), "x").unwrap();
    symlink(&other, planted.path("deep/link")).unwrap();
    remove_tree(&planted.path("")).unwrap();
    assert!(!planted.path("").exists() && other.join("a").exists());
}

#[test]
fn h4_file_of_another_user_is_refused_with_both_fixes() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can change the owner of a file");
        return;
    }
    let planted = Planted::new();
    let path = planted.path("file");
    replace(&path, b"x").unwrap();
    std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
    let refused = read(&path, 10).unwrap_err().to_string();
    for part in [
        "65534",
        "chown -R 0",
        "safe-directories",
        &path.to_string_lossy(),
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert_eq!(refused.lines().count(), 1);
    std::os::unix::fs::chown(planted.path(""), Some(65534), None).unwrap();
    let wide = std::fs::Permissions::from_mode(0o755);
    fs_err::set_permissions(planted.path(""), wide).unwrap();
    let refused = make_private_directory(&planted.path("")).unwrap_err();
    assert!(refused.to_string().contains("belongs to"), "{refused}");
    let mode = fs_err::metadata(planted.path("")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o755);
    let refused = create_new(&planted.path("other")).unwrap_err().to_string();
    assert!(refused.contains("belongs to"), "{refused}");
}

#[test]
fn h9_named_file_can_be_a_link_but_must_be_regular() {
    let planted = Planted::new();
    let path = |name: &str| planted.path(name);
    symlink(&planted.target, path("link")).unwrap();
    symlink("/dev/zero", path("zero")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, path("fifo"), PRIVATE_FILE).unwrap();
    let mut text = String::new();
    let mut file = open_named(&path("link")).unwrap().unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "precious");
    for name in ["zero", "fifo", ""] {
        assert!(open_named(&path(name)).unwrap().is_none(), "{name}");
    }
    let none = open_named(&path("none")).unwrap_err();
    assert_eq!(none.kind(), io::ErrorKind::NotFound);
}

#[test]
fn c67a_orphaned_temporary_files_are_removed_and_live_ones_kept() {
    let planted = Planted::new();
    let random = "0".repeat(32);
    // The pid of a process that has ended and was reaped.
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let name = |pid: u32| planted.path(&format!(".holder.json.{pid}.{random}.tmp"));
    let (dead, live) = (name(child.id()), name(std::process::id()));
    for path in [&dead, &live] {
        fs_err::write(path, "x").unwrap();
    }
    assert_eq!(remove_orphans(&planted.path("")), 1);
    assert!(!dead.exists() && live.exists());
    let old = SystemTime::now() - Duration::from_secs(2 * 60 * 60);
    fs_err::OpenOptions::new()
        .write(true)
        .open(&live)
        .unwrap()
        .file()
        .set_modified(old)
        .unwrap();
    assert_eq!(remove_orphans(&planted.path("")), 1, "older than the limit");
    assert_eq!(remove_orphans(&planted.path("")), 0);
}

#[test]
fn the_owner_is_in_the_name() {
    assert_eq!(
        temporary_owner(&temporary_name("holder.json".as_ref())),
        Some(std::process::id())
    );
    for other in [
        "holder.json",
        ".tmp",
        ".a.1.tmp",
        ".a.x.00000000000000000000000000000000.tmp",
    ] {
        assert_eq!(temporary_owner(other.as_ref()), None, "{other}");
    }
}
