//! Plots as small SVG files: growth over sizes, and how samples are distributed. They are light or dark as their reader likes.

use std::fmt::Write;

use super::outcome::Role;
use super::stats;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
/// The rectangle of the curves.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 500.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 362.0;
/// The colours of curves are those that most eyes tell apart; what is ours is solid, a floor dashed, a peer dotted.
const STYLE: &str = "
svg { --paper: #fff; --ink: #1c1f23; --grid: #dfe3e8;
  --c0: #0072b2; --c1: #c44e00; --c2: #00795a; --c3: #a8327d; --c4: #8a6500; --c5: #2b8fc9; --c6: #5e56a8; --c7: #5b6570 }
@media (prefers-color-scheme: dark) { svg { --paper: #15181c; --ink: #e4e7ea; --grid: #353b43;
  --c0: #56b4e9; --c1: #ff9145; --c2: #35cfa0; --c3: #eb8fc9; --c4: #e6bd4d; --c5: #9cd3f3; --c6: #b0a8f0; --c7: #aab2bb } }
.paper { fill: var(--paper) } text { fill: var(--ink) } .grid { stroke: var(--grid); fill: none } .faint { opacity: .7 }
.curve { fill: none; stroke-linejoin: round } .ours { stroke-width: 2.5 } .floor { stroke-width: 2; stroke-dasharray: 7 4 } .peer { stroke-width: 2; stroke-dasharray: 2 3 }
";
const COLOURS: usize = 8;

/// A curve and what the legend says of it.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws medians over sizes, both axes logarithmic; the legend names the exponent of each fit.
pub(crate) fn growth(
    title: &str,
    unit: &str,
    sizes: &[(f64, &str)],
    curves: &[Curve],
) -> Option<String> {
    let named = curves.iter().map(|curve| {
        let exponent = stats::exponent(&curve.points);
        match exponent {
            Some(exponent) => format!("{}: {}", curve.name, power(exponent)),
            None => curve.name.clone(),
        }
    });
    let names: Vec<String> = named.collect();
    let ticks = sizes
        .iter()
        .map(|(size, label)| (*size, (*label).to_owned()));
    Some(draw(&Picture {
        title,
        x_name: "size of the work, logarithmic",
        y_name: &format!("{unit}, median, logarithmic"),
        x: Axis {
            ticks: ticks.collect(),
            ..Axis::logarithmic(xs(curves), LEFT + 20.0, RIGHT - 20.0)?
        },
        y: Axis::logarithmic(ys(curves), BOTTOM, TOP)?,
        curves,
        names: &names,
        dots: true,
    }))
}

/// Says how cost grows; what rounds to zero has no sign.
pub(crate) fn power(exponent: f64) -> String {
    format!("n^{:.2}", (exponent * 100.0).round() / 100.0 + 0.0)
}

/// Draws which share of the samples is below a value; values on a logarithmic axis.
pub(crate) fn distribution(title: &str, unit: &str, curves: &[Curve]) -> Option<String> {
    let names: Vec<String> = curves.iter().map(|curve| curve.name.clone()).collect();
    Some(draw(&Picture {
        title,
        x_name: &format!("{unit}, logarithmic"),
        y_name: "share of the samples below",
        x: Axis::logarithmic(xs(curves), LEFT, RIGHT)?,
        y: Axis::share(),
        curves,
        names: &names,
        dots: false,
    }))
}

/// Turns ascending values into the points of a distribution, thinned out to what a picture can show.
pub(crate) fn shares(sorted: &[f64]) -> Vec<(f64, f64)> {
    let steps = sorted.len().min(200);
    let share = |step: usize| (step as f64 + 0.5) / steps as f64;
    (0..steps)
        .filter_map(|step| Some((stats::quantile(sorted, share(step))?, share(step))))
        .collect()
}

fn xs(curves: &[Curve]) -> impl Iterator<Item = f64> {
    { curves.iter() }
        .flat_map(|curve| &curve.points)
        .map(|(x, _)| *x)
}

fn ys(curves: &[Curve]) -> impl Iterator<Item = f64> {
    { curves.iter() }
        .flat_map(|curve| &curve.points)
        .map(|(_, y)| *y)
}

/// Where a value lies in the picture, and which values are named.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Covers `values` from a round one to a round one; `None` if no value can be drawn.
    fn logarithmic(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let drawable = values.filter(|value| *value > 0.0 && value.is_finite());
        let (low, high) = drawable.fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if !low.is_finite() {
            return None;
        }
        let first = low.log10().floor() as i32;
        let last = high.log10().ceil() as i32;
        // Wide axes name decades only.
        let steps: &[f64] = if last - first > 3 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let all: Vec<f64> = (first..=last.max(first + 1))
            .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)))
            .collect();
        // What was just computed may miss the value that it stands for by a hair's breadth.
        let below = all
            .iter()
            .rposition(|tick| *tick <= low * 1.000_001)
            .unwrap_or(0);
        let above = all.iter().position(|tick| *tick >= high * 0.999_999);
        let above = above
            .unwrap_or(all.len() - 1)
            .max(below + 1)
            .min(all.len() - 1);
        let ticks = &all[below..=above];
        Some(Self {
            low: ticks[0].log10(),
            high: ticks[ticks.len() - 1].log10(),
            from,
            to,
            logarithmic: true,
            ticks: ticks.iter().map(|tick| (*tick, number(*tick))).collect(),
        })
    }

    fn share() -> Self {
        let quarters = (0..=4).map(|quarter| f64::from(quarter) / 4.0);
        Self {
            low: 0.0,
            high: 1.0,
            from: BOTTOM,
            to: TOP,
            logarithmic: false,
            ticks: quarters
                .map(|share| (share, format!("{} %", share * 100.0)))
                .collect(),
        }
    }

    fn at(&self, value: f64) -> f64 {
        let value = if self.logarithmic {
            value.max(f64::MIN_POSITIVE).log10()
        } else {
            value
        };
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }
}

/// All that is drawn.
struct Picture<'a> {
    title: &'a str,
    x_name: &'a str,
    y_name: &'a str,
    x: Axis,
    y: Axis,
    curves: &'a [Curve],
    names: &'a [String],
    dots: bool,
}

fn draw(picture: &Picture<'_>) -> String {
    let Picture { x, y, .. } = picture;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n\
         <style>{STYLE}</style>\n<title>{}</title>\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n",
        escaped(picture.title)
    );
    let mut text = |at: (f64, f64), anchor: &str, more: &str, words: &str| {
        let ((x, y), words) = (at, escaped(words));
        // Writing to a string cannot fail.
        _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{more}>{words}</text>"
        );
    };
    let bold = " font-size=\"14\" font-weight=\"600\"";
    text((LEFT - 60.0, 20.0), "start", bold, picture.title);
    text(
        (f64::midpoint(LEFT, RIGHT), BOTTOM + 40.0),
        "middle",
        "",
        picture.x_name,
    );
    text((LEFT - 60.0, TOP - 12.0), "start", "", picture.y_name);
    for (tick, label) in &x.ticks {
        text((x.at(*tick), BOTTOM + 18.0), "middle", "", label);
    }
    for (tick, label) in &y.ticks {
        text((LEFT - 8.0, y.at(*tick) + 4.0), "end", "", label);
    }
    for (row, name) in picture.names.iter().enumerate() {
        text(
            (RIGHT + 52.0, TOP + 14.0 + 20.0 * row as f64),
            "start",
            "",
            name,
        );
    }
    let key = "solid: ours; dashed: floor; dotted: peer";
    text((RIGHT + 16.0, BOTTOM), "start", " class=\"faint\"", key);
    let mut grid = String::new();
    for (tick, _) in &x.ticks {
        _ = write!(grid, "M{:.1} {TOP}V{BOTTOM}", x.at(*tick));
    }
    for (tick, _) in &y.ticks {
        _ = write!(grid, "M{LEFT} {:.1}H{RIGHT}", y.at(*tick));
    }
    _ = writeln!(svg, "<path class=\"grid\" d=\"{grid}\"/>");
    // Ours last, so that nothing lies over it.
    let mut rows: Vec<(usize, &Curve)> = picture.curves.iter().enumerate().collect();
    rows.sort_by_key(|(_, curve)| curve.role == Role::Ours);
    for (row, curve) in rows {
        let colour = format!("var(--c{})", row % COLOURS);
        let role = match curve.role {
            Role::Ours => "ours",
            Role::Floor => "floor",
            Role::Peer => "peer",
        };
        let points: Vec<(f64, f64)> = { curve.points.iter() }
            .map(|(px, py)| (x.at(*px), y.at(*py)))
            .collect();
        let line: Vec<String> = { points.iter() }
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let key = TOP + 10.0 + 20.0 * row as f64;
        _ = writeln!(
            svg,
            "<g style=\"stroke: {colour}\"><polyline class=\"curve {role}\" points=\"{}\"/><path class=\"curve {role}\" d=\"M{} {key}h30\"/></g>",
            line.join(" "),
            RIGHT + 16.0
        );
        for (x, y) in points.iter().filter(|_| picture.dots) {
            _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" style=\"fill: {colour}\"/>"
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn number(value: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.iter().find(|(unit, _)| value >= *unit * 0.999_999) {
        Some((unit, letter)) => format!("{}{letter}", (value / unit * 1e3).round() / 1e3),
        None => format!("{}", (value * 1e6).round() / 1e6),
    }
}

/// A text in the place of markup.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)]) -> Curve {
        Curve {
            name: "a < b & c".into(),
            role: Role::Ours,
            points: points.to_vec(),
        }
    }

    #[test]
    fn growth_names_its_exponent_and_escapes_names() {
        let points = [(1e3, 2.0), (1e5, 200.0), (1e6, 2000.0)];
        let sizes = [(1e3, "1,000"), (1e5, "100,000"), (1e6, "a million")];
        let svg = growth("wake", "ms", &sizes, &[curve(&points)]).unwrap();
        assert!(svg.contains("a &lt; b &amp; c: n^1.00"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3);
        for label in [">a million<", ">10k<", "ms, median, logarithmic"] {
            assert!(svg.contains(label), "{label}: {svg}");
        }
    }

    proptest::proptest! {
        #[test]
        fn an_axis_covers_its_values_and_names_no_more_than_fit(low in 1e-6..1e9, by in 1.0..1e6) {
            let values = [low, low * by];
            let axis = Axis::logarithmic(values.into_iter(), LEFT, RIGHT).unwrap();
            proptest::prop_assert!(values.iter().all(|value| (LEFT - 0.1..=RIGHT + 0.1).contains(&axis.at(*value))));
            proptest::prop_assert!((2..=10).contains(&axis.ticks.len()), "{}", axis.ticks.len());
        }
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(growth("wake", "ms", &[], &[]), None);
        assert_eq!(distribution("wake", "ms", &[curve(&[(0.0, 0.5)])]), None);
    }

    #[test]
    fn a_distribution_of_many_samples_stays_small_and_within_the_picture() {
        let sorted: Vec<f64> = (1..=10_000).map(f64::from).collect();
        let points = shares(&sorted);
        assert_eq!(points.len(), 200);
        let x = Axis::logarithmic(points.iter().map(|(x, _)| *x), LEFT, RIGHT).unwrap();
        assert!(
            points
                .iter()
                .all(|(px, _)| (LEFT - 0.1..=RIGHT + 0.1).contains(&x.at(*px)))
        );
        assert!(
            distribution("press", "µs", &[curve(&points)])
                .unwrap()
                .len()
                < 12_000
        );
    }
}
