//! What something logs.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The warnings and errors, as text, that are logged on this thread while `run` runs.
pub(crate) fn count_warnings<T>(run: impl FnOnce() -> T) -> (T, Vec<String>) {
    let (result, messages) = logged(Level::WARN, run);
    (result, messages.into_iter().map(|(_, text)| text).collect())
}

/// The messages of this level and more serious ones that are logged on this thread while `run`
/// runs.
pub(crate) fn logged<T>(level: Level, run: impl FnOnce() -> T) -> (T, Vec<(Level, String)>) {
    let messages = Arc::new(Mutex::new(Vec::new()));
    let messages_then = Arc::clone(&messages);
    let result =
        tracing::subscriber::with_default(Messages { level, messages: messages_then }, run);
    let messages = std::mem::take(&mut *messages.lock().unwrap());
    (result, messages)
}

struct Messages {
    level: Level,
    messages: Arc<Mutex<Vec<(Level, String)>>>,
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").expect("a string takes all");
    }
}

impl Subscriber for Messages {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.messages.lock().unwrap().push((*event.metadata().level(), text.0));
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
