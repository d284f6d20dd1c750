//! The menu that a press opens.

use super::keys::Key;
use super::rows::Rows;
use super::scene::Scene;

/// Something that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Continue,
    Steer,
    EditPrompt,
    SkipSleep,
    Restart,
    StartOver,
    Detach,
    Exit,
    Abort,
}

const CHOICES: [(Choice, char, &str); 9] = [
    (Choice::Continue, 'c', "continue"),
    (Choice::Steer, 's', "steer"),
    (Choice::EditPrompt, 'e', "edit prompt"),
    (Choice::SkipSleep, 'k', "skip the sleep"),
    (Choice::Restart, 'r', "restart the iteration (files stay)"),
    (
        Choice::StartOver,
        'o',
        "start over at iteration 1 (files stay)",
    ),
    (Choice::Detach, 'd', "detach: leave the run to itself"),
    (Choice::Exit, 'x', "save and exit"),
    (Choice::Abort, 'a', "abort: end at once (saved too)"),
];

/// What a key means in the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    It(Choice),
    /// The menu closes and nothing else happens.
    Nothing,
    /// There is no such choice, or not now.
    Wrong(char),
}

/// Returns whether a choice makes sense now.
fn is_active(choice: Choice, scene: Scene<'_>) -> bool {
    match choice {
        Choice::Continue => true,
        Choice::Detach => scene.attached,
        _ if scene.is_ending() => false,
        Choice::SkipSleep => scene.sleeps(),
        Choice::Restart => scene.head.iteration > 0,
        _ => true,
    }
}

/// Returns what a key chooses; `None` for keys that choose nothing and are no mistake.
pub(crate) fn choose(key: &Key, scene: Scene<'_>) -> Option<Chosen> {
    match key {
        Key::Enter | Key::NewLine => Some(Chosen::It(Choice::Continue)),
        Key::Esc => Some(Chosen::Nothing),
        Key::Char(c) => {
            let letter = c.to_lowercase().next().unwrap_or(*c);
            let found = CHOICES.iter().find(|(_, key, _)| *key == letter);
            let active = found.filter(|(choice, ..)| is_active(*choice, scene));
            Some(active.map_or(Chosen::Wrong(*c), |(choice, ..)| Chosen::It(*choice)))
        }
        _ => None,
    }
}

/// Lays the menu out in at most so many columns and rows. What makes no sense now is left out.
pub(crate) fn rows(
    scene: Scene<'_>,
    waits_for_answer: bool,
    hint: Option<&str>,
    (width, height): (usize, usize),
) -> Rows {
    let goes_on = match (scene.is_ending(), waits_for_answer, scene.waits()) {
        (true, ..) => "the run is ending",
        (_, true, _) => "the agent waits for an answer",
        (.., true) => "the run waits",
        _ => "the run goes on meanwhile",
    };
    let line = |(choice, key, label): &(Choice, char, &str)| {
        let more = match choice {
            Choice::Continue => " (Enter, Esc)",
            Choice::Steer if !scene.hears() => " (with the next prompt)",
            _ => "",
        };
        let label = match choice {
            Choice::SkipSleep if scene.is_limited() => "skip the wait: try now",
            _ => label,
        };
        format!("  {key}  {label}{more}")
    };
    let end = hint.unwrap_or(match scene.attached {
        true => "Ctrl-C again detaches",
        false => "Ctrl-C again saves and stops",
    });
    let active = || {
        CHOICES
            .iter()
            .filter(|(choice, ..)| is_active(*choice, scene))
    };
    let mut lines = vec![format!("menu: {goes_on}")];
    lines.extend(active().map(line));
    if lines.len() >= height {
        let words = active().map(|(_, key, label)| {
            let label = label.split([':', '(']).next().unwrap_or_default();
            format!("{key} {}", label.trim_end())
        });
        let mut words = words.collect::<Vec<_>>().join(", ");
        lines.truncate(1);
        lines.extend(super::rows::take_rows(&mut words, width));
        lines.push(words);
    }
    if lines.len() >= height {
        let keys = active().flat_map(|(_, key, _)| [' ', *key]);
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
    use crate::terminal::stage::at;
    use loop_state::{Step, Timestamp};
    use proptest::prelude::*;

    fn letters(step: Step) -> String {
        let stand = at(step);
        let active = |(choice, ..): &&(Choice, char, &str)| is_active(*choice, stand.scene());
        CHOICES
            .iter()
            .filter(active)
            .map(|(_, key, _)| *key)
            .collect()
    }

    #[test]
    fn s09_all_is_offered_and_only_what_makes_sense_is_active() {
        let turn = at(Step::Turn {
            since: Timestamp(0),
        });
        insta::assert_snapshot!(rows(turn.scene(), false, None, (60, 20)).rows.join("\n"), @"
        menu: the run goes on meanwhile
          c  continue (Enter, Esc)
          s  steer (with the next prompt)
          e  edit prompt
          r  restart the iteration (files stay)
          o  start over at iteration 1 (files stay)
          x  save and exit
          a  abort: end at once (saved too)
        Ctrl-C again saves and stops
        ");
        let until = Timestamp(9);
        assert_eq!(letters(Step::Turn { since: until }), "cseroxa");
        assert_eq!(letters(Step::Sleeping { until }), "csekroxa");
        let mut ready = at(Step::Ready);
        ready.head.iteration = 0;
        assert_eq!(
            choose(&Key::Char('r'), ready.scene()),
            Some(Chosen::Wrong('r'))
        );
    }

    #[test]
    fn s09_letters_are_case_blind_and_a_wrong_one_is_said() {
        let stand = at(Step::Turn {
            since: Timestamp(0),
        });
        let choice = |key| choose(&key, stand.scene()).unwrap();
        assert_eq!(choice(Key::Char('X')), Chosen::It(Choice::Exit));
        assert_eq!(choice(Key::Enter), Chosen::It(Choice::Continue));
        assert_eq!(choice(Key::Esc), Chosen::Nothing);
        assert_eq!(choice(Key::Char('k')), Chosen::Wrong('k'));
        assert_eq!(choice(Key::Char('ß')), Chosen::Wrong('ß'));
        assert_eq!(choose(&Key::Up, stand.scene()), None);
    }

    #[test]
    fn a_small_screen_has_room_for_it() {
        let stand = at(Step::Sleeping {
            until: Timestamp(1),
        });
        let drawn = |width, height| {
            rows(stand.scene(), false, None, (width, height))
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
        fn it_fits_any_screen(width in 1usize..100, height in 1usize..30, hint in "[^\\p{Cc}]{0,50}") {
            let stand = at(Step::Turn { since: Timestamp(0) });
            let menu = rows(stand.scene(), true, Some(&hint), (width, height));
            prop_assert!(menu.rows.len() <= height);
            for row in &menu.rows {
                prop_assert!(crate::terminal::rows::width(row) <= width.max(2), "{row:?}");
            }
            let (row, column) = menu.cursor.unwrap();
            prop_assert!(row < menu.rows.len() && column <= width);
        }
    }
}
