//! The table of all messages, and the type of any of them.

use crate::error::DecodeError;
use crate::messages::*;
use crate::wire::{Decode, Encode, Reader, Writer};

/// What a message is to the request-answer scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Is answered with the answer of its code, or with [`Error`].
    Request,
    /// Is answered with [`Error`], also on success.
    Command,
    /// Is not answered.
    Notification,
    /// Answers the request with its id.
    Answer,
}

/// Declares the type of any message, and how it is read and written.
macro_rules! messages {
    (<$any:lifetime> $($code:literal $kind:ident $name:ident $(<$lifetime:lifetime>)?)*) => {
        /// Any message.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "the types inside are documented")]
        pub enum Message<$any> {
            $($name($name $(<$lifetime>)?),)*
        }

        impl<$any> Message<$any> {
            /// Code, name and kind of every message.
            pub const ALL: &'static [(u16, &'static str, Kind)] =
                &[$(($code, stringify!($name), Kind::$kind)),*];

            /// The code; answers have that of their request with the bit 0x8000.
            pub fn code(&self) -> u16 {
                match self {
                    $(Message::$name(_) => $code,)*
                }
            }

            /// The name.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Message::$name(_) => stringify!($name),)*
                }
            }

            /// What the message is to the request-answer scheme.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Message::$name(_) => Kind::$kind,)*
                }
            }

            pub(crate) fn encode_arguments(&self, out: &mut Writer<'_>) {
                match self {
                    $(Message::$name(message) => message.encode(out),)*
                }
            }

            #[cfg(test)]
            pub(crate) fn sample(
                code: u16,
                choices: &mut crate::samples::Choices<'_>,
            ) -> Option<Message<$any>> {
                match code {
                    $($code => Some(Message::$name(crate::samples::Sample::sample(choices))),)*
                    _ => None,
                }
            }
        }

        /// Decodes the arguments of the message with this code, up to the end of the frame.
        pub(crate) fn decode_arguments<$any>(
            code: u16,
            reader: &mut Reader<$any>,
        ) -> Result<Message<$any>, DecodeError> {
            match code {
                $($code => $name::decode(reader)
                    .map(Message::$name)
                    .map_err(|mismatch| DecodeError::argument(stringify!($name), mismatch)),)*
                _ => Err(DecodeError::UnknownCode { code }),
            }
        }

        $(
            impl<$any> From<$name $(<$lifetime>)?> for Message<$any> {
                fn from(message: $name $(<$lifetime>)?) -> Message<$any> {
                    Message::$name(message)
                }
            }
        )*
    };
}

messages! { <'a>
    0x8000 Answer Error<'a>
    0x0001 Request RequestIdentification<'a>
    0x8001 Answer AcceptIdentification
    0x0002 Request Ping
    0x8002 Answer Pong
    0x0003 Notification CloseClient
    0x0004 Request AskPrimary
    0x8004 Answer AnswerPrimary
    0x0005 Notification NotPrimaryMaster
    0x0006 Notification NotifyNodeInformation
    0x0007 Request AskRecovery
    0x8007 Answer AnswerRecovery
    0x0008 Request AskLastIDs
    0x8008 Answer AnswerLastIDs
    0x0009 Request AskPartitionTable
    0x8009 Answer AnswerPartitionTable
    0x000a Notification SendPartitionTable
    0x000b Notification NotifyPartitionChanges
    0x000c Notification StartOperation
    0x000d Notification StopOperation
    0x000e Request AskUnfinishedTransactions
    0x800e Answer AnswerUnfinishedTransactions
    0x000f Request AskLockedTransactions
    0x800f Answer AnswerLockedTransactions
    0x0010 Request AskFinalTID
    0x8010 Answer AnswerFinalTID
    0x0011 Notification ValidateTransaction
    0x0012 Request AskBeginTransaction
    0x8012 Answer AnswerBeginTransaction
    0x0013 Command FailedVote
    0x0014 Request AskFinishTransaction
    0x8014 Answer AnswerTransactionFinished
    0x0015 Request AskLockInformation
    0x8015 Answer AnswerInformationLocked
    0x0016 Notification InvalidateObjects
    0x0017 Notification InvalidatePartitions
    0x0018 Notification NotifyUnlockInformation
    0x0019 Request AskNewOIDs
    0x8019 Answer AnswerNewOIDs
    0x001a Notification NotifyDeadlock
    0x001b Request AskRelockObject
    0x801b Answer AnswerRelockObject<'a>
    0x001c Request AskStoreObject<'a>
    0x801c Answer AnswerStoreObject
    0x001d Notification AbortTransaction
    0x001e Request AskStoreTransaction<'a>
    0x801e Answer AnswerStoreTransaction
    0x001f Request AskVoteTransaction
    0x801f Answer AnswerVoteTransaction
    0x0020 Request AskObject
    0x8020 Answer AnswerObject<'a>
    0x0021 Request AskTIDs
    0x8021 Answer AnswerTIDs
    0x0022 Request AskTransactionInformation
    0x8022 Answer AnswerTransactionInformation<'a>
    0x0023 Request AskObjectHistory
    0x8023 Answer AnswerObjectHistory
    0x0024 Request AskPartitionList
    0x8024 Answer AnswerPartitionList
    0x0025 Request AskNodeList
    0x8025 Answer AnswerNodeList
    0x0026 Command SetNodeState
    0x0027 Command AddPendingNodes
    0x0028 Request TweakPartitionTable
    0x8028 Answer AnswerTweakPartitionTable
    0x0029 Command SetNumReplicas
    0x002a Command SetClusterState
    0x002b Command Repair
    0x002c Notification NotifyRepair
    0x002d Notification NotifyClusterInformation
    0x002e Request AskClusterState
    0x802e Answer AnswerClusterState
    0x002f Request AskObjectUndoSerial
    0x802f Answer AnswerObjectUndoSerial
    0x0030 Request AskTIDsFrom
    0x8030 Answer AnswerTIDsFrom
    0x0031 Request AskOIDsFrom
    0x8031 Answer AnswerOIDsFrom
    0x0032 Request WaitForPack
    0x8032 Answer WaitedForPack
    0x0033 Request AskPackOrders
    0x8033 Answer AnswerPackOrders
    0x0034 Notification NotifyPackSigned
    0x0035 Notification NotifyPackCompleted
    0x0036 Command CheckReplicas
    0x0037 Notification CheckPartition<'a>
    0x0038 Request AskCheckTIDRange
    0x8038 Answer AnswerCheckTIDRange
    0x0039 Request AskCheckSerialRange
    0x8039 Answer AnswerCheckSerialRange
    0x003a Notification NotifyPartitionCorrupted
    0x003b Notification NotifyReady
    0x003c Request AskLastTransaction
    0x803c Answer AnswerLastTransaction
    0x003d Request AskCheckCurrentSerial
    0x803d Answer AnswerCheckCurrentSerial
    0x003e Notification NotifyTransactionFinished
    0x003f Notification Replicate<'a>
    0x0040 Notification NotifyReplicationDone
    0x0041 Request AskFetchTransactions
    0x8041 Answer AnswerFetchTransactions
    0x0042 Request AskFetchObjects
    0x8042 Answer AnswerFetchObjects
    0x0043 Notification AddTransaction<'a>
    0x0044 Notification AddObject<'a>
    0x0045 Command Truncate
    0x0046 Notification FlushLog
    0x0047 Request AskMonitorInformation
    0x8047 Answer AnswerMonitorInformation<'a>
    0x0048 Notification NotifyMonitorInformation<'a>
    0x0049 Notification NotifyUpstreamAdmin
}

impl Message<'_> {
    /// Whether a node still handles the message when its connection has been closed meanwhile.
    ///
    /// Answers and notifications are; most requests are not, since no answer can be sent.
    pub fn outlives_connection(&self) -> bool {
        match self {
            Message::AskFinishTransaction(_)
            | Message::AskLockInformation(_)
            | Message::SetNodeState(_)
            | Message::AddPendingNodes(_)
            | Message::SetNumReplicas(_)
            | Message::SetClusterState(_) => true,
            _ => matches!(self.kind(), Kind::Notification | Kind::Answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_all_messages() {
        assert_eq!(Message::ALL.len(), 111);
        let has = |code| Message::ALL.iter().filter(|(other, ..)| *other == code).count();
        for code in 1..=0x49 {
            assert_eq!(has(code), 1, "{code:#06x}");
            let (.., kind) = Message::ALL.iter().find(|(other, ..)| *other == code).unwrap();
            assert_eq!(has(code | 0x8000), usize::from(*kind == Kind::Request), "{code:#06x}");
        }
        assert!(
            Message::ALL
                .iter()
                .all(|(code, _, kind)| { (code & 0x8000 != 0) == (*kind == Kind::Answer) })
        );
    }
}
