//! What all pages have in common.

use maud::{DOCTYPE, Markup, html};
use zodium_http::StatusCode;
use zodium_types::{Oid, Tid};

use crate::site::Pages;
use crate::view::{View, object_path, transaction_path};
use crate::words;

const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 \
     16'%3E%3Cpath d='M3 3h10L5.5 12H13' fill='none' stroke='%230d7a6f'
         stroke-width='2.6'/%3E%3C/svg%3E";

/// The main pages.
const SECTIONS: [(&str, &str); 5] = [
    ("/", "Overview"),
    ("/transactions", "Transactions"),
    ("/object/0x0", "Root object"),
    ("/classes", "Classes"),
    ("/growth", "Growth"),
];

/// A whole page. `path` is its own, without parameters.
pub(super) fn page(pages: &Pages, view: &View, path: &str, title: &str, content: Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " \u{b7} " (pages.name) }
                link rel="icon" href=(ICON);
                link rel="stylesheet" href="/explorer.css";
                script src="/explorer.js" defer {}
            }
            body {
                a.skip href="#content" { "Skip to the content" }
                header {
                    div.bar {
                        a.brand href=(view.link("/")) {
                            svg viewBox="0 0 16 16" aria-hidden="true" {
                                path d="M3 3h10L5.5 12H13" {}
                            }
                            span { "Zodium explorer" }
                        }
                        span.name title=(pages.name) { (pages.name) }
                        (search(view))
                    }
                    nav aria-label="Pages" {
                        ul {
                            @for (to, name) in SECTIONS {
                                li {
                                    a href=(view.link(to)) aria-current=[(to ==
                                        path).then_some("page")] {
                                        (name)
                                    }
                                }
                            }
                        }
                    }
                }
                @if let Some(at) = view.at { (as_of(view, path, at)) }
                main #content tabindex="-1" { (content) }
                footer {
                    p {
                        "Times are in UTC. Classes are never imported: "
                        "states are shown as they are stored." }
                    @if pages.undo.is_none() { p { "This explorer only reads." } }
                }
            }
        }
    };
    page.into_string()
}

fn search(view: &View) -> Markup {
    html! {
        form.search action="/go" role="search" {
            label.unseen for="q" { "Object, transaction or time" }
            input #q name="q" type="search" placeholder="oid, tid or time" autocomplete="off"
                spellcheck="false" required
                    title="0x1a, 040d34dfad420944, 2026-01-31T12:00:00Z, 3.days.ago";
            @if let Some(at) = view.at { input type="hidden" name="at" value=(at.to_string()); }
            button { "Go" }
        }
    }
}

fn as_of(view: &View, path: &str, at: Tid) -> Markup {
    html! {
        aside.as-of aria-label="State" {
            "As of transaction " a href=(transaction_path(at)) { (at.to_string()) }
            ", " (time(at)) ". "
            a href=(View { at: None, ..*view }.link(path)) { "Back to now" }
        }
    }
}

/// A page about a request that is not fulfilled.
pub(crate) fn refused(pages: &Pages, code: StatusCode, text: &str) -> String {
    let title = match code {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::BAD_REQUEST => "Not understood",
        StatusCode::FORBIDDEN => "Not done",
        _ => "The storage cannot be read",
    };
    let view = View { at: None, last: Tid::MAX };
    let content = html! { h1 { (title) } p role="alert" { (text) } };
    page(pages, &view, "", title, content)
}

/// The time of a tid.
pub(super) fn time(tid: Tid) -> Markup {
    html! { time datetime=(words::datetime(tid)) { (words::time(tid)) } }
}

/// A link to a transaction, which is its time.
pub(super) fn transaction_link(tid: Tid) -> Markup {
    html! { a.tid href=(transaction_path(tid)) title=(tid.to_string()) { (time(tid)) } }
}

/// A link to an object in a view.
pub(super) fn object_link(view: &View, oid: Oid) -> Markup {
    html! { a.oid href=(view.object(oid)) { (words::oid(oid)) } }
}

/// A form that chooses the state to look at.
pub(super) fn state_form(view: &View, path: &str) -> Markup {
    let at = view.at.map(|at| at.to_string()).unwrap_or_default();
    html! {
        form.inline action=(path) {
            label for="at" { "As of" }
            input #at name="at" value=(at) placeholder="tid or time, empty for now"
                spellcheck="false"
                autocomplete="off";
            button { "Show" }
        }
    }
}

/// The token that forms with a POST need.
pub(super) fn token(pages: &Pages, view: &View) -> Markup {
    html! {
        input type="hidden" name="token" value=(pages.token.text());
        @if let Some(at) = view.at { input type="hidden" name="at" value=(at.to_string()); }
    }
}

/// The tabs of an object's pages.
pub(super) fn object_tabs(view: &View, oid: Oid, current: &str) -> Markup {
    let tabs = [
        ("", "State"),
        ("/history", "History"),
        ("/referrers", "Referred to by"),
        ("/path", "Path from the root"),
    ];
    html! {
        nav.tabs aria-label="Object" {
            ul {
                @for (path, name) in tabs {
                    li {
                        a href=(view.link(&format!("{}{path}", object_path(oid))))
                            aria-current=[(path == current).then_some("page")] { (name) }
                    }
                }
            }
        }
    }
}
