//! Line charts of a value over a numeric axis.

use std::collections::BTreeMap;

use super::chart::{Axes, Scale, Series, lines};
use super::text::short;
use crate::result::{Measurement, Sample};

/// An axis is logarithmic if its last value is at least this many times its first.
const LOG_FROM: f64 = 8.0;

/// A chart for each combination of the other axes that has several values on this one.
pub(super) fn charts(measured: &Measurement, axis: &str, column: &str) -> String {
    let groups = measured.groups();
    let mut charts: BTreeMap<(usize, String), Vec<&Vec<&Sample>>> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for group in &groups {
        let Some(first) = group.first() else { continue };
        let name = others(measured, first, axis);
        if !order.contains(&name) {
            order.push(name.clone());
        }
        let place = order.iter().position(|other| *other == name).unwrap_or_default();
        charts.entry((place, name)).or_default().push(group);
    }
    let made =
        charts.iter().filter_map(|((_, name), groups)| chart(measured, axis, column, name, groups));
    made.collect()
}

/// The name of a sample's case without one of its axes.
fn others(measured: &Measurement, sample: &Sample, without: &str) -> String {
    let axes = measured.axes.iter().filter(|axis| axis.key != without);
    let named =
        axes.filter_map(|axis| Some(format!("{} {}", axis.heading, sample.case.get(&axis.key)?)));
    named.collect::<Vec<_>>().join(", ")
}

fn chart(
    measured: &Measurement,
    axis: &str,
    column: &str,
    case: &str,
    groups: &[&Vec<&Sample>],
) -> Option<String> {
    let mut series: Vec<Series> = Vec::new();
    for group in groups {
        let first = group.first()?;
        let Some(across) = first.case.get(axis).and_then(|text| text.parse().ok()) else {
            continue;
        };
        let Some(spread) = Measurement::spread(group, column) else { continue };
        let point = (across, spread.median, Some((spread.min, spread.max)));
        let name = first.label();
        match series.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => series.push(Series { name, points: vec![point], is_marked: true }),
        }
    }
    for line in &mut series {
        line.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    let all = || series.iter().flat_map(|line| &line.points);
    let mut places: Vec<f64> = all().map(|point| point.0).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let (least, most) = (*places.first()?, *places.last()?);
    if places.len() < 2 {
        return None;
    }
    let across = if least > 0.0 && most / least >= LOG_FROM {
        Scale::log(least, most)
    } else {
        Scale::linear(most)
    };
    let highest = all().filter_map(|point| point.2).map(|range| range.1).fold(0.0, f64::max);
    let up = Scale::linear(highest);
    let heading = |key: &str| {
        let columns = measured.columns.iter().find(|column| column.key == key);
        columns.map_or(key.to_owned(), |column| column.heading.clone())
    };
    let axis_name = measured.axes.iter().find(|named| named.key == axis);
    let axes = Axes {
        across,
        up,
        across_ticks: places.iter().map(|place| (*place, short(*place))).collect(),
        up_ticks: up.ticks(),
        across_name: axis_name.map_or(axis, |axis| &axis.heading),
    };
    let caption = match case {
        "" => heading(column),
        case => format!("{}: {case}", heading(column)),
    };
    Some(lines(&caption, &axes, &series))
}
