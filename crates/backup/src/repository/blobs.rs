//! Blobs of a repository: each is a list of pieces, which are objects like chunks.

use std::io::{ErrorKind, Read};

use serde::{Deserialize, Serialize};
use zodium_types::{Oid, Tid};

use super::chunk_store::{ChunkStore, tid_of};
use super::hash::Hash;
use crate::BackupError;

/// Bytes of a piece; the last one of a blob has what is left.
const PIECE_BYTES: usize = 4 << 20;

/// A blob, as a chunk lists it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Blob {
    oid: String,
    tid: String,
    pub(super) bytes: u64,
    pub(super) pieces: Vec<Hash>,
}

impl Blob {
    /// Stores what `input` reads; the blob, and the bytes that were written. `None` if it is
    /// damaged: the pieces that were stored before that was found are of no point, for a prune.
    pub(super) fn store(
        store: &ChunkStore<'_>,
        oid: Oid,
        tid: Tid,
        input: &mut dyn Read,
    ) -> Result<Option<(Blob, u64)>, BackupError> {
        let (mut bytes, mut stored, mut pieces) = (0, 0, Vec::new());
        let mut piece = Vec::new();
        loop {
            piece.clear();
            match read_piece(input, &mut piece) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::InvalidData => return Ok(None),
                Err(error) => {
                    let what = format!("blob {oid} of {tid}: cannot read it: {error}");
                    return Err(BackupError::Refused(what));
                }
            }
            if piece.is_empty() {
                let (oid, tid) = (oid.to_string(), tid.to_string());
                return Ok(Some((Blob { oid, tid, bytes, pieces }, stored)));
            }
            let (hash, written) = store.put(&piece)?;
            bytes += piece.len() as u64;
            stored += written;
            pieces.push(hash);
        }
    }

    /// The object and the transaction that it is of.
    pub(super) fn place(&self) -> (Oid, Tid) {
        (Oid(tid_of(&self.oid).0), tid_of(&self.tid))
    }

    /// The pieces, with their lengths.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (&Hash, u64)> {
        let bytes = PIECE_BYTES as u64;
        let starts = (0..).step_by(PIECE_BYTES);
        let length = move |start: u64| self.bytes.saturating_sub(start).min(bytes);
        self.pieces.iter().zip(starts).map(move |(hash, start)| (hash, length(start)))
    }

    /// Shows its bytes; an error if they are damaged.
    pub(super) fn read(
        &self,
        store: &ChunkStore<'_>,
        visit: &mut dyn FnMut(&[u8]) -> Result<(), BackupError>,
    ) -> Result<u64, BackupError> {
        let mut bytes = 0;
        for (hash, length) in self.pieces() {
            let piece = store.get(hash, length)?;
            bytes += piece.len() as u64;
            visit(&piece)?;
        }
        match bytes == self.bytes {
            true => Ok(bytes),
            false => Err(BackupError::damaged(
                format!("blob {} of {}", self.oid, self.tid),
                format!("{bytes} bytes, {} are listed", self.bytes),
            )),
        }
    }
}

/// Reads a piece, or what is left.
fn read_piece(input: &mut dyn Read, piece: &mut Vec<u8>) -> std::io::Result<()> {
    loop {
        match input.take((PIECE_BYTES - piece.len()) as u64).read_to_end(piece) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
