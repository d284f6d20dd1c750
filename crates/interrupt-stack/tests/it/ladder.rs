//! Tests of the pure state machine by hand: each rule as a readable sequence of steps.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use interrupt_stack::{
    Cause, HandlerId, PressSource,
    ladder::{Ladder, LadderEffect, LadderTimes, Press, Resolution},
};

const ANSWERS: [Resolution; 4] = [
    Resolution::Handled,
    Resolution::Declined,
    Resolution::Escalated,
    Resolution::Dropped,
];

/// Drives a ladder by the names of its handlers, and records a trace.
struct Script {
    ladder: Ladder,
    start: Instant,
    now: Instant,
    names: Vec<(&'static str, HandlerId)>,
    taken: Option<Press>,
    trace: String,
}

impl Script {
    fn new(handlers: &[&'static str]) -> Self {
        Self::with(LadderTimes::default(), handlers)
    }

    fn with(rules: LadderTimes, handlers: &[&'static str]) -> Self {
        let start = Instant::now();
        let mut script = Self {
            ladder: Ladder::new(rules),
            start,
            now: start,
            names: Vec::new(),
            taken: None,
            trace: String::new(),
        };
        for name in handlers {
            script.push(name);
        }
        script
    }

    fn push(&mut self, name: &'static str) {
        let id = self.ladder.push();
        self.names.push((name, id));
    }

    fn id(&self, name: &str) -> HandlerId {
        self.names.iter().find(|(n, _)| *n == name).unwrap().1
    }

    fn note(&mut self, what: &str, effect: Option<LadderEffect>) -> String {
        let effect = match effect {
            None => "-".to_owned(),
            Some(LadderEffect::Notify(id)) => format!(
                "notify {}",
                self.names.iter().find(|(_, i)| *i == id).unwrap().0
            ),
            Some(effect) => format!("{effect:?}"),
        };
        let at = (self.now - self.start).as_millis();
        writeln!(self.trace, "{at:>6} ms  {what:<16} {effect}").unwrap();
        effect
    }

    fn press(&mut self) -> String {
        let effect = self.ladder.press(PressSource::Signal, self.now);
        self.note("press", Some(effect))
    }

    fn terminate(&mut self, cause: Cause) -> String {
        let effect = self.ladder.terminate(cause, self.now);
        self.note(&format!("{cause:?}"), effect)
    }

    fn drop(&mut self, name: &str) -> String {
        let effect = self.ladder.remove(self.id(name), self.now);
        self.note(&format!("drop {name}"), effect)
    }

    fn take(&mut self, name: &str) -> bool {
        self.taken = self.ladder.take(self.id(name));
        self.note(&format!("{name} takes"), None);
        self.taken.is_some()
    }

    fn answer(&mut self, resolution: Resolution) -> String {
        let press = self.taken.take().expect("a notice was taken");
        let effect = self.ladder.resolve(press.number, resolution, self.now);
        self.note(&format!("{resolution:?}"), effect)
    }

    fn request(&mut self, name: &str) -> String {
        let effect = self.ladder.request(self.id(name), self.now);
        self.note(&format!("request {name}"), effect)
    }

    fn resumed(&mut self) {
        self.ladder.resumed(self.now);
        self.note("resumed", None);
    }

    fn wait(&mut self, ms: u64) -> &mut Self {
        let until = self.now + Duration::from_millis(ms);
        while let Some(deadline) = self
            .ladder
            .next_deadline()
            .filter(|deadline| *deadline <= until)
        {
            self.now = deadline;
            let effect = self.ladder.on_deadline(deadline);
            self.note("(time)", effect);
        }
        self.now = until;
        self
    }
}

fn rules(change: impl FnOnce(&mut LadderTimes)) -> LadderTimes {
    let mut rules = LadderTimes::default();
    change(&mut rules);
    rules
}

#[test]
fn j30a_second_press_on_an_unanswered_one_shuts_down() {
    for taken in [false, true] {
        let mut s = Script::new(&["run", "menu"]);
        assert_eq!(s.press(), "notify menu");
        assert!(!taken || s.take("menu"));
        assert_eq!(s.wait(900).press(), "BeginShutdown(Press)");
        if taken {
            assert_eq!(
                s.answer(Resolution::Handled),
                "-",
                "a late answer changes nothing"
            );
        }
        assert_eq!(s.wait(60).press(), "HardExit(Press)");
    }
}

#[test]
fn j31_j32a_answered_press_does_not_escalate() {
    let mut s = Script::new(&["menu"]);
    for _ in 0..8 {
        assert_eq!(s.press(), "notify menu");
        assert!(s.take("menu"));
        s.wait(100).answer(Resolution::Handled);
        s.wait(200);
    }
    assert_eq!((s.ladder.presses(), s.ladder.cause()), (8, None));
}

#[test]
fn j32b_j32c_j32d_dropped_notice_counts_for_the_cooldown_and_an_open_one_always() {
    for (wait, next) in [(1999, "BeginShutdown(Press)"), (2000, "notify menu")] {
        let mut s = Script::new(&["menu"]);
        s.press();
        s.take("menu");
        s.wait(60_000).answer(Resolution::Dropped); // the cooldown starts here, not at the press
        assert_eq!(s.wait(wait).press(), next);
    }
    let mut s = Script::with(
        rules(|r| (r.cooldown, r.debounce) = (Duration::ZERO, Duration::ZERO)),
        &["menu"],
    );
    for _ in 0..3 {
        assert_eq!(s.press(), "notify menu");
        s.take("menu");
        s.answer(Resolution::Dropped);
    }
    let mut s = Script::with(rules(|r| r.cooldown = Duration::MAX), &["menu"]);
    s.press();
    s.take("menu");
    s.answer(Resolution::Dropped);
    assert_eq!(s.wait(1 << 40).press(), "BeginShutdown(Press)");

    let mut s = Script::new(&["menu"]);
    s.press();
    s.take("menu");
    assert_eq!(s.wait(3_600_000).press(), "BeginShutdown(Press)");
}

#[test]
fn j33a_j33b_any_press_during_shutdown_exits() {
    for cause in [
        Cause::Press,
        Cause::Terminate,
        Cause::Hangup,
        Cause::Requested(1),
    ] {
        let mut s = Script::new(&["menu"]);
        assert_eq!(s.terminate(cause), format!("BeginShutdown({cause:?})"));
        for other in [Cause::Terminate, Cause::Hangup, Cause::Requested(1)] {
            assert_eq!(s.terminate(other), "-");
        }
        assert_eq!(s.wait(3_600_000).press(), "HardExit(Press)");
        assert_eq!(s.ladder.cause(), Some(cause), "the first cause is sticky");
    }
}

#[test]
fn j34a_j34b_declined_press_walks_the_handlers_and_then_shuts_down() {
    let mut s = Script::new(&["process", "run", "turn", "menu"]);
    assert_eq!(s.press(), "notify menu");
    for (name, next) in [
        ("menu", "notify turn"),
        ("turn", "notify run"),
        ("run", "notify process"),
        ("process", "BeginShutdown(Press)"),
    ] {
        assert!(s.take(name));
        assert!(
            s.ladder.take(s.id(name)).is_none(),
            "a notice is handed out once"
        );
        assert_eq!(s.wait(700).answer(Resolution::Declined), next);
    }
    insta::assert_snapshot!("declines", s.trace);
}

#[test]
fn j35_decline_of_a_dropped_handler_reaches_the_next() {
    let mut s = Script::new(&["run", "turn", "menu"]);
    s.press();
    s.take("menu");
    s.drop("menu");
    s.push("new");
    assert_eq!(s.answer(Resolution::Declined), "notify turn");
    s.take("turn");
    s.drop("turn");
    s.drop("run");
    assert_eq!(
        s.answer(Resolution::Declined),
        "BeginShutdown(Press)",
        "`new` is above, not below"
    );
}

/// An answer counts only for the notice that was taken.
#[test]
fn answer_to_another_press_or_before_the_take_changes_nothing() {
    let mut s = Script::new(&["run", "turn"]);
    s.press();
    for (taken, others) in [(false, [0, 1, 2]), (true, [0, 2, u64::MAX])] {
        assert!(!taken || s.take("turn"));
        for (number, resolution) in others.into_iter().flat_map(|n| ANSWERS.map(|r| (n, r))) {
            let mut ladder = s.ladder.clone();
            assert_eq!(ladder.resolve(number, resolution, s.now), None);
            let (before, after) = (format!("{:?}", s.ladder), format!("{ladder:?}"));
            assert_eq!(before, after, "{resolution:?} to {number}");
        }
    }
}

#[test]
fn j37a_j37c_j37d_untaken_notice_walks_down_and_stays_open() {
    let mut s = Script::new(&["process", "run", "turn"]);
    s.press();
    s.wait(60_000);
    assert_eq!((s.ladder.cause(), s.ladder.next_deadline()), (None, None));
    assert!(!s.take("turn"));
    let mut late = s.ladder.clone();
    assert!(late.take(s.id("process")).is_some(), "a late take works");
    assert_eq!(s.press(), "BeginShutdown(Press)");
    insta::assert_snapshot!("untaken", s.trace);

    let mut s = Script::new(&["run", "menu"]);
    s.press();
    assert!(s.take("menu"));
    s.wait(3_600_000);
    assert_eq!(
        s.answer(Resolution::Handled),
        "-",
        "a taken notice has no time limit"
    );
}

#[test]
fn j38a_j38b_dropped_handler_passes_its_untaken_notice_down() {
    let mut s = Script::new(&["run", "menu"]);
    s.press();
    assert_eq!(s.drop("menu"), "notify run");
    assert_eq!(s.drop("run"), "BeginShutdown(Press)");

    let mut s = Script::new(&["run", "menu"]);
    s.press();
    assert_eq!(s.drop("run"), "-", "a handler without the notice");
    assert_eq!(s.drop("menu"), "BeginShutdown(Press)");
}

#[test]
fn j42a_j42b_j42c_terminate_and_hangup_skip_handlers_and_quit_is_immediate() {
    for cause in [Cause::Terminate, Cause::Hangup] {
        let mut s = Script::new(&["menu"]);
        s.press();
        assert_eq!(s.terminate(cause), format!("BeginShutdown({cause:?})"));
        assert!(!s.take("menu"));
        assert_eq!(s.terminate(Cause::Quit), "HardExit(Quit)");
        assert_eq!(s.ladder.cause(), Some(cause));
    }
    for presses in 0..2 {
        let mut s = Script::new(&["menu"]);
        (0..presses).for_each(|_| assert_eq!(s.press(), "notify menu"));
        assert_eq!(s.terminate(Cause::Quit), "HardExit(Quit)");
    }
}

#[test]
fn hard_exit_has_its_own_cause_at_every_stage() {
    for presses in 0..3 {
        let mut s = Script::new(&["menu"]);
        for _ in 0..presses {
            s.press();
            s.now += Duration::from_secs(1);
        }
        let begun = s.ladder.cause();
        let exit = s.ladder.hard_exit(Cause::Requested(4));
        assert_eq!(exit, LadderEffect::HardExit(Cause::Requested(4)));
        assert_eq!(s.ladder.cause(), begun.or(Some(Cause::Requested(4))));
        assert_eq!(s.ladder.next_deadline(), None);
        assert_eq!(s.press(), "HardExit(Press)", "if the exit ended nothing");
    }
}

#[test]
fn shutdown_beyond_its_deadline_ends_with_its_cause() {
    let mut s = Script::with(
        rules(|r| r.shutdown_deadline = Some(Duration::from_secs(8))),
        &["menu"],
    );
    s.wait(500).press();
    s.take("menu");
    s.wait(100).terminate(Cause::Terminate);
    s.wait(60_000);
    insta::assert_snapshot!("outlasted", s.trace);

    let mut s = Script::with(rules(|r| r.shutdown_deadline = Some(Duration::ZERO)), &[]);
    assert_eq!(s.press(), "BeginShutdown(Press)");
    assert_eq!(
        s.ladder.on_deadline(s.now),
        Some(LadderEffect::HardExit(Cause::Press))
    );
    assert_eq!(s.ladder.on_deadline(s.now), None);
    let mut s = Script::with(rules(|r| r.shutdown_deadline = Some(Duration::MAX)), &[]);
    s.press();
    assert_eq!(s.ladder.next_deadline(), None);
}

#[test]
fn debounce_is_counted_from_the_accepted_press() {
    let mut s = Script::new(&["menu"]);
    assert_eq!(s.press(), "notify menu");
    assert_eq!(s.wait(20).press(), "Debounced");
    assert_eq!(s.wait(10).press(), "BeginShutdown(Press)");
    assert_eq!(s.wait(29).press(), "Debounced");
    assert_eq!(s.wait(1).press(), "HardExit(Press)");
    assert_eq!(s.ladder.presses(), 3);
    // With a clock that runs backwards, the ladder neither panics nor accepts every press.
    assert_eq!(
        s.ladder.press(PressSource::Signal, s.start),
        LadderEffect::Debounced
    );
}

#[test]
fn request_is_no_press_and_is_queued() {
    let mut s = Script::new(&["run", "turn", "menu"]);
    assert_eq!(s.request("turn"), "notify turn");
    assert_eq!(s.request("turn"), "-", "its request is open already");
    assert_eq!(s.request("run"), "-", "after the request of `turn`");
    s.wait(60_000);
    assert!(!s.take("run") && s.take("turn"));
    assert_eq!(s.answer(Resolution::Declined), "notify run");
    assert!(s.take("run"));
    assert_eq!(s.answer(Resolution::Dropped), "-");
    assert_eq!(s.press(), "notify menu", "no request was counted");
    s.take("menu");
    s.answer(Resolution::Dropped);
    s.request("turn");
    s.take("turn");
    s.answer(Resolution::Handled);
    assert_eq!(
        s.wait(100).press(),
        "BeginShutdown(Press)",
        "no request answered the press"
    );
    assert_eq!(s.request("turn"), "-");
    assert_eq!(
        (s.ladder.presses(), s.ladder.cause()),
        (2, Some(Cause::Press))
    );
    insta::assert_snapshot!("request", s.trace);
}

#[test]
fn press_on_a_request_begins_shutdown() {
    for taken in [false, true] {
        let mut s = Script::new(&["run", "menu"]);
        assert_eq!(s.request("run"), "notify run");
        assert!(!taken || s.take("run"));
        assert_eq!(s.wait(60_000).press(), "BeginShutdown(Press)");
    }
    let mut s = Script::new(&["run"]);
    s.request("run");
    s.take("run");
    assert_eq!(s.answer(Resolution::Escalated), "BeginShutdown(Press)");
}

#[test]
fn suspended_time_does_not_count() {
    let mut s = Script::with(
        rules(|r| r.shutdown_deadline = Some(Duration::from_secs(8))),
        &["run", "menu"],
    );
    s.press();
    s.wait(900).resumed();
    s.wait(900);
    assert!(s.take("menu"), "its time-out started again");
    s.answer(Resolution::Dropped);
    s.wait(100).resumed();
    assert_eq!(s.press(), "notify menu", "the drop is forgotten");
    assert_eq!(s.wait(100).press(), "BeginShutdown(Press)");
    s.wait(7_900).resumed();
    assert_eq!(s.ladder.cause(), Some(Cause::Press));
    s.wait(60_000);
    s.resumed();
    assert_eq!(s.press(), "HardExit(Press)");
    insta::assert_snapshot!("resumed", s.trace);
}
