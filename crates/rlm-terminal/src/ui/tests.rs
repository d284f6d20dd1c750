//! Tests of the state machine through the screen and the effects of a person's keys.

mod any_order;
mod asks;
mod reviews;

use agent_duplex::PermissionRequest;
use loop_state::IterationStep;
use proptest::prelude::*;

use super::*;
use crate::editor::Edit;
use crate::keys::{Decoder, Key};
use crate::scope::PressActions;
use crate::test_run::{TestRun, at};

/// A person at a terminal that also shows the log.
struct TestTerminal {
    ui: Ui,
    run: TestRun,
}

const NOW: Timestamp = Timestamp::from_millis(100_000);

fn screen(width: usize, height: usize) -> Ui {
    let mut ui = Ui::new(Some(width), false);
    ui.resized(width, height);
    ui
}

impl TestTerminal {
    fn new(step: IterationStep) -> Self {
        Self {
            ui: screen(60, 20),
            run: at(step),
        }
    }

    fn in_turn() -> Self {
        Self::new(IterationStep::Turn {
            since: Timestamp::from_millis(90_000),
        })
    }

    /// Types keys as one piece.
    fn keys(&mut self, text: &str) {
        // The prompt has been on the screen for a long time.
        self.ui.drawn(Timestamp::from_millis(0));
        let mut decoder = Decoder::default();
        let mut keys = decoder.feed(text.as_bytes());
        keys.extend(decoder.flush());
        self.ui.keys(keys, self.run.snapshot(), NOW, "run-1");
    }

    fn press(&mut self) {
        self.press_where(PressActions::default());
    }

    /// Presses Ctrl-C with these configured actions. Each scope that declines passes the press to the scope around it.
    fn press_where(&mut self, presses: PressActions) {
        let step = Scope::of_step(self.run.snapshot());
        let scopes = [Scope::Run].into_iter().chain(step).chain(self.ui.scopes());
        let mut scopes: Vec<_> = scopes.collect();
        while let Some(scope) = scopes.pop() {
            let (own, snapshot) = (presses.action_in(scope), self.run.snapshot());
            self.ui.pressed(scope, own, AskAbility::Here, snapshot);
            let last = self.ui.effects.last();
            if !matches!(last, Some(Effect::AnswerPress(PressAnswer::Decline))) {
                return;
            }
            self.ui.effects.pop();
        }
        panic!("the run declines no press while a person can be asked");
    }

    /// Types a line in line mode.
    fn line(&mut self, text: &str) {
        self.ui.lines(text, self.run.snapshot(), NOW, "run-1");
    }

    fn output(&mut self, text: &str) {
        self.ui
            .take_event(&RunEvent::RequestRejected("text".into()), Some(text.into()));
    }

    fn asks(&mut self, id: &str, summary: &str) {
        self.ui.take_event(
            &RunEvent::Agent(Event::PermissionRequested(ask(id, summary))),
            Some(String::new()),
        );
    }

    /// Returns the effects, one per line, without colours.
    fn out(&mut self) -> String {
        let effects = self.ui.effects();
        let words = effects.iter().map(|effect| match effect {
            Effect::ReportMissed(lines) => format!("missed {lines}"),
            Effect::Print(text) => format!("print {:?}", plain_text(text)),
            Effect::ShowPerson(text) => format!("say {:?}", plain_text(text)),
            Effect::Send(RunControl::Request(request)) => format!("{request:?}"),
            Effect::Send(control) => format!("{control:?}"),
            other => format!("{other:?}"),
        });
        words.collect::<Vec<_>>().join("\n")
    }

    fn screen(&self) -> String {
        let rows = self.ui.rows(self.run.snapshot());
        rows.map_or(String::new(), |rows| rows.rows.join("\n"))
    }
}

fn plain_text(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

fn ask(id: &str, summary: &str) -> PermissionRequest {
    PermissionRequest {
        id: id.into(),
        tool: "Bash".into(),
        summary: summary.into(),
        reason: String::new(),
    }
}

#[test]
fn j48a_configured_action_applies_only_without_an_open_prompt() {
    let fixed = |action| PressActions {
        default: Some(action),
        ..PressActions::default()
    };
    let act = |action| {
        let mut terminal = TestTerminal::in_turn();
        terminal.press_where(fixed(action));
        let effects = format!("{:?}", terminal.ui.effects());
        (effects, terminal)
    };
    let (effects, terminal) = act(PressAction::Continue);
    assert!(effects.contains("AnswerPress(Handled)") && !terminal.ui.is_prompting());
    assert_eq!(act(PressAction::Stop).0, "[AnswerPress(Escalate)]");
    let (effects, _) = act(PressAction::Abort);
    assert_eq!(effects, "[AnswerPress(Handled), Send(Request(Abort))]");
    let (effects, mut terminal) = act(PressAction::Steer);
    assert!(effects.contains("AnswerPress(Handled)") && terminal.ui.key_mode() == KeyMode::Text);
    // At `steer>` a press opens the menu, and the next press stops the run.
    terminal.press_where(fixed(PressAction::Steer));
    assert_eq!(terminal.ui.key_mode(), KeyMode::Choice);
    terminal.press_where(fixed(PressAction::Continue));
    assert!(format!("{:?}", terminal.ui.effects()).contains("AnswerPress(Escalate)"));
}

#[test]
fn j48a_step_setting_precedes_default_and_prompt_precedes_both() {
    let presses = PressActions {
        default: Some(PressAction::Abort),
        turn: Some(PressAction::Stop),
        ..PressActions::default()
    };
    let pressed = |begin: fn(&mut TestTerminal)| {
        let mut terminal = TestTerminal::in_turn();
        terminal.run.agent.alive = true;
        begin(&mut terminal);
        terminal.ui.effects();
        terminal.press_where(presses);
        (
            format!("{:?}", terminal.ui.effects()),
            terminal.ui.key_mode(),
        )
    };
    let (effects, _) = pressed(|_| {});
    assert_eq!(effects, "[AnswerPress(Escalate)]");
    let (effects, _) = pressed(|terminal| terminal.run.agent.alive = false);
    assert_eq!(effects, "[AnswerPress(Handled), Send(Request(Abort))]");
    // The menu opens over a question and over a draft.
    for begin in [
        (|terminal| terminal.asks("1", "make")) as fn(&mut TestTerminal),
        |terminal| terminal.line("\n"),
    ] {
        assert_eq!(pressed(begin), ("[]".into(), KeyMode::Choice));
    }
}

#[test]
fn scope_of_a_prompt_begins_and_ends_with_it() {
    let mut terminal = TestTerminal::in_turn();
    let now = |terminal: &TestTerminal| terminal.ui.scopes().collect::<Vec<_>>();
    assert_eq!(now(&terminal), []);
    terminal.asks("1", "make");
    assert_eq!(now(&terminal), [Scope::PermissionRequest]);
    terminal.press();
    assert_eq!(now(&terminal), [Scope::PermissionRequest, Scope::Menu]);
    terminal.keys("s");
    assert_eq!(now(&terminal), [Scope::PermissionRequest, Scope::Draft]);
    terminal.keys("x\r");
    assert_eq!(now(&terminal), [Scope::PermissionRequest]);
    // The question is open, but not on the screen.
    terminal.ui.leave_foreground();
    assert_eq!(now(&terminal), [Scope::PermissionRequest]);
    terminal.ui.enter_foreground();
    terminal.keys("n");
    assert_eq!(now(&terminal), []);
    terminal.press();
    terminal.keys("e");
    assert_eq!(now(&terminal), [Scope::Editor]);
    terminal.ui.edited(Ok(Edit::None));
    terminal.ui.review_asked();
    assert_eq!(now(&terminal), [Scope::Review]);
    terminal.press();
    assert_eq!(now(&terminal), [Scope::Review, Scope::Menu]);
}

#[test]
fn s8b_output_waits_while_the_menu_is_open() {
    let mut terminal = TestTerminal::in_turn();
    terminal.output("before\n");
    terminal.press();
    terminal.output("one\n");
    terminal.output("two\n");
    assert_eq!(terminal.out(), "print \"before\\n\"");
    assert_eq!(terminal.ui.key_mode(), KeyMode::Choice);
    terminal.keys("\x1b");
    assert_eq!(
        terminal.out(),
        "AnswerPress(Handled)\nprint \"one\\ntwo\\n\""
    );
    assert_eq!(terminal.ui.key_mode(), KeyMode::Lines);
}

#[test]
fn s9b_s9c_s9e_each_menu_choice_works() {
    let chosen = |step: IterationStep, key: &str| {
        let mut terminal = TestTerminal::new(step);
        (terminal.run.agent.alive, terminal.run.agent.interruptible) = (true, true);
        terminal.press();
        terminal.keys(key);
        terminal.out().replace('\n', "; ")
    };
    let turn = || IterationStep::Turn {
        since: Timestamp::from_millis(0),
    };
    let sleep = || IterationStep::Sleeping { until: NOW };
    let paused = || IterationStep::Paused { since: NOW };
    let lines = [
        ("c in a turn", chosen(turn(), "c")),
        ("Enter", chosen(turn(), "\r")),
        ("c when paused", chosen(paused(), "C")),
        ("Esc when paused", chosen(paused(), "\x1b")),
        ("K in the sleep", chosen(sleep(), "K")),
        ("k in a turn", chosen(turn(), "k")),
        ("t", chosen(turn(), "t")),
        ("t in the sleep", chosen(sleep(), "t")),
        ("r", chosen(turn(), "r")),
        ("o", chosen(turn(), "o")),
        ("e", chosen(turn(), "e")),
        ("s", chosen(turn(), "s")),
        ("x", chosen(turn(), "x")),
        ("a", chosen(turn(), "a")),
    ];
    let lines = lines.map(|(what, effects)| format!("{what:16} {effects}"));
    insta::assert_snapshot!(lines.join("\n"), @r"
    c in a turn      AnswerPress(Handled)
    Enter            AnswerPress(Handled)
    c when paused    AnswerPress(Handled); Continue
    Esc when paused  AnswerPress(Handled)
    K in the sleep   AnswerPress(Handled); Skip
    k in a turn      
    t                AnswerPress(Handled); Interrupt
    t in the sleep   
    r                AnswerPress(Handled); Redo { what: Iteration }
    o                AnswerPress(Handled); Redo { what: Phase }
    e                AnswerPress(Handled); OpenEditor(0)
    s                AnswerPress(Handled)
    x                AnswerPress(Handled); Stop { when: Now }
    a                AnswerPress(Handled); Abort
    ");
}

#[test]
fn s9c_s9d_wrong_key_shows_the_menu_again_with_a_hint() {
    let mut terminal = TestTerminal::in_turn();
    terminal.press();
    terminal.keys("z\x1b[A");
    assert_eq!(terminal.out(), "");
    assert!(
        terminal
            .screen()
            .ends_with("not an option: `z`; Esc closes the menu"),
        "{}",
        terminal.screen()
    );
    terminal.keys("\r");
    assert_eq!(terminal.out(), "AnswerPress(Handled)");
}

#[test]
fn j39a_press_in_the_menu_begins_shutdown() {
    let mut terminal = TestTerminal::in_turn();
    terminal.press();
    terminal.press();
    assert_eq!(terminal.out(), "AnswerPress(Escalate)");
    terminal.keys("\x03");
    assert_eq!(terminal.out(), "Press");
}

#[test]
fn j40a_j40b_a_menu_that_cannot_be_shown_decides_nothing() {
    let mut terminal = TestTerminal::in_turn();
    terminal.press();
    terminal.ui.cannot_prompt();
    assert_eq!(terminal.out(), "AnswerPress(LeaveOpen)");
    assert_eq!(terminal.ui.key_mode(), KeyMode::Lines);
}

#[test]
fn only_enter_sends_a_steer() {
    let mut terminal = TestTerminal::in_turn();
    terminal.line("\n");
    assert_eq!(
        (terminal.ui.key_mode(), terminal.out()),
        (KeyMode::Text, String::new())
    );
    terminal.keys("update the docs");
    insta::assert_snapshot!(terminal.screen(), @"
    Enter sends, Alt-Enter adds a line, Esc cancels
    steer> update the docs
    ");
    terminal.keys("\r");
    insta::assert_snapshot!(terminal.out(), @r#"
    say "you: update the docs\n"
    Steer { text: "update the docs", now: false }
    "#);
}

#[test]
fn s11a_typed_ahead_text_needs_second_enter() {
    let mut terminal = TestTerminal::in_turn();
    terminal.line("fix it\n");
    assert_eq!(terminal.out(), "");
    terminal.keys("\r");
    assert!(
        terminal
            .out()
            .contains("Steer { text: \"fix it\", now: false }")
    );
    // An empty line sends the lines before it, for example pasted ones.
    terminal.line("one\ntwo\n");
    assert_eq!(terminal.out(), "");
    terminal.keys("\r");
    assert!(
        terminal
            .out()
            .contains("Steer { text: \"one\\ntwo\", now: false }")
    );
    // A line that was typed before the prompt opened joins the text and sends nothing.
    terminal.line("three\n");
    terminal.line("four\n");
    assert_eq!(terminal.out(), "");
    terminal.keys("\x1b");
    terminal.line("begun");
    terminal.line(" and ended\n");
    terminal.keys("\r");
    assert!(terminal.out().contains("begun and ended"));
}

#[test]
fn press_at_steer_prompt_opens_the_menu_and_keeps_the_text() {
    let mut terminal = TestTerminal::in_turn();
    terminal.line("half a tho\n");
    terminal.keys("ught");
    terminal.press();
    assert_eq!(terminal.ui.key_mode(), KeyMode::Choice);
    terminal.keys("s");
    assert!(
        terminal.screen().contains("steer> half a thought"),
        "{}",
        terminal.screen()
    );
}

#[test]
fn x121a_x121b_x121c_x121d_x121e_x121f_commands_work() {
    let said = |line: &str| {
        let mut terminal = TestTerminal::in_turn();
        terminal.line(&format!("{line}\n"));
        let typed = terminal.out();
        // At `steer>` the commands have the same effects.
        let mut terminal = TestTerminal::in_turn();
        terminal.line("\n");
        terminal.keys(&format!("{line}\r"));
        assert_eq!(terminal.out(), typed);
        typed.replace('\n', "; ")
    };
    let lines = [
        "/pause",
        "/continue",
        "/interrupt",
        "/now stop that",
        "/steer hello",
        "/new",
        "/stop",
        "/exit",
        "/status",
    ];
    let lines = lines.map(|line| format!("{line:15} {}", said(line)));
    insta::assert_snapshot!(lines.join("\n"), @r#"
    /pause          Pause { reason: None, after: Iteration }
    /continue       Continue
    /interrupt      Interrupt
    /now stop that  say "you: stop that\n"; Steer { text: "stop that", now: true }
    /steer hello    say "you: hello\n"; Steer { text: "hello", now: false }
    /new            FreshSession
    /stop           Stop { when: AfterIteration }
    /exit           Stop { when: Now }
    /status         say "run run-1: iteration 3, 2 complete, 1m30s in all\n  now      agent starts 10s\n"
    "#);
    let mut terminal = TestTerminal::in_turn();
    terminal.line("/puase\n");
    insta::assert_snapshot!(terminal.out(), @r#"say "unknown command /puase; did you mean /pause? see /help\n""#);
}

#[test]
fn x121h_commands_in_one_piece_run_one_by_one() {
    let mut terminal = TestTerminal::in_turn();
    terminal.line("/pause\n/new\n");
    assert_eq!(
        terminal.out(),
        "Pause { reason: None, after: Iteration }\nFreshSession"
    );
    terminal.line("/pause\none\n/exit\n");
    assert_eq!(terminal.out(), "Pause { reason: None, after: Iteration }");
    terminal.keys("\r");
    assert!(
        terminal
            .out()
            .contains("Steer { text: \"one\\n/exit\", now: false }")
    );
    terminal.line("/steer\none\n");
    terminal.keys("\r");
    assert!(
        terminal
            .out()
            .contains("Steer { text: \"one\", now: false }")
    );
}

#[test]
fn x132a_a_press_while_the_editor_is_open_decides_nothing() {
    let mut terminal = TestTerminal::in_turn();
    terminal.press();
    terminal.keys("e");
    assert_eq!(terminal.out(), "AnswerPress(Handled)\nOpenEditor(0)");
    terminal.press();
    terminal.output("meanwhile\n");
    assert_eq!(terminal.out(), "AnswerPress(LeaveOpen)");
    terminal
        .ui
        .edited(Err("the editor `vi` ended with exit status 1".into()));
    assert!(
        terminal
            .screen()
            .ends_with("the editor `vi` ended with exit status 1")
    );
    terminal.keys("e");
    terminal.ui.edited(Ok(Edit::Text("new".into())));
    insta::assert_snapshot!(terminal.out(), @r#"
    AnswerPress(Handled)
    OpenEditor(0)
    Prompt { phase: 0, text: "new" }
    print "Ctrl-C came while the editor was open; Ctrl-C again stops the run\nmeanwhile\n"
    say "the prompt is changed\n"
    "#);
    for (edit, became) in [
        (Edit::None, "the prompt is unchanged"),
        (Edit::File, "the prompt is changed"),
    ] {
        terminal.press();
        terminal.keys("e");
        terminal.ui.edited(Ok(edit));
        let out = terminal.out();
        assert!(out.contains(became) && !out.contains("Prompt {"), "{out}");
    }
}

#[test]
fn shutdown_closes_prompts_and_answers_requests() {
    let mut terminal = TestTerminal::in_turn();
    terminal.asks("1", "make");
    terminal.press();
    terminal.output("held\n");
    terminal.ui.close_prompts();
    terminal.asks("2", "make");
    terminal.line("text\n");
    insta::assert_snapshot!(terminal.out(), @r#"
    AnswerPress(LeaveOpen)
    Answer { permission_request: "1", allow: false, message: "no person is attached" }
    print "held\n"
    Answer { permission_request: "2", allow: false, message: "no person is attached" }
    "#);
    assert_eq!(terminal.ui.key_mode(), KeyMode::Lines);
}

#[test]
fn an_editor_keeps_the_screen_through_a_shutdown() {
    let mut terminal = TestTerminal::in_turn();
    terminal.press();
    terminal.keys("e");
    terminal.ui.close_prompts();
    terminal.output("stopping\n");
    assert!(!terminal.out().contains("print"));
    terminal.ui.edited(Err("killed".into()));
    assert_eq!(terminal.out(), "print \"stopping\\n\"");
}

#[test]
fn background_job_shows_no_prompt_and_shows_it_again_in_foreground() {
    let mut terminal = TestTerminal::in_turn();
    terminal.asks("1", "make");
    terminal.ui.leave_foreground();
    assert_eq!(terminal.ui.key_mode(), KeyMode::Lines);
    terminal.ui.enter_foreground();
    assert_eq!(terminal.ui.key_mode(), KeyMode::Choice);
}

#[test]
fn s8b_held_output_is_printed_whole_and_in_order() {
    let mut hold = HeldOutput::default();
    hold.push("one\ntwo\n");
    hold.push("\n");
    hold.push("three");
    assert_eq!(hold.release(), (0, "one\ntwo\n\nthree\n".into()));
    assert_eq!(hold.release(), (0, String::new()));
}

proptest! {
    /// The held output is bounded, keeps the newest lines, and counts the dropped ones.
    #[test]
    fn newest_lines_are_retained(count in 0usize..5000, length in 0usize..1500) {
        let mut hold = HeldOutput::default();
        for n in 0..count {
            hold.push(&format!("{n}{}\n", "x".repeat(length)));
        }
        prop_assert!(hold.lines.len() <= MAX_LINES && hold.bytes <= MAX_BYTES);
        let kept = hold.lines.len();
        let (left_out, text) = hold.release();
        prop_assert_eq!(kept as u64 + left_out, count as u64);
        let last = text.lines().last().map(|line| line.trim_end_matches('x'));
        prop_assert_eq!(last.map(str::to_owned), count.checked_sub(1).map(|n| n.to_string()));
    }
}
