//! Drawings in SVG. Each has a text for readers that do not see it; tables hold the figures.

use maud::{Markup, html};
use zodium_storage::Transaction;

use crate::scan::Survey;
use crate::treemap::{Area, layout};
use crate::words;

/// Classes that have a rectangle of their own.
pub(super) const CLASSES_DRAWN: usize = 40;
/// Colours of rectangles, as classes of the style.
const COLOURS: usize = 8;
const MAP: Area = Area { x: 0.0, y: 0.0, width: 1000.0, height: 460.0 };
/// Width of a character in the map.
const CHARACTER: f64 = 7.6;

/// The colour of the class at a place of the table.
pub(super) fn colour(place: usize) -> String {
    match place {
        place if place < CLASSES_DRAWN => format!("c{}", place % COLOURS),
        _ => "rest".to_owned(),
    }
}

/// Classes by the bytes of their current objects, as rectangles.
pub(super) fn treemap(survey: &Survey) -> Markup {
    let drawn: Vec<_> =
        survey.classes.iter().filter(|size| size.bytes > 0).take(CLASSES_DRAWN).collect();
    let mut sizes: Vec<u64> = drawn.iter().map(|size| size.bytes).collect();
    let others = survey.bytes - sizes.iter().sum::<u64>();
    let mut labels: Vec<(String, u64)> =
        drawn.iter().map(|size| (size.class.clone(), size.bytes)).collect();
    if others > 0 {
        // Sizes descend: the others go to their place.
        let place = sizes.partition_point(|size| *size >= others);
        sizes.insert(place, others);
        labels.insert(place, ("other classes".to_owned(), others));
    }
    let areas = layout(&sizes, MAP);
    let mut number = 0;
    html! {
        svg.treemap viewBox="0 0 1000 460" role="img"
            aria-label="Classes by size; the table below has the figures" {
            @for (area, (class, bytes)) in areas.iter().zip(&labels) {
                @let colour = match class.as_str() {
                    "other classes" => "rest".to_owned(),
                    _ => { number += 1; colour(number - 1) }
                };
                g.(colour) {
                    title { (class) ": " (words::bytes(*bytes)) ", "
                        (words::percent(*bytes, survey.bytes)) }
                    rect x=(px(area.x + 1.0)) y=(px(area.y + 1.0))
                        width=(px((area.width - 2.0).max(0.0)))
                        height=(px((area.height - 2.0).max(0.0))) rx="3" {}
                    (label(*area, class, *bytes))
                }
            }
        }
    }
}

fn label(area: Area, class: &str, bytes: u64) -> Markup {
    let room = ((area.width - 16.0) / CHARACTER).max(0.0) as usize;
    let short = class.rsplit('.').next().unwrap_or(class);
    let text = [class, short].into_iter().find(|text| text.chars().count() <= room);
    html! {
        @if let Some(text) = text.filter(|_| area.height > 22.0) {
            text x=(px(area.x + 9.0)) y=(px(area.y + 20.0)) { (text) }
            @if area.height > 42.0 && room > 8 {
                text.small x=(px(area.x + 9.0)) y=(px(area.y + 38.0)) { (words::bytes(bytes)) }
            }
        }
    }
}

/// Bytes in all over time as an area, and bytes of each period as bars.
pub(super) fn growth(survey: &Survey) -> Markup {
    let (width, height) = (1000.0, 300.0);
    let step = width / survey.periods.len().max(1) as f64;
    let total = survey.periods.iter().map(|period| period.bytes).sum::<u64>().max(1) as f64;
    let most = survey.periods.iter().map(|period| period.bytes).max().unwrap_or(0).max(1) as f64;
    let (mut sum, mut line) = (0.0, format!("M0 {}", px(height)));
    for (place, period) in survey.periods.iter().enumerate() {
        sum += period.bytes as f64;
        let (x, y) = ((place + 1) as f64 * step, height - sum / total * (height - 10.0));
        line += &format!("L{} {}", px(x), px(y));
    }
    let area = format!("{line}L{} {}Z", px(width), px(height));
    let text = format!(
        "Bytes written from {} to {}: {} in all",
        words::time(survey.first),
        words::time(survey.last),
        words::bytes(total as u64)
    );
    html! {
        svg.growth viewBox="0 0 1000 300" preserveAspectRatio="none" role="img" aria-label=(text) {
            path.area d=(area) {}
            @for (place, period) in survey.periods.iter().enumerate() {
                @let tall = period.bytes as f64 / most * (height - 10.0);
                rect x=(px(place as f64 * step + 1.0)) y=(px(height - tall))
                    width=(px(step - 2.0)) height=(px(tall)) {
                    title { (words::time(period.start)) ": " (words::bytes(period.bytes)) ", "
                        (words::count(period.transactions)) " transactions" }
                }
            }
            path.line d=(line) {}
        }
    }
}

/// Transactions as bars by the root of their size, the oldest first.
pub(super) fn sizes(newest_first: &[Transaction]) -> Markup {
    let step = 1000.0 / newest_first.len().max(1) as f64;
    let most = newest_first.iter().map(|transaction| transaction.length).max().unwrap_or(0).max(1);
    html! {
        svg.sizes viewBox="0 0 1000 64" preserveAspectRatio="none" role="img"
            aria-label="Sizes of these transactions, the oldest at the left" {
            @for (place, transaction) in newest_first.iter().rev().enumerate() {
                @let tall = ((transaction.length as f64 / most as f64).sqrt() * 64.0).max(1.0);
                rect x=(px(place as f64 * step + 1.0)) y=(px(64.0 - tall))
                    width=(px((step - 2.0).max(0.5))) height=(px(tall)) {
                    title { (words::time(transaction.tid)) ": " (words::bytes(transaction.length)) }
                }
            }
        }
    }
}

/// A share of a whole as a bar, for a cell of a table.
pub(super) fn share(part: u64, whole: u64) -> Markup {
    let share = if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 };
    html! {
        svg.share viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
            rect.all width="100" height="8" rx="2" {}
            rect.part width=(px(share.clamp(0.0, 100.0))) height="8" rx="2" {}
        }
    }
}

fn px(value: f64) -> String {
    format!("{value:.1}")
}
