//! Sizes by class, and the largest objects.

use maud::{Markup, html};

use super::charts;
use super::layout::{object_link, page};
use super::scans::surveyed;
use crate::scan::Survey;
use crate::site::{Asked, Pages, Refusal};
use crate::view::View;
use crate::words;

/// Classes that are listed.
const LISTED: usize = 300;

/// The page.
pub(crate) fn classes(pages: &Pages, asked: &Asked<'_>) -> Result<String, Refusal> {
    let content = surveyed(pages, &asked.view, "classes", |survey, view| {
        html! {
            (charts::treemap(survey))
            (table(survey, view))
            (largest(survey, view))
        }
    });
    let content = html! { h1 { "Classes" } (content) };
    Ok(page(pages, &asked.view, "/classes", "Classes", content))
}

fn table(survey: &Survey, view: &View) -> Markup {
    html! {
        table {
            caption.unseen { "Classes by the bytes of their current objects" }
            thead { tr {
                th scope="col" { "Class" } th.number scope="col" { "Objects" }
                th.number scope="col" { "Bytes" } th.number scope="col" { "Share" }
                th.number scope="col" { "With old revisions" } th scope="col" { "Largest object" }
            } }
            tbody {
                @for (place, size) in survey.classes.iter().take(LISTED).enumerate() {
                    tr {
                        th scope="row" {
                            svg.swatch.(charts::colour(place)) viewBox="0 0 10 10"
                                aria-hidden="true" {
                                rect width="10" height="10" rx="2" {}
                            }
                            code { (size.class) }
                        }
                        td.number data-label="Objects" { (words::count(size.objects)) }
                        td.number data-label="Bytes" { (words::bytes(size.bytes)) }
                        td.number data-label="Share" { (words::percent(size.bytes, survey.bytes)) }
                        td.number data-label="With old revisions" { (words::bytes(size.all_bytes)) }
                        td data-label="Largest object" {
                            @if let Some((oid, bytes)) = size.largest {
                                (object_link(view, oid)) " " span.quiet { (words::bytes(bytes)) }
                            }
                        }
                    }
                }
            }
            tfoot { tr {
                th scope="row" { "All" }
                td.number data-label="Objects" { (words::count(survey.objects)) }
                td.number data-label="Bytes" { (words::bytes(survey.bytes)) }
                td {}
                td.number data-label="With old revisions" {
                    (words::bytes(survey.classes.iter().map(|size| size.all_bytes).sum()))
                }
                td {}
            } }
        }
        @if survey.classes.len() > LISTED {
            p.quiet { (words::count((survey.classes.len() - LISTED) as u64))
                " more classes are not listed." }
        }
    }
}

fn largest(survey: &Survey, view: &View) -> Markup {
    html! {
        section aria-labelledby="largest" {
            h2 #largest { "Largest objects" }
            table {
                caption.unseen { "The largest current objects" }
                thead { tr {
                    th scope="col" { "Object" } th scope="col" { "Class" }
                    th.number scope="col" { "Bytes" }
                } }
                tbody {
                    @for (oid, bytes, class) in &survey.largest {
                        tr {
                            th scope="row" { (object_link(view, *oid)) }
                            td data-label="Class" { code { (class) } }
                            td.number data-label="Bytes" { (words::bytes(*bytes)) }
                        }
                    }
                }
            }
        }
    }
}
