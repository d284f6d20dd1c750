//! The menu that a press or a review opens: its choices, their keys, and its layout.

use loop_runner::SteerDelivery;

use super::keys::Key;
use super::rows::Rows;
use super::run_snapshot::RunSnapshot;

/// A choice of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Continue,
    Steer,
    EndTurn,
    Revise,
    EditPrompt,
    SkipSleep,
    Restart,
    StartOver,
    Detach,
    Exit,
    Abort,
}

const CHOICES: [(Choice, char, &str); 10] = [
    (Choice::Continue, 'c', "continue"),
    // The label says when the agent gets the message, see `steer_label`.
    (Choice::Steer, 's', "steer"),
    (Choice::EndTurn, 't', "end this turn, keep the session"),
    (Choice::EditPrompt, 'e', "edit prompt"),
    (Choice::SkipSleep, 'k', "skip the sleep"),
    (Choice::Restart, 'r', "restart the iteration (files stay)"),
    (
        Choice::StartOver,
        'o',
        "start over at iteration 1 (files stay)",
    ),
    (Choice::Detach, 'd', "detach: the run continues without you"),
    (Choice::Exit, 'x', "save and exit"),
    (Choice::Abort, 'a', "abort: save, and stop within 1 s"),
];

/// The choices while a phase or a batch waits for a review.
const REVIEW_CHOICES: [(Choice, char, &str); 6] = [
    (Choice::Continue, 'c', "continue"),
    (Choice::Revise, 'r', "revise"),
    (Choice::EditPrompt, 'e', "edit prompt"),
    (Choice::StartOver, 'o', "start over"),
    (Choice::Detach, 'd', "detach: the run continues without you"),
    (
        Choice::Exit,
        'x',
        "save and exit: you'll be asked again on resume",
    ),
];

/// The meaning of a key in the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MenuChoice {
    Choice(Choice),
    /// The menu closes and nothing else happens.
    Nothing,
    /// The key is not an option, or not one that is possible now.
    Invalid(char),
}

/// Returns the choices that are possible now, with their keys and labels.
fn choices(snapshot: RunSnapshot<'_>) -> Vec<(Choice, char, String)> {
    if let Some(review) = snapshot.review() {
        let say =
            |(choice, key, label): (Choice, char, &str)| (choice, key, review.label(choice, label));
        let is_active =
            |(choice, ..): &(Choice, char, &str)| *choice != Choice::Detach || snapshot.attached;
        return REVIEW_CHOICES
            .into_iter()
            .filter(is_active)
            .map(say)
            .collect();
    }
    let active = CHOICES.into_iter().filter(|it| is_active(it.0, snapshot));
    let label = |choice, label| match choice {
        Choice::Steer => steer_label(snapshot),
        Choice::SkipSleep if snapshot.is_limited() => "skip the wait: try now",
        _ => label,
    };
    active
        .map(|(choice, key, text)| (choice, key, label(choice, text).to_owned()))
        .collect()
}

/// Returns the label of the steer: it says when the agent gets a message that the person sends now.
fn steer_label(snapshot: RunSnapshot<'_>) -> &'static str {
    match snapshot.steer_delivery() {
        SteerDelivery::InTurn => "steer: message the agent in this turn",
        SteerDelivery::AfterTurn => "steer: message the agent after this turn",
        SteerDelivery::ContinuesSession => "steer: continue with a message to the agent",
        _ => "steer: add a message to the next prompt",
    }
}

/// Whether a choice is possible now.
fn is_active(choice: Choice, snapshot: RunSnapshot<'_>) -> bool {
    match choice {
        Choice::Continue => true,
        Choice::Detach => snapshot.attached,
        _ if snapshot.is_ending() => false,
        Choice::EndTurn => snapshot.has_turn_to_end(),
        Choice::SkipSleep => snapshot.is_sleeping(),
        Choice::Restart => snapshot.head.iteration > 0,
        _ => true,
    }
}

/// Returns the meaning of a key; `None` for keys without a meaning, such as the arrow keys.
pub(crate) fn choice_for_key(key: &Key, snapshot: RunSnapshot<'_>) -> Option<MenuChoice> {
    match key {
        Key::Enter | Key::NewLine => Some(MenuChoice::Choice(Choice::Continue)),
        Key::Esc => Some(MenuChoice::Nothing),
        Key::Char(c) => {
            let letter = c.to_lowercase().next().unwrap_or(*c);
            let found = { choices(snapshot).into_iter() }.find(|(_, key, _)| *key == letter);
            Some(found.map_or(MenuChoice::Invalid(*c), |(choice, ..)| {
                MenuChoice::Choice(choice)
            }))
        }
        _ => None,
    }
}

/// Lays the menu out in at most `width` columns and `height` rows, with the choices that are possible now.
pub(crate) fn rows(
    snapshot: RunSnapshot<'_>,
    waits_for_answer: bool,
    hint: Option<&str>,
    (width, height): (usize, usize),
) -> Rows {
    let activity = match (
        snapshot.is_ending(),
        waits_for_answer,
        snapshot.awaits_person(),
    ) {
        (true, ..) => "the run is ending",
        (_, true, _) => "the agent waits for an answer",
        (.., true) => "the run waits for you",
        _ => "the run continues",
    };
    let (active, review) = (choices(snapshot), snapshot.review());
    let line = |(choice, key, label): &(Choice, char, String)| {
        let more = match choice {
            Choice::Continue if review.is_some() => " (Enter)",
            Choice::Continue => " (Enter, Esc)",
            _ => "",
        };
        format!("  {key}  {label}{more}")
    };
    let end = hint.unwrap_or(match snapshot.attached {
        true => "Ctrl-C again detaches",
        false => "Ctrl-C again saves and stops",
    });
    let mut lines = vec![review.map_or_else(|| format!("menu ({activity})"), |it| it.question())];
    lines.extend(active.iter().map(line));
    if lines.len() >= height {
        let words = active.iter().map(|(_, key, label)| {
            let label = label.split([':', '(', ',']).next().unwrap_or_default();
            format!("{key} {}", label.trim_end())
        });
        let mut words = words.collect::<Vec<_>>().join(", ");
        lines.truncate(1);
        lines.extend(super::rows::take_rows(&mut words, width));
        lines.push(words);
    }
    if lines.len() >= height {
        let keys = active.iter().flat_map(|(_, key, _)| [' ', *key]);
        let mut keys: String = "menu".chars().chain(keys).collect();
        lines = super::rows::take_rows(&mut keys, width);
        lines.push(keys);
    }
    lines.push(end.to_owned());
    lines.truncate(height.max(1));
    let mut rows = Rows::cut(lines.iter().map(String::as_str), width);
    let column = rows.rows.last().map_or(0, |row| super::rows::width(row));
    rows.cursor = Some((rows.rows.len() - 1, column.min(width.saturating_sub(1))));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_run::{TestRun, at, pipeline};
    use loop_state::{IterationStep, ReviewPoint, Timestamp};
    use proptest::prelude::*;

    fn letters(step: IterationStep) -> String {
        let run = at(step);
        let active = choices(run.snapshot()).into_iter();
        active.map(|(_, key, _)| key).collect()
    }

    #[test]
    fn s9a_menu_shows_only_the_choices_that_are_possible_now() {
        let turn = at(IterationStep::Turn {
            since: Timestamp::from_millis(0),
        });
        insta::assert_snapshot!(rows(turn.snapshot(), false, None, (60, 20)).rows.join("\n"), @"
        menu (the run continues)
          c  continue (Enter, Esc)
          s  steer: add a message to the next prompt
          e  edit prompt
          r  restart the iteration (files stay)
          o  start over at iteration 1 (files stay)
          x  save and exit
          a  abort: save, and stop within 1 s
        Ctrl-C again saves and stops
        ");
        let until = Timestamp::from_millis(9);
        assert_eq!(letters(IterationStep::Turn { since: until }), "cseroxa");
        assert_eq!(letters(IterationStep::Sleeping { until }), "csekroxa");
        let mut able = at(IterationStep::Turn { since: until });
        (able.agent.alive, able.agent.interruptible) = (true, true);
        let drawn = rows(able.snapshot(), false, None, (60, 20)).rows.join("\n");
        assert!(
            drawn.contains("  t  end this turn, keep the session\n"),
            "{drawn}"
        );
        able.head.step = IterationStep::Interrupted { since: until };
        assert_eq!(
            choice_for_key(&Key::Char('t'), able.snapshot()),
            Some(MenuChoice::Invalid('t'))
        );
        let mut ready = at(IterationStep::Ready);
        ready.head.iteration = 0;
        assert_eq!(
            choice_for_key(&Key::Char('r'), ready.snapshot()),
            Some(MenuChoice::Invalid('r'))
        );
    }

    #[test]
    fn s9a_steer_label_names_the_moment_of_the_delivery() {
        let since = Timestamp::from_millis(0);
        let turn = || IterationStep::Turn { since };
        let interrupted = || IterationStep::Interrupted { since };
        let label = |(interruptible, steerable), step| {
            let mut run = at(step);
            run.agent.alive = true;
            (run.agent.interruptible, run.agent.steerable) = (interruptible, steerable);
            let rows = rows(run.snapshot(), false, None, (60, 20)).rows;
            let row = rows.into_iter().find(|row| row.starts_with("  s  "));
            row.unwrap()
        };
        let (command, turns, within) = ((false, false), (true, false), (true, true));
        let labels = [
            label(command, turn()),
            label(turns, turn()),
            label(within, turn()),
            label(turns, interrupted()),
            label(within, interrupted()),
            label(within, IterationStep::Check),
            label(within, IterationStep::Sleeping { until: since }),
            label(within, IterationStep::Paused { since }),
        ];
        insta::assert_snapshot!(labels.join("\n"), @"
          s  steer: add a message to the next prompt
          s  steer: message the agent after this turn
          s  steer: message the agent in this turn
          s  steer: continue with a message to the agent
          s  steer: continue with a message to the agent
          s  steer: add a message to the next prompt
          s  steer: add a message to the next prompt
          s  steer: add a message to the next prompt
        ");
    }

    #[test]
    fn x120e_review_names_the_finished_phase_or_batch_and_the_choices() {
        let of = |step: fn(Timestamp) -> IterationStep| pipeline(step(Timestamp::from_millis(7)));
        let phase = of(|since| IterationStep::Review {
            since,
            point: ReviewPoint::Phase,
        });
        let mut batch = of(|since| IterationStep::Review {
            since,
            point: ReviewPoint::Batch,
        });
        batch.head.iteration = 4;
        let drawn = |run: &TestRun| {
            let rows = rows(run.snapshot(), false, None, (90, 20)).rows;
            rows.join("\n")
        };
        insta::assert_snapshot!(format!("{}\n\n{}", drawn(&phase), drawn(&batch)), @"
        phase `plan` (1 of 3) finished: review it
          c  continue with phase `build` (Enter)
          r  revise: run phase `plan` again with your message in its prompt
          e  edit prompt of phase `build`
          o  start over: phase `plan` from iteration 1 (files stay)
          x  save and exit: you'll be asked again on resume
        Ctrl-C again saves and stops

        iteration 4 of phase `build` (2 of 3) ends a batch: review it
          c  continue (Enter)
          r  revise: add your message to the next prompt
          e  edit prompt of phase `build`
          o  start over: phase `build` from iteration 1 (files stay)
          x  save and exit: you'll be asked again on resume
        Ctrl-C again saves and stops
        ");
        assert_eq!(
            choice_for_key(&Key::Char('a'), phase.snapshot()),
            Some(MenuChoice::Invalid('a'))
        );
    }

    #[test]
    fn s9c_s9d_s9e_letters_ignore_case_and_wrong_ones_are_reported() {
        let run = at(IterationStep::Turn {
            since: Timestamp::from_millis(0),
        });
        let choice = |key| choice_for_key(&key, run.snapshot()).unwrap();
        assert_eq!(choice(Key::Char('X')), MenuChoice::Choice(Choice::Exit));
        assert_eq!(choice(Key::Enter), MenuChoice::Choice(Choice::Continue));
        assert_eq!(choice(Key::Esc), MenuChoice::Nothing);
        assert_eq!(choice(Key::Char('k')), MenuChoice::Invalid('k'));
        assert_eq!(choice(Key::Char('ß')), MenuChoice::Invalid('ß'));
        assert_eq!(choice_for_key(&Key::Up, run.snapshot()), None);
    }

    #[test]
    fn menu_fits_a_small_screen() {
        let run = at(IterationStep::Sleeping {
            until: Timestamp::from_millis(1),
        });
        let drawn = |width, height| {
            rows(run.snapshot(), false, None, (width, height))
                .rows
                .join("\n")
        };
        insta::assert_snapshot!(drawn(19, 9), @"
        menu c s e k r o x
        a
        Ctrl-C again saves…
        ");
        insta::assert_snapshot!(drawn(8, 5), @"
        menu c s
        e k r o
        x a
        Ctrl-C …
        ");
    }

    proptest! {
        #[test]
        fn menu_fits_any_screen(width in 1usize..100, height in 1usize..30, hint in "[^\\p{Cc}]{0,50}") {
            let run = at(IterationStep::Turn { since: Timestamp::from_millis(0) });
            let menu = rows(run.snapshot(), true, Some(&hint), (width, height));
            prop_assert!(menu.rows.len() <= height);
            for row in &menu.rows {
                prop_assert!(crate::rows::width(row) <= width.max(2), "{row:?}");
            }
            let (row, column) = menu.cursor.unwrap();
            prop_assert!(row < menu.rows.len() && column <= width);
        }
    }
}
