//! Other storages: those that fetch from this node, its own sources, and replicas to compare with.

use tracing::{info, warn};
use zodium_neo::messages::{Error as ErrorMessage, Pong, RequestIdentification};
use zodium_neo::{ErrorCode, Extra, Message, NodeType};

use super::Node;
use crate::ConnectionId;
use crate::handling::{Handled, Refusal};
use crate::links::{Asked, Role};
use crate::reads::{Read, feeding};

impl Node {
    /// Handles a message of another storage.
    pub(super) fn storage_says(
        &mut self,
        from: (ConnectionId, u32),
        message: Message<'_>,
    ) -> Handled {
        let Node { links, cluster, commits, reading, .. } = self;
        match message {
            Message::Ping(_) => links.answer(from, Pong {}),
            Message::CloseClient(_) | Message::Pong(_) => {}
            Message::AskFetchTransactions(message) => {
                feeding::check_feeding(cluster, message.partition, ErrorCode::ReplicationError)?;
                let read = Read::Transactions(message);
                return reading.read_or_delay(links, cluster, commits, from, read);
            }
            Message::AskFetchObjects(message) => {
                return feeding::feed_objects(links, cluster, from, message);
            }
            Message::AskCheckTIDRange(message) => {
                return reading.read_or_delay(links, cluster, commits, from, Read::Sum(message));
            }
            Message::AskCheckSerialRange(message) => {
                return feeding::sum_serials(links, cluster, from, &message);
            }
            other => return self.source_answers(from, other),
        }
        Ok(())
    }

    /// Introduces the node to a storage that it has dialled.
    pub(super) fn identify_to_source(&mut self, connection: ConnectionId) {
        // Nodes of another cluster do not know this one.
        let upstream = match self.replication.cluster_of(connection) {
            Some(name) => Some(name).filter(|name| !name.is_empty()),
            None => self.checking.upstream_of(connection),
        };
        let id = self.cluster.id();
        let settings = self.cluster.settings();
        let request = RequestIdentification {
            node_type: NodeType::Storage,
            id: id.filter(|_| upstream.is_none()),
            address: Some(settings.address.clone()),
            cluster: upstream.unwrap_or(&settings.cluster),
            id_timestamp: id.and_then(|id| self.cluster.members().id_timestamp(id)),
            extra: Extra::default(),
        };
        self.links.ask(connection, request, Asked::Identification);
    }

    /// Handles a message of a storage that this node has dialled.
    pub(super) fn source_says(
        &mut self,
        from: (ConnectionId, u32),
        message: Message<'_>,
    ) -> Handled {
        let Message::AcceptIdentification(accepted) = message else {
            return self.storage_says(from, message);
        };
        if accepted.node_type != NodeType::Storage {
            return Err(Refusal::protocol("the source of a replication is no storage"));
        }
        if let Some(Role::Source { is_ready, .. }) = self.links.role_mut(from.0) {
            *is_ready = true;
        }
        self.replication.source_accepted(&mut self.links, from.0);
        self.checking.source_accepted(&mut self.links, from.0);
        Ok(())
    }

    /// Handles what a storage answers.
    fn source_answers(&mut self, from: (ConnectionId, u32), message: Message<'_>) -> Handled {
        let (connection, id) = from;
        match message {
            Message::Error(error) => {
                match self.links.answered((connection, id)) {
                    Some(Asked::Check) => self.check_lost(connection),
                    asked => self.refused_by_source(connection, asked, &error),
                }
                Ok(())
            }
            Message::AnswerCheckTIDRange(_) | Message::AnswerCheckSerialRange(_) => {
                self.links.answered((connection, id));
                let is_over = self.checking.sum_told(&mut self.links, from, &message);
                self.check_went_on(is_over);
                Ok(())
            }
            other => {
                let Node { links, cluster, commits, replication, .. } = self;
                let has_commits = !commits.is_empty();
                replication.source_says(links, cluster, from, other, has_commits)
            }
        }
    }

    fn refused_by_source(
        &mut self,
        connection: ConnectionId,
        asked: Option<Asked>,
        error: &ErrorMessage<'_>,
    ) {
        let (peer, code, reason) = (self.links.name_of(connection), error.code, error.for_log());
        // One that is not ready is so soon.
        let is_refusal = asked == Some(Asked::Fetch) && error.code != ErrorCode::NotReady;
        if is_refusal && self.replication.source_refused(connection) {
            warn!(peer, %code, reason, "sources of a replication refuse, trying again later");
        } else {
            info!(peer, %code, reason, "the source of a replication refuses");
        }
        self.links.close(connection);
    }

    /// The connection to a storage has ended.
    pub(super) fn storage_lost(&mut self, connection: ConnectionId) {
        self.replication.source_lost(&mut self.links, &self.cluster, connection);
        self.check_lost(connection);
    }

    fn check_lost(&mut self, connection: ConnectionId) {
        let is_over = self.checking.lost(&mut self.links, connection);
        self.check_went_on(is_over);
    }

    /// Begins to compare the next partition when a check is over.
    pub(crate) fn check_went_on(&mut self, is_over: bool) {
        if is_over {
            self.close_idle_sources();
            self.check_next();
        }
    }

    /// Begins to compare the next partition with its replicas, unless one is being compared.
    pub(super) fn check_next(&mut self) {
        while let Some(order) = self.checking.next(|tid| self.commits.is_locked_until(tid)) {
            let partition = order.partition();
            let Node { links, cluster, replication, checking, .. } = self;
            if let Err(reason) = checking.begin(links, cluster, replication.pause(), order) {
                warn!(%partition, reason, "a partition cannot be compared with its replicas");
                self.close_idle_sources();
            }
        }
    }

    /// Closes connections to sources when there is nothing to fetch. Those of a backup stay.
    pub(super) fn close_idle_sources(&mut self) {
        if self.replication.partition().is_some() || self.cluster.backup_tid().is_some() {
            return;
        }
        let sources = self.links.with(|role| matches!(role, Role::Source { .. }));
        for connection in sources.into_iter().filter(|one| !self.checking.uses(*one)) {
            self.links.close(connection);
        }
    }
}
