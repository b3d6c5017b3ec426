//! How far a long piece of work has got: a bar on a terminal, a log line now and then elsewhere.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use indicatif::{ProgressBar, ProgressStyle};

use crate::supervisor;

/// Work shorter than this goes unmentioned.
const SILENCE: Duration = Duration::from_secs(1);
/// Between two log lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Progress in bytes, or in objects.
pub(crate) struct Progress {
    what: String,
    unit: Unit,
    started: Instant,
    said: Cell<Option<Instant>>,
    bar: RefCell<Option<ProgressBar>>,
}

#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    Objects,
}

impl Unit {
    fn shown(self, count: u64) -> String {
        match self {
            Unit::Bytes => ByteSize(count).to_string(),
            Unit::Objects => format!("{count} objects"),
        }
    }

    fn template(self) -> &'static str {
        match self {
            Unit::Bytes => "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left",
            // How many of all objects there are in use is what is being found out.
            Unit::Objects => "{msg} {wide_bar} {human_pos}/{human_len} objects at most",
        }
    }
}

impl Progress {
    pub(crate) fn new(what: String) -> Progress {
        Progress::in_unit(Unit::Bytes, what)
    }

    pub(crate) fn of_objects(what: String) -> Progress {
        Progress::in_unit(Unit::Objects, what)
    }

    fn in_unit(unit: Unit, what: String) -> Progress {
        let (said, bar) = (Cell::new(None), RefCell::new(None));
        Progress { what, unit, started: Instant::now(), said, bar }
    }

    /// Reports that `done` of `total` are done.
    pub(crate) fn report(&self, done: u64, total: u64) {
        let elapsed = self.started.elapsed();
        if elapsed < SILENCE {
            return;
        }
        if std::io::stderr().is_terminal() {
            let mut bar = self.bar.borrow_mut();
            bar.get_or_insert_with(|| new_bar(&self.what, self.unit, total)).set_position(done);
        } else if self.said.get().is_none_or(|said| said.elapsed() >= LINE_INTERVAL) {
            self.said.set(Some(Instant::now()));
            let rate = done as f64 / elapsed.as_secs_f64();
            let left = Duration::from_secs_f64((total.saturating_sub(done)) as f64 / rate.max(1.0));
            tracing::info!(
                done = %self.unit.shown(done),
                total = %self.unit.shown(total),
                per_second = %self.unit.shown(rate as u64),
                seconds_left = left.as_secs(),
                "{}", self.what
            );
            let percent = done * 100 / total.max(1);
            supervisor::starting(&format!("{}: {percent} %", self.what), LINE_INTERVAL * 6);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.borrow_mut().take() {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(what: &str, unit: Unit, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(unit.template())
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style).with_message(what.to_owned())
}
