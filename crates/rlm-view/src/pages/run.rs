//! The page of one run.

use maud::{Markup, html};
use rlm_store::{RunState, TranscriptWindow};
use rlm_text::duration;

use super::{
    PageContext, Part, age, iterations, secret_field, state, transcript, usage, with_times,
};
use crate::row::{Attention, ReachedLimit, RunRow, StepKind};

/// The transcript that the page shows: an attempt, and its newest records.
#[derive(Debug)]
pub(crate) struct ShownTranscript {
    /// The iteration and the attempt.
    pub(crate) attempt: (u32, u32),
    pub(crate) window: TranscriptWindow,
    /// All attempts, the newest last.
    pub(crate) attempts: Vec<(u32, u32)>,
    /// The attempt that gets the new records of the run.
    pub(crate) current: (u32, u32),
}

/// The words of the command line that a page of a run needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunTerms {
    /// The call of the program for the project of the run.
    pub(crate) program: String,
    /// The names of the limits that a person can change.
    pub(crate) limits: Vec<&'static str>,
}

/// The ids of the parts, in the order of [`parts`].
pub(crate) const PART_IDS: [&str; 6] = [
    "run-head",
    "run-asks",
    "run-actions",
    "run-steer",
    "run-more",
    "run-commands",
];

/// Returns the parts of the page that change.
pub(crate) fn parts(row: &RunRow, context: &PageContext, terms: &RunTerms) -> Vec<Part> {
    let mut parts = vec![
        Part::new("run-head", head(row)),
        Part::new("run-asks", asks(row, context)),
        Part::new("run-actions", actions(row, context, terms)),
    ];
    if context.can_act() {
        parts.push(Part::new("run-steer", steer(row, context)));
        parts.push(Part::new("run-more", more(row, context, terms)));
    }
    parts.push(Part::new("run-commands", commands(row, terms)));
    parts
}

/// Returns the whole page.
pub(crate) fn run(
    row: &RunRow,
    context: &PageContext,
    terms: &RunTerms,
    shown: Option<&ShownTranscript>,
) -> Markup {
    let parts = parts(row, context, terms);
    html! {
        nav class="crumbs" aria-label="Place" { a href="/" { "Runs" } " / " bdi { (row.run.as_str()) } }
        @for part in &parts[..3] { (part.markup()) }
        (tabs(row, Tab::Transcript))
        @match shown {
            Some(shown) => (transcript_section(row, shown)),
            None => p class="empty" { "The run has no transcript yet." },
        }
        @for part in &parts[3..] { (part.markup()) }
    }
}

/// A view of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tab {
    Transcript,
    Changes,
    Figures,
    Report,
}

impl Tab {
    const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Transcript, "", "Transcript"),
        (Self::Changes, "/changes", "Changes"),
        (Self::Figures, "/figures", "Time and cost"),
        (Self::Report, "/report", "Timeline and report"),
    ];

    /// Returns the view with this name in an address.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let is_named = |path: &str| path.strip_prefix('/') == Some(name);
        let found = Self::ALL.iter().find(|(_, path, _)| is_named(path));
        found.map(|(tab, ..)| *tab)
    }

    /// Returns the end of its address.
    fn path(self) -> &'static str {
        let found = Self::ALL.iter().find(|(tab, ..)| *tab == self);
        found.map_or("", |(_, path, _)| path)
    }
}

/// Returns the name of the data that a view shows. It is another one as soon as the run has newer data for the view.
pub(crate) fn version(row: &RunRow, of: Tab) -> String {
    let step = match row.step {
        StepKind::Turn | StepKind::Interrupted => "turn",
        // The run adds the changes of the iteration at the end of this step.
        StepKind::Other => "ending",
        StepKind::Review | StepKind::Paused | StepKind::Waiting => "later",
    };
    let state = match row.state.is_live() {
        true => "live",
        false => "ended",
    };
    let (iteration, attempt) = (row.iteration, row.attempt);
    let version = format!("{iteration}.{attempt}.{step}.{state}");
    match of {
        Tab::Transcript | Tab::Changes => version,
        Tab::Figures | Tab::Report => {
            let (cost, tokens) = (row.usage.cost_microusd, row.usage.tokens());
            format!("{version}.{cost}.{tokens}")
        }
    }
}

/// Returns the name of the changes that a view follows if it doesn't renew itself: its stream reports newer data.
pub(crate) fn topic(row: &RunRow, of: Tab) -> String {
    let name = of.path().trim_start_matches('/');
    format!("{name}:{}:{}", row.key, version(row, of))
}

/// Returns the part of a view that reports newer data.
pub(crate) fn newer(key: &str, of: Tab, is_newer: bool) -> Part {
    let html = html! {
        p id="newer" class="warn" role="status" {
            @if is_newer {
                "The run has newer data. " a href={ "/runs/" (key) (of.path()) } { "Show it" }
            }
        }
    };
    Part::new("newer", html)
}

/// Returns where a page about a run is.
pub(crate) fn crumbs(row: &RunRow, here: Tab) -> Markup {
    let name = { Tab::ALL.iter() }.find(|(tab, ..)| *tab == here);
    html! {
        nav class="crumbs" aria-label="Place" {
            a href="/" { "Runs" } " / " a href={ "/runs/" (row.key) } { bdi { (row.run.as_str()) } }
            @if let Some((.., name)) = name { " / " (name) }
        }
    }
}

/// Returns the links to the views of a run.
pub(crate) fn tabs(row: &RunRow, here: Tab) -> Markup {
    html! {
        nav class="tabs" aria-label="Views of the run" {
            @for (tab, path, name) in Tab::ALL {
                a href={ "/runs/" (row.key) (path) } aria-current=[(tab == here).then_some("page")] { (name) }
            }
        }
        @if here != Tab::Transcript { (newer(&row.key, here, false).markup()) }
    }
}

/// Returns the title of a run as the heading of a page.
pub(crate) fn heading(row: &RunRow) -> Markup {
    html! { h1 { bdi { (row.title.as_deref().unwrap_or(row.run.as_str())) } } }
}

/// Returns the title of an attempt.
pub(crate) fn attempt_title((iteration, attempt): (u32, u32)) -> String {
    match attempt {
        0 | 1 => format!("Iteration {iteration}"),
        _ => format!("Iteration {iteration}, attempt {attempt}"),
    }
}

/// Returns a heading for an attempt, with links to the attempts beside it and to its other view.
pub(crate) fn attempt_links(
    row: &RunRow,
    here: Tab,
    attempt: (u32, u32),
    attempts: &[(u32, u32)],
    follows: bool,
) -> Markup {
    let at = attempts.iter().position(|it| *it == attempt);
    let neighbour = |offset: isize| attempts.get(at?.checked_add_signed(offset)?).copied();
    let path = |tab: Tab| format!("/runs/{}{}", row.key, tab.path());
    let link = |tab: Tab, attempt: (u32, u32), text: &str| {
        html! { a href={ (path(tab)) "?attempt=" (attempt_name(attempt)) } { (text) } }
    };
    html! {
        div class="tools" {
            h2 id="attempt" { (attempt_title(attempt)) }
            span class="links" {
                @if let Some(before) = neighbour(-1) { (link(here, before, "Previous")) }
                @if let Some(after) = neighbour(1) { (link(here, after, "Next")) }
                @if !follows { a href=(path(here)) { "Newest" } }
                @match here {
                    Tab::Changes => (link(Tab::Transcript, attempt, "Transcript")),
                    // The script replaces the attempt of a page that follows the run.
                    _ if !follows => (link(Tab::Changes, attempt, "Changes")),
                    _ => {}
                }
            }
        }
    }
}

/// Returns the name of an attempt in an address.
pub(crate) fn attempt_name((iteration, attempt): (u32, u32)) -> String {
    format!("{iteration}-{attempt}")
}

fn transcript_section(row: &RunRow, shown: &ShownTranscript) -> Markup {
    let name = attempt_name(shown.attempt);
    let follows = shown.attempt == shown.current;
    let is_first = shown.attempts.first() == Some(&shown.attempt);
    html! {
        section class="transcript" aria-label="Transcript" {
            (attempt_links(row, Tab::Transcript, shown.attempt, &shown.attempts, follows))
            button id="earlier" class="quiet" hidden[shown.window.from == 0 && is_first] { "Show earlier records" }
            div id="records" role="log" aria-live="off" tabindex="0" aria-label="Records"
                data-run=(row.key) data-attempt=(name) data-from=(shown.window.from) data-to=(shown.window.to)
                data-newest=(attempt_name(shown.current)) {
                (maud::PreEscaped(transcript::records(&shown.window)))
            }
            button id="newest" class="float" hidden[follows] { "Newest records" }
        }
    }
}

fn head(row: &RunRow) -> Markup {
    let (word, class) = state(row);
    let since = row.since.filter(|_| row.state.is_live());
    let facts = [
        ("Iteration", Some(iterations(row))),
        ("Phase", row.phase.clone()),
        ("Cost", Some(usage(row)).filter(|it| !it.is_empty())),
        ("Last iteration", row.texts.last_outcome.clone()),
        ("Last check", row.texts.last_check.clone()),
        ("Agent", Some(row.texts.agent.clone())),
        (
            "Messages",
            (row.unread_messages > 0)
                .then(|| format!("{} for the next prompt", row.unread_messages)),
        ),
        ("Branch", row.branch.clone()),
        ("Project", Some(row.root.display().to_string())),
    ];
    html! {
        div id="run-head" {
            div class="head" {
                h1 { bdi { (row.title.as_deref().unwrap_or(row.run.as_str())) } }
                span class={ "state " (class) } { (word) }
            }
            @if let Some(now) = &row.texts.now {
                p class="now" { bdi { (with_times(now)) } @if let Some(since) = since { " " (age(since)) } }
            }
            @if !row.state.is_live() {
                @if let Some(reason) = &row.texts.reason { p class="now" { bdi { (with_times(reason)) } } }
            }
            @for note in &row.notes { p class="warn" { bdi { (note) } } }
            @if let Some(next) = &row.texts.next { pre { "\n" (next) } }
            dl class="facts" {
                @for (name, value) in facts {
                    @if let Some(value) = value { div { dt { (name) } dd { bdi { (value) } } } }
                }
                @if let Some(started) = row.started_at {
                    div { dt { "Started" } dd { (age(started)) } }
                    @if !row.state.is_live() {
                        div { dt { "Last active" } dd { (age(row.last_at)) } }
                        div { dt { "Duration" } dd { (duration::approximate(row.last_at.since(started))) } }
                    }
                }
            }
        }
    }
}

/// Returns the command that does the same as an action, if there is one.
fn command_of(action: &str, row: &RunRow, terms: &RunTerms) -> Option<String> {
    let (program, run) = (&terms.program, &row.run);
    Some(match action {
        "interrupt" => format!("{program} interrupt {run}"),
        "pause" => format!("{program} pause {run}"),
        "continue" | "resume" => format!("{program} resume {run}"),
        "stop" => format!("{program} stop {run}"),
        "stop-after" => format!("{program} stop {run} --after iteration"),
        "steer" => format!("{program} steer {run} 'TEXT'"),
        "steer-now" => format!("{program} steer {run} --now 'TEXT'"),
        "set" => format!("{program} set {run} KEY=VALUE"),
        "resume-with" => format!("{program} resume {run} --KEY VALUE"),
        "fork" => format!("{program} checkpoints fork {run} --at N"),
        "export" => format!("{program} checkpoints export {run} --copy"),
        _ => return None,
    })
}

/// Returns the questions of the run that wait for a person.
pub(crate) fn asks(row: &RunRow, context: &PageContext) -> Markup {
    html! {
        div id="run-asks" { (questions(row, context)) }
    }
}

pub(super) fn questions(row: &RunRow, context: &PageContext) -> Markup {
    let act = format!("/runs/{}/act", row.key);
    match &row.attention {
        Some(Attention::Permissions(asks)) => html! {
            @for ask in asks {
                section class="ask" aria-label="Permission request" {
                    h2 { "The agent asks for " code { (ask.tool) } }
                    pre { "\n" (rlm_report::middle_out(&ask.summary, 4096).0) }
                    @if !ask.reason.is_empty() { p { (rlm_report::middle_out(&ask.reason, 4096).0) } }
                    @if context.can_act() {
                        // Two forms: Enter in the message must not allow the request.
                        div class="answers" {
                            form method="post" action=(act) {
                                (secret_field(context))
                                input type="hidden" name="id" value=(ask.id);
                                button class="main" name="action" value="allow" { "Allow" }
                            }
                            form method="post" action=(act) {
                                (secret_field(context))
                                input type="hidden" name="id" value=(ask.id);
                                button name="action" value="deny" { "Deny" }
                                input name="text" placeholder="A message to the agent, if you deny" aria-label="A message to the agent, if you deny";
                            }
                        }
                    }
                }
            }
        },
        Some(Attention::Review(point)) => html! {
            section class="ask" aria-label="Review" {
                h2 { "The " (point) " is finished and waits for your approval" }
                @if context.can_act() {
                    form method="post" action=(act) {
                        (secret_field(context))
                        textarea name="text" rows="2" placeholder="Changes that you want, if you revise" aria-label="Changes that you want, if you revise" {}
                        button class="main" name="action" value="approve" { "Approve" }
                        button name="action" value="revise" { "Revise" }
                    }
                }
            }
        },
        _ => html! {},
    }
}

/// The forms that act on a run.
#[derive(Clone, Copy)]
struct RunForms<'a> {
    row: &'a RunRow,
    context: &'a PageContext,
    terms: &'a RunTerms,
}

impl RunForms<'_> {
    /// Returns the form of an action without a value.
    fn one(self, action: &str, label: &str, class: &str) -> Markup {
        html! {
            form method="post" action={ "/runs/" (self.row.key) "/act" } {
                (secret_field(self.context))
                button class=(class) name="action" value=(action) title=[command_of(action, self.row, self.terms)] { (label) }
            }
        }
    }

    /// Returns the form of an action with a new value of a limit. The limit that ended the run is selected.
    fn limit(self, action: &str, label: &str) -> Markup {
        let reached = self.row.reached_limit().map(ReachedLimit::setting);
        html! {
            form method="post" action={ "/runs/" (self.row.key) "/act" } {
                (secret_field(self.context))
                select name="key" aria-label="Limit" {
                    @for name in &self.terms.limits { option value=(name) selected[reached == Some(*name)] { (name) } }
                }
                input name="value" placeholder="such as 20, 2.50, 1h, none" aria-label="New value" autocomplete="off";
                button name="action" value=(action) title=[command_of(action, self.row, self.terms)] { (label) }
            }
        }
    }
}

fn actions(row: &RunRow, context: &PageContext, terms: &RunTerms) -> Markup {
    let forms = RunForms {
        row,
        context,
        terms,
    };
    html! {
        div id="run-actions" class="actions" {
            @if context.can_act() {
                @match (row.state, row.step) {
                    (RunState::Running, step) => {
                        @if step == StepKind::Turn { (forms.one("interrupt", "Interrupt", "")) }
                        @if step == StepKind::Waiting { (forms.one("skip", "Continue now", "")) }
                        (forms.one("pause", "Pause after this iteration", ""))
                        (forms.one("stop-after", "Stop after this iteration", ""))
                        (forms.one("stop", "Stop", "danger"))
                    }
                    (RunState::Paused, _) => {
                        (forms.one("continue", "Continue", "main"))
                        (forms.one("stop", "Stop", "danger"))
                    }
                    _ if row.is_resumable_as_it_is() => (forms.one("resume", "Resume", "main")),
                    _ => {}
                }
            }
        }
    }
}

/// Returns the actions of the inbox on a run that ended.
pub(super) fn resume_actions(row: &RunRow, context: &PageContext, terms: &RunTerms) -> Markup {
    let forms = RunForms {
        row,
        context,
        terms,
    };
    html! {
        @if context.can_act() && row.is_resumable() {
            div class="actions" {
                @if row.is_resumable_as_it_is() { (forms.one("resume", "Resume", "main")) }
                @if row.reached_limit().is_some() { (forms.limit("resume-with", "Resume with this limit")) }
            }
        }
    }
}

fn steer(row: &RunRow, context: &PageContext) -> Markup {
    let is_open = row.state.is_live();
    html! {
        form id="run-steer" class="steer" method="post" action={ "/runs/" (row.key) "/act" } hidden[!is_open] {
            (secret_field(context))
            label class="hidden" for="steer-text" { "A message to the agent" }
            textarea id="steer-text" name="text" rows="2" placeholder="A message to the agent" {}
            button class="main" name="action" value="steer" title="The agent gets it at the next possible moment" { "Send" }
            button name="action" value="steer-now" title="Interrupts the turn, and continues the session with this message" { "Interrupt and send" }
        }
    }
}

/// Returns the actions that need a value.
fn more(row: &RunRow, context: &PageContext, terms: &RunTerms) -> Markup {
    let is_resumable = row.is_resumable();
    let is_saved = is_resumable || row.state == RunState::Ended;
    let forms = RunForms {
        row,
        context,
        terms,
    };
    html! {
        details id="run-more" class="more-actions" hidden[!row.state.is_live() && !is_saved] {
            summary { @if row.state.is_live() { "Limits and forks" } @else { "Limits, forks and export" } }
            @if row.state.is_live() { (forms.limit("set", "Set the limit")) }
            @if is_resumable { (forms.limit("resume-with", "Resume with this limit")) }
            @if row.commits && row.iteration > 0 {
                form method="post" action={ "/runs/" (row.key) "/act" } {
                    (secret_field(context))
                    input type="number" name="at" min="1" max=(row.iteration) placeholder="iteration" aria-label="The iteration after which the fork continues";
                    button name="action" value="fork" title=[command_of("fork", row, terms)] { "Fork after this iteration" }
                }
            }
            @if is_saved {
                form method="post" action={ "/runs/" (row.key) "/export" } {
                    (secret_field(context))
                    label { input type="checkbox" name="dirty" value="yes"; " with uncommitted changes" }
                    button title=[command_of("export", row, terms)] { "Download a copy" }
                    span class="sub" { "The archive contains the whole state of the run, including environment variables with secrets: keep it private." }
                }
            }
        }
    }
}

/// Returns the commands that do the same in a terminal.
fn commands(row: &RunRow, terms: &RunTerms) -> Markup {
    let (program, run) = (&terms.program, row.run.as_str());
    let actions: &[&str] = match row.state.is_live() {
        true => &[
            "steer",
            "steer-now",
            "interrupt",
            "pause",
            "continue",
            "stop",
            "stop-after",
            "set",
        ],
        false => &["resume", "resume-with", "export"],
    };
    let mut lines = match row.state.is_live() {
        true => vec![format!("{program} attach {run}")],
        false => vec![format!("{program} checkpoints list {run}")],
    };
    lines.extend(
        actions
            .iter()
            .filter_map(|action| command_of(action, row, terms)),
    );
    if row.commits {
        lines.extend(command_of("fork", row, terms));
    }
    lines.extend(["status", "logs", "report"].map(|name| format!("{program} {name} {run}")));
    html! {
        details id="run-commands" class="commands" {
            summary { "The same in a terminal" }
            ul {
                @for line in &lines {
                    li { code { (line) } " " button type="button" class="copy quiet" aria-label={ "Copy " (line) } { "Copy" } }
                }
            }
        }
    }
}
