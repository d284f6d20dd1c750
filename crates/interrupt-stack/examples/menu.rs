//! A long job with a menu on Ctrl-C: continue, stop (save, then end) or abort (end immediately).
//!
//! `cargo run -p interrupt-stack --example menu FILE [SECONDS]` counts, saves to FILE when it ends, and continues from there the next
//! time. SECONDS is the duration of the save (0 by default). The job begins with a warm-up step that has its own handler above the handler of the
//! job. During the warm-up, the first press shortens it, and the next press goes down to the menu. Things to try: press Ctrl-C and answer; press
//! Ctrl-C twice, or three times; let the save take 9 seconds, longer than its deadline; send `SIGTERM` while the menu is open. `echo $?` prints how
//! the job ended: 0 by itself, 130 by Ctrl-C, 143 by `SIGTERM`.

use std::{env, error::Error, fs, io, io::Write, path::Path, thread, time::Duration};

use interrupt_stack::{Cause, Interrupts, die_by};
use tokio::{runtime, sync::oneshot, time};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let file = arguments.next().ok_or("usage: menu FILE [SECONDS]")?;
    let seconds = arguments.next().map_or(Ok(0), |text| text.parse())?;
    // Before anything slow: an earlier Ctrl-C has its default effect. The install needs no runtime.
    let interrupts = Interrupts::builder()
        .shutdown_deadline(Some(Duration::from_secs(5))) // counts from the start of shutdown
        .before_exit(|_| say("out of time: FILE is unchanged"))
        .install()?;
    let runtime = runtime::Builder::new_multi_thread().enable_time().build()?;

    let begun = fs::read_to_string(&file).map_or(Ok(0), |text| text.trim().parse())?;
    let count = runtime.block_on(run(&interrupts, begun))?;
    let why = interrupts
        .cause()
        .map_or("the job is done".into(), |cause| cause.to_string());
    say(&format!("saving {count}: {why}"));
    runtime.block_on(save(Path::new(&file), count, seconds))?; // during shutdown, the next press ends the process
    say("saved");
    // Not `exit(130)`: a shell's `for file in a b; do menu $file; done` ends only if the program died by the signal.
    interrupts.cause().map_or(Ok(()), |cause| die_by(cause))
}

/// Runs the job and answers presses meanwhile. Returns the count that the job reached.
pub(crate) async fn run(interrupts: &Interrupts, begun: u32) -> Result<u32, Box<dyn Error>> {
    // A separate task continues while the menu is open. The task ends by itself when its token is cancelled.
    let mut menu = interrupts.push("job"); // gets the presses that no handler above it handles, until it is dropped
    let mut job = tokio::spawn(job(begun, interrupts.clone()));
    loop {
        tokio::select! {
            count = &mut job => return Ok(count?),
            notice = menu.notified() => tokio::select! {
                choice = ask() => match &*choice {
                    "g" => notice.handled(), // the next press is a first one again
                    "a" => die_by(Cause::Press),
                    _ => notice.escalate(), // shutdown: the job ends, and so does the loop
                },
                _ = interrupts.shutdown_cause() => {} // Ctrl-C at the menu, or SIGTERM: don't wait for an answer
            },
        }
    }
}

/// The first step of the job. The first press shortens it. The step declines any later press, which then goes down to the handler of the job.
pub(crate) async fn warm_up(interrupts: &Interrupts) {
    let mut step = interrupts.push("warm-up"); // above "job" until this function returns
    let mut work = time::interval(Duration::from_millis(100)); // simulates the work
    let (mut left, mut is_short) = (50, false);
    while left > 0 && interrupts.cause().is_none() {
        tokio::select! {
            _ = work.tick() => left -= 1,
            notice = step.notified() => match is_short {
                true => notice.decline(),
                false => {
                    say("shortened the warm-up; press Ctrl-C again for the menu");
                    (left, is_short) = (left.min(10), true);
                    notice.handled();
                }
            },
        }
    }
}

async fn job(mut count: u32, interrupts: Interrupts) -> u32 {
    warm_up(&interrupts).await;
    let stop = interrupts.token();
    let mut work = time::interval(Duration::from_millis(100)); // simulates the work
    while count < 1_000 && stop.run_until_cancelled(work.tick()).await.is_some() {
        count += 1;
    }
    count
}

/// Asks until there is an answer; at the end of the input the answer is empty. A plain thread reads, because a read of standard input
/// can't be cancelled: dropping the runtime would wait for `tokio::io::stdin` until a person presses Enter.
async fn ask() -> String {
    let (answer, answered) = oneshot::channel();
    thread::spawn(move || {
        say("[g]o on, [s]top and save, or [a]bort?");
        let mut lines = io::stdin().lines().map_while(Result::ok);
        lines
            .find(|line| ["g", "s", "a"].contains(&&**line))
            .map(|line| answer.send(line))
    });
    answered.await.unwrap_or_default()
}

/// Saves to a second file and renames it, because a hard exit can come at any time.
async fn save(file: &Path, count: u32, seconds: u64) -> io::Result<()> {
    let beside = file.with_extension("new");
    fs::write(&beside, format!("{count}\n"))?;
    let slow_disk = time::Instant::now() + Duration::from_secs(seconds);
    time::interval_at(slow_disk, Duration::MAX).tick().await;
    fs::rename(beside, file)
}

/// Prints a line. `println!` panics when the terminal is gone, as after `SIGHUP`, and then nothing would be saved.
fn say(line: &str) {
    writeln!(io::stdout(), "{line}").ok();
}
