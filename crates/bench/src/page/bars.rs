//! Bar charts: a bar for each server, a chart for each case.

use std::fmt::Write;

use super::chart::{colour, figure};
use super::text::escaped;
use crate::result::{Measurement, Sample, Shown};

const LEFT: f64 = 110.0;
const LENGTH: f64 = 330.0;
const BAR: f64 = 16.0;
const STEP: f64 = 24.0;

/// A chart for each case.
pub(super) fn charts(measured: &Measurement, column: &str) -> String {
    let groups = measured.groups();
    let heading = measured.columns.iter().find(|of| of.key == column).map(|of| of.heading.as_str());
    let mut charts = String::new();
    for (first, case) in Measurement::cases(&groups) {
        let caption = format!("{}: {}", heading.unwrap_or(column), measured.case_name(first));
        charts += &chart(caption.trim_end_matches(": "), column, case);
    }
    charts
}

fn chart(caption: &str, column: &str, groups: &[Vec<&Sample>]) -> String {
    let bars: Vec<_> = groups
        .iter()
        .filter_map(|group| Some((group.first()?.label(), Measurement::spread(group, column)?)))
        .collect();
    let longest = bars.iter().map(|(_, spread)| spread.max).fold(0.0, f64::max);
    if longest <= 0.0 {
        return String::new();
    }
    let length = |value: f64| value / longest * LENGTH;
    let mut svg = String::new();
    for (number, (name, spread)) in bars.iter().enumerate() {
        let y = 4.0 + number as f64 * STEP;
        let (middle, end) = (y + BAR / 2.0, LEFT + length(spread.max));
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{}\"/>\
             <path stroke=\"var(--text)\" d=\"M{:.1} {middle:.1}H{end:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 6.0,
            middle + 4.0,
            escaped(name),
            length(spread.median),
            colour(number),
            LEFT + length(spread.min),
            end + 6.0,
            middle + 4.0,
            Shown::Median.write(Some(*spread)),
        );
    }
    figure(caption, 8.0 + bars.len() as f64 * STEP, &svg)
}
