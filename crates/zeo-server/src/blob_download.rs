//! Sends blobs to a client.
//!
//! Key decision: the blobs of one connection take turns, a window each, and a window is only read
//! when the output has drained. So at most one window and the rest of the last one are in memory,
//! however large and many the blobs are. Any other reply waits behind no more than that.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use zodium_blobs::{BlobError, BlobReading};
use zodium_engine::Database;
use zodium_pickle::Value;
use zodium_storage::StorageError;
use zodium_types::{Oid, Tid};

use crate::blobs::blobs_of;
use crate::call::Arguments;
use crate::exception::Exception;
use crate::peer::Peer;
use crate::replies::{Reply, ReplyTo};
use zodium_zeo::codec::{
    BlobNotice, CodecError, blob_chunk_head, blob_chunk_tail, encode_blob_notice,
};

/// Bytes read from a blob at once. With [`WAITING_BYTES_MAX`] this stays below the output
/// high-water mark, from which on a link reads no requests.
const WINDOW_BYTES: usize = 512 << 10;
/// Most bytes in the output when the next window is read.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// Bytes of a blob in one message. The stock server sends 59,000. Clients accept any number, and
/// open and close their file for every message.
const CHUNK_BYTES: usize = 128 << 10;
/// Most blobs of one connection that are sent at once; each is an open file.
const AT_ONCE_MAX: usize = 16;

/// Sends the blobs of a session.
pub(crate) struct Downloads {
    peer: Rc<Peer>,
    queue: RefCell<Queue>,
}

/// The blobs that a client has requested.
#[derive(Default)]
struct Queue {
    /// Downloads in progress, in the order of their turns, without the one being read.
    turns: VecDeque<Download>,
    /// The blobs of all downloads in progress.
    under_way: Vec<(Oid, Tid)>,
    /// Downloads that begin when others have ended.
    waiting: VecDeque<Download>,
    /// Whether [`Downloads::send_all`] runs.
    sending: bool,
}

struct Download {
    oid: Oid,
    serial: Tid,
    reply_to: ReplyTo,
    /// Opened at its first turn.
    blob: Option<BlobReading>,
}

/// The bytes that a turn has read.
struct Window {
    bytes: Bytes,
    is_first: bool,
    is_last: bool,
}

impl Downloads {
    pub(crate) fn new(peer: Rc<Peer>) -> Rc<Downloads> {
        Rc::new(Downloads { peer, queue: RefCell::default() })
    }

    pub(crate) fn send(
        self: &Rc<Self>,
        to: &ReplyTo,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let (oid, serial) = (arguments.oid()?, arguments.tid()?);
        blobs_of(self.peer.storage())?;
        self.peer.jobs.begin();
        let mut queue = self.queue.borrow_mut();
        queue.add(Download { oid, serial, reply_to: to.clone(), blob: None });
        if !queue.sending {
            queue.sending = true;
            tokio::task::spawn_local(Rc::clone(self).send_all());
        }
        Ok(Reply::Later)
    }

    /// Sends blobs until none is left, or the connection has ended.
    async fn send_all(self: Rc<Self>) {
        while self.peer.link().drained(WAITING_BYTES_MAX).await {
            let next = self.queue.borrow_mut().next_turn();
            let Some(mut download) = next else { return };
            let storage = Arc::clone(self.peer.storage());
            let read = move || {
                let window = download.read(&storage);
                (download, window)
            };
            match self.peer.jobs.run_blocking(read).await {
                Some((download, window)) => {
                    if self.peer.jobs.is_gone() {
                        return;
                    }
                    self.send_window(download, window);
                    self.peer.link().wake();
                }
                None => return tracing::error!("a blob was lost"),
            }
        }
    }

    /// Sends a window, or the error of its read.
    fn send_window(&self, download: Download, window: Result<Window, StorageError>) {
        match window {
            Ok(window) => {
                let encoded = self.encode_window(&download, &window);
                self.peer.replies.check_sent(encoded);
                let statistics = self.peer.statistics();
                statistics.blob_bytes_sent.add(window.bytes.len() as u64);
                statistics.blobs_sent.add(u64::from(window.is_last));
                if !window.is_last {
                    return self.queue.borrow_mut().turns.push_back(download);
                }
                self.peer.replies.reply(&download.reply_to, &Value::None);
            }
            Err(error) => {
                // Damage is logged once, when it is found.
                let is_logged = matches!(
                    error,
                    StorageError::Blob(
                        BlobError::Missing { .. }
                            | BlobError::Length { .. }
                            | BlobError::Sum { .. }
                    )
                );
                if !is_logged {
                    tracing::error!(oid = %download.oid, serial = %download.serial, %error,
                        "cannot send a blob");
                }
                self.peer.replies.reply_error(&download.reply_to, &error.into());
            }
        }
        self.peer.jobs.end();
        self.queue.borrow_mut().ended(&download);
    }

    fn encode_window(&self, download: &Download, window: &Window) -> Result<(), CodecError> {
        let Download { oid, serial, .. } = *download;
        let encoding = self.peer.replies.encoding();
        let mut output = self.peer.link().output();
        if window.is_first {
            encode_blob_notice(encoding, output.buffer(), BlobNotice::Start, oid, serial)?;
        }
        for start in (0..window.bytes.len()).step_by(CHUNK_BYTES) {
            let end = window.bytes.len().min(start + CHUNK_BYTES);
            blob_chunk_head(encoding, output.buffer(), oid, serial, end - start)?;
            output.push(window.bytes.slice(start..end));
            blob_chunk_tail(encoding, output.buffer());
        }
        if window.is_last {
            encode_blob_notice(encoding, output.buffer(), BlobNotice::Stop, oid, serial)?;
        }
        Ok(())
    }
}

impl Queue {
    fn add(&mut self, download: Download) {
        let blob = (download.oid, download.serial);
        // A chunk only names its blob, so two downloads of one blob must not be mixed.
        if self.under_way.len() < AT_ONCE_MAX && !self.under_way.contains(&blob) {
            self.under_way.push(blob);
            self.turns.push_back(download);
        } else {
            self.waiting.push_back(download);
        }
    }

    fn next_turn(&mut self) -> Option<Download> {
        let next = self.turns.pop_front();
        self.sending = next.is_some();
        next
    }

    fn ended(&mut self, download: &Download) {
        let blob = (download.oid, download.serial);
        self.under_way.retain(|other| *other != blob);
        let next = self
            .waiting
            .iter()
            .position(|waiting| !self.under_way.contains(&(waiting.oid, waiting.serial)));
        if let Some(next) = next.and_then(|place| self.waiting.remove(place)) {
            self.add(next);
        }
    }
}

impl Download {
    /// Reads the next window. Blocking.
    fn read(&mut self, storage: &Database) -> Result<Window, StorageError> {
        let is_first = self.blob.is_none();
        let directory = blobs_of(storage)?;
        let mut blob = match self.blob.take() {
            Some(blob) => blob,
            None => BlobReading::new(directory.open_committed(self.oid, self.serial)?),
        };
        let bytes = directory.read_on(&mut blob, WINDOW_BYTES)?;
        let is_last = blob.left() == 0;
        self.blob = Some(blob);
        Ok(Window { bytes: bytes.into(), is_first, is_last })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::call::Method;

    fn download(oid: u64) -> Download {
        let reply_to = ReplyTo { id: None, method: Method::SendBlob, asked: Instant::now() };
        Download { oid: Oid(oid), serial: Tid(1), reply_to, blob: None }
    }

    fn add(downloads: &mut Queue, oids: impl IntoIterator<Item = u64>) {
        oids.into_iter().for_each(|oid| downloads.add(download(oid)));
    }

    #[test]
    fn so_many_at_once_take_turns_and_the_others_follow_in_order() {
        let mut downloads = Queue::default();
        let count = 3 * AT_ONCE_MAX as u64;
        add(&mut downloads, 0..count);
        for expected in 0..count {
            // Each gets another turn.
            for _ in 0..downloads.turns.len() {
                let turn = downloads.next_turn().unwrap();
                downloads.turns.push_back(turn);
            }
            let turn = downloads.next_turn().unwrap();
            assert_eq!(turn.oid, Oid(expected));
            assert!(downloads.under_way.len() <= AT_ONCE_MAX);
            downloads.ended(&turn);
        }
        assert!(downloads.next_turn().is_none());
        assert!(!downloads.sending && downloads.under_way.is_empty());
    }

    #[test]
    fn one_blob_asked_for_twice_is_sent_once_after_the_other() {
        let mut downloads = Queue::default();
        add(&mut downloads, [7, 7, 8, 7]);
        let mut ended = Vec::new();
        while let Some(turn) = downloads.next_turn() {
            assert!(downloads.turns.iter().all(|other| other.oid != turn.oid));
            ended.push(turn.oid.0);
            downloads.ended(&turn);
        }
        assert_eq!(ended, [7, 8, 7, 7]);
    }
}
