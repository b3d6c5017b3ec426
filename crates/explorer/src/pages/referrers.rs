//! The objects that refer to one.

use maud::{Markup, html};
use zodium_types::Oid;

use super::layout::{object_link, object_tabs, page, token, transaction_link};
use super::scans;
use crate::scan::{Outcome, Question, Referrers, Scan};
use crate::site::{Asked, Pages, Refusal};
use crate::view::{View, object_path};
use crate::words;

/// Referrers that are listed.
const LISTED: usize = 500;

/// The page.
pub(crate) fn referrers(pages: &Pages, asked: &Asked<'_>, oid: Oid) -> Result<String, Refusal> {
    let view = &asked.view;
    let forms = ["Find them", "Look again"].map(|button| form(pages, view, oid, button));
    let show = |scan: &Scan, outcome: &Outcome| match outcome {
        Outcome::Referrers(found) => Some(html! {
            p { "As of transaction " (transaction_link(scan.last)) "." }
            (list(found, &view.at(scan.last)))
        }),
        _ => None,
    };
    let path = format!("{}/referrers", object_path(oid));
    let content = html! {
        h1 { "Object " code { (words::oid(oid)) } }
        (object_tabs(view, oid, "/referrers"))
        (scans::asked(pages, view, Question::Referrers(oid), forms, show))
    };
    let title = format!("What refers to {}", words::oid(oid));
    Ok(page(pages, view, &path, &title, content))
}

fn form(pages: &Pages, view: &View, oid: Oid, button: &str) -> Markup {
    html! {
        form.ask method="post" action={ (object_path(oid)) "/referrers" } {
            (token(pages, view))
            p { "Objects do not know what refers to them: this reads the whole log." }
            button { (button) }
        }
    }
}

fn list(found: &Referrers, view: &View) -> Markup {
    let count = found.found.len();
    html! {
        h2 { "Referred to by " span.quiet { (words::count(count as u64)) } }
        @if found.is_cut { p { "There are more than fit into the memory of a scan." } }
        @if found.unreadable > 0 {
            p { (words::count(found.unreadable)) " records could not be read for references." }
        }
        @if count == 0 { p.none { "No object refers to it." } }
        @else {
            table {
                caption.unseen { "Objects that refer to this one" }
                thead { tr {
                    th scope="col" { "Object" } th scope="col" { "Class" } th scope="col" {
                        "Written" }
                } }
                tbody {
                    @for (oid, referrer) in found.found.iter().take(LISTED) {
                        tr {
                            th scope="row" { (object_link(view, *oid))
                                @if referrer.is_weak { " " span.tag { "weak" } } }
                            td data-label="Class" { code { (referrer.class) } }
                            td data-label="Written" { (transaction_link(referrer.tid)) }
                        }
                    }
                }
            }
            @if count > LISTED { p.quiet { (words::count((count - LISTED) as u64))
                " more are not listed." } }
        }
    }
}
