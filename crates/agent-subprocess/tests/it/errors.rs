//! Errors of a spawn: each gives its reason, by type and by text.

use crate::rules::works;
use crate::scene::{Scene, alone, own_test, passes};
use agent_subprocess::{Containment, Error, Marker, TreeCommand};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::path::Path;
use std::process::Command;

const BOTH: [Containment; 2] = [Containment::Guard, Containment::Group];

fn executable(path: &Path, content: impl AsRef<[u8]>) {
    std::fs::write(path, content).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).unwrap();
}

/// Returns a copy of a program of this system with a loader that does not exist, like a program for another C library.
fn without_loader() -> Vec<u8> {
    let mut program = std::fs::read("/bin/true").unwrap();
    let mut words = program.windows(4);
    let loader = words
        .position(|word| word == b"/ld-")
        .expect("a program with a loader");
    program[loader + 1] = b'x';
    program
}

#[tokio::test]
async fn p48_errors_have_hints() {
    let scene = Scene::new();
    let folder = scene.directory.path();
    std::fs::write(folder.join("plain"), "not a program").unwrap();
    executable(&folder.join("script"), "#!/no/such/interpreter\n");
    executable(&folder.join("foreign"), b"\x7fELF and another processor");
    executable(
        &folder.join("bare"),
        "echo without a first line that names an interpreter\n",
    );
    executable(&folder.join("libc"), without_loader());
    let mut texts = Vec::new();
    for containment in BOTH {
        let command = |program: &str| {
            TreeCommand::new(program)
                .current_dir(folder)
                .containment(containment)
        };
        let long = command("true").arg("x".repeat(4 << 20));
        let missing = command("no-such-agent").spawn().await.unwrap_err();
        let unnamed = command("").spawn().await.unwrap_err();
        let no_file = command("./no-such-file").spawn().await.unwrap_err();
        let no_interpreter = command("./script").spawn().await.unwrap_err();
        let no_loader = command("./libc").spawn().await.unwrap_err();
        let on_path = command("script").env("PATH", folder).spawn().await;
        let on_path = on_path.unwrap_err();
        assert_eq!(
            on_path.to_string(),
            no_interpreter.to_string().replace("./", "")
        );
        let denied = command("./plain").spawn().await.unwrap_err();
        let foreign = command("./foreign").spawn().await.unwrap_err();
        let bare = command("bare")
            .env("PATH", folder)
            .spawn()
            .await
            .unwrap_err();
        let nowhere = command("true").current_dir(folder.join("nowhere"));
        let nowhere = nowhere.spawn().await.unwrap_err();
        let long = long.spawn().await.unwrap_err();
        let nul = command("true").arg("a\0b").spawn().await.unwrap_err();
        assert!(missing.is_not_found() && no_file.is_not_found() && unnamed.is_not_found());
        assert!(no_interpreter.is_not_found() && no_loader.is_not_found());
        assert!(denied.is_permission_denied() && nowhere.is_bad_directory());
        assert!(foreign.is_wrong_format() && bare.is_wrong_format());
        assert!(long.is_argument_list_too_long());
        let all = [
            missing,
            no_file,
            no_interpreter,
            no_loader,
            denied,
            foreign,
            bare,
            nowhere,
            long,
            nul,
        ];
        let all = all.map(|error| error.to_string()).join("\n");
        texts.push(all.replace(folder.to_str().unwrap(), "FOLDER"));
    }
    assert_eq!(texts[0], texts[1], "with a guard and without");
    insta::assert_snapshot!(texts[0], @r"
    `no-such-agent` was not found on PATH: install it, or name it by its full path
    `./no-such-file` does not exist: check the path (relative to FOLDER)
    `./script` exists, but the interpreter in its first line does not: install the interpreter, or correct the line
    `./libc` exists, but its loader does not: install the build for this system's C library
    `./plain` is not executable: make it executable, and check the permissions of its directories
    `./foreign` is not a program for this system: install the build for this processor, or give a script a first line such as #!/bin/sh
    `bare` is not a program for this system: install the build for this processor, or give a script a first line such as #!/bin/sh
    cannot enter the working directory FOLDER/nowhere: No such file or directory (os error 2); create it, or choose another
    the arguments and the environment of `true` are too long for the system: pass large input on standard input
    a NUL byte is not allowed in the program name and its arguments: remove it
    ");
}

/// A sweep can't find some of these markers. A sweep for another scope would find the others, and would end the wrong process tree.
#[tokio::test]
async fn p48_invalid_marker_is_refused() {
    let cases = [("", "a"), ("X=Y", "a"), ("X", ""), ("X", "a.b")];
    let mut texts = Vec::new();
    for (variable, scope) in cases {
        let marker = Marker {
            variable: variable.into(),
            scope: scope.into(),
            member: "3.1".into(),
        };
        let spawned = TreeCommand::new("true").marker(marker).spawn().await;
        texts.push(spawned.unwrap_err().to_string());
    }
    insta::assert_snapshot!(texts.join("\n"), @r"
    invalid marker: its variable is empty or contains `=`; choose a name such as RLM_MARKER
    invalid marker: its variable is empty or contains `=`; choose a name such as RLM_MARKER
    invalid marker: its scope is empty; choose a random text
    invalid marker: its scope contains a full stop, so a sweep for the part before it would end this process tree too; remove the full stop
    ");
}

#[tokio::test]
async fn p48_unwritable_survivors_file_is_refused_before_the_start() {
    let scene = Scene::new();
    let folder = scene.directory.path();
    std::fs::write(folder.join("plain"), "").unwrap();
    let closed = scene.path("closed");
    std::fs::create_dir(&closed).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o500);
    std::fs::set_permissions(&closed, mode).unwrap();
    let everything_is_open = rustix::fs::access(&closed, rustix::fs::Access::WRITE_OK).is_ok();
    let mut texts = Vec::new();
    for containment in BOTH {
        let agent = || scene.agent("touch ran").containment(containment);
        let mut refused = Vec::new();
        for path in ["closed", "nowhere/survivors", "plain/survivors"] {
            let error = agent().survivors_file(folder.join(path)).spawn().await;
            refused.push(error.unwrap_err());
        }
        refused.push(agent().survivors_file("").spawn().await.unwrap_err());
        assert!(refused.iter().all(Error::is_bad_survivors_file));
        if !everything_is_open {
            let error = agent().survivors_file(closed.join("survivors")).spawn();
            let error = error.await.unwrap_err();
            assert!(error.is_bad_survivors_file(), "{error}");
        }
        let refused = refused.iter().map(ToString::to_string);
        let refused = refused.collect::<Vec<_>>().join("\n");
        texts.push(refused.replace(folder.to_str().unwrap(), "FOLDER"));
        assert!(!scene.path("ran").exists());
    }
    assert_eq!(texts[0], texts[1], "with a guard and without");
    insta::assert_snapshot!(texts[0], @r"
    cannot write the survivors file FOLDER/closed: Is a directory (os error 21); choose a file in a writable directory that exists
    cannot write the survivors file FOLDER/nowhere/survivors: No such file or directory (os error 2); choose a file in a writable directory that exists
    cannot write the survivors file FOLDER/plain/survivors: Not a directory (os error 20); choose a file in a writable directory that exists
    cannot write the survivors file : cannot make an empty path absolute; choose a file in a writable directory that exists
    ");
    for file in ["plain", "survivors"] {
        let agent = scene.agent("exit 0").survivors_file(folder.join(file));
        assert!(agent.spawn().await.unwrap().wait().await.success());
    }
    assert!(
        !scene.path("survivors").exists(),
        "there was nothing to report"
    );
    if everything_is_open {
        as_nobody("errors::p48_unwritable_survivors_file_is_refused_before_the_start");
    }
}

/// Runs a test again without the rights of root.
fn as_nobody(test: &str) {
    let own = own_test(test);
    let program = own.get_program().to_str().unwrap();
    let nobody = ["--reuid=65534", "--clear-groups", program];
    if works(
        "setpriv",
        &[&nobody[..], &["--list", "--exact", test]].concat(),
    ) {
        let mut again = Command::new("setpriv");
        passes(test, again.args(nobody).args(own.get_args()));
    }
}

#[tokio::test]
async fn inaccessible_directory_is_named_with_and_without_guard() {
    let scene = Scene::new();
    let closed = scene.path("closed");
    std::fs::create_dir(&closed).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&closed, mode).unwrap();
    if std::fs::metadata(closed.join(".")).is_ok() {
        // Root can enter every directory, so root has to become another user for this test.
        return as_nobody("errors::inaccessible_directory_is_named_with_and_without_guard");
    }
    for containment in BOTH {
        let command = TreeCommand::new("true").containment(containment);
        let error = command.current_dir(&closed).spawn().await.unwrap_err();
        assert!(error.is_bad_directory(), "{containment:?}: {error}");
    }
}

#[tokio::test]
async fn p48_host_without_free_descriptors_reports_it() {
    // The limit applies to the whole process.
    if !alone("errors::p48_host_without_free_descriptors_reports_it") {
        return;
    }
    let scene = Scene::new();
    let usual = getrlimit(Resource::Nofile);
    let mut limit = usual;
    // The number of free descriptors grows: too few for a pipe, enough for some pipes, enough for everything except the guard's socket or its child.
    for more in 0..40 {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        limit.current = Some(open - 1 + more);
        let mut failed = 0;
        for containment in BOTH {
            setrlimit(Resource::Nofile, limit).unwrap();
            let spawned = scene.agent("exit 0").containment(containment).spawn().await;
            setrlimit(Resource::Nofile, usual).unwrap();
            match spawned {
                Ok(mut agent) => assert!(agent.wait().await.success()),
                Err(error) => {
                    assert!(error.is_out_of_descriptors(), "{more}: {error}");
                    assert!(error.to_string().contains("ulimit -n"), "{error}");
                    failed += 1;
                }
            }
        }
        if failed == 0 {
            return assert!(more > 3);
        }
    }
    panic!("it still fails with 40 descriptors");
}

#[tokio::test]
async fn program_lookup_matches_a_shell() {
    let scene = Scene::new();
    let [first, second] = ["first", "second"].map(|name| scene.path(name));
    for folder in [&first, &second] {
        std::fs::create_dir(folder).unwrap();
    }
    // A file that is not executable is skipped; it only decides the error if no other file is found.
    std::fs::write(first.join("tool"), "").unwrap();
    executable(&second.join("tool"), "#!/bin/sh\necho second \"$0\"\n");
    executable(&scene.path("tool"), "#!/bin/sh\necho here \"$0\"\n");
    std::os::unix::fs::symlink("circle", scene.path("circle")).unwrap();
    // Entries of `PATH` that are not directories don't hide the program either.
    let long = "x".repeat(5000);
    let (first_path, second_path) = (first.display(), second.display());
    let both = format!("/no/such:tool:circle:{long}:{first_path}:{second_path}");
    for containment in BOTH {
        let tool = |path: &str| {
            let command = TreeCommand::new("tool").containment(containment);
            command
                .env("PATH", path)
                .current_dir(scene.directory.path())
        };
        let mut agent = tool(&both).spawn().await.unwrap();
        let said = format!("second {}/tool", second.display());
        assert_eq!(crate::scene::stdout(&mut agent).await, [said]);
        let only = first.to_str().unwrap();
        assert!(tool(only).spawn().await.unwrap_err().is_permission_denied());
        let mut agent = tool("").spawn().await.unwrap();
        let said = crate::scene::stdout(&mut agent).await;
        assert!(said[0].starts_with("here"), "{said:?}");
    }
}

/// A guard that never answers is like a program whose disk hangs. The time of this test doesn't pass: it jumps to the next deadline.
#[tokio::test(start_paused = true)]
async fn guard_that_does_not_answer_in_time_is_a_timeout() {
    if !alone("errors::guard_that_does_not_answer_in_time_is_a_timeout") {
        return;
    }
    let scene = Scene::new();
    let program = scene.path("silent-guard");
    executable(&program, "#!/bin/sh\nexec sleep 600\n");
    agent_subprocess::guard::guard_program(&program);
    let error = TreeCommand::new("true").spawn().await.unwrap_err();
    assert!(error.is_guard_timeout() && error.is_guard(), "{error}");
    let text = error.to_string();
    assert!(text.contains("did not answer in time: check"), "{text}");
    // A guard that is missing has started nothing.
    agent_subprocess::guard::guard_program("/no/such/guard");
    let error = TreeCommand::new("true").spawn().await.unwrap_err();
    assert!(error.is_guard() && !error.is_guard_timeout(), "{error}");
}

/// The guard program of the other tests is set for the whole process.
#[tokio::test]
async fn k1a_missing_guard_is_an_error_that_says_what_to_do() {
    if !alone("errors::k1a_missing_guard_is_an_error_that_says_what_to_do") {
        return;
    }
    let error = TreeCommand::new("true").spawn().await.unwrap_err();
    assert!(error.is_guard());
    let said = error.to_string();
    for advice in [
        "`guard::run_if_guard()` first",
        "`agent_subprocess::guard_before_main!();`",
        "`Containment::Group`",
    ] {
        assert!(said.contains(advice), "{said}");
    }
    let group = TreeCommand::new("true").containment(Containment::Auto);
    let mut tree = group.spawn().await.unwrap();
    assert_eq!(tree.containment(), Containment::Group);
    tree.stop(&agent_subprocess::StopPolicy::kill()).await;
}
