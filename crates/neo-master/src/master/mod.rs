//! The master: what it holds, and how events reach its parts.

mod administration;
mod clients;
mod masters;
mod phases;
mod storages;

use std::time::Duration;

use zodium_neo::messages::{
    AnswerClusterState, AnswerLastIDs, AnswerLastTransaction, AnswerRecovery, Pong,
};
use zodium_neo::{Address, ConnectionId, Message, NodeType, Packet, Request};

use crate::backup::Backup;
use crate::cluster::Cluster;
use crate::election::{self, Election};
use crate::handling::{Handled, Refusal};
use crate::identification::Newcomer;
use crate::packs::Packs;
use crate::peer::{Links, Role};
use crate::recovery::Recovery;
use crate::secondary::Secondary;
use crate::settings::Settings;
use crate::status::Counts;
use crate::transactions::Transactions;
use crate::troubles::Troubles;
use crate::{Output, Phase, Status, Stop};

/// A master of a NEO cluster.
#[derive(Debug)]
pub struct Master {
    cluster: Cluster,
    links: Links,
    phase: Phase,
    election: Election,
    recovery: Recovery,
    backup: Backup,
    transactions: Transactions,
    packs: Packs,
    troubles: Troubles,
    /// Operation stops when the event is handled.
    stops: Option<Stop>,
}

impl Master {
    /// Creates a master. It does nothing until [`Master::start`].
    pub fn new(settings: Settings) -> Master {
        Master {
            links: Links::default(),
            phase: Phase::Secondary(Secondary::default()),
            election: Election::default(),
            recovery: Recovery::default(),
            backup: Backup::new(settings.upstream.clone()),
            cluster: Cluster::new(settings),
            transactions: Transactions::default(),
            packs: Packs::default(),
            troubles: Troubles::default(),
            stops: None,
        }
    }

    /// The time is this, since 1970. It may go back.
    pub fn set_time(&mut self, now: Duration) {
        self.cluster.clock.set(now);
    }

    /// Begins, as a master that wants to be primary.
    pub fn start(&mut self) {
        self.play_primary();
        self.settle();
    }

    /// A peer has connected. `name` is its address, for log lines.
    pub fn accepted(&mut self, name: String) -> ConnectionId {
        self.links.accepted(name, Role::Stranger)
    }

    /// A connection that was dialled is there.
    pub fn connected(&mut self, connection: ConnectionId) {
        match self.links.role(connection) {
            Some(Role::Rival { .. }) => {
                self.election.challenge(&self.cluster, &mut self.links, connection);
            }
            Some(Role::Primary { .. }) => {
                election::identify(&self.cluster, &mut self.links, connection, None);
            }
            Some(Role::Upstream) => {
                self.backup.identify(&self.cluster, &mut self.links, connection);
            }
            _ => {}
        }
        self.handle_lost();
    }

    /// A connection has ended, or could not be made.
    pub fn closed(&mut self, connection: ConnectionId) {
        if let Some(lost) = self.links.ended(connection) {
            self.peer_lost(connection, &lost.role);
        }
        self.settle();
    }

    /// A packet has arrived.
    pub fn received(&mut self, connection: ConnectionId, packet: Packet<'_>) {
        let Packet { id, message } = packet;
        let from = Request { connection, id };
        let name = message.name();
        if let Err(refusal) = self.handle(from, message) {
            self.links.refuse(from, name, &refusal);
        }
        self.settle();
    }

    fn handle(&mut self, from: Request, message: Message<'_>) -> Handled {
        let Some(role) = self.links.role(from.connection) else { return Ok(()) };
        match *role {
            Role::Stranger => self.stranger_says(from, message),
            Role::Storage(storage) => self.storage_says(from, storage, message),
            Role::Client(client) => self.client_says(from, client, message),
            Role::Admin(_) => self.admin_says(from, message),
            Role::Secondary { .. } => self.any_says(from, &message),
            Role::Rival { .. } => self.rival_says(from, message),
            Role::Primary { .. } => self.primary_says(from, message),
            Role::Upstream => self.upstream_says(from, message),
        }
    }

    /// What the master says of itself.
    pub fn status(&mut self) -> Status {
        let Counts { storages, storages_down, clients } = self.cluster.counts();
        let primary = match &self.phase {
            Phase::Secondary(secondary) => secondary.primary().map(ToString::to_string),
            _ => None,
        };
        let is_primary = !matches!(self.phase, Phase::Secondary(_));
        Status {
            node: self.cluster.id,
            is_primary,
            primary,
            state: is_primary.then_some(self.cluster.state()),
            last_tid: self.cluster.last_tid,
            storages,
            storages_down,
            storages_starting: self.cluster.readiness.starting(),
            notes: self.troubles.notes().to_vec(),
            clients,
            transactions: self.transactions.len(),
            committed: self.transactions.committed(),
        }
    }

    /// What is to be done now, in order.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        self.links.take_outputs()
    }

    /// The masters that are known, this one too.
    pub fn masters(&self) -> &[Address] {
        self.cluster.members.addresses()
    }

    fn stranger_says(&mut self, from: Request, message: Message<'_>) -> Handled {
        match message {
            Message::RequestIdentification(request) => {
                self.identify(&Newcomer { from, request: &request })
            }
            Message::Ping(_) => self.any_says(from, &message),
            other => Err(Refusal::unexpected(&other)),
        }
    }

    /// A node introduces itself.
    fn identify(&mut self, newcomer: &Newcomer<'_>) -> Handled {
        let Master { cluster, links, backup, phase, .. } = self;
        newcomer.check(cluster)?;
        if let Phase::Secondary(secondary) = phase {
            secondary.redirect(cluster, links, newcomer.from.connection, newcomer.request);
            return Ok(());
        }
        newcomer.check_state(cluster)?;
        match newcomer.request.node_type {
            NodeType::Master => self.identify_master(newcomer),
            NodeType::Storage => self.identify_storage(newcomer),
            NodeType::Client => newcomer.join_as_client(cluster, links),
            NodeType::Admin => {
                self.troubles.admin_came();
                newcomer.join_as_admin(cluster, links, backup)
            }
        }
    }

    /// Handles a message that any node may send.
    fn any_says(&mut self, from: Request, message: &Message<'_>) -> Handled {
        match message {
            Message::Ping(_) => self.links.answer(from, Pong {}),
            Message::FlushLog(_) | Message::Pong(_) => {}
            Message::AskClusterState(_) => {
                let state = Some(self.cluster.state());
                self.links.answer(from, AnswerClusterState { state });
            }
            Message::AskRecovery(_) => {
                let (table, truncate_tid) = (self.cluster.table.id(), self.recovery.truncate_tid());
                let backup_tid = self.backup.tid(&self.cluster.table);
                let answer = AnswerRecovery { table, backup_tid, truncate_tid };
                self.links.answer(from, answer);
            }
            Message::AskLastIDs(_) => {
                let answer = AnswerLastIDs {
                    last_tid: Some(self.transactions.last_tid(self.cluster.last_tid)),
                    last_oid: Some(self.transactions.last_oid()),
                    first_tid: self.transactions.first_tid(),
                };
                self.links.answer(from, answer);
            }
            Message::AskLastTransaction(_) => {
                self.links.answer(from, AnswerLastTransaction { tid: self.cluster.last_tid });
            }
            other => return Err(Refusal::unexpected(other)),
        }
        Ok(())
    }

    /// Closes a connection after what was sent, and handles its end.
    fn close(&mut self, connection: ConnectionId) {
        self.links.close(connection);
        self.handle_lost();
    }

    /// Handles the ends of connections that were closed here.
    pub(super) fn handle_lost(&mut self) {
        while let Some((connection, lost)) = self.links.take_lost() {
            self.peer_lost(connection, &lost.role);
        }
    }

    /// What the end of a connection means for the parts of the master.
    fn peer_lost(&mut self, connection: ConnectionId, role: &Role) {
        match role {
            Role::Stranger => {}
            Role::Secondary { address } => self.secondary_left(address),
            Role::Rival { .. } => self.challenge_again(),
            Role::Primary { is_accepted, .. } => self.primary_left(connection, *is_accepted),
            Role::Upstream => self.upstream_left(connection),
            Role::Storage(storage) => self.storage_left(connection, *storage),
            Role::Client(client) => self.client_lost(connection, *client),
            Role::Admin(admin) => self.cluster.members.remove(*admin),
        }
    }
}
