//! The shortest way of references from the root to an object.

use maud::{Markup, html};
use zodium_types::Oid;

use super::layout::{object_link, object_tabs, page, token, transaction_link};
use super::scans;
use crate::scan::{Outcome, Question, Scan, Steps};
use crate::site::{Asked, Pages, Refusal};
use crate::view::{View, object_path};
use crate::words;

/// The page.
pub(crate) fn path(pages: &Pages, asked: &Asked<'_>, oid: Oid) -> Result<String, Refusal> {
    let view = &asked.view;
    let forms = ["Find it", "Look again"].map(|button| form(pages, view, oid, button));
    let show = |scan: &Scan, outcome: &Outcome| match outcome {
        Outcome::Path(found) => Some(html! {
            p { "As of transaction " (transaction_link(scan.last)) "." }
            (steps(found.as_deref(), &view.at(scan.last)))
        }),
        _ => None,
    };
    let path = format!("{}/path", object_path(oid));
    let content = html! {
        h1 { "Object " code { (words::oid(oid)) } }
        (object_tabs(view, oid, "/path"))
        (scans::asked(pages, view, Question::Path(oid), forms, show))
    };
    let title = format!("Path from the root to {}", words::oid(oid));
    Ok(page(pages, view, &path, &title, content))
}

fn form(pages: &Pages, view: &View, oid: Oid, button: &str) -> Markup {
    html! {
        form.ask method="post" action={ (object_path(oid)) "/path" } {
            (token(pages, view))
            p { "Objects do not know their path: this follows references from the root, until it "
                "meets the object. It keeps about 16 bytes of memory for each object on the way." }
            button { (button) }
        }
    }
}

fn steps(found: Option<&Steps>, view: &View) -> Markup {
    html! {
        h2 { "Path from the root" }
        @match found {
            None => p.none { "No references lead from the root to this object." },
            Some(steps) => {
                ol.path {
                    @for (oid, class) in steps {
                        li { (object_link(view, *oid)) " " code { (words::name(class)) } }
                    }
                }
            }
        }
    }
}
