//! The pages: their layout, and the parts that several pages share. Each part with an `id` is replaced when it changes.

pub(crate) mod changes;
pub(crate) mod inbox;
pub(crate) mod list;
pub(crate) mod new_run;
pub(crate) mod run;
#[cfg(test)]
mod tests;
pub(crate) mod transcript;

use jiff::tz::TimeZone;
use loop_state::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use rlm_report::visible;
use rlm_store::RunState;
use rlm_text::money;
use rlm_text::time::instant;

use crate::login::Role;
use crate::row::{Attention, RunRow};

/// A part of a page that is replaced when it changes: its id, and its HTML with that id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) id: String,
    pub(crate) html: String,
}

impl Part {
    pub(crate) fn new(id: impl Into<String>, html: Markup) -> Self {
        Self {
            id: id.into(),
            html: visible(&html.into_string()),
        }
    }

    /// Returns the part as a piece of a page, which is made visible as a whole.
    pub(crate) fn markup(&self) -> Markup {
        PreEscaped(self.html.clone())
    }
}

/// The facts about a request that each page needs.
#[derive(Clone, Debug)]
pub(crate) struct PageContext {
    pub(crate) role: Role,
    /// The secret of the forms.
    pub(crate) form_secret: String,
    /// The nonce of the style and the script.
    pub(crate) nonce: String,
    /// Whether browsers of other machines can reach the page.
    pub(crate) is_public: bool,
}

impl PageContext {
    pub(crate) fn can_act(&self) -> bool {
        self.role == Role::Operator
    }

    /// A new run may execute any command, so only browsers of this machine start one.
    pub(crate) fn can_start_runs(&self) -> bool {
        self.can_act() && !self.is_public
    }
}

/// The place of a page in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Runs,
    Inbox,
    NewRun,
    Other,
}

/// Returns a whole page. `topic` names the changes that the page follows.
pub(crate) fn page(
    context: &PageContext,
    place: Place,
    title: &str,
    topic: &str,
    waiting: usize,
    main: &Markup,
) -> String {
    let nav = |to: &str, name: &str, is_here: bool, badge: Markup| {
        html! {
            a href=(to) aria-current=[is_here.then_some("page")] { (name) (badge) }
        }
    };
    let head = html! {
        meta name="robots" content="noindex";
        meta name="csrf" content=(context.form_secret);
        meta name="topic" content=(topic);
        script src="/assets/page.js" nonce=(context.nonce) defer {}
    };
    let body = html! {
        a class="skip" href="#main" { "Skip to the content" }
        header class="bar" {
            a class="brand" href="/" { "rlm" }
            nav aria-label="Pages" {
                (nav("/", "Runs", place == Place::Runs, html! {}))
                (nav("/inbox", "Inbox", place == Place::Inbox, badge(waiting).markup()))
                @if context.can_start_runs() { (nav("/new", "New run", place == Place::NewRun, html! {})) }
            }
            span id="connection" class="connection" role="status" { }
            @if !context.can_act() {
                span class="role" title="This page was opened for reading only." { "read only" }
            }
            form method="post" action="/logout" {
                (secret_field(context))
                button class="quiet" { "Log out" }
            }
        }
        main id="main" tabindex="-1" { (main) }
        div id="toast" role="status" aria-live="polite" {}
    };
    document(&format!("{title} · rlm"), &head, &body)
}

/// Returns the page that asks for the password.
pub(crate) fn login_page(wrong: Option<&str>) -> String {
    let body = html! {
        main class="problem" {
            h1 { "rlm" }
            @if let Some(wrong) = wrong { p class="bad" role="alert" { (wrong) } }
            form method="post" action="/login" {
                label for="password" { "Password" }
                input id="password" name="password" type="password" autocomplete="current-password" required autofocus;
                button { "Log in" }
            }
            p { "The person who started " code { "rlm view" } " chose the password. " code { "rlm view pair" } " prints a link that needs none." }
        }
    };
    document("Log in · rlm", &html! {}, &body)
}

/// Returns an HTML document with the style of the pages.
pub(crate) fn document(title: &str, head: &Markup, body: &Markup) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/assets/style.css";
                (head)
            }
            body { (body) }
        }
    };
    visible(&document.into_string())
}

/// Returns the number of runs that wait for a person.
pub(crate) fn badge(waiting: usize) -> Part {
    let html = html! {
        span id="waiting" class="badge" hidden[waiting == 0] aria-label=(format!("{waiting} waiting")) { (waiting) }
    };
    Part::new("waiting", html)
}

/// Returns the hidden field that proves that a form comes from this page.
pub(crate) fn secret_field(context: &PageContext) -> Markup {
    html! { input type="hidden" name="csrf" value=(context.form_secret); }
}

/// Returns the state of a run: a word and the class of its colour.
pub(crate) fn state(row: &RunRow) -> (&'static str, &'static str) {
    match (row.state, &row.attention) {
        (_, Some(Attention::Permissions(_))) => ("needs permission", "attention"),
        (_, Some(Attention::Review(_))) => ("review", "attention"),
        (_, Some(Attention::Unresponsive)) => ("no response", "bad"),
        (RunState::Running, Some(Attention::Waits(_))) => ("waits", "wait"),
        (RunState::Running, _) => ("running", "open"),
        (RunState::Paused, _) => ("paused", "attention"),
        (RunState::Stopped, _) => ("stopped", "wait"),
        (RunState::Crashed, _) => ("crashed", "bad"),
        (RunState::Transferred, _) => ("transferred", "wait"),
        (RunState::Empty, _) => ("empty", "wait"),
        (RunState::Damaged, _) => ("damaged", "bad"),
        (_, Some(Attention::Limit(_))) => ("limit", "attention"),
        (_, Some(_)) => ("failed", "bad"),
        _ => ("done", "good"),
    }
}

/// Returns the number of the iteration and, if there is a limit, of how many.
pub(crate) fn iterations(row: &RunRow) -> String {
    match row.max_iterations {
        Some(max) => format!("{} of {max}", row.iteration),
        None => row.iteration.to_string(),
    }
}

/// Returns the cost or, without a price, the tokens.
pub(crate) fn usage(row: &RunRow) -> String {
    match row.usage.cost_microusd {
        0 => money::tokens_short(row.usage).unwrap_or_default(),
        cost => money::dollars(cost),
    }
}

/// Returns a text whose points in time, such as `2026-01-02T03:04:05.678Z`, are shown in the zone of this machine.
pub(crate) fn with_times(text: &str) -> Markup {
    let words = text.split_inclusive(' ');
    html! {
        @for word in words {
            @match point_in_time(word) {
                Some((at, rest)) => { (clock(at)) (rest) },
                None => (word),
            }
        }
    }
}

/// Returns the point in time at the beginning of a word, and the rest of the word.
fn point_in_time(word: &str) -> Option<(jiff::Timestamp, &str)> {
    let end = word.find('Z').filter(|end| (19..32).contains(end))? + 1;
    Some((word[..end].parse().ok()?, &word[end..]))
}

/// Returns a point in time of the near past or future.
fn clock(at: jiff::Timestamp) -> Markup {
    let zoned = at.to_zoned(TimeZone::system());
    let is_today = zoned.date() == jiff::Zoned::now().date();
    let format = if is_today { "%H:%M:%S" } else { "%-d %b %H:%M" };
    html! {
        time datetime=(zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
            title=(zoned.strftime("%-d %b %Y, %H:%M:%S %:z").to_string()) { (zoned.strftime(format).to_string()) }
    }
}

/// Returns a point in time, which the script shows as an age.
pub(crate) fn age(at: Timestamp) -> Markup {
    let zoned = instant(at).to_zoned(TimeZone::system());
    let full = zoned.strftime("%-d %b %Y, %H:%M:%S %:z").to_string();
    let short = zoned.strftime("%-d %b %H:%M").to_string();
    html! {
        time class="age" datetime=(zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()) title=(full) { (short) }
    }
}
