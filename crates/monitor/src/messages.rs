//! The last warnings and errors in the log, for the status page.
//!
//! Key decision: a `tracing` layer collects them, so no code has to report to the status page. It
//! keeps only the newest ones, each shortened.

use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Most messages that are kept.
const MESSAGES_MAX: usize = 100;
/// Most bytes that are kept of each message.
const MESSAGE_BYTES_MAX: usize = 500;

/// A `tracing` layer that collects the last warnings and errors. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    newest: VecDeque<Message>,
    warnings: u64,
    errors: u64,
}

/// A message of the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Message {
    /// Seconds since the Unix epoch.
    pub(crate) time: f64,
    /// `error` or `warning`.
    pub(crate) level: &'static str,
    /// Its text and fields, which can contain text from clients.
    pub(crate) text: String,
}

impl Messages {
    /// The messages, newest first.
    pub(crate) fn newest(&self) -> Vec<Message> {
        self.kept.lock().newest.iter().rev().cloned().collect()
    }

    /// The number of messages so far, by level.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 2] {
        let kept = self.kept.lock();
        [("warning", kept.warnings), ("error", kept.errors)]
    }

    fn keep(&self, level: &'static str, text: String) {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut kept = self.kept.lock();
        match level {
            "error" => kept.errors += 1,
            _ => kept.warnings += 1,
        }
        if kept.newest.len() >= MESSAGES_MAX {
            kept.newest.pop_front();
        }
        kept.newest.push_back(Message { time: since_epoch.as_secs_f64(), level, text });
    }
}

impl<S: Subscriber> Layer<S> for Messages {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            _ => return,
        };
        let mut text = Text::default();
        event.record(&mut text);
        self.keep(level, text.finish());
    }
}

/// The message of an event, followed by its fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn finish(mut self) -> String {
        self.message.push_str(&self.fields);
        if self.message.len() > MESSAGE_BYTES_MAX {
            self.message.truncate(self.message.floor_char_boundary(MESSAGE_BYTES_MAX));
            self.message.push_str("...");
        }
        self.message
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value}"),
            name => write!(self.fields, " {name}={value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use tracing::{error, info, warn};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn logged(log: impl FnOnce()) -> Messages {
        let messages = Messages::default();
        let subscriber = tracing_subscriber::registry().with(messages.clone());
        tracing::subscriber::with_default(subscriber, log);
        messages
    }

    #[test]
    fn warnings_and_errors_are_kept_with_what_they_are_about() {
        let messages = logged(|| {
            info!("all is well");
            warn!(peer = "a:1", bytes = 3, "does not read");
            error!(error = %"no space", "cannot write");
        });
        let newest = messages.newest();
        let texts: Vec<_> = newest.iter().map(|m| (m.level, m.text.as_str())).collect();
        assert_eq!(
            texts,
            [
                ("error", "cannot write error=no space"),
                ("warning", "does not read peer=a:1 bytes=3")
            ]
        );
        assert_eq!(messages.counts(), [("warning", 1), ("error", 1)]);
    }

    #[test]
    fn neither_many_messages_nor_long_ones_take_more_room() {
        let long = "\u{e4}".repeat(10_000);
        let messages = logged(|| (0..1000).for_each(|number| warn!(number, "{long}")));
        let newest = messages.newest();
        assert_eq!(newest.len(), MESSAGES_MAX);
        assert!(newest.iter().all(|message| message.text.len() <= MESSAGE_BYTES_MAX + 4));
        assert_eq!(messages.counts()[0].1, 1000);
    }
}
