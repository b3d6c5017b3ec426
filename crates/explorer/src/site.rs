//! Requests to pages: what is asked for, of which state, and whether it is allowed.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Zoned;
use zodium_http::header::{HeaderValue, LOCATION, ORIGIN};
use zodium_http::{
    Answer, Bytes, CONTENT_WITH_FORMS, Method, Promise, Request, Site, StatusCode, answer, refusal,
};
use zodium_storage::{Read, StorageError};
use zodium_tools::{parse_oid, parse_tid};
use zodium_types::{Oid, Tid};

use crate::guard::Token;
use crate::scan::{Question, Scans};
use crate::view::{View, object_path, transaction_path};
use crate::{Hosts, Undo, assets, pages};

/// Smallest number of 16 digits that is taken for a tid: one of the year 1916. Oids are counted
/// from 0.
const TID_MIN: u64 = 0x0080_0000_0000_0000;

/// What an explorer shows, and what it may do.
pub struct ExplorerOptions {
    /// The storage.
    pub storage: Arc<dyn Read>,
    /// Its name, for people.
    pub name: String,
    /// Where the explorer listens.
    pub hosts: Hosts,
    /// Undoes transactions; `None`: the explorer only reads.
    pub undo: Option<Arc<dyn Undo>>,
}

/// The pages about a storage.
pub struct Explorer(Arc<Pages>);

/// What the pages are made from.
pub(crate) struct Pages {
    pub(crate) storage: Arc<dyn Read>,
    pub(crate) name: String,
    pub(crate) undo: Option<Arc<dyn Undo>>,
    pub(crate) scans: Scans,
    pub(crate) token: Token,
    hosts: Hosts,
}

/// A request that was read: the parameters of its address or of its form.
pub(crate) struct Asked<'r> {
    pub(crate) parameters: Vec<(Cow<'r, str>, Cow<'r, str>)>,
    pub(crate) view: View,
}

/// Why a page is not shown.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is no such thing.
    Absent(String),
    /// The request makes no sense.
    Wrong(String),
    /// It is not allowed, or not now.
    Denied(String),
    /// The storage cannot be read there.
    Storage(StorageError),
}

impl From<StorageError> for Refusal {
    fn from(error: StorageError) -> Refusal {
        Refusal::Storage(error)
    }
}

/// What is answered.
pub(crate) enum Page {
    Html(String),
    Json(String),
    /// Another page, which the browser gets.
    Other(String),
}

impl Explorer {
    /// Shows a storage.
    pub fn new(options: ExplorerOptions) -> Explorer {
        let ExplorerOptions { storage, name, hosts, undo } = options;
        let scans = Scans::new(Arc::clone(&storage));
        Explorer(Arc::new(Pages { storage, name, undo, scans, token: Token::new(), hosts }))
    }
}

impl Site for Explorer {
    fn answer(&self, request: Request<Bytes>) -> Promise<'_, Answer> {
        let pages = Arc::clone(&self.0);
        Box::pin(async move {
            if !pages.hosts.admit(&request) {
                let text = "this is not the address of the explorer: use the one that it printed\n";
                return refusal(StatusCode::MISDIRECTED_REQUEST, text);
            }
            match request.uri().path() {
                "/explorer.css" => style(),
                "/explorer.js" => script(),
                _ => {
                    let page = tokio::task::spawn_blocking(move || pages.answer(&request));
                    page.await.unwrap_or_else(|_| {
                        refusal(StatusCode::INTERNAL_SERVER_ERROR, "this page has failed\n")
                    })
                }
            }
        })
    }
}

fn style() -> Answer {
    answer(StatusCode::OK, "text/css; charset=utf-8", CONTENT_WITH_FORMS, assets::STYLE)
}

fn script() -> Answer {
    answer(StatusCode::OK, "text/javascript; charset=utf-8", CONTENT_WITH_FORMS, assets::SCRIPT)
}

impl Pages {
    fn answer(&self, request: &Request<Bytes>) -> Answer {
        let outcome = match *request.method() {
            Method::GET | Method::HEAD => self.get(request),
            Method::POST => self.post(request),
            _ => return refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET, HEAD and POST\n"),
        };
        match outcome {
            Ok(Page::Html(html)) => page(StatusCode::OK, html),
            Ok(Page::Json(json)) => {
                answer(StatusCode::OK, "application/json", CONTENT_WITH_FORMS, json)
            }
            Ok(Page::Other(path)) => see_other(&path),
            Err(refused) => {
                let (code, text) = refused.parts();
                page(code, pages::refused(self, code, &text))
            }
        }
    }

    fn get(&self, request: &Request<Bytes>) -> Result<Page, Refusal> {
        let query = request.uri().query().unwrap_or_default();
        let asked = self.asked(query.as_bytes())?;
        let parts: Vec<&str> = request.uri().path().split('/').skip(1).collect();
        match parts.as_slice() {
            [""] => pages::overview(self, &asked).map(Page::Html),
            ["transactions"] => pages::transactions(self, &asked).map(Page::Html),
            ["transaction", tid] => pages::transaction(self, &asked, tid_of(tid)?).map(Page::Html),
            ["object", oid] => pages::object(self, &asked, oid_of(oid)?).map(Page::Html),
            ["object", oid, "history"] => {
                pages::history(self, &asked, oid_of(oid)?).map(Page::Html)
            }
            ["object", oid, "changes"] => {
                pages::changes(self, &asked, oid_of(oid)?).map(Page::Html)
            }
            ["object", oid, "referrers"] => {
                pages::referrers(self, &asked, oid_of(oid)?).map(Page::Html)
            }
            ["object", oid, "path"] => pages::path(self, &asked, oid_of(oid)?).map(Page::Html),
            ["classes"] => pages::classes(self, &asked).map(Page::Html),
            ["growth"] => pages::growth(self, &asked).map(Page::Html),
            ["scan", number] => pages::scan_progress(self, number),
            ["go"] => go(&asked).map(Page::Other),
            _ => Err(Refusal::Absent("there is no such page".to_owned())),
        }
    }

    /// Does what a form of ours asks for.
    fn post(&self, request: &Request<Bytes>) -> Result<Page, Refusal> {
        let asked = self.asked(request.body())?;
        let host = request.headers().get("host").and_then(|host| host.to_str().ok());
        let is_foreign = request.headers().get(ORIGIN).is_some_and(|origin| {
            let origin = origin.to_str().unwrap_or_default();
            origin.strip_prefix("http://") != host
        });
        if is_foreign || !asked.get("token").is_some_and(|token| self.token.is(token)) {
            let text = "the form is not from this explorer, or from before its last start: load \
                        the page again";
            return Err(Refusal::Denied(text.to_owned()));
        }
        let parts: Vec<&str> = request.uri().path().split('/').skip(1).collect();
        match parts.as_slice() {
            ["survey"] => {
                self.start(Question::Survey, &asked)?;
                Ok(Page::Other(asked.view.link(match asked.get("then") {
                    Some("growth") => "/growth",
                    _ => "/classes",
                })))
            }
            ["object", oid, "referrers"] => {
                let oid = oid_of(oid)?;
                self.start(Question::Referrers(oid), &asked)?;
                Ok(Page::Other(asked.view.link(&format!("{}/referrers", object_path(oid)))))
            }
            ["object", oid, "path"] => {
                let oid = oid_of(oid)?;
                self.start(Question::Path(oid), &asked)?;
                Ok(Page::Other(asked.view.link(&format!("{}/path", object_path(oid)))))
            }
            ["scan", number, "cancel"] => {
                let scan = number.parse().ok().and_then(|number| self.scans.by_number(number));
                scan.iter().for_each(|scan| scan.cancel());
                Ok(Page::Other(asked.view.link("/")))
            }
            ["transaction", tid, "undo"] => self.undo(tid_of(tid)?),
            _ => Err(Refusal::Absent("there is no such form".to_owned())),
        }
    }

    fn start(&self, question: Question, asked: &Asked<'_>) -> Result<(), Refusal> {
        self.scans.start(question, asked.view.last).map_err(Refusal::Denied)
    }

    fn undo(&self, tid: Tid) -> Result<Page, Refusal> {
        let Some(undo) = &self.undo else {
            let text = "the explorer only reads: start it with --allow-undo to undo transactions";
            return Err(Refusal::Denied(text.to_owned()));
        };
        match undo.undo(tid) {
            Ok(new) => Ok(Page::Other(transaction_path(new))),
            Err(why) => Err(Refusal::Denied(format!("transaction {tid} was not undone: {why}"))),
        }
    }

    fn asked<'r>(&self, query: &'r [u8]) -> Result<Asked<'r>, Refusal> {
        let parameters: Vec<_> = form_urlencoded::parse(query).collect();
        let at = parameters.iter().find(|(name, value)| name == "at" && !value.trim().is_empty());
        let last = self.storage.last_tid();
        let view = match at {
            Some((_, text)) => {
                let at = parse_tid(text.trim(), &Zoned::now());
                let at = at.map_err(|error| Refusal::Wrong(error.to_string()))?;
                View { at: Some(at), last: at.min(last) }
            }
            None => View { at: None, last },
        };
        Ok(Asked { parameters, view })
    }
}

impl Asked<'_> {
    /// A parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// A parameter that is a tid.
    pub(crate) fn tid(&self, name: &str) -> Result<Option<Tid>, Refusal> {
        self.get(name).map(tid_of).transpose()
    }

    /// A parameter that is a number.
    pub(crate) fn number(&self, name: &str) -> usize {
        self.get(name).and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

impl Refusal {
    fn parts(self) -> (StatusCode, String) {
        match self {
            Refusal::Absent(text) => (StatusCode::NOT_FOUND, text),
            Refusal::Wrong(text) => (StatusCode::BAD_REQUEST, text),
            Refusal::Denied(text) => (StatusCode::FORBIDDEN, text),
            Refusal::Storage(error) => (StatusCode::BAD_GATEWAY, error.to_string()),
        }
    }
}

fn page(code: StatusCode, html: String) -> Answer {
    answer(code, "text/html; charset=utf-8", CONTENT_WITH_FORMS, html)
}

fn see_other(path: &str) -> Answer {
    let mut answer = refusal(StatusCode::SEE_OTHER, "");
    // Paths of ours are plain text.
    if let Ok(path) = HeaderValue::from_str(path) {
        answer.headers_mut().insert(LOCATION, path);
    }
    answer
}

fn tid_of(text: &str) -> Result<Tid, Refusal> {
    let tid = (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten();
    let wrong = || Refusal::Wrong(format!("{text:?} is no tid: give 16 hexadecimal digits"));
    tid.filter(|tid| *tid <= Tid::MAX.0).map(Tid).ok_or_else(wrong)
}

fn oid_of(text: &str) -> Result<Oid, Refusal> {
    parse_oid(text).map_err(|error| Refusal::Wrong(error.to_string()))
}

/// The page of what was typed: an oid, a tid or a time.
fn go(asked: &Asked<'_>) -> Result<String, Refusal> {
    let text = asked.get("q").unwrap_or_default().trim();
    if let Ok(tid) = tid_of(text)
        && tid.0 >= TID_MIN
    {
        return Ok(asked.view.link(&transaction_path(tid)));
    }
    if let Ok(oid) = parse_oid(text) {
        return Ok(asked.view.object(oid));
    }
    match parse_tid(text, &Zoned::now()) {
        Ok(tid) => {
            let before = tid.next().to_string();
            Ok(asked.view.link_with("/transactions", &[("before", &before)]))
        }
        Err(_) => Err(Refusal::Wrong(format!(
            "{text:?} is no oid (0x1a), no tid (16 hexadecimal digits) and no time \
             (2026-01-31T12:00:00Z, 3.days.ago)"
        ))),
    }
}
