//! The first program of the README as a probe. A test compares this copy with the page and with the example.

use std::{error::Error, fs, time::Duration};

use interrupt_stack::{Interrupts, die_by};

pub(super) fn main() -> Result<(), Box<dyn Error>> {
    let interrupts = Interrupts::builder().install()?; // first in `main`: catches Ctrl-C from now on
    let mut count = 0;
    while interrupts.wait_timeout(Duration::from_secs(1)).is_none() {
        count += 1; // the work, until Ctrl-C, `SIGTERM` or `SIGHUP`
    }
    fs::write("count", count.to_string())?; // the save; if it hangs, one more Ctrl-C ends the process
    die_by(interrupts.wait()) // the shell sees a death by Ctrl-C
}
