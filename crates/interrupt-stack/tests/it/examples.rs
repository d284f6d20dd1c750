//! The example, with presses that are injected.

use std::{sync::mpsc, thread};

use interrupt_stack::{HardExit, Interrupts, PressSource};

use crate::apart;

#[expect(dead_code, reason = "its `main` takes the signals of a process")]
#[path = "../../examples/menu.rs"]
mod menu;

#[test]
fn a_menu_that_is_pressed_twice_stops_and_saves() {
    let (exit, exits) = mpsc::channel();
    let interrupts = Interrupts::builder()
        .hard_exit(HardExit::Callback(Box::new(move |cause| {
            exit.send(cause).unwrap()
        })))
        .detached();
    let presses = interrupts.clone();
    thread::spawn(move || {
        while presses.cause().is_none() {
            apart();
            presses.injector().press(PressSource::Injected);
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    let count = runtime.block_on(menu::run(&interrupts, 7)).unwrap();
    assert!(count >= 7);
    assert!(exits.try_recv().is_err(), "a shutdown, and no hard exit");
}
