//! Session leaders on a terminal, and functions with which a probe changes its terminal.

use std::{io::stdin, os::unix::process::CommandExt, process::Command};

use rustix::{
    process::{Pid, WaitOptions, getpgrp, ioctl_tiocsctty, setsid, waitpid},
    termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp},
};

use super::lines::{park, say};
use crate::child::VARIABLE;

fn lead() {
    setsid().unwrap();
    ioctl_tiocsctty(stdin()).unwrap();
}

/// Starts the job and reports its stops and its end. This session leader never ends by itself, so that the terminal stays.
#[expect(
    clippy::zombie_processes,
    reason = "`waitpid` waits for it, to see stops too"
)]
pub(super) fn seat() -> ! {
    lead();
    let job = std::env::var("INTERRUPT_STACK_JOB").unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(std::env::args_os().skip(1))
        .env(VARIABLE, job)
        .process_group(0)
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    if in_foreground() {
        tcsetpgrp(stdin(), pid).unwrap();
    }
    loop {
        let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
        if let Some(signal) = status.stopping_signal() {
            say(&format!("stopped {signal}"));
            continue;
        }
        match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => say(&format!("ended signal {signal}")),
            (_, code) => say(&format!("ended code {}", code.unwrap())),
        }
        park();
    }
}

/// Becomes a shell.
pub(super) fn shell() -> ! {
    lead();
    let arguments = std::env::var("INTERRUPT_STACK_ARGUMENTS").unwrap();
    let job = std::env::var("INTERRUPT_STACK_JOB").unwrap();
    let error = Command::new("bash")
        .args(["--norc", "--noprofile"])
        .args(arguments.split('\n'))
        .env(VARIABLE, job)
        .exec();
    panic!("no bash: {error}");
}

/// Becomes a shell that runs the probe of the mode in a loop.
pub(super) fn shell_loop() -> ! {
    let script = "for round in 1 2; do
        eval \"$JOB\"; echo \"probe: round $round ended $?\"
    done; echo 'probe: after the loop'";
    let error = Command::new("bash")
        .args(["--norc", "--noprofile", "-c", script])
        .env(VARIABLE, std::env::var("INTERRUPT_STACK_MODE").unwrap())
        .exec();
    panic!("no bash: {error}");
}

fn in_foreground() -> bool {
    std::env::var("INTERRUPT_STACK_PLACE").as_deref() == Ok("foreground")
}

/// Waits, because the parent moves this process to the foreground only after its start.
pub(super) fn wait_for_the_foreground() {
    if in_foreground() {
        crate::wait_for("the foreground", || {
            tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
        });
    }
}

/// Changes the terminal to the mode of the test: raw, with ^C as a byte, or only single keys, as for a menu.
pub(super) fn change_terminal() {
    match std::env::var("INTERRUPT_STACK_MODE").as_deref() {
        Ok("raw") => raw(),
        Ok("keys") => keys(),
        _ => {}
    }
}

pub(super) fn raw() {
    change(Termios::make_raw);
}

pub(super) fn keys() {
    change(|terminal| terminal.local_modes &= !LocalModes::ICANON);
}

fn change(how: impl FnOnce(&mut Termios)) {
    let mut terminal = tcgetattr(stdin()).unwrap();
    how(&mut terminal);
    put(&terminal);
}

/// Changes the settings at once, so that typed input is kept.
pub(super) fn put(terminal: &Termios) {
    tcsetattr(stdin(), OptionalActions::Now, terminal).unwrap();
}

/// Returns whether this process has a handler for `SIGINT`.
#[cfg(target_os = "linux")]
pub(super) fn catches_ctrl_c() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    caught & (1 << (libc::SIGINT - 1)) != 0
}
