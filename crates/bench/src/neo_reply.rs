//! A client's side of loads from a NEO storage node: requests, and the check of their answers.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use bytes::BytesMut;
use zodium_neo::messages::AskObject;
use zodium_neo::{Checksum, Message, MessageIds, Packet, Scan, Scanner, encode};
use zodium_types::{Oid, Tid};

use crate::dataset::Dataset;
use crate::reply::WrongReply;
use crate::verifier::Verifier;

/// The SHA-1 of all objects, by oid.
pub(crate) type Checksums = Arc<[Checksum]>;

/// Loads over an identified connection.
#[derive(Debug)]
pub(crate) struct Loading {
    ids: MessageIds,
    scanner: Scanner,
    checksums: Checksums,
    /// Stock clients ask for the record before the transaction after the last one.
    before: Tid,
}

impl Loading {
    /// Loads over a connection that has been identified, which took one message.
    pub(crate) fn new(checksums: &Checksums, dataset: &Dataset) -> Loading {
        let mut ids = MessageIds::default();
        ids.take();
        let (scanner, before) = (Scanner::default(), dataset.last_tid().next());
        Loading { ids, scanner, checksums: Arc::clone(checksums), before }
    }

    pub(crate) fn put_request(&mut self, out: &mut BytesMut, oid: Oid) -> Result<()> {
        let message = AskObject { oid, at: None, before: Some(self.before) };
        Ok(encode(self.ids.take(), message, out)?)
    }

    /// Takes the first message off `bytes`, and checks it. Gives the object and the length of the
    /// message, or nothing while it is not whole.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        dataset: &Dataset,
        verifier: &mut Verifier,
    ) -> Result<Option<(Oid, usize)>> {
        let Scan::Complete(frame) = self.scanner.scan(bytes)? else { return Ok(None) };
        let answer = match Packet::decode(frame)?.message {
            Message::AnswerObject(answer) => answer,
            Message::Error(error) => {
                bail!("the node answered a load with {}: {}", error.code, error.message)
            }
            other => bail!("the node answered a load with {}", other.name()),
        };
        let (oid, stored) = (answer.oid, dataset.tid(answer.oid));
        let got = [Some(answer.serial), answer.next_serial];
        ensure!(got == [Some(stored), None], WrongReply::Revision { oid, stored, got });
        let checksum = usize::try_from(oid.0).ok().and_then(|oid| self.checksums.get(oid));
        ensure!(
            Some(&answer.checksum) == checksum && answer.compression == Some(0),
            "the answer for object {oid} has another SHA-1 or compression than was stored"
        );
        verifier.check(dataset, oid, answer.data).map_err(WrongReply::from)?;
        Ok(Some((oid, frame.bytes().len())))
    }
}
