//! The hottest path: loads of current revisions that are in memory.

use zodium_filestorage::{LOOKED_UP_TOGETHER, LentRevision};
use zodium_net::Output;
use zodium_types::{Oid, Tid};

use crate::call::Method;
use crate::loads::put_revision;
use crate::peer::Peer;
use zodium_zeo::codec::frame::{HEADER_LENGTH, Peek, peek_frame};
use zodium_zeo::codec::{CodecError, Encoding, LoadBefore, decode_load_before};

/// Consecutive requests, which are looked up together.
struct Loads {
    loads: [LoadBefore; LOOKED_UP_TOGETHER],
    count: usize,
    /// The length of each of their frames.
    frame_bytes: usize,
}

/// Answers the loads at the beginning of `bytes` while the requested revisions are current and in
/// memory. Gives the number of bytes taken.
pub(crate) fn answer_cached_loads(peer: &Peer, bytes: &[u8], frame_bytes_max: u32) -> usize {
    let (encoding, link) = (peer.replies.encoding(), peer.link());
    let mut loads = Loads::decode(encoding, bytes, frame_bytes_max);
    if loads.count == 0 {
        return 0;
    }
    let revisions = peer.storage().file().cached_revisions();
    let mut output = link.output();
    let (mut consumed, mut answered) = (0, 0);
    'batch: while loads.count > 0 {
        let found = revisions.look_up(loads.iter().map(|load| load.oid));
        for (number, load) in loads.iter().enumerate() {
            if !link.would_be_congested(&output)
                && let Some(revision) = found.current(number, load.before)
                && put_lent(encoding, &mut output, load, &revision).is_ok()
            {
                consumed += loads.frame_bytes;
                answered += 1;
            } else {
                break 'batch;
            }
        }
        loads = Loads::decode(encoding, &bytes[consumed..], frame_bytes_max);
    }
    peer.tally.count_times(Method::LoadBefore, answered);
    consumed
}

impl Loads {
    /// Decodes the loads at the beginning of `bytes`, as many as are looked up together.
    #[inline]
    fn decode(encoding: Encoding, bytes: &[u8], frame_bytes_max: u32) -> Loads {
        let none = LoadBefore { oid: Oid(0), before: Tid::ZERO };
        let mut decoded = Loads { loads: [none; LOOKED_UP_TOGETHER], count: 0, frame_bytes: 0 };
        let mut rest = bytes;
        for place in &mut decoded.loads {
            let Ok(Peek::Complete(payload)) = peek_frame(rest, frame_bytes_max) else { break };
            let Some(load) = decode_load_before(encoding, payload) else { break };
            *place = load;
            decoded.count += 1;
            decoded.frame_bytes = HEADER_LENGTH + payload.len();
            rest = &rest[decoded.frame_bytes..];
        }
        decoded
    }

    #[inline]
    fn iter(&self) -> impl Iterator<Item = &LoadBefore> {
        self.loads.iter().take(self.count)
    }
}

#[inline]
fn put_lent(
    encoding: Encoding,
    output: &mut Output,
    load: &LoadBefore,
    revision: &LentRevision<'_>,
) -> Result<(), CodecError> {
    let (data, share) = (revision.data(), || revision.shared_data());
    put_revision(encoding, output, &load.id(), (data, share), revision.serial(), None)
}
