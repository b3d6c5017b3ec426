//! Shows the progress of long work: a bar on a terminal, occasional log lines elsewhere.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use zodium_storage::Read;

use crate::supervisor;

/// Work shorter than this is not reported.
const SILENCE: Duration = Duration::from_secs(1);
/// Time between two log lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Bytes of a log between two reports.
const STEP_BYTES: u64 = 4 << 20;

/// Progress in bytes, or in objects.
pub(crate) struct Progress {
    what: String,
    unit: Unit,
    started: Instant,
    /// What [`Progress::advance`] has counted.
    done: Cell<u64>,
    total: u64,
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
            // The prefix is our estimate. That of indicatif counts work done before the bar
            // appeared as work of its first moment.
            Unit::Bytes => "{msg} {wide_bar} {bytes}/{total_bytes} {prefix}",
            // The number of objects in use is not known until the end.
            Unit::Objects => "{msg} {wide_bar} {human_pos}/{human_len} objects at most",
        }
    }
}

/// The mean rate since the start, and the time left at that rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Estimate {
    per_second: u64,
    left: Duration,
}

impl Estimate {
    fn of(done: u64, total: u64, elapsed: Duration) -> Estimate {
        let rate = done as f64 / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        let seconds = total.saturating_sub(done) as f64 / rate.max(1.0);
        Estimate { per_second: rate as u64, left: Duration::from_secs(seconds as u64) }
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
        Progress { what, unit, started: Instant::now(), done: Cell::new(0), total: 0, said, bar }
    }

    /// Progress through the whole log of a storage, for [`Progress::advance`].
    pub(crate) fn of_log(what: String, storage: &dyn Read) -> Progress {
        let mut progress = Progress::new(what);
        progress.total = storage.size();
        progress
    }

    /// Reports that so many more bytes of the log are done.
    pub(crate) fn advance(&self, bytes: usize) {
        let before = self.done.get();
        let done = before + bytes as u64;
        self.done.set(done);
        // A look at the clock for each record would cost more than the record.
        if before / STEP_BYTES != done / STEP_BYTES {
            self.report(done, self.total.max(done));
        }
    }

    /// Reports that `done` of `total` units are done.
    pub(crate) fn report(&self, done: u64, total: u64) {
        let elapsed = self.started.elapsed();
        if elapsed < SILENCE {
            return;
        }
        let Estimate { per_second, left } = Estimate::of(done, total, elapsed);
        let per_second = self.unit.shown(per_second);
        if std::io::stderr().is_terminal() {
            let mut bar = self.bar.borrow_mut();
            let bar = bar.get_or_insert_with(|| new_bar(&self.what, self.unit, total));
            bar.set_prefix(format!("{per_second}/s, {} left", HumanDuration(left)));
            bar.set_position(done);
        } else if self.said.get().is_none_or(|said| said.elapsed() >= LINE_INTERVAL) {
            self.said.set(Some(Instant::now()));
            tracing::info!(
                done = %self.unit.shown(done),
                total = %self.unit.shown(total),
                per_second,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_estimate_counts_from_the_start_of_the_work() {
        // As when a bar appears after a second.
        let estimate = Estimate::of(300 << 20, 900 << 20, Duration::from_secs(1));
        let expected = Estimate { per_second: 300 << 20, left: Duration::from_secs(2) };
        assert_eq!(estimate, expected);
    }

    #[test]
    fn an_estimate_is_made_of_any_figures() {
        for (done, total, elapsed) in [(0, 0, 0), (0, u64::MAX, 1), (u64::MAX, 0, 0), (5, 5, 9)] {
            Estimate::of(done, total, Duration::from_secs(elapsed));
        }
    }

    #[test]
    fn no_template_has_an_estimate_of_its_own() {
        for unit in [Unit::Bytes, Unit::Objects] {
            assert!(ProgressStyle::with_template(unit.template()).is_ok());
            assert!(!unit.template().contains("per_sec") && !unit.template().contains("eta"));
        }
    }
}
