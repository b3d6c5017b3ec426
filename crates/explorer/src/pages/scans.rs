//! Scans on the pages: the forms that ask for them, and their progress.

use maud::{Markup, html};

use super::layout::{time, token};
use crate::scan::{Outcome, Scan};
use crate::site::{Page, Pages, Refusal};
use crate::view::View;
use crate::words;

/// The form that asks for a survey; `then` is the page that shows it.
pub(super) fn survey_form(pages: &Pages, view: &View, then: &str) -> Markup {
    html! {
        form.ask method="post" action="/survey" {
            (token(pages, view))
            input type="hidden" name="then" value=(then);
            p { "Sizes by class, growth and the largest objects: this reads the whole log, "
                "and can be cancelled. It keeps 8 bytes of memory for each object." }
            button { "Read the log" }
        }
    }
}

/// The progress of a scan that runs. The script follows it; without one the page is loaded again.
pub(super) fn running(pages: &Pages, view: &View, scan: &Scan) -> Markup {
    html! {
        section.progress aria-labelledby="progress" data-scan=(scan.number.to_string()) {
            @match scan.followed() {
                // How far it is is not known.
                Some(_) => {
                    h2 #progress { "Following references" }
                    progress aria-labelledby="progress" {}
                }
                None => {
                    h2 #progress { "Reading the log" }
                    progress max="1000" value=(scan.progress().to_string())
                        aria-labelledby="progress" {}
                }
            }
            p role="status" { (text_of(scan)) }
            noscript { p { "Load this page again to see how far it is." } }
            form method="post" action={ "/scan/" (scan.number.to_string()) "/cancel" } {
                (token(pages, view))
                button { "Cancel" }
            }
        }
    }
}

/// The end of a scan without an answer.
pub(super) fn ended(outcome: &Outcome) -> Markup {
    html! {
        @match outcome {
            Outcome::Cancelled => p role="status" { "The scan was cancelled." },
            Outcome::Failed(why) => p role="alert" { "The scan has failed: " (why) },
            Outcome::Survey(_) | Outcome::Referrers(_) | Outcome::Path(_) => {},
        }
    }
}

/// The progress of a scan for the script.
pub(crate) fn progress(pages: &Pages, number: &str) -> Result<Page, Refusal> {
    let scan = number.parse().ok().and_then(|number| pages.scans.by_number(number));
    let scan = scan.ok_or_else(|| Refusal::Absent("there is no such scan".to_owned()))?;
    let progress = serde_json::json!({
        "is_over": scan.outcome().is_some(),
        "progress": scan.followed().is_none().then(|| scan.progress()),
        "text": text_of(&scan),
    });
    Ok(Page::Json(progress.to_string()))
}

fn text_of(scan: &Scan) -> String {
    match scan.followed() {
        Some(count) => format!("Followed {} objects", words::count(count)),
        None => {
            format!("Read up to {} of {}", words::time(scan.current()), words::time(scan.last))
        }
    }
}

/// The state that a survey is of.
pub(super) fn survey_of(scan: &Scan) -> Markup {
    html! { p.quiet { "As of " (time(scan.last)) "." } }
}
