//! Probes that handle presses in the various ways of programs.

use std::{io::Read, io::stdin, time::Duration};

use interrupt_stack::{Builder, Cause, HardExit, Interrupts, PressSource, die_by};
use rustix::{
    process::{Pid, Signal, WaitOptions, kill_process, setpgid, waitpid},
    termios::tcgetattr,
};
use tokio::signal::unix::{SignalKind, signal};

use super::lines::{builder, line, park, ready, report, say};
use super::seats;
use crate::child::VARIABLE;
use crate::{audited, pass};

pub(super) fn run(name: &str) -> bool {
    match name {
        "counting" => counting(builder()),
        "counting, own forwards" => counting(builder().forward_window(Duration::from_millis(60))),
        "counting for ever" => counting_for_ever(builder().hard_exit(HardExit::Off)),
        "aborting" => aborting(hooked(|_| {})),
        "debounce set later" => {
            let interrupts = builder().debounce(Duration::ZERO).install().unwrap();
            interrupts.set_debounce(Duration::from_secs(60));
            ready();
            loop {
                line();
                interrupts.injector().press(PressSource::Injected);
                say(&format!("{} presses", interrupts.presses()));
            }
        }
        "long debounce" => fed(builder().debounce(Duration::from_secs(60)), true),
        "long debounce, nobody answers" => fed(builder().debounce(Duration::from_secs(60)), false),
        "hung by thread" => hung(builder().hard_exit(HardExit::Thread)),
        "hung, exit hook" => hung(hooked(|_| {})),
        "hung, hung exit hook" => hung(hooked(|_| park())),
        "raw, hung exit hook" => raw_presses(hooked(|_| park())),
        "hung unrestored" => hung(builder().restore_terminal(false)),
        "hung by callback" => hung(builder().hard_exit(exit_callback())),
        "forwarding" => forwarding(),
        "forking" => forking(),
        "suspendable" => suspendable(hooks(builder())),
        "slowly suspendable" => suspendable(hooks(builder()).on_suspend(|| {
            say("suspends");
            line();
            say("has suspended");
        })),
        "unsuspendable" => suspendable(builder()),
        "suspended when let go" => suspended_when_let_go(),
        #[cfg(target_os = "linux")]
        "in a namespace" => in_a_namespace(),
        "terminal" => terminal(builder()),
        "toggling" => toggling(),
        "menu" => menu(),
        "exiting" => exiting(),
        "setup" => set_up(),
        _ => false,
    }
}

/// Answers and reports every press at once; ends on SIGTERM and reports the number of presses.
fn counting(builder: Builder) -> ! {
    let interrupts = builder.install().unwrap();
    answer(&interrupts);
    seats::wait_for_the_foreground();
    ready();
    let cause = interrupts.wait();
    say(&format!("{cause:?} after {} presses", interrupts.presses()));
    die_by(cause)
}

/// Answers no press; when it gets a line, it reports the number of presses.
fn counting_for_ever(builder: Builder) -> ! {
    let interrupts = builder.install().unwrap();
    ready();
    line();
    say(&format!("{} presses", interrupts.presses()));
    park()
}

/// Requests a suspension, in its own process group, on a ladder whose signals were restored.
fn suspended_when_let_go() -> ! {
    setpgid(None, None).unwrap();
    let interrupts = builder().install_scoped().unwrap();
    let injector = interrupts.injector();
    drop(interrupts);
    ready();
    injector.suspend();
    say("continues");
    park()
}

/// Starts a thread that answers and reports every press.
fn answer(interrupts: &Interrupts) {
    let mut handler = interrupts.push("answers");
    std::thread::spawn(move || {
        while let Some(notice) = handler.wait() {
            say(&format!(
                "press {} by {:?}",
                notice.presses(),
                notice.source()
            ));
            notice.handled();
        }
    });
}

/// Injects a press for each line that it gets.
fn fed(builder: Builder, is_answered: bool) -> ! {
    let interrupts = builder.install().unwrap();
    if is_answered {
        answer(&interrupts);
    }
    ready();
    loop {
        line();
        interrupts.injector().press(PressSource::Injected);
        say(&format!("{} presses", interrupts.presses()));
    }
}

fn exit_callback() -> HardExit {
    HardExit::Callback(Box::new(|cause| say(&format!("exit {cause:?}"))))
}

/// Aborts at the first press.
fn aborting(builder: Builder) -> ! {
    let interrupts = builder.install().unwrap();
    let mut handler = interrupts.push("menu");
    ready();
    let notice = handler.wait().unwrap();
    interrupts.injector().hard_exit(Cause::Press);
    notice.handled();
    park()
}

/// Returns a builder with a hook that reports its call and then runs `then`.
fn hooked(then: fn(Cause)) -> Builder {
    builder()
        .hard_exit(HardExit::Thread)
        .before_exit(move |cause| {
            say(&format!("hook {cause:?}"));
            then(cause);
        })
}

/// Injects a press for each line, as from a raw terminal, and answers none.
fn raw_presses(builder: Builder) -> ! {
    let interrupts = builder.install().unwrap();
    let _handler = interrupts.push("run");
    ready();
    loop {
        line();
        interrupts.injector().press(PressSource::RawByte);
        say("pressed");
    }
}

/// Runs another program in the same process group and forwards each SIGINT to it, as package managers do.
#[expect(clippy::zombie_processes, reason = "it ends with the test")]
fn forwarding() -> ! {
    seats::wait_for_the_foreground();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _guard = runtime.enter();
    let mut presses = signal(SignalKind::interrupt()).unwrap();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(std::env::args_os().skip(1))
        .env(VARIABLE, std::env::var("INTERRUPT_STACK_MODE").unwrap())
        .spawn()
        .unwrap();
    loop {
        runtime.block_on(presses.recv());
        pass(Duration::from_millis(200)); // more than the debounce, on a slow machine too
        // The child may have ended by the press itself.
        _ = kill_process(Pid::from_child(&child), Signal::INT);
        say("forwarded");
    }
}

/// Forks a child without `exec` for each line.
fn forking() -> ! {
    let interrupts = builder().install().unwrap();
    let _handler = interrupts.push("run");
    ready();
    loop {
        line();
        let pid = audited::fork_and_wait();
        say(&format!("forked {pid}"));
        let (_, status) = waitpid(Pid::from_raw(pid), WaitOptions::empty())
            .unwrap()
            .unwrap();
        say(&format!("it died by {:?}", status.terminating_signal()));
        say(&format!(
            "{} presses, {:?}",
            interrupts.presses(),
            interrupts.cause()
        ));
    }
}

/// Becomes the parent of a pid namespace, in which its process group has no id.
#[cfg(target_os = "linux")]
fn in_a_namespace() -> ! {
    use std::os::unix::process::CommandExt;

    seats::wait_for_the_foreground();
    ready();
    let error = crate::namespace::unshare()
        .arg(std::env::current_exe().unwrap())
        .args(std::env::args_os().skip(1))
        .env(VARIABLE, "hung")
        .env_remove("INTERRUPT_STACK_PLACE") // the namespace can't see the foreground group
        .exec();
    panic!("no unshare: {error}");
}

fn hooks(builder: Builder) -> Builder {
    builder
        .on_suspend(|| say("suspends"))
        .on_resume(|| say("resumes"))
}

/// Drops each notice unanswered, so that a second press within the cooldown begins shutdown.
fn suspendable(builder: Builder) -> ! {
    let interrupts = builder.install().unwrap();
    let mut handler = interrupts.push("run");
    std::thread::spawn(move || {
        while let Some(notice) = handler.wait() {
            let number = notice.presses();
            drop(notice);
            say(&format!("dropped {number}"));
        }
    });
    seats::wait_for_the_foreground();
    ready();
    let cause = interrupts.wait();
    say(&format!("{cause:?} after {} presses", interrupts.presses()));
    die_by(cause)
}

/// Reads keys: `r` sets raw mode, `k` single keys, `o` the original settings; ^C and ^Z in raw mode.
fn terminal(builder: Builder) -> ! {
    let interrupts = hooks(builder).install().unwrap();
    answer(&interrupts);
    seats::wait_for_the_foreground();
    let start = tcgetattr(stdin()).unwrap();
    seats::change_terminal();
    let keys = interrupts.clone();
    std::thread::spawn(move || {
        let injector = keys.injector();
        for key in stdin().lock().bytes() {
            match key.unwrap() {
                b'r' => seats::raw(),
                b'k' => seats::keys(),
                b'o' => seats::put(&start),
                0x03 => {
                    injector.press(PressSource::RawByte);
                    continue;
                }
                0x1a => {
                    injector.suspend();
                    continue;
                }
                other => {
                    say(&format!("key {other}"));
                    continue;
                }
            }
            say("changed");
        }
    });
    ready();
    let cause = interrupts.wait();
    say(&format!("{cause:?} after {} presses", interrupts.presses()));
    die_by(cause)
}

/// Enters and leaves raw mode continuously.
fn toggling() -> ! {
    std::thread::spawn(|| {
        seats::wait_for_the_foreground();
        let start = tcgetattr(stdin()).unwrap();
        loop {
            seats::raw();
            std::thread::yield_now();
            seats::put(&start);
            std::thread::yield_now();
        }
    });
    terminal(builder())
}

/// Shows a menu at a press, and makes the terminal raw for it; in the menu a press is a byte.
fn menu() -> ! {
    let interrupts = builder().install().unwrap();
    let mut handler = interrupts.push("run");
    seats::wait_for_the_foreground();
    let start = tcgetattr(stdin()).unwrap();
    let (menu, cooked) = (interrupts.clone(), start.local_modes);
    std::thread::spawn(move || {
        while let Some(notice) = handler.wait() {
            seats::raw();
            say("menu");
            let mut key = [0];
            while menu.cause().is_none() {
                stdin().read_exact(&mut key).unwrap();
                match key[0] {
                    0x03 => menu.injector().press(PressSource::RawByte),
                    b'c' => break,
                    _ => {}
                }
            }
            seats::put(&start);
            if menu.cause().is_none() {
                say("continues");
            }
            notice.handled();
        }
    });
    ready();
    let cause = interrupts.wait();
    // The menu restores the terminal before it ends.
    crate::wait_for("the terminal", || {
        tcgetattr(stdin()).is_ok_and(|now| now.local_modes == cooked)
    });
    say(&format!("{cause:?} after {} presses", interrupts.presses()));
    die_by(cause)
}

/// Ends gracefully and exits with a code instead of dying by the signal, as many programs do.
#[expect(clippy::disallowed_methods, reason = "the control")]
fn exiting() -> ! {
    let interrupts = builder().install().unwrap();
    seats::wait_for_the_foreground();
    ready();
    assert_eq!(interrupts.wait(), Cause::Press);
    std::process::exit(130)
}

/// Installs in a function that returns a clone, and keeps no handle at all.
fn set_up() -> ! {
    fn setup() -> Result<Interrupts, interrupt_stack::Error> {
        Ok(Interrupts::builder().install()?.clone())
    }
    drop(setup().unwrap());
    let second = builder().install().unwrap_err();
    assert!(second.is_already_installed(), "{second}");
    ready();
    park()
}

/// Has a handler that never takes its notice, and a shutdown that never ends.
pub(super) fn hung(builder: Builder) -> ! {
    let interrupts = builder.install().unwrap();
    let _handler = interrupts.push("run");
    report(&interrupts);
    seats::wait_for_the_foreground();
    seats::change_terminal();
    ready();
    park()
}
