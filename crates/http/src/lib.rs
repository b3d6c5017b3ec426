//! HTTP for the pages of operators: a thread that accepts connections and enforces their limits.
//!
//! Key decision: a small server apart from the workers, with a runtime of its own. The pages of a
//! [`Site`] are whole answers in memory.

#![forbid(unsafe_code)]

mod answer;
mod server;

use std::pin::Pin;

use http_body_util::Full;
pub use hyper::body::Bytes;
pub use hyper::{Method, Request, Response, StatusCode, header};

pub use answer::{CONTENT_ONLY_OURS, CONTENT_WITH_FORMS, answer, refusal};
pub use server::{HttpServer, Listener};

/// An answer: the whole body is in memory.
pub type Answer = Response<Full<Bytes>>;

/// The future of an [`Answer`].
pub type Promise<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The pages behind an address.
pub trait Site: Send + Sync + 'static {
    /// Answers a request. The body is empty unless the method is POST.
    fn answer(&self, request: Request<Bytes>) -> Promise<'_, Answer>;

    /// Work beside the answers, which lasts as long as the server.
    fn background(&self) -> Promise<'_, ()> {
        Box::pin(std::future::pending())
    }
}
