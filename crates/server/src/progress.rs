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

    fn template(self, has_total: bool) -> &'static str {
        match (self, has_total) {
            // The prefix is our estimate. That of indicatif counts work done before the bar
            // appeared as work of its first moment.
            (Unit::Bytes, true) => "{msg} {wide_bar} {bytes}/{total_bytes} {prefix}",
            (Unit::Bytes, false) => "{msg} {bytes} {prefix}",
            // The number of objects in use is not known until the end.
            (Unit::Objects, _) => "{msg} {wide_bar} {human_pos}/{human_len} objects at most",
        }
    }

    fn style(self, has_total: bool) -> ProgressStyle {
        ProgressStyle::with_template(self.template(has_total))
            .unwrap_or_else(|_| ProgressStyle::default_bar())
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
            self.show(done, total_of(done, self.total));
        }
    }

    /// Reports that `done` of `total` units are done.
    pub(crate) fn report(&self, done: u64, total: u64) {
        self.show(done, Some(total));
    }

    fn show(&self, done: u64, total: Option<u64>) {
        let elapsed = self.started.elapsed();
        if elapsed < SILENCE {
            return;
        }
        let Estimate { per_second, left } = Estimate::of(done, total.unwrap_or(done), elapsed);
        let per_second = self.unit.shown(per_second);
        if std::io::stderr().is_terminal() {
            let mut bar = self.bar.borrow_mut();
            let bar = bar.get_or_insert_with(|| new_bar(&self.what, self.unit, total));
            if total.is_some() {
                bar.set_prefix(format!("{per_second}/s, {} left", HumanDuration(left)));
            } else {
                if bar.length().is_some() {
                    bar.unset_length();
                    bar.set_style(self.unit.style(false));
                }
                bar.set_prefix(format!("{per_second}/s"));
            }
            bar.set_position(done);
        } else if self.said.get().is_none_or(|said| said.elapsed() >= LINE_INTERVAL) {
            self.said.set(Some(Instant::now()));
            let shown = self.unit.shown(done);
            tracing::info!(
                done = %shown,
                total = total.map(|total| self.unit.shown(total)),
                per_second,
                seconds_left = total.map(|_| left.as_secs()),
                "{}", self.what
            );
            let part = total.map(|total| format!("{} %", done * 100 / total.max(1)));
            let part = part.unwrap_or(shown);
            supervisor::starting(&format!("{}: {part}", self.what), LINE_INTERVAL * 6);
        }
    }
}

/// The total of a log from a storage that takes `size` bytes. Data may be compressed in a database,
/// and a cluster does not tell its size: the total is not known then.
fn total_of(done: u64, size: u64) -> Option<u64> {
    (done <= size).then_some(size)
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.borrow_mut().take() {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(what: &str, unit: Unit, total: Option<u64>) -> ProgressBar {
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    bar.with_style(unit.style(total.is_some())).with_message(what.to_owned())
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
        let units = [(Unit::Bytes, true), (Unit::Bytes, false), (Unit::Objects, true)];
        for template in units.map(|(unit, has_total)| unit.template(has_total)) {
            assert!(ProgressStyle::with_template(template).is_ok());
            assert!(!template.contains("per_sec") && !template.contains("eta"));
        }
    }

    #[test]
    fn more_than_all_is_not_reported() {
        assert_eq!(total_of(5, 10), Some(10));
        assert_eq!(total_of(10, 10), Some(10));
        for (done, size) in [(11, 10), (1, 0)] {
            assert_eq!(total_of(done, size), None);
        }
        let bar = new_bar("what", Unit::Bytes, total_of(11, 10));
        assert_eq!(bar.length(), None);
    }
}
