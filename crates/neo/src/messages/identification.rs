//! The beginning and the end of connections, barriers, and errors.

use crate::refusals::for_log;
use crate::values::{Address, ErrorCode, Extra, NodeId, NodeType, Value};
use crate::wire::record;

impl<'a> Error<'a> {
    /// The message for a log line. The peer chooses how long it is.
    pub fn for_log(&self) -> &'a str {
        for_log(self.message)
    }
}

record! {
    /// Answers any request that failed, and commands that succeeded. Any to any.
    pub struct Error<'a> {
        /// What happened; [`ErrorCode::Ack`] is success.
        code: ErrorCode,
        /// Details for people; for some codes the oid in hexadecimal digits.
        message: &'a str,
    }

    /// Introduces the node that connects. The first message of a connection, but to admins from
    /// commands. Any to any.
    pub struct RequestIdentification<'a> {
        /// The kind of node that connects.
        node_type: NodeType,
        /// Its id if it has one: a storage has it from its database.
        id: Option<NodeId>,
        /// Where it listens; a client does not.
        address: Option<Address>,
        /// The name of the cluster, which must be the same. A storage of a backup cluster gives
        /// that of the upstream cluster.
        cluster: &'a str,
        /// When the master identified this node, in seconds since 1970, as the master says; `None`
        /// to the master. Between masters: the time of the election.
        id_timestamp: Option<f64>,
        /// Further properties: see [`RequestIdentification::backup`] and the like.
        extra: Extra<'a>,
    }

    /// The node is accepted. The primary master then sends
    /// [`NotifyNodeInformation`](crate::messages::NotifyNodeInformation).
    pub struct AcceptIdentification {
        /// The kind of the node that accepts.
        node_type: NodeType,
        /// Its id; `None` to nodes of another cluster.
        id: Option<NodeId>,
        /// The id of the node that connected: the old one, or one that the master gives.
        your_id: Option<NodeId>,
    }

    /// Asks for [`Pong`], to know that what was sent before has been handled. Any to any.
    pub struct Ping {}

    /// Answers [`Ping`].
    pub struct Pong {}

    /// The connection is no longer needed: the peer may close it when it does not need it either.
    /// Any to any.
    pub struct CloseClient {}

    /// Asks for the primary master's id. ctl to A.
    pub struct AskPrimary {}

    /// The primary master.
    pub struct AnswerPrimary {
        /// Its id.
        id: NodeId,
    }

    /// This master is not the primary one; the connection ends. SM to any.
    pub struct NotPrimaryMaster {
        /// The place of the primary master in `masters`, from 0, if it is known.
        primary: Option<u32>,
        /// All known masters.
        masters: Vec<Address>,
    }
}

impl<'a> RequestIdentification<'a> {
    /// The name of the backup cluster whose master connects as a client.
    pub fn backup(&self) -> Option<&'a [u8]> {
        self.extra.get(&"backup").and_then(Value::as_bytes)
    }

    /// Whether a client asks for reading only: the default of a backup cluster's master alone.
    pub fn is_read_only(&self) -> bool {
        let asked = self.extra.get(&"read_only").and_then(Value::as_bool);
        asked.unwrap_or_else(|| self.backup().is_some())
    }
}
