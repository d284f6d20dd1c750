//! Counts until Ctrl-C, saves the count and ends: `cargo run -p interrupt-stack --example hello`, then press Ctrl-C. This program is the first one of
//! the README.
use std::{error::Error, fs, time::Duration};

use interrupt_stack::{Interrupts, die_by};

fn main() -> Result<(), Box<dyn Error>> {
    let interrupts = Interrupts::builder().install()?; // first in `main`: catches Ctrl-C from now on
    let mut count = 0;
    while interrupts.wait_timeout(Duration::from_secs(1)).is_none() {
        count += 1; // the work, until Ctrl-C, `SIGTERM` or `SIGHUP`
    }
    fs::write("count", count.to_string())?; // the save; if it hangs, one more Ctrl-C ends the process
    die_by(interrupts.wait()) // the shell sees a death by Ctrl-C
}
