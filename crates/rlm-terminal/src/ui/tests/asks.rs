//! Tests of the agent's questions: answered, withdrawn, repeated, or too long for the screen.

use super::*;

#[test]
fn x124g_permission_requests_are_shown_one_after_another() {
    let mut terminal = TestTerminal::in_turn();
    terminal.asks("1", "rm -rf build");
    terminal.asks("2", "cargo publish\u{1b}[2J");
    insta::assert_snapshot!(terminal.screen(), @"
    allow? Bash: rm -rf build
    y: allow once, n or Esc: deny
    ");
    terminal.keys("q");
    assert!(
        terminal.screen().ends_with("press y, n or Esc "),
        "{}",
        terminal.screen()
    );
    // The second key was typed before the second question was shown.
    terminal.keys("yy");
    insta::assert_snapshot!(terminal.out(), @r#"
    say "allowed: Bash: rm -rf build\n"
    Answer { permission_request: "1", allow: true, message: "" }
    "#);
    insta::assert_snapshot!(terminal.screen(), @r"
    allow? Bash: cargo publish\u{1b}[2J
    y: allow once, n or Esc: deny
    ");
    terminal.keys("\x1b");
    insta::assert_snapshot!(terminal.out(), @r#"
    say "skipped: Bash: cargo publish\\u{1b}[2J\n"
    Answer { permission_request: "2", allow: false, message: "the person skipped this question" }
    "#);
    assert_eq!(terminal.ui.key_mode(), KeyMode::Lines);
}

#[test]
fn x124g_permission_prompt_ignores_keys_before_it_is_readable() {
    let mut terminal = TestTerminal::in_turn();
    terminal.asks("1", "make");
    let key = |terminal: &mut TestTerminal, at: u64| {
        let key = vec![Key::Char('y')];
        terminal.ui.keys(
            key,
            terminal.run.snapshot(),
            Timestamp::from_millis(at),
            "run-1",
        );
        terminal.out()
    };
    assert_eq!(key(&mut terminal, 5000), "", "not on the screen yet");
    assert!(terminal.ui.drawn(Timestamp::from_millis(6000)));
    assert!(!terminal.ui.drawn(Timestamp::from_millis(6100)));
    assert_eq!(key(&mut terminal, 6499), "");
    assert!(terminal.screen().contains("read it first"));
    assert_eq!(key(&mut terminal, 6998), "", "the person is still typing");
    assert!(key(&mut terminal, 7498).contains("allow: true"));
}

#[test]
fn x124g_reused_id_is_a_new_permission_request() {
    let mut terminal = TestTerminal::in_turn();
    for _ in 0..2 {
        terminal.asks("1", "make");
        assert_eq!(terminal.ui.key_mode(), KeyMode::Choice);
        terminal.keys("y");
        assert!(terminal.out().contains("allow: true"));
    }
    // A lost answer leaves the question open.
    terminal
        .run
        .agent
        .permission_requests
        .push(ask("1", "make"));
    terminal.ui.tick(terminal.run.snapshot());
    terminal.ui.tick(terminal.run.snapshot());
    assert_eq!(terminal.ui.key_mode(), KeyMode::Lines);
    terminal.ui.answer_lost("1");
    terminal.ui.tick(terminal.run.snapshot());
    assert_eq!(terminal.ui.key_mode(), KeyMode::Choice);
}

#[test]
fn x124g_long_permission_request_must_be_scrolled_to_its_end() {
    let mut terminal = TestTerminal::in_turn();
    terminal.ui.resized(24, 5);
    let rows = |terminal: &TestTerminal| {
        terminal
            .ui
            .rows(terminal.run.snapshot())
            .unwrap()
            .rows
            .join("\n")
    };
    terminal.asks("1", &format!("echo {};\nrm -rf all", "word ".repeat(20)));
    insta::assert_snapshot!(rows(&terminal), @"
    allow? Bash: echo word
    word word word word word
    word word word word word
    word word word word word
    … 2 more: Space; y: all…
    ");
    terminal.keys("y");
    assert_eq!(terminal.out(), "", "the end was not visible");
    terminal.keys(" ");
    terminal.keys(" ");
    insta::assert_snapshot!(rows(&terminal), @"
    word word word word word
    word word word word word
    word word word word ;⏎
    rm -rf all
    y: allow once, n or Esc…
    ");
    terminal.keys("y");
    assert!(terminal.out().contains("allow: true"));
}

#[test]
fn x124g_answer_is_shown_once() {
    let mut terminal = TestTerminal::in_turn();
    let asked = RunEvent::Agent(Event::PermissionRequested(ask("1", "make")));
    terminal
        .ui
        .take_event(&asked, Some("the agent asks: Bash: make\n".into()));
    terminal.keys("n");
    let (tool, message) = ("Bash".into(), "the person denied this".into());
    let denied = RunEvent::Agent(Event::PermissionDenied { tool, message });
    terminal
        .ui
        .take_event(&denied, Some("denied: Bash\n".into()));
    let out = terminal.out();
    assert!(
        out.contains("say \"denied: Bash: make") && !out.contains("print"),
        "{out}"
    );
    // A log for programs is complete.
    terminal.ui = Ui::new(Some(60), true);
    terminal.ui.take_event(&denied, Some("{}\n".into()));
    assert_eq!(terminal.out(), "print \"{}\\n\"");
}

#[test]
fn x132b_permission_prompt_returns_after_the_menu_that_a_press_opened() {
    let mut terminal = TestTerminal::in_turn();
    terminal.asks("1", "make");
    terminal.press();
    assert!(terminal.screen().starts_with("menu ("));
    terminal.keys("\r");
    assert_eq!(terminal.out(), "AnswerPress(Handled)");
    assert!(terminal.screen().starts_with("allow? Bash: make"));
}

#[test]
fn x124g_withdrawn_permission_prompt_disappears() {
    let mut terminal = TestTerminal::in_turn();
    terminal.asks("1", "make");
    terminal.output("later\n");
    terminal.ui.take_event(
        &RunEvent::Agent(Event::PermissionWithdrawn { id: "1".into() }),
        Some(String::new()),
    );
    insta::assert_snapshot!(terminal.out(), @r#"
    say "the question no longer needs an answer\n"
    print "later\n"
    "#);
    // A snapshot without the question withdraws it too, if an earlier snapshot contained it.
    terminal.asks("2", "make");
    terminal.ui.view_changed(terminal.run.snapshot());
    assert_eq!(terminal.ui.key_mode(), KeyMode::Choice);
    terminal
        .run
        .agent
        .permission_requests
        .push(ask("2", "make"));
    terminal.ui.view_changed(terminal.run.snapshot());
    terminal.run.agent.permission_requests.clear();
    terminal.ui.view_changed(terminal.run.snapshot());
    assert_eq!(terminal.ui.key_mode(), KeyMode::Lines);
}

#[test]
fn x124g_request_with_a_lost_event_is_shown_and_an_answered_one_is_not() {
    let mut terminal = TestTerminal::in_turn();
    terminal
        .run
        .agent
        .permission_requests
        .push(ask("1", "make"));
    terminal.ui.tick(terminal.run.snapshot());
    assert_eq!(terminal.ui.key_mode(), KeyMode::Lines);
    terminal.ui.tick(terminal.run.snapshot());
    assert_eq!(terminal.ui.key_mode(), KeyMode::Choice);
    terminal.keys("n");
    terminal.ui.tick(terminal.run.snapshot());
    terminal.ui.tick(terminal.run.snapshot());
    assert_eq!(terminal.ui.key_mode(), KeyMode::Lines);
}
