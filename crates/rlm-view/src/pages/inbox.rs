//! The inbox: the runs that wait for a person, and those that may soon.

use std::cmp::Reverse;
use std::sync::Arc;

use loop_state::Timestamp;
use maud::{Markup, html};

use super::list::doing;
use super::run::RunTerms;
use super::{PageContext, Part, age, run, state, with_times};
use crate::row::RunRow;

/// The largest number of entries on the page.
const MAX_ENTRIES: usize = 100;

/// Returns the runs that the inbox shows: questions first, then the rest by time.
pub(crate) fn select(mut rows: Vec<Arc<RunRow>>, now: Timestamp) -> Vec<Arc<RunRow>> {
    rows.retain(|row| row.is_in_inbox(now));
    rows.sort_by_key(|row| {
        let is_question = row.waits_for_person(now) && row.state.is_live();
        (!is_question, Reverse(row.last_at), row.key.clone())
    });
    rows.truncate(MAX_ENTRIES);
    rows
}

/// Returns the entries of the runs. `terms` returns the words of the command line for a run.
pub(crate) fn parts(
    rows: &[Arc<RunRow>],
    context: &PageContext,
    terms: &dyn Fn(&RunRow) -> RunTerms,
) -> Vec<Part> {
    let rows = rows.iter();
    rows.map(|row| entry(row, context, &terms(row))).collect()
}

pub(crate) fn order(rows: &[Arc<RunRow>]) -> Vec<String> {
    rows.iter().map(|row| id(row)).collect()
}

pub(crate) fn inbox(
    rows: &[Arc<RunRow>],
    context: &PageContext,
    terms: &dyn Fn(&RunRow) -> RunTerms,
) -> Markup {
    html! {
        div class="head" { h1 { "Inbox" } }
        p class="note" { "Runs that wait for you, and runs that failed or reached a limit in the last three days." }
        div id="rows" class="inbox" {
            @for part in parts(rows, context, terms) { (part.markup()) "\n" }
        }
        p class="empty none" { "Nothing waits for you." }
    }
}

fn id(row: &RunRow) -> String {
    format!("entry-{}", row.key)
}

fn entry(row: &RunRow, context: &PageContext, terms: &RunTerms) -> Part {
    let (word, class) = state(row);
    let project = row.root.file_name().unwrap_or(row.root.as_os_str());
    let html = html! {
        article id=(id(row)) class="entry" {
            div class="head" {
                span class={ "state " (class) } { (word) }
                h2 { a href={ "/runs/" (row.key) } { bdi { (row.title.as_deref().unwrap_or(row.run.as_str())) } } }
                span class="sub" { bdi { (project.to_string_lossy()) } span class="sep" { "·" } bdi { (row.run.as_str()) } span class="sep" { "·" } (age(row.since.filter(|_| row.state.is_live()).unwrap_or(row.last_at))) }
            }
            @if let Some(doing) = doing(row) { p class="now" { bdi { (with_times(doing)) } } }
            @if let Some(last) = row.texts.last_outcome.as_ref().filter(|_| !row.state.is_live()) { p class="note" { bdi { (last) } } }
            (run::questions(row, context))
            @if let Some(next) = &row.texts.next { pre { "\n" (next) } }
            @if !row.state.is_live() { (run::resume_actions(row, context, terms)) }
        }
    };
    Part::new(id(row), html)
}
