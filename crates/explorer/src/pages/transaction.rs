//! One transaction, and what it wrote.

use maud::{Markup, html};
use zodium_pickle::{Limits, decode};
use zodium_storage::Transaction;
use zodium_types::{Tid, TransactionStatus};

use super::layout::{object_link, page, time, token};
use super::transactions::status;
use crate::log::{self, RecordHead};
use crate::site::{Asked, Pages, Refusal};
use crate::state::StateView;
use crate::view::{View, object_path, transaction_path};
use crate::words;

/// Records on a page.
const RECORDS: usize = 100;
/// The class of objects with a blob.
const BLOB: &str = "ZODB.blob.Blob";

/// The page, from record `?from=` on.
pub(crate) fn transaction(pages: &Pages, asked: &Asked<'_>, tid: Tid) -> Result<String, Refusal> {
    let storage = &*pages.storage;
    let found = log::transaction(storage, tid)?;
    let absent =
        || Refusal::Absent(format!("there is no transaction {tid}, or it was packed away"));
    let found = found.ok_or_else(absent)?;
    let from = asked.number("from");
    let (records, has_more) = log::records(storage, tid, from, RECORDS)?;
    // What it wrote is shown as of itself.
    let view = asked.view.at(tid);
    let path = transaction_path(tid);
    let content = html! {
        h1 { "Transaction " code { (tid.to_string()) } (status(&found)) }
        (facts(&found))
        (extension(&found, view))
        section aria-labelledby="objects" {
            h2 #objects { "Objects that it wrote" }
            @if records.is_empty() { p.none { "None." } }
            @else { (table(&records, &view, tid)) }
            nav.pager aria-label="Objects" {
                @if from > 0 {
                    a rel="prev" href=(page_path(&path, from.saturating_sub(RECORDS))) {
                        "Previous objects" }
                }
                @if has_more {
                    a rel="next" href=(page_path(&path, from.saturating_add(RECORDS))) {
                        "Next objects" }
                }
            }
        }
        nav.pager aria-label="Neighbours" {
            a href=(asked.view.link_with("/transactions", &[("before", &tid.next().to_string())])) {
                "This transaction and older ones"
            }
            a href=(view.link("/")) { "The database as of this transaction" }
        }
        (undo_form(pages, &found))
    };
    Ok(page(pages, &asked.view, "", &format!("Transaction {tid}"), content))
}

fn page_path(path: &str, from: usize) -> String {
    if from == 0 { path.to_owned() } else { format!("{path}?from={from}") }
}

fn facts(found: &Transaction) -> Markup {
    html! {
        dl.facts {
            div { dt { "Time" } dd { (time(found.tid)) } }
            div { dt { "User" } dd { (words::plain(&found.metadata.user)) } }
            div { dt { "Description" } dd { (words::plain(&found.metadata.description)) } }
            @if found.length > 0 { div { dt { "Size" } dd { (words::bytes(found.length)) } } }
        }
    }
}

fn extension(found: &Transaction, view: View) -> Markup {
    let pickle = &found.metadata.extension;
    html! {
        @if !pickle.is_empty() {
            section.state aria-labelledby="extension" {
                h2 #extension { "Extension" }
                @match decode(pickle, &Limits::OBJECTS) {
                    Ok((value, _)) => (StateView::new(view, false).value(&value, 0)),
                    Err(error) => p { "It cannot be decoded: " (error.to_string()) },
                }
            }
        }
    }
}

fn table(records: &[RecordHead], view: &View, tid: Tid) -> Markup {
    html! {
        table {
            caption.unseen { "Objects in the order of the log" }
            thead { tr {
                th scope="col" { "Object" } th scope="col" { "Class" }
                th.number scope="col" { "Size" } th scope="col" { "Change" }
            } }
            tbody {
                @for record in records {
                    tr {
                        th scope="row" { (object_link(view, record.oid)) }
                        td data-label="Class" { code { (record.class) }
                            @if record.class == BLOB { " " span.tag { "blob" } } }
                        td.number data-label="Size" {
                            @match record.size { Some(size) => (words::bytes(size)), None =>
                                "deleted" }
                        }
                        td data-label="Change" {
                            @if let Some(data_tid) = record.data_tid {
                                "back to " a href=(transaction_path(data_tid)) { (time(data_tid)) }
                            } @else if record.size.is_some() {
                                a href=(changes_path(view, record, tid)) { "what it changed" }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn changes_path(view: &View, record: &RecordHead, tid: Tid) -> String {
    let path = format!("{}/changes", object_path(record.oid));
    view.link_with(&path, &[("to", &tid.to_string())])
}

fn undo_form(pages: &Pages, found: &Transaction) -> Markup {
    let view = View { at: None, last: found.tid };
    html! {
        @if pages.undo.is_some() && found.status == TransactionStatus::Normal {
            section aria-labelledby="undo" {
                h2 #undo { "Undo" }
                form.undo method="post" action={ (transaction_path(found.tid)) "/undo" } {
                    (token(pages, &view))
                    p { "Commits a new transaction that takes these changes back. Later changes of "
                        "the same objects can make that impossible." }
                    label { input type="checkbox" required; " I want to undo this transaction" }
                    " "
                    button.danger { "Undo" }
                }
            }
        }
    }
}
