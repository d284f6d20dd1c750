//! The results of a bench, compared with its targets.

use std::fmt;

use serde::Serialize;

use super::stats::{self, Sample, Summary};

/// The role of a contender in its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Ours,
    /// Another way to do the same work.
    Peer,
    /// The lowest possible cost of the work; another contender can be below it only by noise.
    Floor,
}

/// One way to do the work, with its times or other figures.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    #[serde(serialize_with = "as_summary")]
    pub(crate) samples: Vec<Sample>,
    /// Rounds in which it did not end within its limit.
    pub(crate) lost: usize,
    /// The reason why it was not measured any further.
    pub(crate) failed: Option<String>,
}

fn as_summary<S: serde::Serializer>(samples: &[Sample], to: S) -> Result<S::Ok, S::Error> {
    stats::summarise(samples).serialize(to)
}

impl Contender {
    pub(crate) fn new(name: &'static str, role: Role) -> Self {
        Self {
            name,
            role,
            samples: Vec::new(),
            lost: 0,
            failed: None,
        }
    }

    /// Makes a contender that already has its samples.
    pub(crate) fn of(name: &'static str, role: Role, samples: Vec<Sample>) -> Self {
        Self {
            samples,
            ..Self::new(name, role)
        }
    }

    /// Makes a contender of one figure.
    pub(crate) fn single(name: &'static str, role: Role, value: f64) -> Self {
        Self::of(name, role, vec![Sample { round: 0, value }])
    }

    pub(crate) fn summary(&self) -> Option<Summary> {
        stats::summarise(&self.samples)
    }

    fn absorb(&mut self, later: Self) {
        self.samples.extend(later.samples);
        self.lost += later.lost;
        self.failed = self.failed.take().or(later.failed);
    }
}

/// Contenders that did the same work, one after another in each round.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Series {
    /// The measured quantity; series of one quantity differ in size.
    pub(crate) quantity: &'static str,
    pub(crate) unit: &'static str,
    /// The amount of work, and its label.
    pub(crate) size: Option<(f64, &'static str)>,
    pub(crate) contenders: Vec<Contender>,
}

impl Series {
    pub(crate) fn new(
        quantity: &'static str,
        unit: &'static str,
        contenders: Vec<Contender>,
    ) -> Self {
        Self {
            quantity,
            unit,
            size: None,
            contenders,
        }
    }

    pub(crate) fn sized(mut self, size: f64, label: &'static str) -> Self {
        self.size = Some((size, label));
        self
    }

    /// Adds the samples of the same contenders in further rounds.
    pub(crate) fn absorb(&mut self, later: Vec<Contender>) {
        for later in later {
            match self
                .contenders
                .iter_mut()
                .find(|known| known.name == later.name)
            {
                Some(known) => known.absorb(later),
                None => self.contenders.push(later),
            }
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Contender> {
        self.contenders
            .iter()
            .find(|contender| contender.name == name)
    }

    pub(crate) fn floor(&self) -> Option<&Contender> {
        self.contenders
            .iter()
            .find(|contender| contender.role == Role::Floor)
    }

    /// Returns the median of a contender's samples.
    pub(crate) fn median(&self, name: &str) -> Option<f64> {
        Some(self.get(name)?.summary()?.median)
    }

    /// Returns the ratio of `statistic` of two contenders.
    pub(crate) fn ratio(
        &self,
        name: &str,
        over: &str,
        statistic: impl Fn(Summary) -> f64,
    ) -> Option<f64> {
        let over = statistic(self.get(over)?.summary()?);
        (over > 0.0).then_some(statistic(self.get(name)?.summary()?) / over)
    }

    /// Divides the samples of two contenders round by round, and returns the median of these ratios.
    pub(crate) fn paired(&self, name: &str, over: &str) -> Option<f64> {
        stats::paired_ratio(&self.get(name)?.samples, &self.get(over)?.samples)
    }

    pub(crate) fn title(&self) -> String {
        match self.size {
            Some((_, label)) => format!("{}, {label}", self.quantity),
            None => self.quantity.to_owned(),
        }
    }
}

/// Finds the series of a quantity at a size.
pub(crate) fn find<'a>(series: &'a [Series], quantity: &str, label: &str) -> Option<&'a Series> {
    series.iter().find(|series| {
        series.quantity == quantity && series.size.is_some_and(|(_, size)| size == label)
    })
}

/// Adds `later` to the series of the same quantity and size, or as a new series.
pub(crate) fn join(all: &mut Vec<Series>, later: Series) {
    let known = all.iter_mut().find(|series| {
        series.quantity == later.quantity
            && series.size.map(|size| size.1) == later.size.map(|size| size.1)
    });
    match known {
        Some(known) => known.absorb(later.contenders),
        None => all.push(later),
    }
}

/// The side of the limit on which a figure must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtMost,
    AtLeast,
}

/// The series and the contender of a target.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct About {
    /// The series' title.
    pub(crate) series: String,
    pub(crate) contender: &'static str,
}

/// A target, and whether it was hit.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Verdict {
    pub(crate) what: String,
    pub(crate) measured: f64,
    pub(crate) bound: Bound,
    pub(crate) limit: f64,
    pub(crate) unit: &'static str,
    pub(crate) hit: bool,
    pub(crate) about: Option<About>,
}

impl Verdict {
    pub(crate) fn told(&self) -> &'static str {
        if self.hit { "hit" } else { "MISSED" }
    }

    pub(crate) fn measured(&self) -> String {
        let measured = if self.measured.fract() == 0.0 {
            self.measured.to_string()
        } else {
            stats::figure(self.measured)
        };
        format!("{measured} {}", self.unit)
    }

    pub(crate) fn limit(&self) -> String {
        let sign = match self.bound {
            Bound::AtMost => "≤",
            Bound::AtLeast => "≥",
        };
        format!("{sign} {}", self.limit)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (told, what, measured) = (self.told(), &self.what, self.measured());
        let (limit, unit) = (self.limit(), self.unit);
        write!(f, "{told}: {what}: {measured} (target {limit} {unit})")
    }
}

/// A target that was just judged, or that could not be judged.
pub(crate) struct JudgedTarget<'a>(Option<&'a mut Verdict>);

impl JudgedTarget<'_> {
    /// Sets the series and the contender of the target.
    pub(crate) fn about(self, series: impl Into<String>, contender: &'static str) {
        if let Some(verdict) = self.0 {
            let series = series.into();
            verdict.about = Some(About { series, contender });
        }
    }
}

/// The results of one bench.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) series: Vec<Series>,
    pub(crate) verdicts: Vec<Verdict>,
    /// Missing peers, and targets that could not be judged, with the reason.
    pub(crate) skipped: Vec<String>,
    /// Explanations that a reader of the figures needs.
    pub(crate) notes: Vec<String>,
}

impl Outcome {
    pub(crate) fn new(id: &'static str, title: &'static str) -> Self {
        Self {
            id,
            title,
            series: Vec::new(),
            verdicts: Vec::new(),
            skipped: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a skipped part with its reason, once.
    pub(crate) fn skip(&mut self, what: &str, why: &dyn fmt::Display) {
        let line = format!("{what}: {why}");
        if !self.skipped.contains(&line) {
            self.skipped.push(line);
        }
    }

    /// Returns the exponent by which a contender's medians grow over the sizes of `quantity`; `None` if there is one size.
    pub(crate) fn growth(&self, quantity: &str, contender: &str) -> Option<f64> {
        let sizes = self.series.iter().filter(|it| it.quantity == quantity);
        let points: Vec<(f64, f64)> = sizes
            .filter_map(|series| Some((series.size?.0, series.median(contender)?)))
            .collect();
        stats::exponent(&points)
    }

    pub(crate) fn at_most(
        &mut self,
        what: &str,
        measured: Option<f64>,
        limit: f64,
        unit: &'static str,
    ) -> JudgedTarget<'_> {
        self.judge(what, measured, Bound::AtMost, limit, unit)
    }

    pub(crate) fn at_least(
        &mut self,
        what: &str,
        measured: Option<f64>,
        limit: f64,
        unit: &'static str,
    ) -> JudgedTarget<'_> {
        self.judge(what, measured, Bound::AtLeast, limit, unit)
    }

    fn judge(
        &mut self,
        what: &str,
        measured: Option<f64>,
        bound: Bound,
        limit: f64,
        unit: &'static str,
    ) -> JudgedTarget<'_> {
        let Some(measured) = measured else {
            self.skip(&format!("target \"{what}\""), &"there is no figure for it");
            return JudgedTarget(None);
        };
        let hit = match bound {
            Bound::AtMost => measured <= limit,
            Bound::AtLeast => measured >= limit,
        };
        self.verdicts.push(Verdict {
            what: what.into(),
            measured,
            bound,
            limit,
            unit,
            hit,
            about: None,
        });
        JudgedTarget(self.verdicts.last_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_judged_by_its_bound_and_skipped_without_a_figure() {
        let mut outcome = Outcome::new("b0", "nothing");
        outcome.at_most("time", Some(2.0), 2.0, "×");
        outcome.at_most("time", Some(2.1), 2.0, "×");
        outcome.at_least("speed-up", Some(49.0), 50.0, "×");
        outcome
            .at_least("speed-up", None, 50.0, "×")
            .about("nothing", "ours");
        let hits: Vec<bool> = outcome.verdicts.iter().map(|verdict| verdict.hit).collect();
        assert_eq!(hits, [true, false, false]);
        assert_eq!(outcome.skipped.len(), 1);
        assert!(
            outcome.verdicts.iter().all(|it| it.about.is_none()),
            "a target that was not judged has no contender"
        );
        assert_eq!(
            outcome.verdicts[1].to_string(),
            "MISSED: time: 2.10 × (target ≤ 2 ×)"
        );
    }

    #[test]
    fn new_rounds_are_added_to_the_same_contender() {
        let one = |round| {
            let sample = Sample { round, value: 1.0 };
            vec![Contender::of("ours", Role::Ours, vec![sample])]
        };
        let mut series = Series::new("time", "ms", one(0));
        series.absorb(one(1));
        assert_eq!(series.contenders.len(), 1);
        assert_eq!(series.contenders[0].samples.len(), 2);
    }
}
