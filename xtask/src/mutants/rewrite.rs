//! Puts the mutants of a file into its text, each behind a condition, so that one build has them all.
//!
//! Each reads as cargo-mutants would write it: the expression around the change is copied, and the change made in the copy. So `a || b || c` with `&&` in
//! the place of the second `||` is what the compiler makes of it, and not what a tree of the first would be with another word in its node.

use std::collections::BTreeMap;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, Pat, Signature};

use super::list::{Mutant, Position};

/// What says in the new text whether a mutant is chosen: a function at the root of the crate.
const CONDITION: &str = "crate::is_mutant";

/// A file with its mutants in it.
#[derive(Debug)]
pub(super) struct Rewritten {
    pub(super) text: String,
    /// What can't stand behind a condition where it is.
    pub(super) unplaced: Vec<u32>,
    parts: Vec<Part>,
}

/// Where mutants are in the new text.
#[derive(Debug)]
pub(super) struct Part {
    place: Range<usize>,
    pub(super) mutants: Vec<u32>,
    /// Whether it is the words of one alone, or also what they stand beside.
    pub(super) is_own: bool,
}

impl Rewritten {
    /// The smallest part that has all of a place in the new text.
    pub(super) fn part_at(&self, place: &Range<usize>) -> Option<&Part> {
        let has = |part: &&Part| part.place.start <= place.start && place.end <= part.place.end;
        let parts = self.parts.iter().filter(has);
        parts.min_by_key(|part| part.place.len())
    }
}

/// Rewrites a file. None of the mutants is chosen until the function at the root of the crate says so.
pub(super) fn rewrite(text: &str, mutants: &[&Mutant]) -> Result<Rewritten, String> {
    let file = syn::parse_file(text).map_err(|error| error.to_string())?;
    let lines = starts_of_lines(text);
    let mut writer = Writer {
        text,
        wanted: BTreeMap::new(),
        pieces: Vec::new(),
    };
    for mutant in mutants {
        let at = |position| offset(text, &lines, position);
        let change = Change {
            number: mutant.number,
            place: at(mutant.span.start)..at(mutant.span.end),
            replacement: &mutant.replacement,
        };
        let key = (mutant.genre.as_str(), change.place.start);
        writer.wanted.entry(key).or_default().push(change);
    }
    writer.visit_file(&file);
    let left = writer.wanted.values().flatten();
    let unplaced = left.map(|change| change.number).collect();
    let (text, parts) = join(text, writer.pieces);
    Ok(Rewritten {
        text,
        unplaced,
        parts,
    })
}

fn starts_of_lines(text: &str) -> Vec<usize> {
    let ends = text.match_indices('\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(ends).collect()
}

fn offset(text: &str, lines: &[usize], position: Position) -> usize {
    let start = lines.get(position.line.saturating_sub(1));
    let start = start.copied().unwrap_or(text.len());
    let mut characters = text[start..].char_indices();
    let found = characters.nth(position.column.saturating_sub(1));
    found.map_or(text.len(), |(at, _)| start + at)
}

/// A mutant, by the bytes of the text.
#[derive(Debug)]
struct Change<'a> {
    number: u32,
    place: Range<usize>,
    replacement: &'a str,
}

/// What is put into the text at one place.
#[derive(Debug)]
struct Piece {
    at: usize,
    kind: Kind,
    text: String,
    /// The bytes of it that are one mutant's.
    own: Vec<(u32, Range<usize>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Stands alone.
    Whole,
    /// Has an end further on.
    Begin,
    End,
}

impl Piece {
    fn new(at: usize, kind: Kind, text: &str) -> Self {
        Self {
            at,
            kind,
            text: text.to_owned(),
            own: Vec::new(),
        }
    }

    /// Adds words that are there for one mutant.
    fn push(&mut self, number: u32, words: &str) {
        let start = self.text.len();
        self.text.push_str(words);
        self.own.push((number, start..self.text.len()));
    }
}

/// Joins the text and its pieces, which come in the order of a walk through the tree, so that of two at one place the outer begins first and ends last.
fn join(text: &str, mut pieces: Vec<Piece>) -> (String, Vec<Part>) {
    pieces.sort_by_key(|piece| piece.at);
    let (mut new, mut parts, mut open) = (String::new(), Vec::new(), Vec::new());
    let mut done = 0;
    for piece in pieces {
        new.push_str(&text[done..piece.at]);
        done = piece.at;
        let start = new.len();
        new.push_str(&piece.text);
        let own = piece.own.iter().map(|(number, place)| Part {
            place: start + place.start..start + place.end,
            mutants: vec![*number],
            is_own: true,
        });
        parts.extend(own);
        match piece.kind {
            Kind::Whole => {}
            Kind::Begin => open.push((start, piece.own)),
            Kind::End => {
                let began = open.pop();
                parts.extend(began.map(|(start, own)| Part {
                    place: start..new.len(),
                    mutants: own.iter().map(|(number, _)| *number).collect(),
                    is_own: false,
                }));
            }
        }
    }
    new.push_str(&text[done..]);
    (new, parts)
}

/// Walks through a file and collects what is to be put into it; what it has found no place for stays in `wanted`.
struct Writer<'a> {
    text: &'a str,
    wanted: BTreeMap<(&'a str, usize), Vec<Change<'a>>>,
    pieces: Vec<Piece>,
}

impl<'a> Writer<'a> {
    fn take(&mut self, genre: &'static str, of: &impl Spanned) -> Vec<Change<'a>> {
        let key = (genre, place(of).start);
        self.wanted.remove(&key).unwrap_or_default()
    }

    /// Returns a value before the body does anything.
    fn function(&mut self, signature: &Signature, block: &Block) {
        // A constant function can't ask.
        if signature.constness.is_some() {
            return;
        }
        // Two values of `impl Trait` would have to be of one type.
        let is_opaque = self.text[place(&signature.output)].contains("impl ");
        if let Some(first) = block.stmts.first().filter(|_| !is_opaque) {
            let changes = self.take("FnValue", first);
            let mut piece = Piece::new(place(first).start, Kind::Whole, "");
            for Change {
                number,
                replacement,
                ..
            } in changes
            {
                let words = format!("if {CONDITION}({number}) {{ return {replacement}; }} ");
                piece.push(number, &words);
            }
            self.pieces.push(piece);
        }
        self.visit_block(block);
    }

    /// Puts the changed copies of an expression before it.
    fn expression(&mut self, it: &Expr, changes: &[Change<'_>]) {
        if changes.is_empty() {
            return visit::visit_expr(self, it);
        }
        let place = place(it);
        let mut begin = Piece::new(place.start, Kind::Begin, "(");
        for change in changes {
            let before = &self.text[place.start..change.place.start];
            let behind = &self.text[change.place.end..place.end];
            let Change {
                number,
                replacement,
                ..
            } = change;
            let words =
                format!("if {CONDITION}({number}) {{ ({before}{replacement}{behind}) }} else ");
            begin.push(*number, &words);
        }
        begin.text.push_str("{ (");
        self.around(begin, place.end, ") })", |this| visit::visit_expr(this, it));
    }

    fn around(&mut self, begin: Piece, at: usize, end: &str, within: impl FnOnce(&mut Self)) {
        self.pieces.push(begin);
        within(self);
        self.pieces.push(Piece::new(at, Kind::End, end));
    }

    /// Of `a && let Some(b) = c && d` only the operands can be copied, since a `let` is no expression elsewhere.
    fn let_chain(&mut self, it: &Expr) {
        match it {
            Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
                self.let_chain(&binary.left);
                self.let_chain(&binary.right);
            }
            other => self.visit_expr(other),
        }
    }

    fn guard(&mut self, guard: &Expr) {
        let changes = match has_let(guard) {
            true => Vec::new(),
            false => self.take("MatchArmGuard", guard),
        };
        if changes.is_empty() {
            return self.visit_expr(guard);
        }
        let mut begin = Piece::new(place(guard).start, Kind::Begin, "");
        let (always, never): (Vec<_>, Vec<_>) =
            { changes.iter() }.partition(|change| change.replacement == "true");
        for Change { number, .. } in always {
            begin.push(*number, &format!("{CONDITION}({number}) || "));
        }
        for Change { number, .. } in never {
            begin.push(*number, &format!("!{CONDITION}({number}) && "));
        }
        begin.text.push('(');
        self.around(begin, place(guard).end, ")", |this| this.visit_expr(guard));
    }

    fn arm(&mut self, arm: &syn::Arm, others_take_all: bool) {
        match &arm.pat {
            Pat::Guard(guarded) => self.guard(&guarded.guard),
            // Behind a condition an arm does not count for what has to be complete, and so the compiler could refuse what it takes without the arm.
            pattern if others_take_all => {
                for Change { number, .. } in self.take("MatchArm", arm) {
                    let mut piece = Piece::new(place(pattern).end, Kind::Whole, "");
                    piece.push(number, &format!(" if !{CONDITION}({number})"));
                    self.pieces.push(piece);
                }
            }
            _ => {}
        }
        self.visit_expr(&arm.body);
    }
}

impl<'a, 'ast> Visit<'ast> for Writer<'a> {
    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        self.function(&it.sig, &it.block);
    }

    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        self.function(&it.sig, &it.block);
    }

    fn visit_trait_item_fn(&mut self, it: &'ast syn::TraitItemFn) {
        if let Some(block) = &it.default {
            self.function(&it.sig, block);
        }
    }

    fn visit_expr(&mut self, it: &'ast Expr) {
        match it {
            Expr::Binary(_) if has_let(it) => self.let_chain(it),
            // The outermost of a row of them: another operator may bind in another way, so that a part of the row is none any more.
            Expr::Binary(_) => {
                let mut changes = Vec::new();
                for operator in operators(it) {
                    changes.extend(self.take("BinaryOperator", operator));
                }
                self.expression(it, &changes);
            }
            Expr::Unary(unary) => {
                let changes = self.take("UnaryOperator", &unary.op);
                self.expression(it, &changes);
            }
            Expr::Struct(literal) => {
                let mut changes = Vec::new();
                for field in &literal.fields {
                    changes.extend(self.take("StructField", field));
                }
                self.expression(it, &changes);
            }
            _ => visit::visit_expr(self, it),
        }
    }

    fn visit_expr_match(&mut self, it: &'ast syn::ExprMatch) {
        self.visit_expr(&it.expr);
        let takes_all = |arm: &syn::Arm| matches!(arm.pat, Pat::Wild(_));
        let others_take_all = it.arms.iter().any(takes_all);
        for arm in &it.arms {
            self.arm(arm, others_take_all);
        }
    }

    // What is computed by the compiler can't ask either, and what is no expression has no place for a condition.

    fn visit_expr_repeat(&mut self, it: &'ast syn::ExprRepeat) {
        self.visit_expr(&it.expr);
    }

    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
}

fn place(of: &impl Spanned) -> Range<usize> {
    of.span().byte_range()
}

fn has_let(it: &Expr) -> bool {
    match it {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// The operators of a row, as `a + b * c` has two.
fn operators(it: &Expr) -> Vec<&BinOp> {
    match it {
        Expr::Binary(binary) => {
            let mut all = operators(&binary.left);
            all.push(&binary.op);
            all.extend(operators(&binary.right));
            all
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
pub(super) mod tests;
