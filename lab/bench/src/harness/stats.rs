//! Statistics as pure functions.

use serde::Serialize;

/// The statistics of a list of samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) count: usize,
    pub(crate) min: f64,
    pub(crate) p10: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// A sample and the round in which it was taken; samples of one round are pairs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    pub(crate) round: usize,
    pub(crate) value: f64,
}

/// Summarises `samples`, which contain no NaN; returns `None` if there are none.
pub(crate) fn summarise(samples: &[Sample]) -> Option<Summary> {
    let sorted = sorted(samples.iter().map(|sample| sample.value));
    Some(Summary {
        count: sorted.len(),
        min: *sorted.first()?,
        p10: quantile(&sorted, 0.10)?,
        median: quantile(&sorted, 0.50)?,
        p99: quantile(&sorted, 0.99)?,
        max: *sorted.last()?,
    })
}

/// Returns the quantile `q`, from 0 to 1, of ascending values, with linear interpolation between the two nearest ones.
fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (sorted[at as usize], sorted[at.ceil() as usize]);
    // Clamped, because rounding may lead slightly outside the interval.
    Some((below + (above - below) * at.fract()).clamp(below, above))
}

/// Returns the median of `ours / other` over the rounds that have a sample of both.
///
/// The two samples of a round follow each other at once, so a disturbance that is longer than a round cancels out.
pub(crate) fn paired_ratio(ours: &[Sample], other: &[Sample]) -> Option<f64> {
    let mut other = other.to_vec();
    other.sort_by_key(|sample| sample.round);
    let ratios = ours.iter().filter_map(|sample| {
        let at = other
            .binary_search_by_key(&sample.round, |sample| sample.round)
            .ok()?;
        (other[at].value > 0.0).then(|| sample.value / other[at].value)
    });
    quantile(&sorted(ratios), 0.5)
}

/// Returns `b` of the best fit of `y = a × x^b`: the slope of the line through the logarithms.
pub(crate) fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> = points
        .iter()
        .filter(|(x, y)| *x > 0.0 && *y > 0.0)
        .map(|(x, y)| (x.ln(), y.ln()))
        .collect();
    slope(&logs)
}

/// Returns the slope of the least-squares line through points; `None` if they have fewer than two values of x.
pub(crate) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let along: f64 = { points.iter() }
        .map(|(x, y)| (x - mean_x) * (y - mean_y))
        .sum();
    // This is also false if there is no point at all.
    (spread > 0.0).then(|| along / spread)
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Formats a figure with about three significant digits.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        size if size == 0.0 || size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples(values: &[f64]) -> Vec<Sample> {
        values
            .iter()
            .enumerate()
            .map(|(round, &value)| Sample { round, value })
            .collect()
    }

    #[test]
    fn summary_of_known_samples_is_right() {
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        let summary = summarise(&samples(&values)).unwrap();
        assert_eq!(
            (summary.min, summary.p10, summary.median, summary.p99),
            (0.0, 10.0, 50.0, 99.0)
        );
        assert_eq!((summary.count, summary.max), (101, 100.0));
        assert_eq!(quantile(&[1.0, 2.0], 0.5), Some(1.5));
        assert_eq!(summarise(&[]), None);
    }

    #[test]
    fn only_samples_of_the_same_round_are_paired() {
        // The machine is ten times slower from the third round on, but the ratio stays the same.
        let ours = samples(&[2.0, 2.0, 20.0, 20.0, 20.0]);
        let mut floor = samples(&[1.0, 1.0, 10.0, 10.0, 10.0]);
        floor.reverse();
        assert_eq!(paired_ratio(&ours, &floor), Some(2.0));
        let later = [Sample {
            round: 9,
            value: 1.0,
        }];
        assert_eq!(paired_ratio(&ours, &later), None);
    }

    #[test]
    fn single_size_has_no_exponent() {
        assert_eq!(exponent(&[]), None);
        assert_eq!(exponent(&[(10.0, 1.0), (10.0, 2.0)]), None);
    }

    proptest! {
        #[test]
        fn quantiles_are_ordered_and_within_the_samples(
            mut values in prop::collection::vec(-1e9..1e9, 1..200),
            turn in 0_usize..200,
            low in 0.0..1.0,
            high in 0.0..1.0,
        ) {
            let (low, high) = if low <= high { (low, high) } else { (high, low) };
            let ascending = sorted(values.iter().copied());
            let (low, high) = (quantile(&ascending, low).unwrap(), quantile(&ascending, high).unwrap());
            prop_assert!(ascending[0] <= low && low <= high && high <= ascending[ascending.len() - 1]);
            let before = summarise(&samples(&values));
            let by = turn % values.len();
            values.rotate_left(by);
            prop_assert_eq!(before, summarise(&samples(&values)));
        }

        #[test]
        fn paired_ratio_is_independent_of_common_noise(
            noise in prop::collection::vec(1e-3..1e3, 1..100),
            ratio in 1e-2..1e2,
        ) {
            let slower: Vec<f64> = noise.iter().map(|noise| noise * ratio).collect();
            let found = paired_ratio(&samples(&slower), &samples(&noise)).unwrap();
            prop_assert!(f64::abs(found / ratio - 1.0) < 1e-9);
        }

        #[test]
        fn the_exponent_of_a_power_is_found(factor in 1e-6..1e6, power in -3.0..3.0) {
            let points = [1e1, 1e3, 1e5, 1e6].map(|x: f64| (x, factor * x.powf(power)));
            prop_assert!((exponent(&points).unwrap() - power).abs() < 1e-6);
        }
    }

    #[test]
    fn figures_have_about_three_significant_digits() {
        let told = [0.0, 0.01234, 0.1234, 1.234, 12.34, 1234.4].map(figure);
        assert_eq!(told, ["0", "0.0123", "0.12", "1.23", "12.3", "1234"]);
    }
}
