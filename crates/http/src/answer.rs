//! Answers with the headers that every page has.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use crate::Answer;

/// A Content-Security-Policy: content only from the same address, and no forms.
pub const CONTENT_ONLY_OURS: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// As [`CONTENT_ONLY_OURS`], with forms that are sent to the same address.
pub const CONTENT_WITH_FORMS: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; \
     frame-ancestors 'none'";

/// Headers of every answer: no caching, no guessed types, no addresses for other sites.
const HEADERS: [(HeaderName, HeaderValue); 3] = [
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff")),
    (HeaderName::from_static("referrer-policy"), HeaderValue::from_static("same-origin")),
];

/// An answer under a Content-Security-Policy.
pub fn answer(
    code: StatusCode,
    content_type: &'static str,
    policy: &'static str,
    body: impl Into<Bytes>,
) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.extend(HEADERS);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let policy_name = HeaderName::from_static("content-security-policy");
    headers.insert(policy_name, HeaderValue::from_static(policy));
    answer
}

/// An answer in plain text.
pub fn refusal(code: StatusCode, text: &'static str) -> Answer {
    answer(code, "text/plain; charset=utf-8", CONTENT_ONLY_OURS, text)
}
