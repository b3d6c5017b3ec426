//! The hottest path: loads of current revisions that are in memory.

use std::ops::ControlFlow;

use zodium_net::Output;
use zodium_storage::{LOOKED_UP_TOGETHER, ResidentRevision};
use zodium_types::{Oid, Tid};

use super::call::Method;
use super::reads::put_revision;
use super::session::Session;
use crate::codec::frame::{HEADER_LENGTH, Peek, peek_frame};
use crate::codec::{CodecError, Encoding, LoadBefore, decode_load_before};

/// Consecutive requests, which are looked up together.
struct Loads {
    loads: [LoadBefore; LOOKED_UP_TOGETHER],
    oids: [Oid; LOOKED_UP_TOGETHER],
    count: usize,
    /// The length of each of their frames.
    frame_bytes: usize,
}

impl Session {
    /// Answers the loads at the beginning of `bytes` while the requested revisions are current and
    /// in memory. Gives the number of bytes taken.
    pub(crate) fn answer_cached_loads(&self, bytes: &[u8]) -> usize {
        let (Some(encoding), Some(subscriber)) = (self.encoding, self.subscriber()) else {
            return 0;
        };
        let frame_bytes_max = self.frame_bytes_max();
        let mut loads = Loads::decode(encoding, bytes, frame_bytes_max);
        if loads.count == 0 {
            return 0;
        }
        let mut output = self.link.output();
        let (mut consumed, mut answered) = (0, 0);
        subscriber.storage.reader().read_resident(&mut |revisions| {
            while loads.count > 0 {
                let mut is_answered = true;
                revisions.look_up(loads.oids(), &mut |number, revision| {
                    is_answered = !self.link.would_be_congested(&output)
                        && revision.is_some_and(|revision| {
                            let load = &loads.loads[number];
                            revision.serial < load.before
                                && put_lent(encoding, &mut output, load, &revision).is_ok()
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
        self.local.tally.count_times(Method::LoadBefore, answered);
        consumed
    }
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
fn put_lent(
    encoding: Encoding,
    output: &mut Output,
    load: &LoadBefore,
    revision: &ResidentRevision<'_>,
) -> Result<(), CodecError> {
    let (data, share) = (revision.data, || (revision.share)());
    put_revision(encoding, output, &load.id(), (data, share), revision.serial, None)
}
