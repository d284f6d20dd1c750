//! The list of all runs.

use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::Arc;

use loop_state::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::{Part, age, iterations, state, usage, with_times};
use crate::row::RunRow;

/// The number of rows on one page.
const PAGE: usize = 100;
/// The longest search text, in characters.
const MAX_SEARCH: usize = 200;

/// The choice of runs, as the address of the page contains it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Filter {
    /// Words that each run must contain.
    pub(crate) q: String,
    pub(crate) show: Show,
    pub(crate) order: Order,
    /// The number of rows before the first one.
    pub(crate) from: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Show {
    #[default]
    All,
    Live,
    Waiting,
    Ended,
}

/// The order of the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// The live runs first, then the runs that were active last.
    #[default]
    Active,
    Started,
    Cost,
    Title,
}

impl Order {
    const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Active, "active", "Live first"),
        (Self::Started, "started", "Newest first"),
        (Self::Cost, "cost", "Highest cost first"),
        (Self::Title, "title", "By title"),
    ];

    fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(order, ..)| *order == self);
        found.map_or("active", |(_, name, _)| name)
    }

    /// Sorts rows that are in the order [`Order::Active`], which decides between equal ones.
    fn sort(self, rows: &mut [Arc<RunRow>]) {
        match self {
            Self::Active => {}
            Self::Started => rows.sort_by_key(|row| Reverse(row.started_at)),
            Self::Cost => {
                rows.sort_by_key(|row| Reverse((row.usage.cost_microusd, row.usage.tokens())))
            }
            Self::Title => rows.sort_by_cached_key(|row| {
                row.title
                    .as_deref()
                    .unwrap_or(row.run.as_str())
                    .to_lowercase()
            }),
        }
    }
}

impl Show {
    const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::All, "all", "All"),
        (Self::Live, "live", "Live"),
        (Self::Waiting, "waiting", "Waiting"),
        (Self::Ended, "ended", "Ended"),
    ];

    fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(show, ..)| *show == self);
        found.map_or("all", |(_, name, _)| name)
    }

    fn includes(self, row: &RunRow, now: Timestamp) -> bool {
        match self {
            Self::All => true,
            Self::Live => row.state.is_live(),
            Self::Waiting => row.waits_for_person(now),
            Self::Ended => !row.state.is_live(),
        }
    }
}

impl Filter {
    fn includes(&self, row: &RunRow, now: Timestamp) -> bool {
        self.show.includes(row, now) && self.matches(row)
    }

    fn matches(&self, row: &RunRow) -> bool {
        if self.q.trim().is_empty() {
            return true;
        }
        let words: Vec<String> = self
            .q
            .chars()
            .take(MAX_SEARCH)
            .collect::<String>()
            .to_lowercase()
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        let text = [
            row.run.as_str(),
            row.title.as_deref().unwrap_or_default(),
            &row.root.to_string_lossy(),
            row.branch.as_deref().unwrap_or_default(),
            &row.texts.agent,
            state(row).0,
        ]
        .join("\n")
        .to_lowercase();
        words.iter().all(|word| text.contains(word))
    }

    /// Returns the text of the filter in an address.
    pub(crate) fn query(&self, from: usize) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("show", self.show.name());
        query.append_pair("order", self.order.name());
        query.append_pair("q", &self.q.chars().take(MAX_SEARCH).collect::<String>());
        query.append_pair("from", &from.to_string());
        query.finish()
    }
}

/// The rows of one page of the list.
#[derive(Debug)]
pub(crate) struct ListRows {
    pub(crate) rows: Vec<Arc<RunRow>>,
    /// The number of rows that the filter selects.
    pub(crate) selected: usize,
    pub(crate) all: usize,
    pub(crate) live: usize,
    pub(crate) waiting: usize,
}

impl ListRows {
    pub(crate) fn new(all: Vec<Arc<RunRow>>, filter: &Filter, now: Timestamp) -> Self {
        let live = all.iter().filter(|row| row.state.is_live()).count();
        let waiting = all.iter().filter(|row| row.waits_for_person(now)).count();
        let count = all.len();
        let mut selected: Vec<_> = all
            .into_iter()
            .filter(|row| filter.includes(row, now))
            .collect();
        filter.order.sort(&mut selected);
        let number = selected.len();
        let rows = selected.into_iter().skip(filter.from).take(PAGE).collect();
        Self {
            rows,
            selected: number,
            all: count,
            live,
            waiting,
        }
    }

    /// Returns the parts of the page that change: the summary, the rows, and the links to further rows.
    pub(crate) fn parts(&self, filter: &Filter, problems: &[(PathBuf, String)]) -> Vec<Part> {
        let mut parts = vec![
            Part::new("summary", self.summary(problems)),
            Part::new("more", self.more(filter)),
        ];
        parts.extend(self.rows.iter().map(|row| row_part(row)));
        parts
    }

    /// Returns the order of the rows.
    pub(crate) fn order(&self) -> Vec<String> {
        self.rows.iter().map(|row| row_id(row)).collect()
    }

    fn summary(&self, problems: &[(PathBuf, String)]) -> Markup {
        html! {
            div id="summary" {
                p class="counts" {
                    b { (self.live) } " live" span class="sep" { "·" }
                    b { (self.waiting) } " waiting for you" span class="sep" { "·" }
                    b { (self.all) } @if self.all == 1 { " run" } @else { " runs" }
                }
                @for (path, why) in problems {
                    p class="warn" { code { (path.display()) } ": " (why) }
                }
            }
        }
    }

    fn more(&self, filter: &Filter) -> Markup {
        let end = filter.from.saturating_add(self.rows.len());
        html! {
            nav id="more" class="more" aria-label="Further runs" {
                @if filter.from > 0 {
                    a href={ "/?" (filter.query(filter.from.saturating_sub(PAGE))) } { "Previous" }
                }
                @if self.selected > PAGE {
                    span { (filter.from.saturating_add(1)) "–" (end) " of " (self.selected) }
                }
                @if end < self.selected {
                    a href={ "/?" (filter.query(end)) } { "Next" }
                }
            }
        }
    }
}

fn row_id(row: &RunRow) -> String {
    format!("row-{}", row.key)
}

fn row_part(row: &RunRow) -> Part {
    let id = row_id(row);
    let (word, class) = state(row);
    let project = row.root.file_name().unwrap_or(row.root.as_os_str());
    let doing = doing(row);
    let html = html! {
        tr id=(id) data-key=(row.key) {
            td class="state-cell" { span class={ "state " (class) } { (word) } }
            td class="what" {
                a href={ "/runs/" (row.key) } {
                    bdi { @match &row.title { Some(title) => (title), None => (row.run.as_str()) } }
                }
                span class="sub" {
                    bdi title=(row.root.display()) { (project.to_string_lossy()) }
                    @if let Some(branch) = &row.branch { span class="sep" { "·" } bdi { (branch) } }
                    span class="sep" { "·" } bdi class="id" { (row.run.as_str()) }
                }
            }
            td class="doing" {
                @if let Some(doing) = &doing { bdi { (with_times(doing)) } }
            }
            td class="n" data-name="iteration" { (iterations(row)) }
            td class="check" { @if let Some(check) = &row.texts.last_check { (check) } }
            td class="n" data-name="cost" { (usage(row)) }
            td class="n t" { (age(if row.state.is_live() { row.since.unwrap_or(row.last_at) } else { row.last_at })) }
        }
    };
    Part::new(id, html)
}

/// Returns what a run does, or why it ended.
pub(crate) fn doing(row: &RunRow) -> Option<&String> {
    let texts = &row.texts;
    match row.state.is_live() {
        true => texts.now.as_ref(),
        false => texts
            .reason
            .as_ref()
            .or(texts.next.as_ref())
            .or(row.notes.first()),
    }
}

/// Returns the whole list.
pub(crate) fn list(
    rows: &ListRows,
    filter: &Filter,
    problems: &[(PathBuf, String)],
    command: &str,
) -> Markup {
    let parts = rows.parts(filter, problems);
    let part = |id: &str| parts.iter().find(|part| part.id == id).map(Part::markup);
    html! {
        div class="head" {
            h1 { "Runs" }
            form class="filter" role="search" action="/" {
                input type="search" name="q" value=(filter.q) placeholder="Search" aria-label="Search in titles, projects, branches and agents" maxlength=(MAX_SEARCH);
                fieldset class="choice" {
                    legend class="hidden" { "Show" }
                    @for (show, name, label) in Show::ALL {
                        label {
                            input type="radio" name="show" value=(name) checked[show == filter.show];
                            span { (label) }
                        }
                    }
                }
                select name="order" aria-label="Order" {
                    @for (order, name, label) in Order::ALL {
                        option value=(name) selected[order == filter.order] { (label) }
                    }
                }
                button class="quiet" { "Search" }
            }
        }
        (part("summary").unwrap_or_default())
        @if rows.all == 0 {
            div class="empty" {
                p { "No run yet. Start the first one in a project:" }
                pre { (command) " run --until 'make test'" }
            }
        } @else {
            div class="table" {
                table class="runs" {
                    caption class="hidden" { "Runs of all projects" }
                    thead {
                        tr {
                            th scope="col" { "State" } th scope="col" { "Run" } th scope="col" { "Now" }
                            th scope="col" class="n" { "Iteration" } th scope="col" { "Last check" }
                            th scope="col" class="n" { "Cost" } th scope="col" class="n" { "Since" }
                        }
                    }
                    tbody id="rows" {
                        @for part in &parts[2..] { (part.markup()) "\n" }
                    }
                }
            }
            // The style hides it while there are rows.
            p class="empty none" { "No run matches." }
        }
        (part("more").unwrap_or_default())
    }
}
