//! Faulty nodes, to test the checks: messages that are lost or changed on their way.

use bytes::{Bytes, BytesMut};
use sha1::{Digest, Sha1};
use zodium_neo::messages::{
    AnswerLockedTransactions, AnswerObject, AnswerRecovery, AskStoreObject, RequestIdentification,
};
use zodium_neo::{Checksum, Map, Message, NodeType, Packet, TableId, encode};
use zodium_types::Tid;

use super::context::Context;
use super::plan::ClusterBug;

/// One message in so many is lost.
const LOSSES: u64 = 20;

/// What a faulty node sends instead of a packet; `None`: nothing.
pub(super) fn sent(context: &Context, packet: Bytes, decoded: &Packet<'_>) -> Option<Bytes> {
    let is_lost = || context.chance.number(1..=LOSSES) == 1;
    match (context.plan.bug, &decoded.message) {
        (ClusterBug::LostAnswers, Message::AnswerStoreObject(_)) if is_lost() => None,
        (ClusterBug::LostRows, Message::AddObject(_)) if is_lost() => None,
        (ClusterBug::WrongBytes, Message::AnswerObject(answer)) if !answer.data.is_empty() => {
            let mut data = answer.data.to_vec();
            data[0] ^= 1;
            let checksum = Checksum(Sha1::digest(&data).into());
            let changed = AnswerObject { data: &data, checksum, ..answer.clone() };
            let mut bytes = BytesMut::new();
            encode(decoded.id, changed, &mut bytes).ok()?;
            Some(bytes.freeze())
        }
        _ => Some(packet),
    }
}

/// What a faulty node takes a packet for; `None`: it does not notice it.
pub(super) fn received<'a>(context: &Context, packet: Packet<'a>) -> Option<Packet<'a>> {
    let Packet { id, message } = packet;
    match (context.plan.bug, message) {
        (ClusterBug::LostUnlocks, Message::NotifyUnlockInformation(_))
            if context.chance.number(1..=LOSSES) == 1 =>
        {
            None
        }
        (ClusterBug::NoConflicts, Message::AskStoreObject(store)) => {
            let serial = context.history.newest(store.oid, Tid::MAX);
            let message = AskStoreObject { serial, ..store }.into();
            Some(Packet { id, message })
        }
        (_, message) => Some(Packet { id, message }),
    }
}

/// What a faulty master takes a packet for; `None`: it does not notice it.
pub(super) fn told<'a>(context: &Context, packet: Packet<'a>) -> Option<Packet<'a>> {
    let Packet { id, message } = packet;
    let message = match (context.plan.bug, message) {
        (ClusterBug::LostLocks, Message::AnswerLockedTransactions(_)) => {
            AnswerLockedTransactions { transactions: Map::default() }.into()
        }
        (ClusterBug::OldTables, Message::AnswerRecovery(answer))
            if answer.table.is_some() && context.chance.permille(500) =>
        {
            AnswerRecovery { table: Some(TableId(1)), ..answer }.into()
        }
        (
            ClusterBug::DeafMasters,
            Message::RequestIdentification(RequestIdentification {
                node_type: NodeType::Master,
                ..
            }),
        ) => return None,
        (_, message) => message,
    };
    Some(Packet { id, message })
}
