//! The parts of charts: scales, axes, a legend, lines.

use std::fmt::Write;

use super::text::{escaped, short};

const WIDTH: f64 = 560.0;
/// Height without the legend.
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
/// Space for the labels of the axis and its name.
const BOTTOM: f64 = 36.0;
const LEGEND_LINE: f64 = 16.0;
const COLOURS: usize = 8;
const TICKS: usize = 5;
/// A logarithmic scale of less than this range may contain no power of ten.
const FEW_DECADES: f64 = 100.0;
/// Width of a letter in the legend.
const LETTER: f64 = 6.4;

/// Maps values to positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    is_log: bool,
}

/// x, y, and the range of y over single rounds.
pub(super) type Point = (f64, f64, Option<(f64, f64)>);

/// A line of values with their ranges.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<Point>,
    /// Whether points are marked, not only joined.
    pub(super) is_marked: bool,
}

/// A tick: its value and its label.
pub(super) type Tick = (f64, String);

/// Two axes.
#[derive(Clone, Debug)]
pub(super) struct Axes<'a> {
    pub(super) across: Scale,
    pub(super) up: Scale,
    pub(super) across_ticks: Vec<Tick>,
    pub(super) up_ticks: Vec<Tick>,
    pub(super) across_name: &'a str,
}

impl Scale {
    /// A linear scale from zero.
    pub(super) fn linear(to: f64) -> Scale {
        Scale { from: 0.0, to: if to > 0.0 { to * 1.05 } else { 1.0 }, is_log: false }
    }

    /// A logarithmic scale; both ends must be positive.
    pub(super) fn log(from: f64, to: f64) -> Scale {
        let from = from.max(f64::MIN_POSITIVE);
        Scale { from, to: if to > from { to } else { from * 2.0 }, is_log: true }
    }

    /// The position of a value: 0 at the start of the scale, 1 at its end.
    fn place(self, value: f64) -> f64 {
        let Scale { from, to, is_log } = self;
        let place = if is_log {
            (value.max(from).ln() - from.ln()) / (to.ln() - from.ln())
        } else {
            (value - from) / (to - from)
        };
        place.clamp(0.0, 1.0)
    }

    /// Ticks at round values.
    pub(super) fn ticks(self) -> Vec<Tick> {
        if self.is_log {
            let decades = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
            let factors: &[f64] = match self.to / self.from {
                ..FEW_DECADES => &[1.0, 2.0, 5.0],
                _ => &[1.0],
            };
            let ticks = decades
                .flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
            return ticks
                .filter(|value| (self.from..=self.to).contains(value))
                .map(|value| (value, short(value)))
                .collect();
        }
        let raw = self.to / TICKS as f64;
        let power = 10_f64.powf(raw.log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
        let step = steps.into_iter().find(|step| *step >= raw).unwrap_or(raw);
        (0..=TICKS)
            .map(|number| number as f64 * step)
            .filter(|value| *value <= self.to)
            .map(|value| (value, short(value)))
            .collect()
    }
}

/// The class of the colour of a series.
pub(super) fn colour(number: usize) -> String {
    format!("var(--s{})", number % COLOURS)
}

/// A chart with its caption.
pub(super) fn figure(caption: &str, height: f64, inner: &str) -> String {
    let caption = escaped(caption);
    format!(
        "<figure><figcaption>{caption}</figcaption>\n<svg viewBox=\"0 0 {WIDTH} {height:.0}\" \
         role=\"img\" aria-label=\"{caption}\">\n{inner}</svg></figure>\n"
    )
}

/// A line chart.
pub(super) fn lines(caption: &str, axes: &Axes<'_>, series: &[Series]) -> String {
    let (inner_width, inner_height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let x = |value: f64| LEFT + axes.across.place(value) * inner_width;
    let y = |value: f64| TOP + (1.0 - axes.up.place(value)) * inner_height;
    let floor = TOP + inner_height;
    let mut svg = String::new();
    for (value, text) in &axes.up_ticks {
        let (y, end, text) = (y(*value), WIDTH - RIGHT, escaped(text));
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{end}\"/><text class=\"tick\" x=\"{:.1}\" \
             y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    for (value, text) in &axes.across_ticks {
        let (x, text) = (x(*value), escaped(text));
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{x:.1} {TOP}V{floor}\"/><text class=\"tick\" x=\"{x:.1}\" \
             y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
            floor + 15.0
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        WIDTH - RIGHT,
        floor + 30.0,
        escaped(axes.across_name)
    );
    for (number, line) in series.iter().enumerate() {
        put_line(&mut svg, line, &colour(number), x, y);
    }
    let bottom = put_legend(&mut svg, series, HEIGHT);
    figure(caption, bottom, &svg)
}

fn put_line(
    svg: &mut String,
    line: &Series,
    colour: &str,
    x: impl Fn(f64) -> f64,
    y: impl Fn(f64) -> f64,
) {
    let points: Vec<String> = line
        .points
        .iter()
        .map(|(across, up, _)| format!("{:.1},{:.1}", x(*across), y(*up)))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline class=\"series\" stroke=\"{colour}\" points=\"{}\"/>",
        points.join(" ")
    );
    for (across, up, range) in line.points.iter().filter(|_| line.is_marked) {
        let (x, y_here) = (x(*across), y(*up));
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y_here:.1}\" r=\"3\" fill=\"{colour}\"><title>{}: {}\
             </title></circle>",
            escaped(&line.name),
            short(*up)
        );
        if let Some((low, high)) = range {
            let (low, high) = (y(*low), y(*high));
            let _ = writeln!(svg, "<path stroke=\"{colour}\" d=\"M{x:.1} {low:.1}V{high:.1}\"/>");
        }
    }
}

/// Draws the legend from `top` on, in as many lines as it needs; returns where it ends.
fn put_legend(svg: &mut String, series: &[Series], top: f64) -> f64 {
    let (mut x, mut y) = (LEFT, top + 10.0);
    for (number, line) in series.iter().enumerate() {
        let width = 30.0 + line.name.chars().count() as f64 * LETTER;
        if x > LEFT && x + width > WIDTH {
            (x, y) = (LEFT, y + LEGEND_LINE);
        }
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            y - 9.0,
            colour(number),
            x + 14.0,
            escaped(&line.name)
        );
        x += width;
    }
    y + 8.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        let texts = |scale: Scale| -> Vec<String> {
            scale.ticks().into_iter().map(|(_, text)| text).collect()
        };
        assert_eq!(texts(Scale::linear(95_000.0)), ["0", "20k", "40k", "60k", "80k"]);
        assert_eq!(texts(Scale::log(8.0, 20_000.0)), ["10", "100", "1k", "10k"]);
        assert_eq!(texts(Scale::log(300.0, 6_000.0)), ["500", "1k", "2k", "5k"]);
        assert_eq!(Scale::linear(0.0).place(0.0), 0.0);
        assert!((Scale::log(1.0, 100.0).place(10.0) - 0.5).abs() < 1e-9);
    }
}
