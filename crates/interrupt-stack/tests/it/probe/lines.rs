//! The lines that a probe reports to its test, and helpers of all probes.

use std::{
    io::{Write, stdin},
    time::Duration,
};

use interrupt_stack::{Builder, Interrupts};

pub(super) fn say(line: &str) {
    // One write, so that two processes on a terminal don't mix their lines. An error means that the test is gone.
    drop(std::io::stderr().write_all(format!("probe: {line}\n").as_bytes()));
}

/// Reports that the probe is ready for signals, and its pid.
pub(super) fn ready() {
    say(&format!("ready {}", std::process::id()));
}

pub(super) fn park() -> ! {
    loop {
        std::thread::park();
    }
}

pub(super) fn line() {
    stdin().read_line(&mut String::new()).unwrap();
}

/// Reports each accepted press and the cause, from a thread that is never blocked.
pub(super) fn report(interrupts: &Interrupts) {
    let interrupts = interrupts.clone();
    std::thread::spawn(move || {
        let (mut presses, mut cause) = (0, None);
        loop {
            if interrupts.presses() > presses {
                presses += 1;
                say(&format!("press {presses}"));
            }
            if cause.is_none() && interrupts.cause().is_some() {
                cause = interrupts.cause();
                say(&format!("shutdown {:?}", cause.unwrap()));
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    });
}

pub(super) fn builder() -> Builder {
    Interrupts::builder()
}
