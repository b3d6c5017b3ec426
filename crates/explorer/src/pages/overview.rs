//! The first page: what the storage is, and its newest transactions.

use maud::html;
use zodium_types::{Oid, Tid};

use super::layout::{object_link, page, state_form, time, transaction_link};
use super::transactions::{self, table};
use super::{charts, scans};
use crate::log::newest_before;
use crate::scan::{Outcome, Question};
use crate::site::{Asked, Pages, Refusal};
use crate::words;

/// Transactions that are shown.
const TRANSACTIONS: usize = 12;

/// The page.
pub(crate) fn overview(pages: &Pages, asked: &Asked<'_>) -> Result<String, Refusal> {
    let (view, storage) = (&asked.view, &*pages.storage);
    let shown = newest_before(storage, view.last.next(), transactions::SHOWN)?;
    let newest = shown.transactions.get(..TRANSACTIONS).unwrap_or(&shown.transactions);
    let has_more = shown.has_older || shown.transactions.len() > TRANSACTIONS;
    let survey = pages.scans.find_answer(Question::Survey, view.at.map(|_| view.last));
    let content = html! {
        h1 { (pages.name) }
        dl.facts {
            div { dt { "Size" } dd { (words::bytes(storage.size())) } }
            div { dt { "Objects" } dd { (words::count(storage.object_count())) } }
            div { dt { "Last transaction" } dd {
                @if storage.last_tid() == Tid::ZERO { "none yet" }
                @else { (transaction_link(storage.last_tid())) }
            } }
            div { dt { "Root object" } dd { (object_link(view, Oid::ROOT)) } }
        }
        (state_form(view, "/"))
        section aria-labelledby="newest" {
            h2 #newest { @if view.at.is_some() { "Transactions up to then" } @else {
                "Newest transactions" } }
            @if newest.is_empty() {
                p.none { "There is no transaction yet." }
            } @else {
                (charts::sizes(&shown.transactions))
                (table(newest))
                @if has_more {
                    p.more { a href=(view.link("/transactions")) { "All transactions" } }
                }
            }
        }
        section aria-labelledby="space" {
            h2 #space { "Space by class" }
            @match survey {
                Some((scan, Outcome::Survey(survey))) => {
                    p.quiet { "As of " (time(scan.last)) "." }
                    (charts::treemap(&survey))
                    p.more { a href=(view.link("/classes")) { "All classes" } " "
                        a href=(view.link("/growth")) { "Growth" } }
                }
                _ => (scans::survey_form(pages, view, "classes")),
            }
        }
    };
    Ok(page(pages, view, "/", "Overview", content))
}
