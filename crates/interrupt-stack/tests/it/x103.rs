//! Tests of X103: three presses end the process in any state.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::{
    apart,
    child::{Place, Seat, wait_for_the_taking},
    effort::Effort,
    pass, wait_for,
};

/// The number of runs of each state.
const X103_REPEATS: Effort = Effort {
    ci: 20,
    nightly: 100,
};
/// The seconds for which the controls wait for an end that must not come.
const X103_CONTROL_SECONDS: Effort = Effort { ci: 1, nightly: 5 };

/// The number of processes that run at a time.
const BATCH: u32 = 5;

const STATES: &[&str] = &[
    "x103 workers",
    "x103 current thread",
    "x103 runtime drop",
    "x103 atexit",
    "x103 stdout",
    "x103 allocating",
    #[cfg(feature = "driver")]
    "x103 never driven",
    #[cfg(feature = "driver")]
    "x103 stuck driver",
];

fn long() -> Duration {
    Duration::from_secs(X103_CONTROL_SECONDS.number().into())
}

/// Starts `count` probes: one half on raw terminals, which get signals, and one half on terminals where ^C is typed.
fn seats(state: &str, count: u32) -> Vec<Seat> {
    let modes = ["raw", "keys"].iter().cycle();
    let seats = (0..count).zip(modes);
    seats
        .map(|(_, mode)| Seat::take(Place::Foreground, state, mode))
        .collect()
}

fn press(seats: &[Seat]) {
    for (n, seat) in seats.iter().enumerate() {
        if n % 2 == 0 {
            seat.kill(Signal::INT);
        } else {
            seat.type_press();
        }
    }
}

/// Returns the longest time from the third press until the parent reports the end.
#[track_caller]
fn three_presses_end(state: &str) -> Duration {
    let (mut left, mut slowest) = (X103_REPEATS.number(), Duration::ZERO);
    while left > 0 {
        let batch = left.min(BATCH);
        let mut seats = seats(state, batch);
        left -= batch;
        for seat in &seats {
            assert_ne!(
                seat.settings(),
                seat.before,
                "the settings differ, so the exit must restore them"
            );
        }
        for _ in 0..2 {
            press(&seats);
            let taken = |seat: &Seat| wait_for_the_taking(seat.probe());
            seats.iter().for_each(taken);
            apart();
            for seat in &mut seats {
                assert!(!seat.has_ended(), "graceful so far");
            }
        }
        let third = Instant::now();
        press(&seats);
        for seat in &mut seats {
            assert_eq!(seat.end(), "ended signal 2", "{}", seat.text());
            slowest = slowest.max(third.elapsed());
            assert_eq!(seat.settings(), seat.before);
        }
    }
    slowest
}

#[test]
fn x103a_x103g_all_workers_deadlocked() {
    println!("{:?}", three_presses_end("x103 workers"));
}

#[test]
fn x103b_x103g_current_thread_that_never_yields() {
    println!("{:?}", three_presses_end("x103 current thread"));
}

#[test]
fn x103c_x103g_during_runtime_drop() {
    println!("{:?}", three_presses_end("x103 runtime drop"));
}

#[test]
fn x103d_x103g_in_a_hung_atexit_handler() {
    println!("{:?}", three_presses_end("x103 atexit"));
}

#[test]
fn x103e_x103g_with_stdout_full_and_locked() {
    println!("{:?}", three_presses_end("x103 stdout"));
}

#[test]
fn x103f_x103g_in_the_allocator() {
    println!("{:?}", three_presses_end("x103 allocating"));
}

/// The signal handler decides alone: no other code of this crate runs in the process.
#[cfg(feature = "driver")]
#[test]
fn x103f_x103g_router_never_ran() {
    println!("{:?}", three_presses_end("x103 never driven"));
}

#[cfg(feature = "driver")]
#[test]
fn x103f_x103g_driver_stuck_with_its_runtime() {
    println!("{:?}", three_presses_end("x103 stuck driver"));
}

/// The control: after one SIGTERM no state ends by itself. So in the other tests the presses end the process.
#[test]
fn x103i_control_terminate_leaves_each_state_alive() {
    let take = |state: &&str| Seat::take(Place::Foreground, state, "raw");
    let mut seats: Vec<_> = STATES.iter().map(take).collect();
    seats.iter().for_each(|seat| seat.kill(Signal::TERM));
    pass(long());
    for (seat, state) in seats.iter_mut().zip(STATES) {
        assert!(!seat.has_ended(), "{state}");
    }
}

#[test]
fn j42b_quit_ends_each_state_at_once() {
    for state in STATES {
        let mut seat = Seat::take(Place::Foreground, state, "raw");
        seat.kill(Signal::QUIT);
        assert_eq!(seat.end(), "ended signal 3", "{state}");
        assert_eq!(seat.settings(), seat.before, "{state}");
    }
}

/// The control: a task handles the third press, as is usual with `tokio::signal`. In the hung `atexit` handler the task runs, but the
/// second `exit` hangs.
#[test]
fn x103j_control_tokio_signal_hangs_in_each_state() {
    let states = [
        "tokio workers",
        "tokio current thread",
        "tokio runtime drop",
        "tokio atexit",
        "tokio stdout",
    ];
    let mut seats = states.map(|state| Seat::take(Place::Foreground, state, "raw"));
    for _ in 0..3 {
        seats.iter().for_each(Seat::press);
    }
    pass(long());
    for (seat, state) in seats.iter_mut().zip(states) {
        assert!(!seat.has_ended(), "{state}");
    }
}

/// The control of that control: in a process that can act, the same task ends the process.
#[test]
fn x103j_control_tokio_signal_ends_a_healthy_process() {
    let mut seat = Seat::take(Place::Foreground, "tokio allocating", "raw");
    for press in 1..=3 {
        seat.press();
        // tokio merges signals that its task has not handled yet.
        if press < 3 {
            wait_for("the press", || {
                seat.text().contains(&format!("press {press}"))
            });
        }
    }
    assert_eq!(seat.end(), "ended code 130");
    assert_ne!(seat.settings(), seat.before, "the terminal isn't restored");
}
