//! Tests of the agent's questions: answered, withdrawn, repeated, or too long for the screen.

use super::*;

#[test]
fn x124g_permission_requests_are_shown_one_after_another() {
    let mut play = Play::in_turn();
    play.asks("1", "rm -rf build");
    play.asks("2", "cargo publish\u{1b}[2J");
    insta::assert_snapshot!(play.screen(), @"
    allow? Bash: rm -rf build
    y: allow once, n or Esc: deny
    ");
    play.keys("q");
    assert!(
        play.screen().ends_with("press y, n or Esc "),
        "{}",
        play.screen()
    );
    // The second key was typed before the second question was shown.
    play.keys("yy");
    insta::assert_snapshot!(play.out(), @r#"
    say "allowed: Bash: rm -rf build\n"
    Answer { permission_request: "1", allow: true, message: "" }
    "#);
    insta::assert_snapshot!(play.screen(), @r"
    allow? Bash: cargo publish\u{1b}[2J
    y: allow once, n or Esc: deny
    ");
    play.keys("\x1b");
    insta::assert_snapshot!(play.out(), @r#"
    say "skipped: Bash: cargo publish\\u{1b}[2J\n"
    Answer { permission_request: "2", allow: false, message: "the person skipped this question" }
    "#);
    assert_eq!(play.ui.key_mode(), KeyMode::Lines);
}

#[test]
fn x124g_permission_prompt_ignores_keys_before_it_is_readable() {
    let mut play = Play::in_turn();
    play.asks("1", "make");
    let key = |play: &mut Play, at: u64| {
        let key = vec![Key::Char('y')];
        play.ui
            .keys(key, play.stand.scene(), Timestamp(at), "run-1");
        play.out()
    };
    assert_eq!(key(&mut play, 5000), "", "not on the screen yet");
    assert!(play.ui.drawn(Timestamp(6000)));
    assert!(!play.ui.drawn(Timestamp(6100)));
    assert_eq!(key(&mut play, 6499), "");
    assert!(play.screen().contains("read it first"));
    assert_eq!(key(&mut play, 6998), "", "the person is still typing");
    assert!(key(&mut play, 7498).contains("allow: true"));
}

#[test]
fn x124g_reused_id_is_a_new_permission_request() {
    let mut play = Play::in_turn();
    for _ in 0..2 {
        play.asks("1", "make");
        assert_eq!(play.ui.key_mode(), KeyMode::Choice);
        play.keys("y");
        assert!(play.out().contains("allow: true"));
    }
    // A lost answer leaves the question open.
    play.stand.agent.permission_requests.push(ask("1", "make"));
    play.ui.tick(play.stand.scene());
    play.ui.tick(play.stand.scene());
    assert_eq!(play.ui.key_mode(), KeyMode::Lines);
    play.ui.answer_lost("1");
    play.ui.tick(play.stand.scene());
    assert_eq!(play.ui.key_mode(), KeyMode::Choice);
}

#[test]
fn x124g_long_permission_request_must_be_scrolled_to_its_end() {
    let mut play = Play::in_turn();
    play.ui.resized(24, 5);
    let rows = |play: &Play| play.ui.rows(play.stand.scene()).unwrap().rows.join("\n");
    play.asks("1", &format!("echo {};\nrm -rf all", "word ".repeat(20)));
    insta::assert_snapshot!(rows(&play), @"
    allow? Bash: echo word
    word word word word word
    word word word word word
    word word word word word
    … 2 more: Space; y: all…
    ");
    play.keys("y");
    assert_eq!(play.out(), "", "the end was not visible");
    play.keys(" ");
    play.keys(" ");
    insta::assert_snapshot!(rows(&play), @"
    word word word word word
    word word word word word
    word word word word ;⏎
    rm -rf all
    y: allow once, n or Esc…
    ");
    play.keys("y");
    assert!(play.out().contains("allow: true"));
}

#[test]
fn x124g_answer_is_sent_once() {
    let mut play = Play::in_turn();
    let asked = RunEvent::Agent(Event::PermissionRequested(ask("1", "make")));
    play.ui
        .take_event(&asked, Some("the agent asks: Bash: make\n".into()));
    play.keys("n");
    let (tool, message) = ("Bash".into(), "the person denied this".into());
    let denied = RunEvent::Agent(Event::PermissionDenied { tool, message });
    play.ui.take_event(&denied, Some("denied: Bash\n".into()));
    let out = play.out();
    assert!(
        out.contains("say \"denied: Bash: make") && !out.contains("print"),
        "{out}"
    );
    // A log for programs is complete.
    play.ui = Ui::new(Some(60), true);
    play.ui.take_event(&denied, Some("{}\n".into()));
    assert_eq!(play.out(), "print \"{}\\n\"");
}

#[test]
fn x132b_press_in_a_permission_prompt_opens_the_menu_and_returns() {
    let mut play = Play::in_turn();
    play.asks("1", "make");
    play.press();
    assert!(play.screen().starts_with("menu ("));
    play.keys("\r");
    assert_eq!(play.out(), "AnswerPress(Handled)");
    assert!(play.screen().starts_with("allow? Bash: make"));
}

#[test]
fn x124g_withdrawn_permission_prompt_disappears() {
    let mut play = Play::in_turn();
    play.asks("1", "make");
    play.output("later\n");
    play.ui.take_event(
        &RunEvent::Agent(Event::PermissionWithdrawn { id: "1".into() }),
        Some(String::new()),
    );
    insta::assert_snapshot!(play.out(), @r#"
    say "the question no longer needs an answer\n"
    print "later\n"
    "#);
    // A view without the question withdraws it too, if an earlier view had it.
    play.asks("2", "make");
    play.ui.view_changed(play.stand.scene());
    assert_eq!(play.ui.key_mode(), KeyMode::Choice);
    play.stand.agent.permission_requests.push(ask("2", "make"));
    play.ui.view_changed(play.stand.scene());
    play.stand.agent.permission_requests.clear();
    play.ui.view_changed(play.stand.scene());
    assert_eq!(play.ui.key_mode(), KeyMode::Lines);
}

#[test]
fn x124g_request_with_a_lost_event_is_shown_and_an_answered_one_is_not() {
    let mut play = Play::in_turn();
    play.stand.agent.permission_requests.push(ask("1", "make"));
    play.ui.tick(play.stand.scene());
    assert_eq!(play.ui.key_mode(), KeyMode::Lines);
    play.ui.tick(play.stand.scene());
    assert_eq!(play.ui.key_mode(), KeyMode::Choice);
    play.keys("n");
    play.ui.tick(play.stand.scene());
    play.ui.tick(play.stand.scene());
    assert_eq!(play.ui.key_mode(), KeyMode::Lines);
}
