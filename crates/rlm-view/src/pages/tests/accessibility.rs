//! Tests that the pages suit a phone, the dark scheme, the keyboard and a screen reader, as far as their HTML and their style show it. The tests of
//! `cargo xtask browser` look at the pages in a real browser.

use std::collections::{BTreeMap, BTreeSet};

use loop_state::Timestamp;
use rlm_store::{Record, TranscriptWindow};

use super::*;
use crate::iteration_changes::{FoundChanges, ShownChanges};
use crate::pages::new_run::{NewRunForm, NewRunNote, new_run};
use crate::parsed_changes::tests::TEXT;
use crate::program::AgentChoice;

const CSS: &str = include_str!("../../style.css");
/// The width of a small phone, in CSS pixels.
const PHONE: f64 = 320.0;

/// An element of a page.
#[derive(Debug, Default)]
struct Element {
    name: String,
    attributes: BTreeMap<String, String>,
    /// The text in the element and its children.
    text: String,
    /// The indices of the elements around it.
    parents: Vec<usize>,
}

impl Element {
    fn get(&self, attribute: &str) -> Option<&str> {
        self.attributes.get(attribute).map(String::as_str)
    }

    fn has(&self, attribute: &str, value: &str) -> bool {
        self.get(attribute) == Some(value)
    }
}

/// Returns the elements of a page in their order. Each element that is not void must be closed.
fn elements(html: &str) -> Vec<Element> {
    let mut all: Vec<Element> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut pieces = html.split('<');
    let _doctype = pieces.next();
    for piece in pieces {
        let (tag, text) = piece.split_once('>').unwrap();
        if let Some(name) = tag.strip_prefix('/') {
            let closed = open.pop().unwrap();
            assert_eq!(all[closed].name, name);
        } else if !tag.starts_with('!') {
            let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
            let mut attributes = BTreeMap::new();
            while !rest.is_empty() {
                let end = rest.find(['=', ' ']).unwrap_or(rest.len());
                let (attribute, after) = rest.split_at(end);
                let (value, after) = match after.strip_prefix("=\"") {
                    Some(after) => after.split_once('"').unwrap(),
                    None => ("", after),
                };
                attributes.insert(attribute.to_owned(), value.to_owned());
                rest = after.trim_start();
            }
            all.push(Element {
                name: name.to_owned(),
                attributes,
                text: String::new(),
                parents: open.clone(),
            });
            if !["meta", "link", "input", "br"].contains(&name) {
                open.push(all.len() - 1);
            }
        }
        for index in &open {
            all[*index].text += text;
        }
    }
    assert!(open.is_empty(), "{open:?}");
    all
}

/// Returns the name of an element for a screen reader; it is empty if there is none.
fn name(all: &[Element], element: &Element) -> String {
    let of_id = |id: &str| all.iter().find(|it| it.has("id", id));
    let label = || {
        let around = element.parents.iter().map(|index| &all[*index]);
        let around = { around.rev() }.find(|it| it.name == "label");
        let named = element.get("id");
        let by_id = all
            .iter()
            .find(|it| it.name == "label" && named.is_some() && it.get("for") == named);
        around.or(by_id).map(|it| it.text.clone())
    };
    let own = match element.name.as_str() {
        "input" | "select" | "textarea" => label(),
        "a" | "button" | "summary" | "option" => Some(element.text.clone()),
        "table" => {
            let index = all.iter().position(|it| std::ptr::eq(it, element));
            let caption =
                |it: &&Element| it.name == "caption" && it.parents.last() == index.as_ref();
            all.iter().find(caption).map(|it| it.text.clone())
        }
        _ => None,
    };
    let labelled_by = element.get("aria-labelledby");
    let labelled_by = labelled_by.map(|id| of_id(id).unwrap().text.clone());
    let found = element.get("aria-label").map(str::to_owned);
    found
        .or(labelled_by)
        .or(own)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Returns a window with a record of each kind.
fn window() -> TranscriptWindow {
    let kinds = [
        "prompt", "text", "tool", "result", "message", "steer", "changes", "stdout", "stderr",
        "note", "end",
    ];
    let record = |(at, kind): (usize, &&str)| {
        let record = Record {
            at: Timestamp::from_millis(0),
            kind: (*kind).to_owned(),
            text: "some text".into(),
            omitted: 9,
        };
        (at as u64, record)
    };
    TranscriptWindow {
        from: 7,
        to: 9,
        records: kinds.iter().enumerate().map(record).collect(),
    }
}

/// Returns all pages, each with its name and its HTML, as a person sees them who may control runs.
fn pages() -> Vec<(String, String)> {
    let (operator, terms) = (context(Role::Operator), terms("rlm"));
    let review = Attention::Review("phase".into());
    let limit = Attention::Limit(ReachedLimit::Cost);
    let rows = [
        row("r1", RunState::Running, Some(ask())),
        row("r2", RunState::Paused, Some(review)),
        row("r3", RunState::Ended, Some(limit)),
        row("r4", RunState::Crashed, Some(Attention::Failed)),
    ];
    let mut pages = Vec::new();
    let mut add = |name: String, place, main: &Markup| {
        let html = page(&operator, place, &name, "topic", 2, main);
        pages.push((name, html));
    };
    let filter = Filter {
        from: 100,
        ..Filter::default()
    };
    let problems = [("/gone".into(), "it is gone".into())];
    for (name, rows, filter) in [
        ("runs", rows.to_vec(), Filter::default()),
        (
            "older runs",
            std::iter::repeat_n(rows.clone(), 50).flatten().collect(),
            filter,
        ),
        ("no run", Vec::new(), Filter::default()),
    ] {
        // Each run has only one row.
        let rows = rows.into_iter().enumerate().map(|(at, row)| {
            let key = format!("{at}-{}", row.key);
            Arc::new(RunRow {
                key,
                ..(*row).clone()
            })
        });
        let rows = ListRows::new(rows.collect(), &filter, now());
        let main = list::list(&rows, &filter, &problems, "rlm");
        add(name.to_owned(), Place::Runs, &main);
    }
    let entries = inbox::inbox(&rows, &operator, &|_| terms.clone());
    add("inbox".to_owned(), Place::Inbox, &entries);
    for row in &rows {
        for current in [(3, 1), (4, 1)] {
            let shown = run::ShownTranscript {
                attempt: (3, 1),
                window: window(),
                attempts: vec![(2, 1), (3, 1), (4, 1)],
                current,
            };
            let main = run::run(row, &operator, &terms, Some(&shown));
            add(format!("{} {current:?}", row.run), Place::Other, &main);
        }
        let main = run::run(row, &operator, &terms, None);
        add(
            format!("{} without a transcript", row.run),
            Place::Other,
            &main,
        );
    }
    let found = FoundChanges::Text(TEXT.into());
    let shown = ShownChanges {
        attempt: (3, 1),
        attempts: vec![(2, 1), (3, 1), (4, 1)],
        found,
        commits: None,
        directory: "/home/me/shop".into(),
    };
    add(
        "changes".to_owned(),
        Place::Other,
        &changes::view(&rows[0], "rlm", Some(&shown)),
    );
    add(
        "no changes".to_owned(),
        Place::Other,
        &changes::view(&rows[0], "rlm", None),
    );
    let (form, agents) = (
        NewRunForm::default(),
        [AgentChoice {
            name: "claude".into(),
            is_installed: false,
        }],
    );
    for note in [
        None,
        Some(NewRunNote::Command("rlm run".into())),
        Some(NewRunNote::Rejected("no".into())),
    ] {
        let main = new_run(
            &operator,
            &form,
            &["/home/me/shop".into()],
            &agents,
            note.as_ref(),
        );
        add(format!("new run {note:?}"), Place::NewRun, &main);
    }
    pages
}

#[test]
fn v12a_everything_that_needs_a_name_has_one() {
    let login = (
        "login".to_owned(),
        login_page(Some("This is not the password.")),
    );
    for (page, html) in pages().into_iter().chain([login]) {
        let all = elements(&html);
        let mut seen = BTreeSet::new();
        for id in all.iter().filter_map(|it| it.get("id")) {
            assert!(seen.insert(id), "{page}: two elements have the id {id}");
        }
        for element in &all {
            let is_hidden = element.has("type", "hidden");
            let needs_a_name = match element.name.as_str() {
                "input" => !is_hidden,
                "a" | "button" | "select" | "textarea" | "summary" | "table" | "nav"
                | "section" => true,
                _ => matches!(element.get("role"), Some("log" | "region" | "img")),
            };
            let has_a_name = !name(&all, element).is_empty();
            assert!(!needs_a_name || has_a_name, "{page}: {element:?}");
            if let Some(id) = element.get("for") {
                assert!(seen.contains(id), "{page}: {element:?}");
            }
            if element.name == "th" {
                assert!(element.get("scope").is_some(), "{page}: {element:?}");
            }
        }
        let count = |name: &str| all.iter().filter(|it| it.name == name).count();
        assert_eq!(
            [count("h1"), count("main"), count("title")],
            [1; 3],
            "{page}"
        );
        assert!(
            all.iter()
                .any(|it| it.name == "html" && it.has("lang", "en"))
        );
        // Two buttons of one page that do different things have different names.
        let labels = all.iter().filter(|it| it.has("class", "copy quiet"));
        let labels: Vec<String> = labels.map(|it| name(&all, it)).collect();
        let distinct: BTreeSet<&String> = labels.iter().collect();
        assert_eq!(distinct.len(), labels.len(), "{page}: {labels:?}");
    }
}

#[test]
fn v12b_keyboard_follows_the_order_of_the_page_and_the_focus_is_visible() {
    for (page, html) in pages() {
        let all = elements(&html);
        let can_focus = |it: &&Element| {
            let is_control = ["a", "button", "input", "select", "textarea", "summary"];
            is_control.contains(&it.name.as_str()) && !it.has("type", "hidden")
        };
        let first = all.iter().find(can_focus).unwrap();
        assert!(
            first.has("href", "#main") && first.has("class", "skip"),
            "{page}: {first:?}"
        );
        let main = all.iter().find(|it| it.has("id", "main")).unwrap();
        assert!(main.name == "main" && main.has("tabindex", "-1"), "{page}");
        for element in &all {
            let index = element.get("tabindex").unwrap_or("0");
            let wanted = if element.has("id", "main") { "-1" } else { "0" };
            assert_eq!(index, wanted, "{page}: {element:?}");
            assert!(element.get("autofocus").is_none(), "{page}: {element:?}");
            // Only a control does something on a click, so the keyboard can do it too.
            let handlers = element.attributes.keys();
            assert!(
                !{ handlers }.any(|it| it.starts_with("on")),
                "{page}: {element:?}"
            );
        }
    }
    let (selectors, _) = CSS.split_once("{outline:2px solid var(--link)").unwrap();
    let selectors = selectors.lines().last().unwrap();
    for control in [
        "a", "button", "summary", "input", "textarea", "select", "#records",
    ] {
        let selector = format!("{control}:focus-visible");
        assert!(selectors.split(',').any(|it| it == selector), "{selector}");
    }
    // The whole content gets the focus from the skip link only.
    let without: Vec<&str> = { CSS.lines() }
        .filter(|it| it.contains("outline:none"))
        .collect();
    assert_eq!(without, ["main:focus{outline:none}"]);
}

/// Returns the colours that a rule for `:root` defines.
fn colours(rule: &str) -> BTreeMap<&str, [f64; 3]> {
    let declarations = rule.split([';', '{', '}']);
    let declarations = declarations.filter_map(|it| it.strip_prefix("--")?.split_once(":#"));
    let colour = |(name, hex)| {
        let digits: String = match str::len(hex) {
            3 => str::chars(hex).flat_map(|digit| [digit, digit]).collect(),
            _ => str::to_owned(hex),
        };
        let part = |at: usize| {
            let value = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap();
            f64::from(value) / 255.0
        };
        (name, [part(0), part(1), part(2)])
    };
    declarations.map(colour).collect()
}

/// Returns the contrast of two colours, as WCAG defines it.
fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let luminance = |colour: [f64; 3]| {
        let linear = colour.map(|part| match part <= 0.04045 {
            true => part / 12.92,
            false => ((part + 0.055) / 1.055).powf(2.4),
        });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// Returns the names of the colours that declarations such as `color:var(--ink)` use.
fn used(property: &str) -> BTreeSet<&'static str> {
    let start = format!("{property}:var(--");
    let declarations = CSS.split(['{', ';', '}']);
    let declarations = declarations.filter_map(|it| it.strip_prefix(&start));
    declarations
        .map(|it| it.split(')').next().unwrap())
        .collect()
}

#[test]
fn v12c_text_has_enough_contrast_in_both_schemes() {
    assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 1e-9);
    let mut roots = CSS.lines().filter(|line| line.contains(":root{"));
    let (light, dark) = (
        colours(roots.next().unwrap()),
        colours(roots.next().unwrap()),
    );
    assert!(light.keys().eq(dark.keys()), "{light:?} {dark:?}");
    assert!(CSS.contains("@media (prefers-color-scheme:dark){:root{"));
    for (scheme, colours) in [("light", light), ("dark", dark)] {
        let mut pairs = Vec::new();
        for text in used("color") {
            for background in used("background") {
                match (text, background) {
                    ("on-main", "main") | ("bg", "attention") => {}
                    // These have their own text, and the others are beside it.
                    ("on-main" | "bg", _) | (_, "main" | "attention") => continue,
                    _ => {}
                }
                pairs.push((text, background, colours[background]));
            }
        }
        // The lines of a patch have a mixture of a colour and of the panel.
        for (class, colour, part) in [("add", "good", 0.14), ("del", "bad", 0.13)] {
            let percent = format!("{:.0}%", part * 100.0);
            let rule = format!(
                ".diff .{class}{{background:color-mix(in srgb,var(--{colour}) {percent},transparent)}}"
            );
            assert!(CSS.contains(&rule), "{rule}");
            let mixed = [0, 1, 2]
                .map(|at| part * colours[colour][at] + (1.0 - part) * colours["panel"][at]);
            pairs.extend(["ink", "soft"].map(|text| (text, class, mixed)));
        }
        assert!(pairs.len() > 20, "{pairs:?}");
        for (text, background, colour) in pairs {
            let contrast = contrast(colours[text], colour);
            assert!(
                contrast >= 4.5,
                "{scheme}: {text} on {background}: {contrast}"
            );
        }
    }
}

#[test]
fn v12d_pages_have_the_width_of_the_device_and_nothing_is_wider_than_a_phone() {
    for (page, html) in pages() {
        let all = elements(&html);
        let viewport = all.iter().find(|it| it.has("name", "viewport")).unwrap();
        // A person can zoom.
        assert_eq!(
            viewport.get("content"),
            Some("width=device-width, initial-scale=1")
        );
        for element in &all {
            for attribute in ["style", "width", "cols", "size"] {
                assert!(element.get(attribute).is_none(), "{page}: {element:?}");
            }
        }
    }
    let pixels = |value: &str| {
        let length = |unit: &str| value.strip_suffix(unit)?.parse::<f64>().ok();
        length("px").or(length("rem").map(|it| it * 16.0))
    };
    assert_eq!(
        [pixels("20rem"), pixels("7px"), pixels("100%")],
        [Some(PHONE), Some(7.0), None]
    );
    let mut widths = 0;
    for declaration in CSS.split(['{', ';', '}']) {
        let Some((property, value)) = declaration.split_once(':') else {
            continue;
        };
        let least = match value.split_once("minmax(") {
            Some((_, rest)) => rest.split(',').next(),
            None => ["width", "min-width"].contains(&property).then_some(value),
        };
        if let Some(least) = least.and_then(pixels) {
            assert!(least <= PHONE, "{declaration}");
            widths += 1;
        }
    }
    assert!(widths > 3, "{widths}");
}
