//! `zodium backup --watch`: follows a storage until it is told to end.
//!
//! Key decision: the storage is looked at at an interval, and is told nothing. So it never waits
//! for the archiver, and what no server tells of, like a deletion, is seen too. Only two errors end
//! it: another archiver that has taken over, and a refused request at the start.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytesize::ByteSize;
use clap::Args;
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use zodium_backup::BackupError;
use zodium_backup::repository::{Archiver, Backup, BackupSummary, Repository};
use zodium_storage::Read;
use zodium_types::Tid;

use super::archive_status::{Status, StatusFile};
use super::following::Followed;
use super::open::OpenArguments;
use super::storage_name::StorageName;
use crate::error_text::in_words;
use crate::progress::Progress;
use crate::streams::complain;
use crate::supervisor;

/// Wait after an error; it doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Time between two messages about the same trouble.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(60);

/// Options of `zodium backup --watch`.
#[derive(Debug, Args)]
pub(super) struct WatchArguments {
    /// With --watch: time between two looks at the storage. A crash of all machines loses what was
    /// committed in it, and what was being written
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = interval)]
    #[arg(requires = "watch")]
    interval: Duration,

    /// With --watch: write the state to this file each second: JSON, or metrics for the textfile
    /// collector of Prometheus' node exporter if its name ends with .prom
    #[arg(long, value_name = "FILE", requires = "watch")]
    status_file: Option<PathBuf>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "give 0.01 to 3600 seconds".to_owned())
}

/// Is sent when the process is told to end.
struct End;

/// What is archived, and where.
pub(super) struct Task<'t> {
    /// The storage.
    pub(super) name: &'t StorageName,
    pub(super) how: &'t OpenArguments,
    pub(super) blob_dir: Option<PathBuf>,
    pub(super) repository: &'t Repository,
    /// Does not read what is archived already.
    pub(super) quick: bool,
    /// Follows it although it is another storage than the repository's.
    pub(super) replaced: bool,
    pub(super) arguments: &'t WatchArguments,
}

pub(super) fn run(task: &Task<'_>) -> Result<ExitCode> {
    let end = signals()?;
    let status = StatusFile::new(task.arguments.status_file.clone());
    let mut watch = Watch { task, end, status, trouble: Trouble::default(), lost: None };
    let Some(mut followed) = watch.opened()? else { return Ok(ExitCode::SUCCESS) };
    let Some(mut archiver) = watch.started(&followed)? else { return Ok(ExitCode::SUCCESS) };
    if !task.quick {
        archiver.begin_rereading();
    }
    supervisor::node_ready();
    watch.follow(&mut archiver, &mut followed)?;
    supervisor::stopping();
    Ok(ExitCode::SUCCESS)
}

/// Listens to SIGTERM and SIGINT.
fn signals() -> Result<Receiver<End>> {
    let (sender, end) = channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt) = {
        let _entered = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let listen = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
        // The main thread may have ended already.
        let _ = sender.send(End);
    };
    let thread = thread::Builder::new().name("signals".to_owned()).spawn(listen);
    thread.context("cannot start a thread")?;
    Ok(end)
}

struct Watch<'w> {
    task: &'w Task<'w>,
    end: Receiver<End>,
    status: StatusFile,
    trouble: Trouble,
    /// The last archived transaction for which all was read again.
    lost: Option<Tid>,
}

impl<'w> Watch<'w> {
    /// Opens the storage as soon as it can be reached; `None` if the process is told to end.
    fn opened(&mut self) -> Result<Option<Followed>> {
        self.insist(|watch| {
            let task = watch.task;
            Followed::open(task.how, task.name, task.blob_dir.as_deref())
        })
    }

    /// Makes the first restore point; `None` if the process is told to end.
    fn started(&mut self, followed: &Followed) -> Result<Option<Archiver<'w>>> {
        let storage = followed.storage()?;
        let progress = Progress::of_log(format!("backing {} up", storage.name()), &*storage);
        let advance = |bytes| progress.advance(bytes);
        let source = followed.source(&storage, &advance);
        let replaced = self.task.replaced;
        let backup = Backup { source, quick: true, replaced, seconds: now() };
        let started = self.insist(|watch| Ok(Archiver::start(watch.task.repository, &backup)?))?;
        let Some((archiver, summary)) = started else { return Ok(None) };
        complain_of_point(&summary);
        let BackupSummary { point, new_transactions, stored_bytes, .. } = summary;
        complain!(
            "zodium: archiving {} from point {} on, at transaction {}; {} stored",
            storage.name(),
            point.number,
            point.last(),
            ByteSize(stored_bytes)
        );
        self.status.archived(&Status {
            point: point.number,
            last: point.last(),
            transactions: new_transactions,
            is_caught_up: false,
            is_rereading: !self.task.quick,
        });
        Ok(Some(archiver))
    }

    /// Tries until it succeeds, or is refused; `None` if the process is told to end.
    fn insist<T>(&mut self, attempt: impl Fn(&Self) -> Result<T>) -> Result<Option<T>> {
        loop {
            match attempt(self) {
                Ok(done) => {
                    self.trouble.is_over();
                    return Ok(Some(done));
                }
                Err(error) if is_lasting(&error) || is_refused(&error) => return Err(error),
                Err(error) => {
                    if self.wait_after(&error) {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Follows the storage until the process is told to end.
    fn follow(&mut self, archiver: &mut Archiver<'_>, followed: &mut Followed) -> Result<()> {
        let mut is_rereading = !self.task.quick;
        let mut is_ending = false;
        loop {
            let looked = Instant::now();
            match self.look(archiver, followed, &mut is_rereading) {
                Ok(is_caught_up) => {
                    self.trouble.is_over();
                    if is_ending && is_caught_up {
                        return self.finish(archiver);
                    }
                    let wait = match is_caught_up && !is_rereading {
                        true => self.task.arguments.interval.saturating_sub(looked.elapsed()),
                        false => Duration::ZERO,
                    };
                    is_ending |= self.waits(wait);
                }
                Err(error) if is_lasting(&error) => return Err(error),
                Err(_) if is_ending => return self.finish(archiver),
                Err(error) => is_ending |= self.wait_after(&error),
            }
        }
    }

    /// Archives what is new, and reads a part of what is old; whether nothing new is left.
    fn look(
        &mut self,
        archiver: &mut Archiver<'_>,
        followed: &mut Followed,
        is_rereading: &mut bool,
    ) -> Result<bool> {
        archiver.check()?;
        let was_packed = followed.refresh(self.task.how, self.task.name)?;
        let storage = followed.storage()?;
        if was_packed || self.was_replaced(archiver, &*storage)? {
            archiver.begin_rereading();
            *is_rereading = true;
        }
        let source = followed.source(&storage, &|_| ());
        let seconds = now();
        let step = archiver.step(&source, seconds)?;
        if step.is_caught_up && *is_rereading {
            *is_rereading = !archiver.reread(&source, seconds)?;
        }
        self.status.archived(&Status {
            point: archiver.newest().number,
            last: archiver.newest().last(),
            transactions: step.transactions,
            is_caught_up: step.is_caught_up,
            is_rereading: *is_rereading,
        });
        Ok(step.is_caught_up)
    }

    /// Whether the storage has lost the last transaction that is archived: once for each such
    /// transaction.
    fn was_replaced(&mut self, archiver: &Archiver<'_>, storage: &dyn Read) -> Result<bool> {
        let last = archiver.newest().last();
        if self.lost == Some(last) || archiver.is_continued_by(storage)? {
            return Ok(false);
        }
        self.lost = Some(last);
        complain!(
            "zodium: {} does not have transaction {last} any more, which is archived: an older \
             copy was put in its place, or a pack removed it; all of it is read again",
            storage.name()
        );
        Ok(true)
    }

    /// Leaves one complete point.
    fn finish(&mut self, archiver: &mut Archiver<'_>) -> Result<()> {
        archiver.complete(now())?;
        self.status.ended();
        Ok(())
    }

    /// Waits; whether the process is told to end.
    fn waits(&self, duration: Duration) -> bool {
        !matches!(self.end.recv_timeout(duration), Err(RecvTimeoutError::Timeout))
    }

    /// Reports an error, and waits before the next attempt; whether the process is told to end.
    fn wait_after(&mut self, error: &anyhow::Error) -> bool {
        let text = in_words(error);
        self.status.failed(&text);
        let pause = self.trouble.report(&text);
        self.waits(pause)
    }
}

/// Tells of a restore point that is damaged, in whose place there is a new one.
pub(super) fn complain_of_point(done: &BackupSummary) {
    if let Some(damage) = &done.damage {
        complain!(
            "zodium: {damage}. Point {} is complete, and does not need it: docs/backup.md tells \
             what to remove",
            done.point.number
        );
    }
    if let Some(before) = &done.older_than {
        complain!(
            "zodium: the storage ends before transaction {} of point {}: an older copy has taken \
             its place. What it lacks is in that point, which a prune may remove",
            before.last(),
            before.number
        );
    }
}

/// Whether no further attempt can succeed.
fn is_lasting(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(BackupError::Fenced { .. }))
}

fn is_refused(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(BackupError::Refused(_)))
}

fn now() -> i64 {
    Timestamp::now().as_second()
}

/// Errors in a row.
#[derive(Default)]
struct Trouble {
    count: u32,
    said: Option<(String, Instant)>,
}

impl Trouble {
    /// Prints an error, unless it was printed lately; how long to wait.
    fn report(&mut self, error: &str) -> Duration {
        let is_said = self
            .said
            .as_ref()
            .is_some_and(|(said, at)| said == error && at.elapsed() < MESSAGE_INTERVAL);
        if !is_said {
            complain!("zodium: {error}; trying again");
            self.said = Some((error.to_owned(), Instant::now()));
        }
        let pause = PAUSE_MIN.saturating_mul(1 << self.count.min(10)).min(PAUSE_MAX);
        self.count += 1;
        pause
    }

    fn is_over(&mut self) {
        self.count = 0;
        if self.said.take().is_some() {
            complain!("zodium: works again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_become_rarer_and_begin_anew() {
        let mut trouble = Trouble::default();
        let pauses: Vec<_> = (0..12).map(|_| trouble.report("no")).collect();
        assert_eq!((pauses[0], pauses[1]), (PAUSE_MIN, PAUSE_MIN * 2));
        assert_eq!(pauses[11], PAUSE_MAX);
        trouble.is_over();
        assert_eq!(trouble.report("no"), PAUSE_MIN);
    }

    #[test]
    fn intervals_are_seconds() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "0", "-1", "1e9", "NaN", "x"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
