//! Plots as small SVG files: growth over sizes, and how samples are distributed.

use std::fmt::Write;

use super::stats;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
/// The rectangle of the curves.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 480.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 370.0;
const COLOURS: [&str; 8] = [
    "#1b6ca8", "#d1495b", "#66a182", "#edae49", "#7d5ba6", "#2e4057", "#a26769", "#5fa8d3",
];

/// A curve and what the legend says of it.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws curves over sizes, both axes logarithmic; the legend names the exponent of each fit.
pub(crate) fn growth(title: &str, unit: &str, curves: &[Curve]) -> Option<String> {
    let named = curves.iter().map(|curve| {
        let exponent = stats::exponent(&curve.points);
        match exponent {
            Some(exponent) => format!("{}: {}", curve.name, power(exponent)),
            None => curve.name.clone(),
        }
    });
    let names: Vec<String> = named.collect();
    let x = Axis::logarithmic(xs(curves), LEFT, RIGHT)?;
    let y = Axis::logarithmic(ys(curves), BOTTOM, TOP)?;
    Some(draw(title, "size", unit, &x, &y, curves, &names, true))
}

/// Says how cost grows; what rounds to zero has no sign.
pub(crate) fn power(exponent: f64) -> String {
    format!("n^{:.2}", (exponent * 100.0).round() / 100.0 + 0.0)
}

/// Draws which share of the samples is below a value; values on a logarithmic axis.
pub(crate) fn distribution(title: &str, unit: &str, curves: &[Curve]) -> Option<String> {
    let names: Vec<String> = curves.iter().map(|curve| curve.name.clone()).collect();
    let x = Axis::logarithmic(xs(curves), LEFT, RIGHT)?;
    let y = Axis::share();
    Some(draw(
        title,
        unit,
        "share of the samples",
        &x,
        &y,
        curves,
        &names,
        false,
    ))
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
    curves
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|(x, _)| *x)
}

fn ys(curves: &[Curve]) -> impl Iterator<Item = f64> {
    curves
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|(_, y)| *y)
}

/// Where a value lies in the picture.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Axis {
    /// Covers `values` in whole decades; `None` if no value can be drawn.
    fn logarithmic(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let drawable = values.filter(|value| *value > 0.0 && value.is_finite());
        let (low, high) = drawable.fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        low.is_finite().then(|| Self {
            low: low.log10().floor(),
            high: (high.log10().ceil()).max(low.log10().floor() + 1.0),
            from,
            to,
            logarithmic: true,
        })
    }

    fn share() -> Self {
        Self {
            low: 0.0,
            high: 1.0,
            from: BOTTOM,
            to: TOP,
            logarithmic: false,
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

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades = self.low as i32..=self.high as i32;
            decades.map(|decade| 10_f64.powi(decade)).collect()
        } else {
            (0..=4).map(|quarter| f64::from(quarter) / 4.0).collect()
        }
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "two callers above, which name them all"
)]
fn draw(
    title: &str,
    x_name: &str,
    y_name: &str,
    x: &Axis,
    y: &Axis,
    curves: &[Curve],
    names: &[String],
    dots: bool,
) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let mut text = |at: (f64, f64), anchor: &str, words: &str| {
        let (x, y) = at;
        let words = escaped(words);
        // Writing to a string cannot fail.
        _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
        );
    };
    text((LEFT, 22.0), "start", title);
    text(
        (f64::midpoint(LEFT, RIGHT), BOTTOM + 38.0),
        "middle",
        x_name,
    );
    text((LEFT - 60.0, TOP - 6.0), "start", y_name);
    for tick in x.ticks() {
        text((x.at(tick), BOTTOM + 18.0), "middle", &number(tick));
    }
    for tick in y.ticks() {
        text((LEFT - 8.0, y.at(tick) + 4.0), "end", &number(tick));
    }
    for (row, name) in names.iter().enumerate() {
        text(
            (RIGHT + 38.0, TOP + 14.0 + 20.0 * row as f64),
            "start",
            name,
        );
    }
    let mut grid = String::new();
    for tick in x.ticks() {
        _ = write!(grid, "M{:.1} {TOP}V{BOTTOM}", x.at(tick));
    }
    for tick in y.ticks() {
        _ = write!(grid, "M{LEFT} {:.1}H{RIGHT}", y.at(tick));
    }
    _ = writeln!(svg, "<path d=\"{grid}\" stroke=\"#ddd\" fill=\"none\"/>");
    for (row, (curve, colour)) in curves.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let points: Vec<(f64, f64)> = curve
            .points
            .iter()
            .map(|(px, py)| (x.at(*px), y.at(*py)))
            .collect();
        let line: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let key = TOP + 10.0 + 20.0 * row as f64;
        _ = writeln!(
            svg,
            "<polyline points=\"{}\" stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\"/>\n\
             <path d=\"M{} {key}h20\" stroke=\"{colour}\" stroke-width=\"3\"/>",
            line.join(" "),
            RIGHT + 12.0
        );
        for (x, y) in points.iter().filter(|_| dots) {
            _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn number(value: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.iter().find(|(unit, _)| value >= *unit) {
        Some((unit, letter)) => format!("{}{letter}", value / unit),
        None => format!("{}", (value * 1e6).round() / 1e6),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)]) -> Curve {
        Curve {
            name: "a < b & c".into(),
            points: points.to_vec(),
        }
    }

    #[test]
    fn growth_names_its_exponent_and_escapes_names() {
        let points = [(1e3, 2.0), (1e5, 200.0), (1e6, 2000.0)];
        let svg = growth("wake", "ms", &[curve(&points)]).unwrap();
        assert!(svg.contains("a &lt; b &amp; c: n^1.00"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains(">100k<"), "{svg}");
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(growth("wake", "ms", &[]), None);
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
                .all(|(px, _)| (LEFT..=RIGHT).contains(&x.at(*px)))
        );
        assert!(
            distribution("press", "µs", &[curve(&points)])
                .unwrap()
                .len()
                < 10_000
        );
    }
}
