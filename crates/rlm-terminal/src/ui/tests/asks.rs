//! Tests of the agent's questions: answered, withdrawn, repeated, or too long for the screen.

use super::*;

#[test]
fn x124g_questions_are_asked_one_after_the_other() {
    let mut play = Play::in_turn();
    play.asks("1", "rm -rf build");
    play.asks("2", "cargo publish\u{1b}[2J");
    insta::assert_snapshot!(play.screen(), @"
    allow? Bash: rm -rf build
    y allow once, n or Esc deny
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
    Answer { ask: "1", allow: true, message: "" }
    "#);
    insta::assert_snapshot!(play.screen(), @r"
    allow? Bash: cargo publish\u{1b}[2J
    y allow once, n or Esc deny
    ");
    play.keys("\x1b");
    insta::assert_snapshot!(play.out(), @r#"
    say "skipped: Bash: cargo publish\\u{1b}[2J\n"
    Answer { ask: "2", allow: false, message: "the person skipped this question" }
    "#);
    assert_eq!(play.ui.wants(), Wants::Lines);
}

#[test]
fn x124g_a_question_takes_no_key_before_it_could_be_read() {
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
fn x124g_an_id_that_is_used_again_is_a_new_question() {
    let mut play = Play::in_turn();
    for _ in 0..2 {
        play.asks("1", "make");
        assert_eq!(play.ui.wants(), Wants::Choice);
        play.keys("y");
        assert!(play.out().contains("allow: true"));
    }
    // A lost answer leaves the question open.
    play.stand.agent.asks.push(ask("1", "make"));
    play.ui.ticked(play.stand.scene());
    play.ui.ticked(play.stand.scene());
    assert_eq!(play.ui.wants(), Wants::Lines);
    play.ui.unanswered("1");
    play.ui.ticked(play.stand.scene());
    assert_eq!(play.ui.wants(), Wants::Choice);
}

#[test]
fn x124g_a_question_that_does_not_fit_must_be_seen_to_its_end() {
    let mut play = Play::in_turn();
    play.ui.resized(24, 5);
    let rows = |play: &Play| play.ui.rows(play.stand.scene()).unwrap().rows.join("\n");
    play.asks("1", &format!("echo {};\nrm -rf all", "word ".repeat(20)));
    insta::assert_snapshot!(rows(&play), @"
    allow? Bash: echo word
    word word word word word
    word word word word word
    word word word word word
    … 2 more: Space. Then y…
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
    y allow once, n or Esc …
    ");
    play.keys("y");
    assert!(play.out().contains("allow: true"));
}

#[test]
fn x124g_what_the_person_answered_is_said_once() {
    let mut play = Play::in_turn();
    let asked = News::Agent(Event::PermissionAsked(ask("1", "make")));
    play.ui
        .news(&asked, Some("the agent asks: Bash: make\n".into()));
    play.keys("n");
    let (tool, message) = ("Bash".into(), "the person denied this".into());
    let denied = News::Agent(Event::PermissionDenied { tool, message });
    play.ui.news(&denied, Some("denied: Bash\n".into()));
    let out = play.out();
    assert!(
        out.contains("say \"denied: Bash: make") && !out.contains("print"),
        "{out}"
    );
    // A log for programs is complete.
    play.ui = Ui::new(Some(60), true);
    play.ui.news(&denied, Some("{}\n".into()));
    assert_eq!(play.out(), "print \"{}\\n\"");
}

#[test]
fn x132b_a_press_in_a_question_opens_the_menu_and_the_question_comes_back() {
    let mut play = Play::in_turn();
    play.asks("1", "make");
    play.press();
    assert!(play.screen().starts_with("menu ("));
    play.keys("\r");
    assert_eq!(play.out(), "Notice(Handled)");
    assert!(play.screen().starts_with("allow? Bash: make"));
}

#[test]
fn x124g_a_withdrawn_question_disappears() {
    let mut play = Play::in_turn();
    play.asks("1", "make");
    play.output("later\n");
    play.ui.news(
        &News::Agent(Event::PermissionWithdrawn { id: "1".into() }),
        Some(String::new()),
    );
    insta::assert_snapshot!(play.out(), @r#"
    say "the question no longer needs an answer\n"
    print "later\n"
    "#);
    // A view without the question withdraws it too, if an earlier view had it.
    play.asks("2", "make");
    play.ui.viewed(play.stand.scene());
    assert_eq!(play.ui.wants(), Wants::Choice);
    play.stand.agent.asks.push(ask("2", "make"));
    play.ui.viewed(play.stand.scene());
    play.stand.agent.asks.clear();
    play.ui.viewed(play.stand.scene());
    assert_eq!(play.ui.wants(), Wants::Lines);
}

#[test]
fn x124g_a_question_whose_news_were_lost_is_asked_and_an_answered_one_is_not() {
    let mut play = Play::in_turn();
    play.stand.agent.asks.push(ask("1", "make"));
    play.ui.ticked(play.stand.scene());
    assert_eq!(play.ui.wants(), Wants::Lines);
    play.ui.ticked(play.stand.scene());
    assert_eq!(play.ui.wants(), Wants::Choice);
    play.keys("n");
    play.ui.ticked(play.stand.scene());
    play.ui.ticked(play.stand.scene());
    assert_eq!(play.ui.wants(), Wants::Lines);
}
