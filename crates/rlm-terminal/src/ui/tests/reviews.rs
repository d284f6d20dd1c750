//! Tests of reviews of a phase or a batch.

use loop_state::ReviewPoint;

use super::*;
use crate::test_run::pipeline;

/// Returns a terminal with an open review of a finished phase. `log` is whether the terminal also shows the log.
fn asked(log: bool) -> TestTerminal {
    let mut terminal = TestTerminal::in_turn();
    if !log {
        terminal.ui = Ui::new(None, false);
        terminal.ui.resized(60, 20);
    }
    ask_in(&mut terminal);
    terminal
}

fn ask_in(terminal: &mut TestTerminal) {
    let (since, of) = (NOW, ReviewPoint::Phase);
    terminal.ui.take_event(
        &RunEvent::Update(RunUpdate::Review(of)),
        Some("over\n".into()),
    );
    terminal.run = pipeline(IterationStep::Review { since, point: of });
    terminal.ui.view_changed(terminal.run.snapshot());
}

#[test]
fn x120a_x120c_x120d_review_opens_by_itself_and_each_choice_is_an_answer() {
    let chosen = |key: &str| {
        let mut terminal = asked(true);
        assert!(
            terminal
                .screen()
                .starts_with("phase `plan` (1 of 3) finished")
        );
        terminal.keys(key);
        let closed = if terminal.ui.is_prompting() {
            ""
        } else {
            ", closed"
        };
        format!("{key:?}{closed}: {}", terminal.out().replace('\n', "; "))
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
    let mut terminal = asked(true);
    terminal.keys("r");
    assert!(
        terminal.screen().contains("revise> "),
        "{}",
        terminal.screen()
    );
    terminal.keys("\x1b");
    assert!(
        terminal.screen().starts_with("phase `plan`"),
        "{}",
        terminal.screen()
    );
    terminal.keys("r");
    terminal.keys("shorter\r");
    assert!(
        terminal
            .out()
            .ends_with("Steer { text: \"shorter\", now: false }")
    );
    assert!(!terminal.ui.is_prompting());
}

#[test]
fn x120e_keys_typed_for_another_prompt_decide_nothing() {
    let mut terminal = asked(true);
    // The menu has just been drawn.
    assert!(terminal.ui.drawn(NOW), "earlier keys are discarded");
    let keys = vec![Key::Enter];
    terminal
        .ui
        .keys(keys, terminal.run.snapshot(), NOW, "run-1");
    assert!(!terminal.out().contains("Review"));
    assert!(
        terminal.screen().contains("read it first"),
        "{}",
        terminal.screen()
    );
    // A press opens the menu, and the next press stops the run.
    terminal.press();
    assert!(!terminal.out().contains("Escalate"));
    terminal.press();
    assert!(terminal.out().contains("AnswerPress(Escalate)"));
}

#[test]
fn x120e_review_waits_for_the_line_being_typed() {
    let mut terminal = TestTerminal::in_turn();
    terminal.line("\n");
    terminal.keys("use ta");
    ask_in(&mut terminal);
    assert_eq!(terminal.ui.key_mode(), KeyMode::Text);
    terminal.keys("\x1b");
    assert!(
        terminal.screen().starts_with("phase `plan`"),
        "{}",
        terminal.screen()
    );
    terminal.ui.leave_foreground();
    assert!(!terminal.ui.is_prompting());
    terminal.ui.enter_foreground();
    assert!(
        terminal.screen().starts_with("phase `plan`"),
        "{}",
        terminal.screen()
    );
}

#[test]
fn x120e_answer_from_another_terminal_closes_the_menu() {
    let mut terminal = asked(false);
    terminal.run = at(IterationStep::Turn { since: NOW });
    terminal.ui.view_changed(terminal.run.snapshot());
    assert!(!terminal.ui.is_prompting());
    assert!(terminal.out().contains("answered elsewhere"));
    terminal.ui.cannot_prompt();
    assert!(!terminal.out().contains("Attended"), "no question is open");
}

#[test]
fn s23e_review_does_not_block_on_a_terminal_that_cannot_prompt() {
    let mut terminal = asked(true);
    terminal.ui.cannot_prompt();
    assert!(terminal.out().contains("Attended(false)") && !terminal.ui.is_prompting());
}
