//! Charts of latency distributions; both axes are logarithmic, so that rare latencies show.

use super::chart::{Axes, Scale, Series, Tick, lines};
use crate::result::{Measurement, Sample};

/// The rarest latency shown: one in so many.
const RAREST: f64 = 1e-5;

/// A chart for each case.
pub(super) fn charts(measured: &Measurement) -> String {
    let groups = measured.groups();
    let mut charts = String::new();
    for (first, case) in Measurement::cases(&groups) {
        charts.extend(chart(&measured.case_name(first), case));
    }
    charts
}

fn chart(case: &str, groups: &[Vec<&Sample>]) -> Option<String> {
    let series: Vec<Series> = groups.iter().filter_map(|group| line(group)).collect();
    let all = || series.iter().flat_map(|line| line.points.iter().map(|point| point.0));
    let (least, most) = (all().reduce(f64::min)?, all().reduce(f64::max)?);
    let across = Scale::log(least, most);
    let percent =
        |share: f64| -> Tick { (share, format!("{}%", ((1.0 - share) * 1e5).round() / 1e3)) };
    let axes = Axes {
        across,
        up: Scale::log(RAREST, 1.0),
        across_ticks: across.ticks(),
        up_ticks: [1.0, 0.5, 0.1, 0.01, 1e-3, 1e-4, RAREST].map(percent).into(),
        across_name: "us or less",
    };
    Some(lines(&format!("Latencies: {case}"), &axes, &series))
}

/// The distribution over all rounds.
fn line(group: &[&Sample]) -> Option<Series> {
    let mut steps: Vec<(u64, u64)> =
        group.iter().flat_map(|sample| sample.latencies_ns.iter().copied()).collect();
    steps.sort_unstable();
    let total: u64 = steps.iter().map(|(_, count)| count).sum();
    let mut points = Vec::new();
    let mut longer = total;
    for (nanos, count) in steps {
        // A step's latency is its upper bound, so those of the step itself are not longer.
        longer -= count;
        let share = longer as f64 / total as f64;
        points.push((nanos as f64 / 1e3, share.max(RAREST), None));
    }
    let name = group.first()?.label();
    (!points.is_empty()).then_some(Series { name, points, is_marked: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_has_the_share_of_longer_latencies() {
        let sample = |latencies_ns| Sample { latencies_ns, ..Sample::new("zodium", "M5", 0) };
        let [one, other] = [vec![(1_000_000, 90)], vec![(1_000_000, 9), (10_000_000, 1)]];
        let line = line(&[&sample(one), &sample(other)]).unwrap();
        let points: Vec<(f64, f64)> = line.points.iter().map(|point| (point.0, point.1)).collect();
        // Both rounds end a step at 1 ms: 99 of 100 take that or less.
        assert_eq!(points, [(1000.0, 0.91), (1000.0, 0.01), (10_000.0, RAREST)]);
    }
}
