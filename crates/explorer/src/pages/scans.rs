//! Scans on the pages: the forms that ask for them, and their progress.

use maud::{Markup, html};

use super::layout::{state_form, time, token};
use crate::scan::{Outcome, Question, Scan, Survey};
use crate::site::{Page, Pages, Refusal};
use crate::view::View;
use crate::words;

/// The newest scan for a question: what `show` makes of its answer, its progress, or why it has
/// ended without one. Below are the forms that ask for the first scan, or for another.
pub(super) fn asked(
    pages: &Pages,
    view: &View,
    question: Question,
    [first, again]: [Markup; 2],
    show: impl Fn(&Scan, &Outcome) -> Option<Markup>,
) -> Markup {
    let scan = pages.scans.find(question, view.at.map(|_| view.last));
    let Some(scan) = scan else { return first };
    let Some(outcome) = scan.outcome() else { return running(pages, view, &scan) };
    html! {
        (show(&scan, &outcome).unwrap_or_else(|| ended(&outcome)))
        (again)
    }
}

/// What the newest survey shows, or the form that asks for one; `name` is the page.
pub(super) fn surveyed(
    pages: &Pages,
    view: &View,
    name: &str,
    show: impl Fn(&Survey, &View) -> Markup,
) -> Markup {
    let form = survey_form(pages, view, name);
    let show = |scan: &Scan, outcome: &Outcome| match outcome {
        Outcome::Survey(survey) => Some(html! {
            p.quiet { "As of " (time(scan.last)) "." }
            (show(survey, view))
        }),
        _ => None,
    };
    html! {
        (state_form(view, &format!("/{name}")))
        (asked(pages, view, Question::Survey, [form.clone(), form], show))
    }
}

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
fn running(pages: &Pages, view: &View, scan: &Scan) -> Markup {
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
fn ended(outcome: &Outcome) -> Markup {
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
