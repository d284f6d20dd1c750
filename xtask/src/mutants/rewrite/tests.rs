//! A small file with each kind of change, rewritten, compiled, and run with each of them.

use std::process::Command;

use proptest::prelude::*;

use super::super::build::{CHOICE, FUNCTION};
use super::*;
use crate::command::{self, Show};

/// A mutant where `what` first stands in `text`.
pub(in crate::mutants) fn mutant(
    number: u32,
    text: &str,
    genre: &str,
    what: &str,
    replacement: &str,
) -> Mutant {
    let start = text.find(what).unwrap();
    let position = |at: usize| Position {
        line: text[..at].matches('\n').count() + 1,
        column: text[..at].chars().rev().take_while(|c| *c != '\n').count() + 1,
    };
    Mutant {
        number,
        genre: genre.into(),
        span: position(start)..position(start + what.len()),
        replacement: replacement.into(),
        ..Mutant::default()
    }
}

/// `§` marks what is changed, and is taken out.
fn marked(number: u32, text: &str, genre: &str, replacement: &str) -> (String, Mutant) {
    let [before, what, behind] = text.split('§').collect::<Vec<_>>().try_into().unwrap();
    let marked = mutant(number, text, genre, &format!("§{what}§"), replacement);
    let mut end = marked.span.end;
    // Both marks are in what was counted, where it ends on the line on which it begins.
    end.column -= if end.line == marked.span.start.line {
        2
    } else {
        1
    };
    let span = marked.span.start..end;
    ([before, what, behind].concat(), Mutant { span, ..marked })
}

/// Rewrites the body of a function with one mutant in it; nothing where it has no place.
fn body(text: &str, genre: &str, replacement: &str) -> Option<String> {
    let (text, mutant) = marked(7, &format!("fn f() {{ {text} }}"), genre, replacement);
    let new = rewrite(&text, &[&mutant]).unwrap();
    syn::parse_file(&new.text).unwrap();
    match new.unplaced.as_slice() {
        [] => Some(new.text[9..new.text.len() - 2].to_owned()),
        [7] if new.text == text => None,
        unplaced => panic!("{unplaced:?}: {}", new.text),
    }
}

fn with(words: &str) -> Option<String> {
    Some(words.replace('M', "crate::is_mutant(7)"))
}

#[test]
fn each_kind_of_change_has_its_place() {
    for (text, genre, replacement, expected) in [
        ("§1§", "FnValue", "0", "if M { return 0; } 1"),
        (
            "a §<§ b",
            "BinaryOperator",
            ">",
            "(if M { (a > b) } else { (a < b) })",
        ),
        (
            "a §+=§ b;",
            "BinaryOperator",
            "-=",
            "(if M { (a -= b) } else { (a += b) });",
        ),
        (
            "a.b(§!§c)",
            "UnaryOperator",
            "",
            "a.b((if M { (c) } else { (!c) }))",
        ),
        (
            "A { §b: 1,§ ..c }",
            "StructField",
            "",
            "(if M { (A {  ..c }) } else { (A { b: 1, ..c }) })",
        ),
        (
            "match a { §1 => 2,§ _ => 3 }",
            "MatchArm",
            "",
            "match a { 1 if !M => 2, _ => 3 }",
        ),
        (
            "match a { b if §b§ => 2, _ => 3 }",
            "MatchArmGuard",
            "true",
            "match a { b if M || (b) => 2, _ => 3 }",
        ),
        (
            "match a { b if §b§ => 2, _ => 3 }",
            "MatchArmGuard",
            "false",
            "match a { b if !M && (b) => 2, _ => 3 }",
        ),
    ] {
        assert_eq!(body(text, genre, replacement), with(expected), "{text}");
    }
}

/// A tree with another operator in its node would be `(a || b) && c`.
#[test]
fn a_change_means_what_the_compiler_reads_in_its_place() {
    assert_eq!(
        body("a || b §||§ c", "BinaryOperator", "&&"),
        with("(if M { (a || b && c) } else { (a || b || c) })")
    );
    assert_eq!(
        body("a - b §*§ c", "BinaryOperator", "+"),
        with("(if M { (a - b + c) } else { (a - b * c) })")
    );
}

#[test]
fn an_operand_of_a_chain_with_let_is_changed_and_the_chain_is_not() {
    assert_eq!(
        body("if let Some(a) = b && c §==§ d {}", "BinaryOperator", "!="),
        with("if let Some(a) = b && (if M { (c != d) } else { (c == d) }) {}")
    );
    assert_eq!(
        body("if let Some(a) = b §&&§ c {}", "BinaryOperator", "||"),
        None
    );
    assert_eq!(
        body("if a §&&§ b && let c = d {}", "BinaryOperator", "||"),
        None
    );
}

#[test]
fn what_can_not_ask_is_left() {
    for (text, genre, replacement) in [
        ("const A: u8 = 1 §+§ 2;", "BinaryOperator", "-"),
        ("const fn a() -> u8 { §1§ }", "FnValue", "0"),
        ("static A: i8 = §-§1;", "UnaryOperator", ""),
        ("[0; 1 §+§ 2]", "BinaryOperator", "-"),
        ("const { 1 §+§ 2 }", "BinaryOperator", "-"),
        ("enum A { B = 1 §+§ 2 }", "BinaryOperator", "-"),
        ("let a: [u8; 1 §+§ 2];", "BinaryOperator", "-"),
        ("match a { §-§1 => 1, _ => 2 }", "UnaryOperator", ""),
        ("b!(1 §+§ 2)", "BinaryOperator", "-"),
        (
            "fn a() -> impl Iterator<Item = u8> { §b()§ }",
            "FnValue",
            "::std::iter::empty()",
        ),
        // Without a rest that takes all, the compiler would miss the arm.
        ("match a { §1 => 2,§ _ if b => 3, c => 4 }", "MatchArm", ""),
        ("1 §+§ 2", "NewKind", "-"),
    ] {
        assert_eq!(body(text, genre, replacement), None, "{text}");
    }
}

#[test]
fn places_are_counted_in_characters() {
    assert_eq!(
        body("\"ä→\"; /* é */ a §<§ b", "BinaryOperator", ">"),
        with("\"ä→\"; /* é */ (if M { (a > b) } else { (a < b) })")
    );
}

const PROGRAM: &str = r#"
#[derive(Debug)]
struct Pair { one: i32, other: i32 }
impl Default for Pair { fn default() -> Self { Self { one: 10, other: 20 } } }
fn value(a: i32) -> i32 {
    a + 1 * 2
}
fn kind(a: i32) -> &'static str {
    match a {
        1 => "one",
        n if n > 4 => "many",
        _ => "some",
    }
}
fn main() {
    let no = false;
    let yes = !no;
    let pair = Pair { one: 1, ..Pair::default() };
    println!("{} {} {} {} {:?}", value(3), kind(1), kind(5), yes, [pair.one, pair.other]);
}
"#;

/// Changes of the program, and what it prints with each. The first is none.
const CHANGES: [(&str, &str, &str, &str); 9] = [
    ("", "", "", "5 one many true [1, 20]"),
    ("FnValue", "a + 1 * 2", "-1", "-1 one many true [1, 20]"),
    ("BinaryOperator", "+", "-", "1 one many true [1, 20]"),
    ("BinaryOperator", "*", "+", "6 one many true [1, 20]"),
    ("MatchArm", "1 => \"one\",", "", "5 some many true [1, 20]"),
    ("MatchArmGuard", "n > 4", "false", "5 one some true [1, 20]"),
    ("BinaryOperator", "> 4", "<", "5 one some true [1, 20]"),
    ("UnaryOperator", "!no", "", "5 one many false [1, 20]"),
    ("StructField", "one: 1,", "", "5 one many true [10, 20]"),
];

fn changes() -> Vec<Mutant> {
    let changes = (0..).zip(CHANGES).skip(1);
    let mutant = |(number, (genre, what, new, _))| {
        let mut mutant = mutant(number, PROGRAM, genre, what, new);
        // An operator is changed alone, and found by what follows it.
        if genre.ends_with("Operator") {
            mutant.span.end.column = mutant.span.start.column + 1;
        }
        mutant
    };
    changes.map(mutant).collect()
}

#[test]
fn a_program_with_all_changes_has_the_one_that_is_chosen() {
    let changes = changes();
    let new = rewrite(PROGRAM, &Vec::from_iter(&changes)).unwrap();
    assert_eq!(new.unplaced, [0; 0]);
    let place = tempfile::tempdir().unwrap();
    let (source, program) = (place.path().join("a.rs"), place.path().join("a"));
    fs_err::write(&source, new.text + FUNCTION).unwrap();
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "--cap-lints", "allow", "-o"]);
    let built = command::finish(rustc.arg(&program).arg(&source), Show::Never);
    assert!(built.success, "{}", built.output);
    for (number, (genre, what, _, expected)) in CHANGES.into_iter().enumerate() {
        let mut run = Command::new(&program);
        let ended = command::finish(run.env(CHOICE, number.to_string()), Show::Never);
        assert_eq!(ended.output.trim(), expected, "{number}: {genre} {what}");
    }
}

proptest! {
    /// Whichever of them are tried together, and wherever the compiler's words may point.
    #[test]
    fn what_is_rewritten_is_a_program_and_has_only_what_was_asked_for(
        chosen in proptest::collection::vec(any::<bool>(), CHANGES.len() - 1),
        at in 0..4000_usize,
    ) {
        let all = changes();
        let chosen = all.iter().zip(chosen).filter(|it| it.1);
        let chosen: Vec<_> = chosen.map(|it| it.0).collect();
        let new = rewrite(PROGRAM, &chosen).unwrap();
        prop_assert!(syn::parse_file(&new.text).is_ok(), "{}", new.text);
        for mutant in &all {
            let condition = format!("{CONDITION}({})", mutant.number);
            prop_assert_eq!(new.text.contains(&condition), chosen.contains(&mutant));
        }
        if let Some(part) = new.part_at(&(at..at)) {
            let known = |number: &u32| chosen.iter().any(|mutant| mutant.number == *number);
            prop_assert!(!part.mutants.is_empty() && part.mutants.iter().all(known));
        }
    }
}
