//! Programs that must not start another process: the kernel kills a program that tries.
//!
//! A program that starts no process needs no guard, because no other process can outlive it. This saves one process for each start of a program that
//! runs often. Use it for a program that only reads. If [`was_killed_for_spawn`] returns true, run the program again under a guard: the kernel
//! possibly killed it between two writes.

use std::io;
use std::process::{Command, ExitStatus};

/// Makes the kernel kill the program of `command` with SIGSYS as soon as it starts another process. Threads are allowed.
///
/// The rule is a seccomp filter. It also applies to every program that this program executes in its place, and it can't be removed. The program also
/// gets no new privileges: a setuid program runs as its caller.
///
/// # Errors
/// Fails if this system has no such filters. If the kernel refuses the filters later, the `spawn` of the command fails.
///
/// # Platform
/// Linux on x86-64 and aarch64; always an error on other systems.
///
/// # Examples
/// ```
/// # #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))] {
/// use agent_subprocess::childless;
/// use std::process::Command;
///
/// let mut shell = Command::new("sh");
/// shell.args(["-c", "/bin/true; exit 0"]);
/// childless::enforce(&mut shell)?;
/// assert!(childless::was_killed_for_spawn(shell.status()?));
/// # }
/// # Ok::<_, std::io::Error>(())
/// ```
pub fn enforce(command: &mut Command) -> io::Result<()> {
    #[cfg(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64")
    ))]
    return filter::set(command);
    #[cfg(not(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64")
    )))]
    {
        let _unchanged = command;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Returns whether a program ended because it tried to start another process.
pub fn was_killed_for_spawn(status: ExitStatus) -> bool {
    #[cfg(target_os = "linux")]
    return std::os::unix::process::ExitStatusExt::signal(&status) == Some(libc::SIGSYS);
    #[cfg(not(target_os = "linux"))]
    {
        let _of_no_such_filter = status;
        false
    }
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod filter {
    use super::{Command, io};
    use crate::sys;
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule, TargetArch,
    };
    use std::collections::BTreeMap;
    use std::sync::OnceLock;

    /// The filters, set one after the other; the kernel uses the strictest result.
    static FILTERS: OnceLock<Option<[BpfProgram; 2]>> = OnceLock::new();

    pub(super) fn set(command: &mut Command) -> io::Result<()> {
        let filters = FILTERS.get_or_init(|| build().ok()).as_ref();
        sys::set_filters(command, filters.ok_or(io::ErrorKind::Unsupported)?);
        Ok(())
    }

    fn build() -> Result<[BpfProgram; 2], seccompiler::BackendError> {
        let arch = match cfg!(target_arch = "x86_64") {
            true => TargetArch::x86_64,
            false => TargetArch::aarch64,
        };
        let filter = |rules, action| {
            SeccompFilter::new(rules, SeccompAction::Allow, action, arch)?.try_into()
        };
        let no_thread = SeccompCondition::new(
            0,
            SeccompCmpArgLen::Qword,
            SeccompCmpOp::MaskedEq(libc::CLONE_THREAD.unsigned_abs().into()),
            0,
        )?;
        #[cfg_attr(
            target_arch = "aarch64",
            expect(unused_mut, reason = "aarch64 has no fork call")
        )]
        let mut starts =
            BTreeMap::from([(libc::SYS_clone, vec![SeccompRule::new(vec![no_thread])?])]);
        #[cfg(target_arch = "x86_64")]
        starts.extend([(libc::SYS_fork, vec![]), (libc::SYS_vfork, vec![])]);
        // The flags of `clone3` are in memory, where no filter can read them. If `clone3` fails with ENOSYS, the C library calls `clone`, as on an
        // old kernel.
        let unreadable = BTreeMap::from([(libc::SYS_clone3, vec![])]);
        Ok([
            filter(
                unreadable,
                SeccompAction::Errno(libc::ENOSYS.unsigned_abs()),
            )?,
            filter(starts, SeccompAction::KillProcess)?,
        ])
    }
}

#[cfg(test)]
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod tests {
    use super::*;

    fn end(program: &str, arguments: &[&str]) -> ExitStatus {
        let mut command = Command::new(program);
        command.args(arguments);
        enforce(&mut command).unwrap();
        command.status().unwrap()
    }

    #[test]
    fn h7_program_that_starts_no_process_continues() {
        assert!(end("sh", &["-c", "read line <Cargo.toml; exec true"]).success());
    }

    #[test]
    fn h7_a_program_that_starts_a_process_is_killed_before_it_runs() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("ran");
        let script = format!("sh -c 'echo >{}'; exit 0", path.display());
        for line in [
            script.clone(),
            format!("({script}) &"),
            format!("exec sh -c '{}'", script.replace('\'', "\"")),
        ] {
            assert!(was_killed_for_spawn(end("sh", &["-c", &line])), "{line}");
            assert!(!path.exists(), "{line}");
        }
    }

    #[test]
    fn h7_threads_are_allowed() {
        // This program's own test runner starts a thread for each test.
        let own = std::env::current_exe().unwrap();
        let status = end(own.to_str().unwrap(), &["--list", "--test-threads=4"]);
        assert!(status.success());
        let status = end(
            own.to_str().unwrap(),
            &[
                "childless::tests::a_thread_for_a_test",
                "--exact",
                "--test-threads=4",
            ],
        );
        assert!(status.success(), "{status}");
    }

    #[test]
    fn a_thread_for_a_test() {
        std::thread::spawn(|| ()).join().unwrap();
    }
}
