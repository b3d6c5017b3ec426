//! The node: events, and the parts that they reach.
//!
//! Key decision: a part changes its own data, and sends with [`Links`]. The steps that follow in
//! other parts, and their order, are here.

mod cells;
mod clients;
mod master;
mod status;
mod storages;

use std::time::Duration;

use tracing::warn;
use zodium_neo::Packet;

use crate::checking::Checking;
use crate::cluster::Cluster;
use crate::commits::Commits;
use crate::identification::Identification;
use crate::links::{Completion, Links, Role};
use crate::master::Search;
use crate::packing::Packing;
use crate::phase::Phase;
use crate::reads::Reading;
use crate::replication::Replication;
use crate::settings::{Saved, Settings};
use crate::{ConnectionId, Output};

/// A storage node of a NEO cluster.
#[derive(Debug)]
pub struct Node {
    pub(crate) links: Links,
    pub(crate) cluster: Cluster,
    pub(crate) commits: Commits,
    pub(crate) reading: Reading,
    pub(crate) replication: Replication,
    pub(crate) packing: Packing,
    pub(crate) checking: Checking,
    search: Search,
    identification: Identification,
}

impl Node {
    /// Creates a node. It does nothing until [`Node::start`].
    pub fn new(settings: Settings, saved: Saved) -> Node {
        let Saved { node, table, may_refuse_data, limits_metadata } = saved;
        Node {
            links: Links::default(),
            commits: Commits::new(may_refuse_data),
            reading: Reading::new(settings.records_bytes_max),
            replication: Replication::new(limits_metadata),
            packing: Packing::default(),
            checking: Checking::default(),
            search: Search::new(settings.masters.clone()),
            identification: Identification::default(),
            cluster: Cluster::new(settings, node, table),
        }
    }

    /// Has the node ask for another id: its database is a copy of another node's. The cluster
    /// notes the copy as out of date, and the master ends the node.
    pub fn ask_new_id(&mut self) {
        if self.cluster.own_table().is_some() {
            self.search.ask_new_id(self.cluster.cells().map(|(partition, _)| partition).collect());
        }
        self.cluster.set_id(None);
    }

    /// Begins to look for the primary master.
    pub fn start(&mut self) {
        self.search.dial(&mut self.links, Duration::ZERO);
    }

    /// A peer has connected. `name` is its address, for log lines.
    pub fn accepted(&mut self, name: String) -> ConnectionId {
        self.links.accepted(name, Role::Stranger)
    }

    /// A connection that was dialled is there.
    pub fn connected(&mut self, connection: ConnectionId) {
        match self.links.role(connection) {
            Some(Role::Master { .. }) => {
                self.search.identify(&mut self.links, &self.cluster, connection);
            }
            Some(Role::Source { .. }) => self.identify_to_source(connection),
            _ => {}
        }
        self.note_closed();
    }

    /// A connection has ended, or could not be made.
    pub fn closed(&mut self, connection: ConnectionId) {
        self.identification.ended(connection);
        let Some(lost) = self.links.ended(connection) else { return };
        self.peer_lost(connection, &lost.role);
        self.note_closed();
    }

    /// A packet has arrived.
    pub fn received(&mut self, connection: ConnectionId, packet: Packet<'_>) {
        let Packet { id, message } = packet;
        let (from, name) = ((connection, id), message.name());
        let Some(role) = self.links.role(connection) else { return };
        let handled = match role {
            Role::Master { is_primary: true, .. } => self.primary_says(from, message),
            Role::Master { .. } => self.candidate_says(connection, &message),
            Role::Stranger => {
                let Node { links, cluster, identification, .. } = self;
                identification.stranger_says(links, cluster, from, message)
            }
            Role::Client { .. } => self.client_says(from, message),
            Role::Storage { .. } => self.storage_says(from, message),
            Role::Source { .. } => self.source_says(from, message),
        };
        if let Err(refusal) = handled {
            self.links.refuse((connection, id), name, &refusal);
        }
        self.note_closed();
    }

    /// A job is done.
    pub fn completed(&mut self, completion: Completion) {
        completion.tell(self);
        self.note_closed();
    }

    /// What is to be done now, in order.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        self.reading.note_taken();
        self.links.take_outputs()
    }

    /// Whether nothing is locked, and no request waits for a lock or an unlock.
    pub fn is_unlocked(&self) -> bool {
        self.commits.is_unlocked() && self.reading.delayed() == 0
    }

    /// Tells the parts which connections the node has closed.
    fn note_closed(&mut self) {
        while let Some((connection, lost)) = self.links.take_lost() {
            self.peer_lost(connection, &lost.role);
        }
    }

    /// What the end of a connection means for the parts of the node.
    fn peer_lost(&mut self, connection: ConnectionId, role: &Role) {
        match role {
            Role::Master { is_primary, .. } => self.master_lost(*is_primary),
            Role::Client { .. } => self.client_lost(connection),
            // Either side of a connection may fetch from the other.
            Role::Source { .. } | Role::Storage { .. } => self.storage_lost(connection),
            Role::Stranger => {}
        }
    }

    fn master_lost(&mut self, was_primary: bool) {
        if was_primary {
            warn!("the connection to the primary master has ended, looking for another one");
            self.end_operation(Phase::Alone);
            self.cluster.forget_unsaved_id();
        }
        self.search.dial_again(&mut self.links);
    }

    /// Forgets everything that was under way: transactions, replication, peers but the master.
    fn end_operation(&mut self, phase: Phase) {
        self.links.end_epoch();
        self.cluster.set_phase(phase);
        self.identification.clear();
        self.commits.clear();
        self.reading.clear();
        self.replication.reset();
        self.packing = Packing::default();
        self.checking = Checking::default();
        for connection in self.links.with(|role| !matches!(role, Role::Master { .. })) {
            self.links.close(connection);
        }
        self.note_closed();
    }
}
