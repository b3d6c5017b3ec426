//! Scans: questions whose answer needs the whole log. They are asked for, run one by one on threads
//! of their own, show their progress, and can be cancelled.
//!
//! Key decision: their memory has limits, which are constants here. A scan that reaches one ends
//! with an error that says so, or shows a part and says so.

mod referrers;
mod survey;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
pub(crate) use referrers::Referrers;
pub(crate) use survey::Survey;
use zodium_storage::{LogItem, Read};
use zodium_tools::references::path_from_root;
use zodium_tools::{TidRange, ToolError, walk};
use zodium_types::{Oid, Tid};

/// Scans that run at once.
const RUNNING_MAX: usize = 2;
/// Scans that are kept with their answers.
const KEPT_MAX: usize = 8;

/// What a scan is to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// Sizes by class, growth, and the largest objects.
    Survey,
    /// The objects that refer to one.
    Referrers(Oid),
    /// The shortest way from the root to an object.
    Path(Oid),
}

/// The objects on a way, with their classes.
pub(crate) type Steps = Vec<(Oid, String)>;

/// How a scan ended.
#[derive(Clone)]
pub(crate) enum Outcome {
    Survey(Arc<Survey>),
    Referrers(Arc<Referrers>),
    /// `None` if nothing leads there.
    Path(Option<Arc<Steps>>),
    Failed(String),
    Cancelled,
}

/// A scan.
pub(crate) struct Scan {
    pub(crate) number: u64,
    pub(crate) question: Question,
    /// The last transaction that it reads.
    pub(crate) last: Tid,
    first: Tid,
    /// The transaction that it reads now. Only shown, so all accesses are relaxed.
    current: AtomicU64,
    /// Objects that it has followed; all accesses are relaxed too.
    followed: AtomicU64,
    /// Whether it is to end. The scan sees it soon, so all accesses are relaxed.
    is_cancelled: AtomicBool,
    outcome: Mutex<Option<Outcome>>,
}

/// All scans of an explorer.
pub(crate) struct Scans {
    storage: Arc<dyn Read>,
    all: Mutex<Vec<Arc<Scan>>>,
}

impl Scan {
    /// How it ended; `None` while it runs.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.outcome.lock().clone()
    }

    /// Whether it is for a question, about one state or any.
    fn is_for(&self, question: Question, last: Option<Tid>) -> bool {
        self.question == question && last.is_none_or(|last| last == self.last)
    }

    /// Ends it soon.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// The transaction that it reads now.
    pub(crate) fn current(&self) -> Tid {
        Tid(self.current.load(Ordering::Relaxed))
    }

    /// The objects that it has followed, if that is what it does.
    pub(crate) fn followed(&self) -> Option<u64> {
        let is_path = matches!(self.question, Question::Path(_));
        is_path.then(|| self.followed.load(Ordering::Relaxed))
    }

    /// How much of the time of the log it has read: thousandths.
    pub(crate) fn progress(&self) -> u64 {
        let (first, last) = (u128::from(self.first.0), u128::from(self.last.0));
        let done = u128::from(self.current().0).saturating_sub(first);
        let whole = last.saturating_sub(first).max(1);
        (done * 1000 / whole).min(1000) as u64
    }

    /// Shows each item of the log up to the last transaction, until the scan is cancelled.
    fn walk(
        &self,
        storage: &dyn Read,
        visit: &mut dyn FnMut(LogItem<'_>) -> Result<(), ToolError>,
    ) -> Result<(), ToolError> {
        walk(storage, TidRange::until(self.last), &mut |item| {
            if self.is_cancelled.load(Ordering::Relaxed) {
                return Err(ToolError::Refused("cancelled".to_owned()));
            }
            if let LogItem::Transaction { tid, .. } = item {
                self.current.store(tid.0, Ordering::Relaxed);
            }
            visit(item)
        })
    }

    /// Follows references from the root until the object is found, or the scan is cancelled.
    fn path(&self, storage: &dyn Read, target: Oid) -> Result<Option<Steps>, ToolError> {
        path_from_root(storage, self.last, target, &mut |count| {
            self.followed.store(count, Ordering::Relaxed);
            match self.is_cancelled.load(Ordering::Relaxed) {
                true => Err(ToolError::Refused("cancelled".to_owned())),
                false => Ok(()),
            }
        })
    }

    fn run(&self, storage: &dyn Read) {
        let outcome = match self.question {
            Question::Survey => {
                survey::run(self, storage).map(|survey| Outcome::Survey(Arc::new(survey)))
            }
            Question::Referrers(oid) => {
                referrers::run(self, storage, oid).map(|found| Outcome::Referrers(Arc::new(found)))
            }
            Question::Path(oid) => {
                self.path(storage, oid).map(|found| Outcome::Path(found.map(Arc::new)))
            }
        };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(_) if self.is_cancelled.load(Ordering::Relaxed) => Outcome::Cancelled,
            Err(error) => Outcome::Failed(error.to_string()),
        };
        *self.outcome.lock() = Some(outcome);
    }
}

impl Scans {
    pub(crate) fn new(storage: Arc<dyn Read>) -> Scans {
        Scans { storage, all: Mutex::default() }
    }

    /// Starts a scan, unless the same one runs already.
    ///
    /// # Errors
    /// Why it cannot start now, for people.
    pub(crate) fn start(&self, question: Question, last: Tid) -> Result<(), String> {
        // Before the lock: the storage may hang, and pages look at the list.
        let first = self.storage.iterate(None, None).and_then(|mut cursor| cursor.step());
        let first = first.map_err(|error| error.to_string())?;
        let first = first.map_or(last, |transaction| transaction.tid);
        let mut all = self.all.lock();
        let is_running = |scan: &&Arc<Scan>| scan.outcome.lock().is_none();
        if all.iter().filter(is_running).any(|scan| (scan.question, scan.last) == (question, last))
        {
            return Ok(());
        }
        if all.iter().filter(is_running).count() >= RUNNING_MAX {
            return Err(format!("{RUNNING_MAX} scans are running already: cancel one, or wait"));
        }
        let scan = Arc::new(Scan {
            number: all.last().map_or(1, |scan| scan.number + 1),
            question,
            last,
            first,
            current: AtomicU64::new(first.0),
            followed: AtomicU64::new(0),
            is_cancelled: AtomicBool::new(false),
            outcome: Mutex::new(None),
        });
        // The same question about the same state has a newer answer soon.
        all.retain(|old| {
            (old.question, old.last) != (question, last) || old.outcome.lock().is_none()
        });
        if all.len() >= KEPT_MAX
            && let Some(oldest) = all.iter().position(|scan| scan.outcome.lock().is_some())
        {
            all.remove(oldest);
        }
        let (running, storage) = (Arc::clone(&scan), Arc::clone(&self.storage));
        let thread = std::thread::Builder::new().name("scan".to_owned());
        let started = thread.spawn(move || running.run(&*storage));
        started.map_err(|error| format!("no thread can be started: {error}"))?;
        all.push(scan);
        Ok(())
    }

    /// The newest scan for a question, of one state or of any.
    pub(crate) fn find(&self, question: Question, last: Option<Tid>) -> Option<Arc<Scan>> {
        let all = self.all.lock();
        all.iter().rev().find(|scan| scan.is_for(question, last)).cloned()
    }

    /// As [`Scans::find`], of those that have an answer.
    pub(crate) fn find_answer(
        &self,
        question: Question,
        last: Option<Tid>,
    ) -> Option<(Arc<Scan>, Outcome)> {
        let all = self.all.lock();
        let mut asked = all.iter().rev().filter(|scan| scan.is_for(question, last));
        asked.find_map(|scan| match scan.outcome()? {
            Outcome::Failed(_) | Outcome::Cancelled => None,
            answer => Some((Arc::clone(scan), answer)),
        })
    }

    /// The scan of that number.
    pub(crate) fn by_number(&self, number: u64) -> Option<Arc<Scan>> {
        self.all.lock().iter().find(|scan| scan.number == number).cloned()
    }
}

impl Drop for Scans {
    fn drop(&mut self) {
        self.all.lock().iter().for_each(|scan| scan.cancel());
    }
}

#[cfg(test)]
mod tests {
    use zodium_memorystorage::MemoryStorage;
    use zodium_storage::Applier;
    use zodium_types::TransactionStatus;

    use super::*;

    /// Two transactions; the second one gives object 1 a longer state.
    fn storage() -> MemoryStorage {
        let storage = MemoryStorage::new();
        let mut applier = Applier::new(&storage);
        let status = TransactionStatus::Normal;
        let (user, description, extension) = (&b""[..], &b""[..], &b""[..]);
        for (tid, records) in [(1, 0..3), (2, 1..2)] {
            let tid = Tid(tid << 32);
            let head = LogItem::Transaction { tid, status, user, description, extension };
            applier.apply(head).unwrap();
            for oid in records {
                let data = [b"cm\nC\n.", &b"N0".repeat(tid.0 as usize >> 32)[..], b"."].concat();
                let data = Some(&data[..]);
                applier.apply(LogItem::Record { oid: Oid(oid), data, data_tid: None }).unwrap();
            }
        }
        applier.finish().unwrap();
        storage
    }

    fn scan(question: Question, last: Tid) -> Scan {
        let (number, first, is_cancelled) = (1, Tid(1 << 32), AtomicBool::new(false));
        let (current, outcome) = (AtomicU64::new(first.0), Mutex::new(None));
        let followed = AtomicU64::new(0);
        Scan { number, question, last, first, current, followed, is_cancelled, outcome }
    }

    #[test]
    fn an_answer_is_found_behind_later_scans_without_one() {
        let scans = Scans::new(Arc::new(storage()));
        let add = |last, outcome| {
            let scan = scan(Question::Survey, Tid(last));
            *scan.outcome.lock() = outcome;
            scans.all.lock().push(Arc::new(scan));
        };
        add(1, Some(Outcome::Survey(Arc::default())));
        add(2, Some(Outcome::Cancelled));
        add(3, None);
        let found = |last| scans.find_answer(Question::Survey, last).map(|(scan, _)| scan.last);
        assert_eq!(found(None), Some(Tid(1)));
        assert_eq!((found(Some(Tid(1))), found(Some(Tid(2)))), (Some(Tid(1)), None));
    }

    #[test]
    fn a_survey_is_of_the_state_that_was_asked_for() {
        for (last, bytes, all_bytes) in [(1, 27, 27), (2, 29, 38)] {
            let scan = scan(Question::Survey, Tid(last << 32));
            scan.run(&storage());
            let Some(Outcome::Survey(survey)) = scan.outcome() else { panic!("no survey") };
            assert_eq!((survey.objects, survey.bytes, survey.transactions), (3, bytes, last));
            let [class] = &survey.classes[..] else { panic!("one class") };
            assert_eq!((class.class.as_str(), class.all_bytes), ("m.C", all_bytes));
            assert_eq!(survey.periods.iter().map(|period| period.bytes).sum::<u64>(), all_bytes);
            assert_eq!(scan.progress(), 1000 * u64::from(last > 1));
        }
    }

    #[test]
    fn a_cancelled_scan_ends_without_an_answer() {
        for question in [Question::Survey, Question::Referrers(Oid(1)), Question::Path(Oid(1))] {
            let scan = scan(question, Tid::MAX);
            scan.cancel();
            scan.run(&storage());
            assert!(matches!(scan.outcome(), Some(Outcome::Cancelled)));
        }
    }

    #[test]
    fn the_same_question_has_one_scan() {
        let scans = Scans::new(Arc::new(storage()));
        for _ in 0..3 {
            scans.start(Question::Survey, Tid(2 << 32)).unwrap();
            let scan = scans.find(Question::Survey, Some(Tid(2 << 32))).unwrap();
            while scan.outcome().is_none() {
                std::thread::yield_now();
            }
        }
        assert_eq!(scans.all.lock().len(), 1);
        assert!(scans.find(Question::Survey, Some(Tid(1 << 32))).is_none());
    }
}
