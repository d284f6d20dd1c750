//! Probes with a `tracing` subscriber.

use interrupt_stack::{Builder, HardExit};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

use super::lines::{builder, park, ready, say};

pub(super) fn run(name: &str) -> bool {
    match name {
        "traced" => traced(builder().hard_exit(HardExit::Off), false),
        "traced for ever" => traced(builder(), true),
        _ => false,
    }
}

/// A subscriber that reports each event, and may then hang.
struct EventReporter {
    hangs: bool,
}

impl Subscriber for EventReporter {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.target() == "interrupt_stack"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message);
        if self.hangs {
            park();
        }
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Message;

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            say(&format!("event {value:?}"));
        }
    }
}

fn traced(builder: Builder, hangs: bool) -> ! {
    tracing::subscriber::set_global_default(EventReporter { hangs }).unwrap();
    let interrupts = builder.install().unwrap();
    let _handler = interrupts.push("run");
    let shutdown = interrupts.shutdown_cause(); // the threads that emit events wake this future too
    if hangs {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let cause = { runtime }.build().unwrap().block_on(shutdown);
            say(&format!("shutdown Some({cause:?})"));
        });
    }
    ready();
    park()
}
