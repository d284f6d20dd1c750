//! Runs the example with injected presses.

use std::{sync::mpsc, thread, time::Duration};

use interrupt_stack::{HardExit, Interrupts, PressSource};

use crate::apart;

#[expect(dead_code, reason = "its `main` catches the signals of a process")]
#[path = "../../examples/menu.rs"]
mod menu;

/// The presses are further apart than the debounce, and the step is polled in between.
#[test]
fn step_handles_one_press_and_the_next_reaches_the_job() {
    let interrupts = Interrupts::builder().detached();
    let mut job = interrupts.push("job");
    let press = || interrupts.injector().press(PressSource::Injected);
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    runtime.block_on(async {
        let person = async {
            let mut time = tokio::time::interval(Duration::from_millis(100));
            time.tick().await;
            time.tick().await;
            press();
            time.tick().await;
            time.tick().await;
            assert!(job.try_take().is_none(), "the step has handled it");
            press();
            job.notified().await
        };
        tokio::select! {
            notice = person => {
                assert_eq!(notice.presses(), 2);
                notice.handled();
            }
            () = menu::warm_up(&interrupts) => panic!("the warm-up ended before it declined"),
        }
    });
    assert_eq!(interrupts.cause(), None);
}

#[test]
fn second_press_on_a_menu_saves_and_stops() {
    let (exit, exits) = mpsc::channel();
    let interrupts = Interrupts::builder()
        .hard_exit(HardExit::Callback(Box::new(move |cause| {
            exit.send(cause).unwrap()
        })))
        .detached();
    let presses = interrupts.clone();
    thread::spawn(move || {
        loop {
            apart();
            // A press during the shutdown would be a hard exit.
            if presses.cause().is_some() {
                break;
            }
            presses.injector().press(PressSource::Injected);
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    let count = runtime.block_on(menu::run(&interrupts, 7)).unwrap();
    assert!(count >= 7);
    assert!(exits.try_recv().is_err(), "a shutdown without a hard exit");
}
