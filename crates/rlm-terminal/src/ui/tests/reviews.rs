//! Tests of reviews of a phase or a batch.

use loop_state::ReviewPoint;

use super::*;
use crate::test_run::pipeline;

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
    let (since, of) = (NOW, ReviewPoint::Phase);
    play.ui.take_event(
        &RunEvent::Update(RunUpdate::Review(of)),
        Some("over\n".into()),
    );
    play.stand = pipeline(IterationStep::Review { since, point: of });
    play.ui.view_changed(play.stand.scene());
}

#[test]
fn x120a_x120c_x120d_review_opens_by_itself_and_each_choice_is_an_answer() {
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
    "c", closed: print "over\n"; AnswerPress(Handled); Review(Continue)
    "\r", closed: print "over\n"; AnswerPress(Handled); Review(Continue)
    "r": print "over\n"; AnswerPress(Handled)
    "o", closed: print "over\n"; AnswerPress(Handled); Review(StartOver)
    "x", closed: print "over\n"; AnswerPress(Handled); Stop { when: Now }
    "e": print "over\n"; AnswerPress(Handled); OpenEditor(1)
    "\u{1b}", closed: print "over\n"; AnswerPress(Handled)
    "a": print "over\n"
    "#);
}

#[test]
fn x120b_revise_needs_text_and_review_returns_without_it() {
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
fn x120e_keys_typed_for_another_prompt_decide_nothing() {
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
    assert!(play.out().contains("AnswerPress(Escalate)"));
}

#[test]
fn x120e_review_waits_for_the_line_being_typed() {
    let mut play = Play::in_turn();
    play.line("\n");
    play.keys("use ta");
    ask_in(&mut play);
    assert_eq!(play.ui.key_mode(), KeyMode::Text);
    play.keys("\x1b");
    assert!(
        play.screen().starts_with("phase `plan`"),
        "{}",
        play.screen()
    );
    play.ui.leave_foreground();
    assert!(!play.ui.is_prompting());
    play.ui.enter_foreground();
    assert!(
        play.screen().starts_with("phase `plan`"),
        "{}",
        play.screen()
    );
}

#[test]
fn x120e_answer_from_another_terminal_closes_the_menu() {
    let mut play = asked(false);
    play.stand = at(IterationStep::Turn { since: NOW });
    play.ui.view_changed(play.stand.scene());
    assert!(!play.ui.is_prompting());
    assert!(play.out().contains("answered elsewhere"));
    play.ui.cannot_prompt();
    assert!(!play.out().contains("Attended"), "no question is open");
}

#[test]
fn s23e_terminal_without_prompts_blocks_nothing() {
    let mut play = asked(true);
    play.ui.cannot_prompt();
    assert!(play.out().contains("Attended(false)") && !play.ui.is_prompting());
}
