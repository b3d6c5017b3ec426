//! A faulty server, made from the real one: its messages are changed on their way to a client.
//!
//! Only for tests of the checks themselves. Each change is a bug that a server could have, and that
//! the simulation must detect.

use std::collections::VecDeque;

use bytes::BytesMut;
use zodium_zeo::codec::frame::HEADER_LENGTH;
use zodium_zeo::codec::{Encoding, MessageId, Reply, ServerMessage, decode_server_message};

use crate::plan::InjectedBug;
use crate::random::Chance;

/// Number of other messages after which a held-back invalidation is sent.
const HELD_BACK_MESSAGES: usize = 3;

/// The messages held back on one connection.
#[derive(Default)]
pub(crate) struct FaultInjector {
    held: VecDeque<(BytesMut, usize)>,
}

enum Kind {
    Invalidation,
    /// The reply to a load.
    Loaded,
    /// The reply to another request.
    Answer(u64),
    Other,
}

impl FaultInjector {
    /// What the client receives instead of a frame. `vote` is the id of the vote whose reply it
    /// waits for.
    pub(crate) fn change(
        &mut self,
        frame: &[u8],
        bug: InjectedBug,
        encoding: Encoding,
        vote: Option<u64>,
        chance: &Chance,
    ) -> Vec<BytesMut> {
        let kind = kind(encoding, &frame[HEADER_LENGTH..]);
        let mut frame = BytesMut::from(frame);
        match (bug, kind) {
            (InjectedBug::LateInvalidations | InjectedBug::NoCatchUp, Kind::Invalidation) => {
                self.held.push_back((frame, HELD_BACK_MESSAGES));
                return Vec::new();
            }
            (InjectedBug::LostInvalidations, Kind::Invalidation) if chance.permille(100) => {
                return Vec::new();
            }
            (InjectedBug::RepeatedInvalidations, Kind::Invalidation) if chance.permille(100) => {
                return vec![frame.clone(), frame];
            }
            (InjectedBug::LostReplies, Kind::Answer(id)) if vote == Some(id) => {
                return Vec::new();
            }
            (InjectedBug::WrongBytes, Kind::Loaded) if chance.permille(10) => {
                // Within the data: both encodings put fewer bytes than that after them.
                let place = frame.len() - 24;
                frame[place] ^= 1;
            }
            _ => {}
        }
        let mut frames = vec![frame];
        for (_, messages) in &mut self.held {
            *messages -= 1;
        }
        while let Some((held, _)) = self.held.pop_front_if(|(_, messages)| *messages == 0) {
            frames.push(held);
        }
        frames
    }
}

fn kind(encoding: Encoding, payload: &[u8]) -> Kind {
    match decode_server_message(encoding, payload) {
        Ok(ServerMessage::Notice(notice)) if notice.name == "invalidateTransaction" => {
            Kind::Invalidation
        }
        Ok(ServerMessage::Reply(Reply { id: MessageId::Load { .. }, .. })) => Kind::Loaded,
        Ok(ServerMessage::Reply(Reply { id: MessageId::Number(id), .. })) => Kind::Answer(id),
        _ => Kind::Other,
    }
}
