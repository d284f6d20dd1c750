//! The inbox: the runs that wait for a person, and those that may soon.

use std::sync::Arc;

use maud::{Markup, html};

use super::list::doing;
use super::{PageContext, Part, age, run, state};
use crate::row::RunRow;

/// The largest number of entries on the page.
const MAX_ENTRIES: usize = 100;

/// Returns the runs that the inbox shows: questions first, then the rest by time.
pub(crate) fn select(rows: Vec<Arc<RunRow>>) -> Vec<Arc<RunRow>> {
    let mut rows: Vec<_> = rows.into_iter().filter(|row| row.attention.is_some()).collect();
    rows.sort_by_key(|row| {
        let needs_person = row.attention.as_ref().is_some_and(|it| it.needs_person());
        (
            !(needs_person && row.state.is_live()),
            std::cmp::Reverse(row.last_at),
            row.key.clone(),
        )
    });
    rows.truncate(MAX_ENTRIES);
    rows
}

pub(crate) fn parts(rows: &[Arc<RunRow>], context: &PageContext) -> Vec<Part> {
    rows.iter().map(|row| entry(row, context)).collect()
}

pub(crate) fn order(rows: &[Arc<RunRow>]) -> Vec<String> {
    rows.iter().map(|row| id(row)).collect()
}

pub(crate) fn inbox(rows: &[Arc<RunRow>], context: &PageContext) -> Markup {
    html! {
        div class="head" { h1 { "Inbox" } }
        p class="note" { "Runs that wait for you, failed, or reached a limit." }
        div id="rows" class="inbox" {
            @for part in parts(rows, context) { (part.markup()) "\n" }
        }
        p class="empty none" { "Nothing waits for you." }
    }
}

fn id(row: &RunRow) -> String {
    format!("entry-{}", row.key)
}

fn entry(row: &RunRow, context: &PageContext) -> Part {
    let (word, class) = state(row);
    let project = row.root.file_name().unwrap_or(row.root.as_os_str());
    let html = html! {
        article id=(id(row)) class="entry" {
            div class="head" {
                span class={ "state " (class) } { (word) }
                h2 { a href={ "/runs/" (row.key) } { bdi { (row.title.as_deref().unwrap_or(row.run.as_str())) } } }
                span class="sub" { bdi { (project.to_string_lossy()) } span class="sep" { "·" } bdi { (row.run.as_str()) } span class="sep" { "·" } (age(row.since.filter(|_| row.state.is_live()).unwrap_or(row.last_at))) }
            }
            @if let Some(doing) = doing(row) { p class="now" { bdi { (doing) } } }
            (run::questions(row, context))
            @if !row.state.is_live() {
                @if let Some(next) = &row.texts.next { pre { "\n" (next) } }
            }
        }
    };
    Part::new(id(row), html)
}
