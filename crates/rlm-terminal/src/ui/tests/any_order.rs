//! Properties of the screen with keys, run events, presses and sizes in any order.

use loop_state::{Request, ReviewPoint};
use proptest::prelude::*;

use super::*;
use crate::editor::Edit;
use crate::test_run::pipeline;

#[derive(Clone, Debug)]
enum Move {
    Keys(String),
    Line(String),
    Press,
    Output,
    Ask(u8),
    Review,
    ReviewAnswered,
    Withdraw(u8),
    Edited(bool),
    LeaveForeground,
    EnterForeground,
    Tick,
    ClosePrompts,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        5 => "[a-z/\r\x1b\x03]{1,4}".prop_map(Move::Keys),
        2 => "[/a-z]{0,6}\n?".prop_map(Move::Line),
        2 => Just(Move::Press),
        3 => Just(Move::Output),
        2 => (0u8..4).prop_map(Move::Ask),
        1 => (0u8..4).prop_map(Move::Withdraw),
        1 => any::<bool>().prop_map(Move::Edited),
        1 => Just(Move::Review),
        1 => Just(Move::ReviewAnswered),
        1 => Just(Move::LeaveForeground),
        1 => Just(Move::EnterForeground),
        1 => Just(Move::Tick),
        1 => Just(Move::ClosePrompts),
    ];
    proptest::collection::vec(one, 0..60)
}

proptest! {
    /// With any inputs in any order, nothing panics, output is printed once and in order, and the rows fit. No question is answered more often than
    /// it was asked. While a press has no answer, the menu or a question is open. After a shutdown nothing prompts.
    #[test]
    fn any_order_of_events_keeps_the_invariants(moves in moves(), width in 2usize..100, height in 1usize..30) {
        let mut terminal = TestTerminal::in_turn();
        terminal.ui.resized(width, height);
        let mut asked = Vec::new();
        let (mut printed, mut written, mut answered, mut open_notices, mut shut) = (String::new(), 0, Vec::new(), 0, false);
        for step in moves {
            match step {
                Move::Keys(text) => terminal.keys(&text),
                Move::Line(text) => terminal.line(&text),
                Move::Press if !shut => {
                    open_notices = 1;
                    terminal.press();
                }
                Move::Press => {}
                Move::Output => {
                    written += 1;
                    terminal.output(&format!("#{written}\n"));
                }
                Move::Ask(id) => {
                    asked.push(id.to_string());
                    terminal.asks(&id.to_string(), "make");
                }
                Move::Withdraw(id) => {
                    terminal.ui.take_event(&RunEvent::Agent(Event::PermissionWithdrawn { id: id.to_string() }), Some(String::new()));
                }
                Move::Review => {
                    let (since, point) = (NOW, ReviewPoint::Phase);
                    terminal.ui.take_event(&RunEvent::Update(RunUpdate::Review(point)), None);
                    terminal.run = pipeline(IterationStep::Review { since, point });
                    terminal.ui.view_changed(terminal.run.snapshot());
                }
                Move::ReviewAnswered => {
                    terminal.run = at(IterationStep::Turn { since: NOW });
                    terminal.ui.view_changed(terminal.run.snapshot());
                }
                Move::Edited(well) => terminal.ui.edited(if well { Ok(Edit::File) } else { Err("no".into()) }),
                Move::LeaveForeground => terminal.ui.leave_foreground(),
                Move::EnterForeground => terminal.ui.enter_foreground(),
                Move::Tick => terminal.ui.tick(terminal.run.snapshot()),
                Move::ClosePrompts => {
                    terminal.ui.close_prompts();
                    shut = true;
                }
            }
            for effect in terminal.ui.effects() {
                match effect {
                    Effect::Print(text) => printed.push_str(&text),
                    Effect::Send(RunControl::Request(Request::Answer { permission_request: ask, .. })) => answered.push(ask),
                    Effect::AnswerPress(_) => open_notices = 0,
                    _ => {}
                }
            }
            let wants = terminal.ui.key_mode();
            prop_assert!(!shut || wants == KeyMode::Lines);
            prop_assert!(open_notices == 0 || wants == KeyMode::Choice, "a press is open without a menu");
            if let Some(rows) = terminal.ui.rows(terminal.run.snapshot()) {
                prop_assert!(rows.rows.len() <= height);
                for row in &rows.rows {
                    prop_assert!(crate::rows::width(row) <= width.max(9), "{row:?}");
                }
            }
        }
        terminal.ui.close_prompts();
        terminal.ui.edited(Ok(Edit::File));
        for effect in terminal.ui.effects() {
            if let Effect::Print(text) = effect {
                printed.push_str(&text);
            }
        }
        let numbers: Vec<usize> = printed.lines().filter_map(|l| l.strip_prefix('#')?.parse().ok()).collect();
        prop_assert_eq!(numbers, (1..=written).collect::<Vec<_>>());
        for id in &asked {
            let count = |ids: &[String]| ids.iter().filter(|other| *other == id).count();
            prop_assert!(count(&answered) <= count(&asked));
        }
    }
}
