//! Real processes and real disks: a full disk, a file that can't be written, a later writer.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "the helpers of these tests are tests too, and print results for their parents"
)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::{env, fs};

use agent_duplex::{Error, PersistedRecord, Persistence, RecoveredConversation, SqlitePersistence};
use tempfile::TempDir;

use crate::stored_records::accepted;

/// The action of a child process of these tests, and its file.
const ACTION: &str = "AGENT_DUPLEX_TEST_ACTION";
const FILE: &str = "AGENT_DUPLEX_TEST_FILE";

/// Returns the command line by which this program runs one of its tests as a child.
pub(crate) fn words(test: &str) -> [String; 5] {
    let program = env::current_exe().expect("this program has a path");
    let program = program
        .into_os_string()
        .into_string()
        .expect("a plain path");
    [
        program,
        test.into(),
        "--exact".into(),
        "--ignored".into(),
        "--nocapture".into(),
    ]
}

fn child(around: &[&str], action: &str, file: &Path) -> Command {
    let words = words("disks::child_process_acts");
    let mut words = around
        .iter()
        .copied()
        .chain(words.iter().map(String::as_str));
    let mut command = Command::new(words.next().expect("there is a program"));
    command.args(words).env(ACTION, action).env(FILE, file);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

#[test]
#[ignore = "a child process: `child` in disks.rs runs this binary with `disks::child_process_acts --exact --ignored`"]
fn child_process_acts() {
    let (Ok(action), Some(file)) = (env::var(ACTION), env::var_os(FILE)) else {
        return;
    };
    // End a line that the test harness has started.
    println!();
    let file = PathBuf::from(file);
    match action.as_str() {
        "fill" => {
            if let Err(e) = fill(&file) {
                assert!(e.is_persistence());
                println!("fault {e}");
            }
        }
        "write when told" => {
            let mut kept = SqlitePersistence::open(&file, "talk").unwrap();
            kept.recover().unwrap();
            println!("ready");
            std::io::stdin().lines().next();
            let e = kept.append(&[accepted("late", None)]).unwrap_err();
            println!("fault {e}");
        }
        "recover" => match recover(&file) {
            Ok(recovered) => println!("pending {}", recovered.pending.len()),
            Err(e) => println!("fault {e}"),
        },
        other => panic!("unknown action {other}"),
    }
}

fn recover(file: &Path) -> Result<RecoveredConversation, Error> {
    SqlitePersistence::open(file, "talk")?.recover()
}

/// Accepts inputs until there is no room.
fn fill(file: &Path) -> Result<(), Error> {
    let mut kept = SqlitePersistence::open(file, "talk")?;
    kept.recover()?;
    for i in 0..1000 {
        let mut record = accepted(&i.to_string(), None);
        if let PersistedRecord::Accepted { input, .. } = &mut record {
            input.text = "x".repeat(2000);
        }
        kept.append(&[record])?;
        println!("kept {i}");
    }
    Ok(())
}

fn lines(stdout: ChildStdout) -> impl Iterator<Item = String> {
    BufReader::new(stdout)
        .lines()
        .map(|line| line.expect("the child writes text"))
}

/// Returns the lines of a child of this kind.
fn said<'a>(lines: &'a [String], kind: &str) -> Vec<&'a str> {
    let said = lines.iter().filter_map(|line| line.split_once(' '));
    said.filter(|(of, _)| *of == kind)
        .map(|(_, what)| what)
        .collect()
}

fn ended(mut child: Child) -> Vec<String> {
    let lines: Vec<String> = lines(child.stdout.take().expect("it is piped")).collect();
    assert!(child.wait().unwrap().success(), "{lines:?}");
    lines
}

#[test]
fn l100c_file_size_limit_loses_no_stored_record() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("talks");
    let script = r#"trap "" XFSZ; ulimit -f 300; exec "$@""#;
    let limited = ["sh", "-c", script, "sh"];
    let lines = ended(child(&limited, "fill", &file).spawn().unwrap());
    let kept = said(&lines, "kept");
    assert!((1..1000).contains(&kept.len()), "{}", kept.len());
    let fault = said(&lines, "fault")
        .concat()
        .replace(file.to_str().unwrap(), "PATH");
    assert_eq!(
        fault,
        "can't store the conversation: PATH can't be read or written; check its disk and open the conversation again"
    );
    all_kept(&recover(&file).unwrap(), &kept);
}

/// Checks that every acknowledged input is stored. An input with an error can be stored too.
fn all_kept(recovered: &RecoveredConversation, kept: &[&str]) {
    let ids = recovered
        .pending
        .iter()
        .map(|(receipt, _)| &*receipt.input_id);
    let ids: Vec<&str> = ids.collect();
    assert!(ids.starts_with(kept) && ids.len() <= kept.len() + 1);
}

#[test]
fn l100c_full_disk_loses_no_stored_record() {
    let directory = TempDir::new().unwrap();
    let mount = directory.path().join("disk");
    fs::create_dir(&mount).unwrap();
    let file = mount.join("talks");
    // A separate disk that disappears with the child processes: they fill it, enlarge it, and recover.
    let script = r#"mount -t tmpfs -o size=400k full "$0" || { echo "no mount"; exit 0; }
        "$@" && mount -o remount,size=4m "$0" && AGENT_DUPLEX_TEST_ACTION=recover "$@""#;
    let mount = mount.to_str().unwrap();
    let apart = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        script,
        mount,
    ];
    let Ok(child) = child(&apart, "fill", &file).stderr(Stdio::null()).spawn() else {
        return skipped("unshare is not installed");
    };
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if !output.status.success() && lines.is_empty() || text.contains("no mount") {
        return skipped("no disk can be mounted here");
    }
    let kept = said(&lines, "kept").len();
    assert!((1..1000).contains(&kept), "{lines:?}");
    let fault = said(&lines, "fault")
        .concat()
        .replace(file.to_str().unwrap(), "PATH");
    assert_eq!(
        fault,
        "can't store the conversation: PATH has no space; free some and open the conversation again"
    );
    let pending: usize = said(&lines, "pending").concat().parse().unwrap();
    assert!(
        pending == kept || pending == kept + 1,
        "{pending} of {kept}"
    );
}

fn skipped(why: &str) {
    println!("skipped: {why}");
}

#[test]
fn l100b_a_file_that_can_not_be_written_is_an_error() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("talks");
    drop(SqlitePersistence::open(&file, "talk").unwrap());
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&file, 0o444);
    mode(directory.path(), 0o555);
    let fault = if fs::OpenOptions::new().append(true).open(&file).is_err() {
        recover(&file).unwrap_err().to_string()
    } else {
        // Root may write everything, so root has to become another user for this test.
        let nobody = ["setpriv", "--reuid=65534", "--clear-groups"];
        let Ok(child) = child(&nobody, "recover", &file)
            .stderr(Stdio::null())
            .spawn()
        else {
            return skipped("setpriv is not installed");
        };
        let output = child.wait_with_output().unwrap();
        if !output.status.success() {
            return skipped("nobody can't run this program");
        }
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        said(&lines, "fault").concat()
    };
    mode(directory.path(), 0o755);
    let fault = fault.replace(file.to_str().unwrap(), "PATH");
    assert_eq!(
        fault,
        "can't store the conversation: PATH can't be written; change its permissions or those of its directory"
    );
}

#[test]
fn l100d_later_of_two_processes_writes_the_conversation() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("talks");
    let mut first = child(&[], "write when told", &file).spawn().unwrap();
    let mut lines = lines(first.stdout.take().unwrap());
    assert!(lines.any(|line| line == "ready"));
    let mut second = SqlitePersistence::open(&file, "talk").unwrap();
    second.recover().unwrap();
    writeln!(first.stdin.take().unwrap(), "now").unwrap();
    let rest: Vec<String> = lines.collect();
    assert!(first.wait().unwrap().success());
    assert!(
        said(&rest, "fault")
            .concat()
            .ends_with("; stop one of the two")
    );
    second.append(&[accepted("mine", None)]).unwrap();
    assert_eq!(recover(&file).unwrap().pending.len(), 1);
}
