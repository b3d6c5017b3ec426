//! The right to write to an object store: an object that its holder renews.
//!
//! Key decision: no clocks are compared. A writer that finds the lease of another one waits for as
//! long as that lease lasts; if it is renewed meanwhile, the other one lives. Each change of the
//! object is conditional on what it was, so one of two writers gets it. A holder that was replaced
//! notices at its next renewal; and if it is stopped in between, the number of the restore point
//! that it would write is taken.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use object_store::path::Path;
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, PutResult, UpdateVersion,
};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::Claim;
use super::attempts::insist;
use crate::BackupError;

/// How often a foreign lease is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Renewals in the time that a lease lasts.
const RENEWALS: u32 = 4;

/// The object.
#[derive(Debug, Serialize, Deserialize)]
struct Terms {
    /// A random name of the holder.
    holder: String,
    /// Counts renewals.
    count: u64,
    /// Milliseconds that it lasts without one.
    lasts: u64,
    /// Whether its holder has given it up.
    released: bool,
}

/// A lease that is held.
pub(super) struct Lease {
    shared: Arc<Shared>,
    runtime: Arc<Runtime>,
    /// The thread that renews it, and what ends that when it is dropped.
    renewing: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

struct Shared {
    store: Arc<dyn ObjectStore>,
    path: Path,
    /// The repository.
    name: String,
    holder: String,
    lasts: Duration,
    state: Mutex<State>,
    /// One renewal at a time.
    turn: tokio::sync::Mutex<()>,
}

struct State {
    version: UpdateVersion,
    count: u64,
    renewed: Instant,
    is_lost: bool,
}

impl Lease {
    /// Takes the lease, which may need the time that it lasts.
    pub(super) fn take(
        runtime: Arc<Runtime>,
        store: Arc<dyn ObjectStore>,
        path: Path,
        name: String,
        lasts: Duration,
    ) -> Result<Lease, BackupError> {
        let mut draw = [0; 16];
        let drawn = SystemRandom::new().fill(&mut draw);
        drawn.map_err(|_| BackupError::Refused("cannot draw random bytes".to_owned()))?;
        let holder: String = draw.iter().map(|byte| format!("{byte:02x}")).collect();
        let terms =
            Terms { holder: holder.clone(), count: 0, lasts: millis(lasts), released: false };
        let renewed = Instant::now();
        let taken = runtime.block_on(take(&*store, &path, &name, &terms))?;
        let state = State { version: taken, count: 0, renewed, is_lost: false };
        let (state, turn) = (Mutex::new(state), tokio::sync::Mutex::default());
        let shared = Arc::new(Shared { store, path, name, holder, lasts, state, turn });
        let (stop, stopped) = oneshot::channel();
        let (theirs, its_runtime) = (Arc::clone(&shared), Arc::clone(&runtime));
        let renew = move || {
            its_runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = renew_always(&theirs) => {}
                }
            });
        };
        let thread = thread::Builder::new().name("lease".to_owned()).spawn(renew);
        let thread = thread.map_err(|error| {
            BackupError::Refused(format!("{}: cannot start a thread: {error}", shared.name))
        })?;
        Ok(Lease { shared, runtime, renewing: Some((stop, thread)) })
    }
}

impl Claim for Lease {
    fn check(&self) -> Result<(), BackupError> {
        let is_fresh = {
            let state = self.shared.state();
            !state.is_lost && state.renewed.elapsed() < self.shared.lasts / 2
        };
        match is_fresh {
            true => Ok(()),
            false => self.confirm(),
        }
    }

    fn confirm(&self) -> Result<(), BackupError> {
        self.runtime.block_on(self.shared.renew(false))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.renewing.take() {
            drop(stop);
            // The only error is a panic, and that has ended the process.
            let _ = thread.join();
        }
        // If that fails, the next writer waits until it is over.
        let _ = self.runtime.block_on(self.shared.renew(true));
    }
}

async fn renew_always(shared: &Shared) {
    loop {
        tokio::time::sleep(shared.lasts / RENEWALS).await;
        // `check` tells the writer what this has found.
        let _ = shared.renew(false).await;
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn renew(&self, released: bool) -> Result<(), BackupError> {
        let _turn = self.turn.lock().await;
        let (version, count, is_lost) = {
            let state = self.state();
            (state.version.clone(), state.count + 1, state.is_lost)
        };
        if is_lost {
            return Err(self.fenced());
        }
        let (holder, begun) = (self.holder.clone(), Instant::now());
        let mut terms = Terms { holder, count, lasts: millis(self.lasts), released };
        let written = self.write_ours(version, &mut terms).await;
        let version = written.map_err(|error| unavailable(&self.name, "renew its lease", error))?;
        let mut state = self.state();
        match version {
            Some(version) => {
                (state.version, state.count, state.renewed) = (version, terms.count, begun);
                Ok(())
            }
            None => {
                state.is_lost = true;
                Err(self.fenced())
            }
        }
    }

    /// Writes the object; `None` if it is not ours any more.
    ///
    /// After an earlier renewal whose answer was lost, the object is ours in a version that is not
    /// known here. It is written once more then: a writer that waits sees only changes.
    async fn write_ours(
        &self,
        known: UpdateVersion,
        terms: &mut Terms,
    ) -> Result<Option<UpdateVersion>, Error> {
        let first = self.update(known, terms).await?;
        if first.is_some() {
            return Ok(first);
        }
        match read(&*self.store, &self.path).await? {
            Some((found, version)) if found.holder == self.holder => {
                terms.count = found.count + 1;
                self.update(version, terms).await
            }
            _ => Ok(None),
        }
    }

    /// Writes the object if it has a version; `None` if it has another one.
    async fn update(
        &self,
        known: UpdateVersion,
        terms: &Terms,
    ) -> Result<Option<UpdateVersion>, Error> {
        match write(&*self.store, &self.path, terms, PutMode::Update(known)).await {
            Ok(written) => Ok(Some(version_of(written))),
            Err(Error::Precondition { .. } | Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn fenced(&self) -> BackupError {
        BackupError::Fenced { path: self.name.clone() }
    }
}

async fn take(
    store: &dyn ObjectStore,
    path: &Path,
    name: &str,
    terms: &Terms,
) -> Result<UpdateVersion, BackupError> {
    let failed = |error| unavailable(name, "take its lease", error);
    loop {
        let mode = match read(store, path).await.map_err(failed)? {
            None => PutMode::Create,
            Some((found, version)) => {
                if !found.released && found.holder != terms.holder {
                    wait_for_end(store, path, name, &found).await?;
                }
                PutMode::Update(version)
            }
        };
        match insist(async || write(store, path, terms, mode.clone()).await).await {
            Ok(written) => return Ok(version_of(written)),
            // Another one was faster, or an answer was lost.
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Waits until a lease is over.
async fn wait_for_end(
    store: &dyn ObjectStore,
    path: &Path,
    name: &str,
    found: &Terms,
) -> Result<(), BackupError> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(found.lasts) {
        tokio::time::sleep(LOOK).await;
        let now = read(store, path).await;
        let now = now.map_err(|error| unavailable(name, "read its lease", error))?;
        match now {
            Some((now, _)) if now.released => return Ok(()),
            Some((now, _)) if (&now.holder, now.count) == (&found.holder, found.count) => {}
            None => return Ok(()),
            Some(_) => {
                return Err(BackupError::Refused(format!(
                    "{name}: another archiver, backup or prune is at work; it holds the lease"
                )));
            }
        }
    }
    Ok(())
}

async fn read(
    store: &dyn ObjectStore,
    path: &Path,
) -> Result<Option<(Terms, UpdateVersion)>, Error> {
    let found = insist(async || {
        let found = store.get(path).await?;
        let version =
            UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        Ok((found.bytes().await?, version))
    });
    let (bytes, version) = match found.await {
        Ok(found) => found,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let unreadable = |_| Terms { holder: String::new(), count: 0, lasts: 0, released: true };
    let terms = serde_json::from_slice(&bytes).unwrap_or_else(unreadable);
    Ok(Some((terms, version)))
}

async fn write(
    store: &dyn ObjectStore,
    path: &Path,
    terms: &Terms,
    mode: PutMode,
) -> Result<PutResult, Error> {
    let generic = |error| Error::Generic { store: "lease", source: Box::new(error) };
    let text = serde_json::to_vec(terms).map_err(generic)?;
    store.put_opts(path, PutPayload::from(text), mode.into()).await
}

fn version_of(written: PutResult) -> UpdateVersion {
    UpdateVersion { e_tag: written.e_tag, version: written.version }
}

fn unavailable(name: &str, what: &'static str, error: Error) -> BackupError {
    BackupError::Unavailable { what, path: name.to_owned(), error: error.to_string() }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    struct Fixture {
        runtime: Arc<Runtime>,
        store: Arc<dyn ObjectStore>,
        path: Path,
    }

    impl Fixture {
        fn new() -> Fixture {
            let runtime = Arc::new(Runtime::new().unwrap());
            Fixture { runtime, store: Arc::new(InMemory::new()), path: Path::from("lease") }
        }

        fn take(&self) -> Lease {
            let (runtime, store) = (Arc::clone(&self.runtime), Arc::clone(&self.store));
            let (path, name) = (self.path.clone(), "s3://bucket/lease".to_owned());
            Lease::take(runtime, store, path, name, Duration::from_secs(3600)).unwrap()
        }

        fn terms(&self) -> Terms {
            let found = self.runtime.block_on(read(&*self.store, &self.path)).unwrap();
            found.unwrap().0
        }

        fn overwrite(&self, terms: &Terms) {
            let written = write(&*self.store, &self.path, terms, PutMode::Overwrite);
            self.runtime.block_on(written).unwrap();
        }
    }

    /// A writer that waits must see a change after each renewal that the holder counts on.
    #[test]
    fn a_renewal_after_one_whose_answer_was_lost_is_written() {
        let fixture = Fixture::new();
        let lease = fixture.take();
        let mut lost = fixture.terms();
        lost.count += 1;
        fixture.overwrite(&lost);
        lease.confirm().unwrap();
        let renewed = fixture.terms();
        assert_eq!((&renewed.holder, renewed.count), (&lost.holder, lost.count + 1));
    }

    /// The clock of a machine that was suspended does not say how long the lease is over.
    #[test]
    fn a_holder_that_was_replaced_is_told_however_fresh_its_lease_seems() {
        let fixture = Fixture::new();
        let lease = fixture.take();
        let other = Terms { holder: "other".to_owned(), ..fixture.terms() };
        fixture.overwrite(&other);
        assert!(lease.check().is_ok());
        assert!(matches!(lease.confirm(), Err(BackupError::Fenced { .. })));
        assert!(matches!(lease.check(), Err(BackupError::Fenced { .. })));
        drop(lease);
        assert_eq!(fixture.terms().holder, "other");
    }
}
