//! How much was written when.

use maud::{Markup, html};
use zodium_types::Tid;

use super::charts;
use super::layout::page;
use super::scans::surveyed;
use crate::scan::Survey;
use crate::site::{Asked, Pages, Refusal};
use crate::view::View;
use crate::words;

/// Periods that one row of the table stands for.
const PERIODS_TOGETHER: usize = 4;

/// The page.
pub(crate) fn growth(pages: &Pages, asked: &Asked<'_>) -> Result<String, Refusal> {
    let content = surveyed(pages, &asked.view, "growth", shown);
    let content = html! { h1 { "Growth" } (content) };
    Ok(page(pages, &asked.view, "/growth", "Growth", content))
}

fn shown(survey: &Survey, view: &View) -> Markup {
    let written: u64 = survey.periods.iter().map(|period| period.bytes).sum();
    let most = survey.periods.iter().map(|period| period.bytes).max().unwrap_or(0);
    html! {
        dl.facts {
            div { dt { "Transactions" } dd { (words::count(survey.transactions)) } }
            div { dt { "Records" } dd { (words::count(survey.records)) } }
            div { dt { "Written" } dd { (words::bytes(written)) } }
            div { dt { "In current objects" } dd { (words::bytes(survey.bytes)) } }
        }
        figure {
            (charts::growth(survey))
            figcaption {
                span { (words::time(survey.first)) }
                span.key-line { "all bytes so far, up to " (words::bytes(written)) }
                span.key-bar { "bytes of each period, up to " (words::bytes(most)) }
                span { (words::time(survey.last)) }
            }
        }
        (table(survey, view))
    }
}

fn table(survey: &Survey, view: &View) -> Markup {
    html! {
        table {
            caption.unseen { "Bytes and transactions by time" }
            thead { tr {
                th scope="col" { "From" } th.number scope="col" { "Transactions" }
                th.number scope="col" { "Bytes" }
            } }
            tbody {
                @for periods in survey.periods.chunks(PERIODS_TOGETHER).rev() {
                    @let transactions: u64 = periods.iter().map(|period| period.transactions).sum();
                    @let bytes: u64 = periods.iter().map(|period| period.bytes).sum();
                    @if let Some(first) = periods.first().filter(|_| transactions > 0) {
                        tr {
                            th scope="row" {
                                a href=(view.link_with("/transactions",
                                    &[("after", &before(first.start))])) {
                                    (words::time(first.start))
                                }
                            }
                            td.number data-label="Transactions" { (words::count(transactions)) }
                            td.number data-label="Bytes" { (words::bytes(bytes)) }
                        }
                    }
                }
            }
        }
    }
}

/// The tid before a moment.
fn before(start: Tid) -> String {
    Tid(start.0.saturating_sub(1)).to_string()
}
