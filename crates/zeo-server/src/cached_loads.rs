//! The hottest path: loads of current revisions that are in memory.

use std::ops::ControlFlow;

use zodium_net::Output;
use zodium_storage::{LOOKED_UP_TOGETHER, ResidentRevision};
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::frame::{HEADER_LENGTH, Peek, peek_frame};
use zodium_zeo::codec::{CodecError, Encoding, LoadBefore, decode_load_before};

use crate::call::Method;
use crate::loads::put_revision;
use crate::peer::Peer;

/// Consecutive requests, which are looked up together.
struct Loads {
    loads: [LoadBefore; LOOKED_UP_TOGETHER],
    oids: [Oid; LOOKED_UP_TOGETHER],
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
    let mut output = link.output();
    let (mut consumed, mut answered) = (0, 0);
    peer.storage().reader().read_resident(&mut |revisions| {
        while loads.count > 0 {
            let mut is_answered = true;
            revisions.look_up(loads.oids(), &mut |number, revision| {
                let load = &loads.loads[number];
                is_answered = !link.would_be_congested(&output)
                    && revision.is_some_and(|revision| {
                        revision.serial < load.before
                            && put_resident(encoding, &mut output, load, &revision).is_ok()
                    });
                if !is_answered {
                    return ControlFlow::Break(());
                }
                consumed += loads.frame_bytes;
                answered += 1;
                ControlFlow::Continue(())
            });
            if !is_answered {
                break;
            }
            loads = Loads::decode(encoding, &bytes[consumed..], frame_bytes_max);
        }
    });
    peer.tally.count_times(Method::LoadBefore, answered);
    consumed
}

impl Loads {
    /// Decodes the loads at the beginning of `bytes`, as many as are looked up together.
    #[inline]
    fn decode(encoding: Encoding, bytes: &[u8], frame_bytes_max: u32) -> Loads {
        let none = LoadBefore { oid: Oid(0), before: Tid::ZERO };
        let (loads, oids) = ([none; LOOKED_UP_TOGETHER], [Oid(0); LOOKED_UP_TOGETHER]);
        let mut decoded = Loads { loads, oids, count: 0, frame_bytes: 0 };
        let mut rest = bytes;
        for (place, oid) in decoded.loads.iter_mut().zip(&mut decoded.oids) {
            let Ok(Peek::Complete(payload)) = peek_frame(rest, frame_bytes_max) else { break };
            let Some(load) = decode_load_before(encoding, payload) else { break };
            (*place, *oid) = (load, load.oid);
            decoded.count += 1;
            decoded.frame_bytes = HEADER_LENGTH + payload.len();
            rest = &rest[decoded.frame_bytes..];
        }
        decoded
    }

    #[inline]
    fn oids(&self) -> &[Oid] {
        &self.oids[..self.count]
    }
}

#[inline]
fn put_resident(
    encoding: Encoding,
    output: &mut Output,
    load: &LoadBefore,
    revision: &ResidentRevision<'_>,
) -> Result<(), CodecError> {
    let (data, share) = (revision.data, || (revision.share)());
    put_revision(encoding, output, &load.id(), (data, share), revision.serial, None)
}
