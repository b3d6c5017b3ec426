//! The revisions of an object, and the difference between two of them.

use maud::{Markup, html};
use zodium_storage::Revision;
use zodium_tools::classes::class_of;
use zodium_types::{Oid, Tid};

use super::layout::{object_tabs, page, state_form, time, transaction_link};
use crate::diff::{Change, DiffLine, difference};
use crate::revisions::{self, RevisionHead};
use crate::site::{Asked, Pages, Refusal};
use crate::state::{decode, lines_of};
use crate::view::{View, object_path};
use crate::words;

/// Revisions on a page.
const REVISIONS: usize = 25;

/// The page of the history: revisions up to `?before=`.
pub(crate) fn history(pages: &Pages, asked: &Asked<'_>, oid: Oid) -> Result<String, Refusal> {
    let view = &asked.view;
    let last = asked.tid("before")?.map_or(view.last, |before| Tid(before.0.saturating_sub(1)));
    let last = last.min(view.last);
    let (heads, has_older) = revisions::history(&*pages.storage, oid, last, REVISIONS)?;
    let path = format!("{}/history", object_path(oid));
    let older = heads.last().filter(|_| has_older).map(|head| head.tid.to_string());
    let content = html! {
        h1 { "Object " code { (words::oid(oid)) } }
        (object_tabs(view, oid, "/history"))
        (state_form(view, &path))
        @if heads.is_empty() { p.none { "It has no revision here." } }
        @else { (table(&heads, view, oid)) }
        nav.pager aria-label="Revisions" {
            @if let Some(older) = older {
                a rel="next" href=(view.link_with(&path, &[("before", &older)])) { "Older" }
            }
        }
    };
    let title = format!("History of {}", words::oid(oid));
    Ok(page(pages, view, &path, &title, content))
}

fn table(heads: &[RevisionHead], view: &View, oid: Oid) -> Markup {
    let path = object_path(oid);
    let changes = format!("{path}/changes");
    html! {
        table {
            caption.unseen { "Revisions, the newest first" }
            thead { tr {
                th scope="col" { "Time" } th scope="col" { "User" } th scope="col" { "Description" }
                th.number scope="col" { "Size" } th scope="col" { "Look at" }
            } }
            tbody {
                @for head in heads {
                    @let metadata = head.transaction.as_ref().map(|found| &found.metadata);
                    tr {
                        th scope="row" { (transaction_link(head.tid)) }
                        td data-label="User" { @if let Some(metadata) = metadata {
                            (words::plain(&metadata.user)) } }
                        td data-label="Description" {
                            @if let Some(metadata) = metadata {
                                (words::plain(&metadata.description)) }
                        }
                        td.number data-label="Size" {
                            @match head.size { Some(size) => (words::bytes(size)), None =>
                                "\u{2013}" }
                        }
                        td data-label="Look at" {
                            a href=(view.at(head.tid).link(&path)) { "state" } " "
                            a href=(view.link_with(&changes, &[("to", &head.tid.to_string())])) {
                                "changes" }
                        }
                    }
                }
            }
        }
    }
}

/// The page of a difference: revision `?to=`, beside `?from=` or the one before it.
pub(crate) fn changes(pages: &Pages, asked: &Asked<'_>, oid: Oid) -> Result<String, Refusal> {
    let (view, storage) = (&asked.view, &*pages.storage);
    let to = asked.tid("to")?.unwrap_or(view.last);
    let new = revisions::revision(storage, oid, to)?;
    let from = match (asked.tid("from")?, &new) {
        (Some(from), _) => Some(from),
        (None, Some(new)) => new.serial.0.checked_sub(1).map(Tid),
        (None, None) => None,
    };
    let old = match from {
        Some(from) => revisions::revision(storage, oid, from)?,
        None => None,
    };
    let title = format!("Changes of {}", words::oid(oid));
    let content = html! {
        h1 { "Changes of object " code { (words::oid(oid)) } }
        (object_tabs(view, oid, "/changes"))
        @match (&old, &new) {
            (_, None) => p.none { "There is no such revision." },
            (None, Some(new)) => {
                p { "It was created, came back, or its earlier revisions were packed away, in "
                    (transaction_link(new.serial)) "." }
                (compared(None, new))
            }
            (Some(old), Some(new)) => {
                p { "From " (time(old.serial)) " to " (transaction_link(new.serial)) "." }
                (compared(Some(old), new))
                nav.pager aria-label="Changes" {
                    a href=(view.link_with(&format!("{}/changes", object_path(oid)),
                        &[("to", &old.serial.to_string())])) { "Earlier changes" }
                }
            }
        }
    };
    Ok(page(pages, view, "", &title, content))
}

fn compared(old: Option<&Revision>, new: &Revision) -> Markup {
    let (old_lines, old_note) = old.map_or((Vec::new(), None), lines);
    let (new_lines, new_note) = lines(new);
    let notes: Vec<String> = [old_note, new_note].into_iter().flatten().collect();
    let changes = difference(&old_lines, &new_lines);
    let is_same = old.is_some_and(|old| old.data == new.data);
    html! {
        @for note in &notes { p { (note) } }
        @if is_same { p.none { "The data are the same." } }
        @else if changes.is_empty() && notes.is_empty() {
            p.none { (unseen_change(old, new)) }
        }
        @else { (listing(&changes)) }
    }
}

/// What differs between revisions whose lines are the same.
fn unseen_change(old: Option<&Revision>, new: &Revision) -> &'static str {
    let is_equal = old.is_some_and(|old| decode(&old.data).ok() == decode(&new.data).ok());
    if is_equal {
        "The values are the same; only their encoding differs."
    } else {
        "The values differ only in what is left out here: the ends of long texts and bytes, or \
         which bucket is the next one."
    }
}

/// The lines of a revision, and a note if they are not all.
fn lines(revision: &Revision) -> (Vec<String>, Option<String>) {
    match decode(&revision.data) {
        Ok(decoded) => {
            let (mut lines, is_whole) = lines_of(&class_of(&revision.data), &decoded);
            lines.insert(0, format!("class {}", words::name(&class_of(&revision.data))));
            let note = (!is_whole).then(|| "Only the start of the state is compared.".to_owned());
            (lines, note)
        }
        Err(error) => {
            let note = format!(
                "The revision of {} cannot be shown as values: {error}",
                words::time(revision.serial)
            );
            (Vec::new(), Some(note))
        }
    }
}

fn listing(changes: &[DiffLine]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Changed lines" {
            table.diff {
                caption.unseen { "Lines that were removed and added" }
                thead.unseen { tr { th scope="col" { "Change" } th scope="col" { "Line" } } }
                tbody {
                    @for line in changes {
                        @let (class, sign, word) = match line.change {
                            Change::Same => ("same", " ", ""),
                            Change::Removed => ("removed", "\u{2212}", "removed"),
                            Change::Added => ("added", "+", "added"),
                            Change::Omitted => ("omitted", "\u{22ef}", "lines that are the same"),
                        };
                        tr.(class) {
                            td.sign { span aria-hidden="true" { (sign) } span.unseen { (word) } }
                            td { code { (line.text) } }
                        }
                    }
                }
            }
        }
    }
}
