//! The monitor as a running server.

use std::io;
use std::sync::Arc;

use zodium_http::{HttpServer, Listener};

use crate::pages::Pages;
use crate::{Messages, Source};

/// A running monitor. It ends when dropped.
#[derive(Debug)]
pub struct Monitor {
    _server: HttpServer,
}

impl Monitor {
    /// Starts to answer requests, on a thread of its own.
    ///
    /// # Errors
    /// When no file descriptor or thread is available.
    pub fn start(
        listener: Listener,
        source: Arc<dyn Source>,
        messages: Messages,
    ) -> io::Result<Monitor> {
        let pages = Arc::new(Pages::new(source, messages));
        Ok(Monitor { _server: HttpServer::start(listener, "monitor", pages)? })
    }
}
