//! Tests of reviews of a phase or a batch.

use loop_state::Occasion;

use super::*;
use crate::stage::pipeline;

/// Returns a run with an open review of a finished phase.
fn asked(log: bool) -> Play {
    let mut play = Play::in_turn();
    if !log {
        play.ui = Ui::new(None, false);
        play.ui.resized(60, 20);
    }
    ask_in(&mut play);
    play
}

fn ask_in(play: &mut Play) {
    let (since, of) = (NOW, Occasion::Phase);
    play.ui
        .news(&News::Run(Notice::Review(of)), Some("over\n".into()));
    play.stand = pipeline(Step::Review { since, of });
    play.ui.viewed(play.stand.scene());
}

#[test]
fn x120a_x120c_x120d_the_menu_opens_by_itself_and_each_choice_is_a_verdict() {
    let chosen = |key: &str| {
        let mut play = asked(true);
        assert!(play.screen().starts_with("phase `plan` (1 of 3) finished"));
        play.keys(key);
        let closed = if play.ui.is_prompting() {
            ""
        } else {
            ", closed"
        };
        format!("{key:?}{closed}: {}", play.out().replace('\n', "; "))
    };
    let chosen = ["c", "\r", "r", "o", "x", "e", "\x1b", "a"].map(chosen);
    insta::assert_snapshot!(chosen.join("\n"), @r#"
    "c", closed: print "over\n"; Notice(Handled); Review(Continue)
    "\r", closed: print "over\n"; Notice(Handled); Review(Continue)
    "r": print "over\n"; Notice(Handled)
    "o", closed: print "over\n"; Notice(Handled); Review(StartOver)
    "x", closed: print "over\n"; Notice(Handled); Stop { after: Now }
    "e": print "over\n"; Notice(Handled); Edit(1)
    "\u{1b}", closed: print "over\n"; Notice(Handled)
    "a": print "over\n"
    "#);
}

#[test]
fn x120b_what_is_to_be_revised_is_asked_for_and_the_question_comes_back_without_it() {
    let mut play = asked(true);
    play.keys("r");
    assert!(play.screen().contains("revise> "), "{}", play.screen());
    play.keys("\x1b");
    assert!(
        play.screen().starts_with("phase `plan`"),
        "{}",
        play.screen()
    );
    play.keys("r");
    play.keys("shorter\r");
    assert!(
        play.out()
            .ends_with("Steer { text: \"shorter\", now: false }")
    );
    assert!(!play.ui.is_prompting());
}

#[test]
fn x120e_keys_that_were_meant_for_something_else_decide_nothing() {
    let mut play = asked(true);
    // The menu has just been drawn.
    assert!(play.ui.drawn(NOW), "earlier keys are discarded");
    let keys = vec![Key::Enter];
    play.ui.keys(keys, play.stand.scene(), NOW, "run-1");
    assert!(!play.out().contains("Review"));
    assert!(play.screen().contains("read it first"), "{}", play.screen());
    // A press opens the menu, and the next press stops the run.
    play.press();
    assert!(!play.out().contains("Escalate"));
    play.press();
    assert!(play.out().contains("Notice(Escalate)"));
}

#[test]
fn x120e_a_line_that_is_being_typed_goes_first_and_the_question_waits() {
    let mut play = Play::in_turn();
    play.line("\n");
    play.keys("use ta");
    ask_in(&mut play);
    assert_eq!(play.ui.wants(), Wants::Text);
    play.keys("\x1b");
    assert!(
        play.screen().starts_with("phase `plan`"),
        "{}",
        play.screen()
    );
    play.ui.step_back();
    assert!(!play.ui.is_prompting());
    play.ui.step_forward();
    assert!(
        play.screen().starts_with("phase `plan`"),
        "{}",
        play.screen()
    );
}

#[test]
fn x120e_an_answer_from_elsewhere_closes_the_menu() {
    let mut play = asked(false);
    play.stand = at(Step::Turn { since: NOW });
    play.ui.viewed(play.stand.scene());
    assert!(!play.ui.is_prompting());
    assert!(play.out().contains("answered elsewhere"));
    play.ui.cannot_prompt();
    assert!(!play.out().contains("Attended"), "no question is open");
}

#[test]
fn s23e_a_terminal_that_can_not_ask_blocks_nothing() {
    let mut play = asked(true);
    play.ui.cannot_prompt();
    assert!(play.out().contains("Attended(false)") && !play.ui.is_prompting());
}
