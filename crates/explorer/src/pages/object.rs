//! One object: its decoded state, and what it refers to.

use std::collections::BTreeMap;

use maud::{Markup, html};
use zodium_pickle::{Reference, references_of_record};
use zodium_storage::Revision;
use zodium_tools::classes::class_of;
use zodium_tools::text::bytes_repr;
use zodium_types::{Oid, Tid};

use super::layout::{object_link, object_tabs, page, state_form, transaction_link};
use crate::revisions::revision;
use crate::site::{Asked, Pages, Refusal};
use crate::state::{StateView, decode};
use crate::view::{View, object_path};
use crate::words;

/// References that are listed.
const REFERENCES: usize = 200;
/// Bytes of a record that are shown where it cannot be decoded.
const RAW_BYTES: usize = 4096;

/// The page.
pub(crate) fn object(pages: &Pages, asked: &Asked<'_>, oid: Oid) -> Result<String, Refusal> {
    let view = &asked.view;
    let revision = revision(&*pages.storage, oid, view.last)?;
    let path = object_path(oid);
    let title = format!("Object {}", words::oid(oid));
    let content = html! {
        h1 { "Object " code { (words::oid(oid)) } }
        (object_tabs(view, oid, ""))
        (state_form(view, &path))
        @match &revision {
            Some(revision) => (shown(revision, view, asked.get("all").is_some(), &path)),
            None => p.none { "There is no such object" @if view.at.is_some() { " in this state" }
                "." },
        }
    };
    Ok(page(pages, view, &path, &title, content))
}

fn shown(revision: &Revision, view: &View, shows_all: bool, path: &str) -> Markup {
    let data = &revision.data;
    let class = class_of(data);
    let later = revision.end.filter(|end| *end <= Tid::MAX);
    html! {
        dl.facts {
            div { dt { "Class" } dd { code { (words::name(&class)) } } }
            div { dt { "Written" } dd { (transaction_link(revision.serial)) } }
            div { dt { "Until" } dd {
                @match later { Some(end) => (transaction_link(end)), None => "it is current" }
            } }
            div { dt { "Size" } dd { (words::bytes(data.len() as u64)) } }
        }
        section.state aria-labelledby="state" {
            h2 #state { "State" }
            @match decode(data) {
                Ok(decoded) => {
                    @let state = StateView::new(*view, shows_all);
                    (state.record(&class, &decoded))
                    @if state.is_cut() && !shows_all {
                        p.more { a href=(view.link_with(path, &[("all", "1")])) {
                            "Show longer containers" } }
                    }
                }
                Err(error) => {
                    p { "The state cannot be shown as values: " (error.to_string()) }
                    pre.raw { code { (bytes_repr(data.get(..RAW_BYTES).unwrap_or(data))) } }
                }
            }
        }
        (references(data, view))
    }
}

fn references(data: &[u8], view: &View) -> Markup {
    let mut found: BTreeMap<Oid, bool> = BTreeMap::new();
    let read = references_of_record(data, &mut |reference| match reference {
        Reference::Strong(oid) => {
            found.insert(oid, false);
        }
        Reference::Weak(oid) => {
            found.entry(oid).or_insert(true);
        }
        Reference::CrossDatabase { .. } => {}
    });
    let count = found.len();
    html! {
        section aria-labelledby="references" {
            h2 #references { "Refers to " span.quiet { (words::count(count as u64)) } }
            @if let Err(error) = read { p { "Not all references can be read: " (error.to_string())
                } }
            @if count == 0 { p.none { "No other object." } }
            ul.references {
                @for (oid, is_weak) in found.iter().take(REFERENCES) {
                    li { (object_link(view, *oid)) @if *is_weak { " " span.tag { "weak" } } }
                }
            }
            @if count > REFERENCES {
                p.quiet { (words::count((count - REFERENCES) as u64))
                    " more are not listed; the state has them." }
            }
        }
    }
}
