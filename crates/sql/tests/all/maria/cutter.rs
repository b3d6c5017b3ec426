//! A relay between a program and a server, which cuts a connection at a COMMIT, or holds a query of
//! large data up.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{sleep, spawn};
use std::time::Duration;

use tempfile::TempDir;

const NEVER: u32 = 0;
const BEFORE: u32 = 1;
const AFTER: u32 = 2;
const HALF: u32 = 3;

/// The relay.
pub(crate) struct Cutter {
    folder: TempDir,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Whether the next COMMIT is cut, before or after the server has got it.
    next: AtomicU32,
    cuts: AtomicU32,
    /// Taken by a test that holds queries of large data up.
    gate: Mutex<()>,
    is_held: AtomicBool,
}

impl Cutter {
    pub(crate) fn start(server: PathBuf) -> Cutter {
        let folder = tempfile::tempdir().unwrap();
        let state = Arc::<State>::default();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let shared = Arc::clone(&state);
        spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), UnixStream::connect(&server).unwrap());
                let shared = Arc::clone(&shared);
                spawn(move || relay(client, server, &shared));
            }
        });
        Cutter { folder, state }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        Path::new(self.folder.path()).join("socket")
    }

    pub(crate) fn cut_after_commit(&self) {
        self.state.next.store(AFTER, Ordering::SeqCst);
    }

    pub(crate) fn cut_before_commit(&self) {
        self.state.next.store(BEFORE, Ordering::SeqCst);
    }

    /// The server takes the connection for alive.
    pub(crate) fn cut_half_before_commit(&self) {
        self.state.next.store(HALF, Ordering::SeqCst);
    }

    /// Holds queries of large data up until the guard is dropped.
    pub(crate) fn hold_large_data(&self) -> MutexGuard<'_, ()> {
        self.state.gate.lock().unwrap()
    }

    pub(crate) fn wait_until_held(&self) {
        while !self.state.is_held.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn cuts(&self) -> u32 {
        self.state.cuts.load(Ordering::SeqCst)
    }
}

/// Both speak in turns: a request is followed by its answer.
fn relay(mut client: UnixStream, mut server: UnixStream, state: &State) {
    let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let answering = spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok(length @ 1..) = answers.read(&mut buffer) {
            if back.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
    });
    let mut buffer = [0; 1 << 16];
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        let request = &buffer[..length];
        // After four bytes of length and number, and one of the command.
        let is_commit = request.get(5..) == Some(b"COMMIT");
        let large = b"SELECT value FROM bigdata";
        if request.windows(large.len()).any(|text| text == large) {
            state.is_held.store(true, Ordering::SeqCst);
            drop(state.gate.lock().unwrap());
        }
        let cut = if is_commit { state.next.swap(NEVER, Ordering::SeqCst) } else { NEVER };
        if cut != NEVER {
            state.cuts.fetch_add(1, Ordering::SeqCst);
            client.shutdown(Shutdown::Both).unwrap();
        }
        if cut == HALF {
            // The other thread keeps it open.
            return;
        }
        if cut == BEFORE || server.write_all(request).is_err() {
            break;
        }
        if cut == AFTER {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Write);
    answering.join().unwrap();
}
