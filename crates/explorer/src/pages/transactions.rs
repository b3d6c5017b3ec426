//! The log, a page at a time.

use maud::{Markup, html};
use zodium_storage::Transaction;
use zodium_types::TransactionStatus;

use super::charts;
use super::layout::{page, state_form, transaction_link};
use crate::log::{LogPage, newest_before, oldest_after};
use crate::site::{Asked, Pages, Refusal};
use crate::words;

/// Transactions on a page.
pub(super) const SHOWN: usize = 50;

/// The page: the transactions before `?before=`, or those after `?after=`.
pub(crate) fn transactions(pages: &Pages, asked: &Asked<'_>) -> Result<String, Refusal> {
    let view = &asked.view;
    let (before, after) = (asked.tid("before")?, asked.tid("after")?);
    let newest = view.last.next();
    let LogPage { transactions, has_older } = match after {
        Some(after) => oldest_after(&*pages.storage, after, view.last, SHOWN)?,
        None => {
            let before = before.map_or(newest, |before| before.min(newest));
            newest_before(&*pages.storage, before, SHOWN)?
        }
    };
    let (first, last) = (transactions.first(), transactions.last());
    let newer = first.filter(|first| first.tid < view.last).map(|first| first.tid.to_string());
    let older = last.filter(|_| has_older).map(|last| last.tid.to_string());
    let content = html! {
        h1 { "Transactions" }
        (state_form(view, "/transactions"))
        @if transactions.is_empty() {
            p.none { "There is no transaction here." }
        } @else {
            (charts::sizes(&transactions))
            (table(&transactions))
        }
        nav.pager aria-label="Transactions" {
            @if let Some(newer) = newer {
                a href=(view.link("/transactions")) { "Newest" }
                a rel="prev" href=(view.link_with("/transactions", &[("after", &newer)])) { "Newer"
                    }
            }
            @if let Some(older) = older {
                a rel="next" href=(view.link_with("/transactions", &[("before", &older)])) {
                    "Older" }
            }
        }
    };
    Ok(page(pages, view, "/transactions", "Transactions", content))
}

/// Transactions as a table.
pub(super) fn table(transactions: &[Transaction]) -> Markup {
    let most = transactions.iter().map(|transaction| transaction.length).max().unwrap_or(0);
    html! {
        table {
            caption.unseen { "Transactions, the newest first" }
            thead { tr {
                th scope="col" { "Time" } th scope="col" { "User" } th scope="col" { "Description" }
                th.number scope="col" { "Size" }
            } }
            tbody {
                @for transaction in transactions {
                    tr {
                        th scope="row" { (transaction_link(transaction.tid)) (status(transaction)) }
                        td data-label="User" { (words::plain(&transaction.metadata.user)) }
                        td data-label="Description" {
                            (words::plain(&transaction.metadata.description)) }
                        td.number data-label="Size" {
                            @if transaction.length > 0 {
                                (words::bytes(transaction.length))
                                    (charts::share(transaction.length, most))
                            } @else { "\u{2013}" }
                        }
                    }
                }
            }
        }
    }
}

/// What is special about a transaction.
pub(super) fn status(transaction: &Transaction) -> Markup {
    html! {
        @match transaction.status {
            TransactionStatus::Normal => {},
            TransactionStatus::Packed => { " " span.tag { "packed" } },
            TransactionStatus::Undone => { " " span.tag { "undone" } },
        }
    }
}
