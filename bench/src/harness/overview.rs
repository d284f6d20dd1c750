//! The table that the report opens with: each target, what stands behind it, and how cost grows.

use super::outcome::{Contender, Outcome, Role, Series, Verdict};
use super::report::figure;
use super::{plot, stats};

const HEAD: [&str; 9] = [
    "bench", "what", "ours", "floor", "peer", "measured", "target", "", "growth",
];

/// Makes a row for each target, and for each series of a bench that has none.
pub(super) fn rows(outcomes: &[Outcome]) -> Vec<Vec<String>> {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    for outcome in outcomes {
        let judged = outcome
            .verdicts
            .iter()
            .map(|verdict| judged(outcome, verdict));
        rows.extend(judged);
        if outcome.verdicts.is_empty() {
            rows.extend(outcome.series.iter().map(|series| watched(outcome, series)));
        }
    }
    rows
}

/// Says in a line how many targets were hit.
pub(super) fn score(outcomes: &[Outcome]) -> String {
    let verdicts = || outcomes.iter().flat_map(|outcome| &outcome.verdicts);
    let hit = verdicts().filter(|verdict| verdict.hit).count();
    format!("{hit} of {} targets hit", verdicts().count())
}

fn judged(outcome: &Outcome, verdict: &Verdict) -> Vec<String> {
    let about = verdict.about.as_ref();
    let series = about.and_then(|about| {
        let mut series = outcome.series.iter();
        series.find(|series| series.title() == about.series)
    });
    let name = about.map_or("", |about| about.contender);
    let [ours, floor, peer] = figures(series, name);
    vec![
        outcome.id.to_owned(),
        verdict.what.clone(),
        ours,
        floor,
        peer,
        verdict.measured(),
        verdict.target(),
        verdict.told().to_owned(),
        series.map_or_else(String::new, |series| growth(outcome, series.quantity, name)),
    ]
}

fn watched(outcome: &Outcome, series: &Series) -> Vec<String> {
    let name = series.contenders.first().map_or("", |first| first.name);
    let [ours, floor, peer] = figures(Some(series), name);
    let base = series.floor().map_or("", |floor| floor.name);
    let over = series.ratio(name, base, |summary| summary.median);
    vec![
        outcome.id.to_owned(),
        series.title(),
        ours,
        floor,
        peer,
        over.map_or_else(String::new, |over| format!("{} ×", figure(over))),
        String::new(),
        "watched".to_owned(),
        growth(outcome, series.quantity, name),
    ]
}

/// The medians of ours, of the floor and of the first peer that was measured.
fn figures(series: Option<&Series>, name: &str) -> [String; 3] {
    let Some(series) = series else {
        return Default::default();
    };
    let told = |contender: &Contender, named: bool| {
        let median = figure(contender.summary()?.median);
        let unit = series.unit;
        Some(match named {
            true => format!("{}: {median} {unit}", contender.name),
            false => format!("{median} {unit}"),
        })
    };
    let mut others = series.contenders.iter().filter(|it| it.role == Role::Peer);
    [
        series.get(name).and_then(|ours| told(ours, false)),
        series.floor().and_then(|floor| told(floor, true)),
        others.find_map(|peer| told(peer, true)),
    ]
    .map(Option::unwrap_or_default)
}

/// How the medians of a contender grow over the sizes of a quantity; empty if there is one size.
fn growth(outcome: &Outcome, quantity: &str, name: &str) -> String {
    let sizes = outcome.series.iter().filter(|it| it.quantity == quantity);
    let points: Vec<(f64, f64)> = sizes
        .filter_map(|series| Some((series.size?.0, series.get(name)?.summary()?.median)))
        .collect();
    stats::exponent(&points).map_or_else(String::new, plot::power)
}
