//! The master: what it holds, and how events reach its parts.

use std::time::Duration;

use zodium_neo::{Address, ConnectionId, Message, Packet};

use crate::Output;
use crate::backup::Backup;
use crate::cluster::Cluster;
use crate::handling::Handled;
use crate::links::Links;
use crate::packs::Packs;
use crate::peer::Role;
use crate::readiness::Readiness;
use crate::recovery::Recovery;
use crate::secondary::Secondary;
use crate::settings::Settings;
use crate::transactions::Transactions;
use crate::{Phase, Stop};

/// A master of a NEO cluster.
#[derive(Debug)]
pub struct Master {
    pub(crate) cluster: Cluster,
    pub(crate) links: Links,
    pub(crate) phase: Phase,
    /// When this master began to be primary: the earliest one wins an election.
    pub(crate) election: f64,
    pub(crate) recovery: Recovery,
    pub(crate) backup: Backup,
    pub(crate) readiness: Readiness,
    pub(crate) transactions: Transactions,
    pub(crate) packs: Packs,
    /// Operation stops when the event is handled.
    pub(crate) stops: Option<Stop>,
}

impl Master {
    /// Creates a master. It does nothing until [`Master::start`].
    pub fn new(settings: Settings) -> Master {
        Master {
            links: Links::default(),
            phase: Phase::Secondary(Secondary::default()),
            election: 0.0,
            recovery: Recovery::default(),
            backup: Backup::new(settings.upstream.clone()),
            cluster: Cluster::new(settings),
            readiness: Readiness::default(),
            transactions: Transactions::default(),
            packs: Packs::default(),
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
        self.links.accept(name)
    }

    /// A connection that was dialled is there.
    pub fn connected(&mut self, connection: ConnectionId) {
        match self.links.role(connection) {
            Some(Role::Rival { .. }) => self.identify_as_master(connection, Some(self.election)),
            Some(Role::Primary { .. }) => self.identify_as_master(connection, None),
            Some(Role::Upstream) => {
                self.backup.identify(&self.cluster, &mut self.links, connection);
            }
            _ => {}
        }
    }

    /// A connection has ended, or could not be made.
    pub fn closed(&mut self, connection: ConnectionId) {
        let Some(role) = self.links.ended(connection) else { return };
        self.peer_lost(connection, &role);
        self.handle_lost();
        self.settle();
    }

    /// A packet has arrived.
    pub fn received(&mut self, connection: ConnectionId, packet: Packet<'_>) {
        let Packet { id, message } = packet;
        let name = message.name();
        if let Err(refusal) = self.handle(connection, id, message) {
            self.links.refuse(connection, id, name, &refusal);
        }
        self.handle_lost();
        self.settle();
    }

    fn handle(&mut self, connection: ConnectionId, id: u32, message: Message<'_>) -> Handled {
        let Some(role) = self.links.role(connection) else { return Ok(()) };
        match *role {
            Role::Leaving => Ok(()),
            Role::Stranger => self.stranger_says(connection, id, message),
            Role::Storage(storage) => self.storage_says(connection, id, storage, message),
            Role::Client(client) => self.client_says(connection, id, client, message),
            Role::Admin(_) => self.admin_says(connection, id, message),
            Role::Secondary { .. } => self.any_says(connection, id, &message),
            Role::Rival { .. } => self.rival_says(connection, id, message),
            Role::Primary { .. } => self.primary_says(connection, id, message),
            Role::Upstream => self.upstream_says(connection, id, message),
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

    /// Closes a connection after what was sent, and handles its end.
    pub(crate) fn close(&mut self, connection: ConnectionId) {
        self.links.close(connection);
        self.handle_lost();
    }

    /// Handles the ends of connections that were closed here.
    pub(crate) fn handle_lost(&mut self) {
        while let Some((connection, role)) = self.links.take_lost() {
            self.peer_lost(connection, &role);
        }
    }

    /// What the end of a connection means for the parts of the master.
    fn peer_lost(&mut self, connection: ConnectionId, role: &Role) {
        match role {
            Role::Stranger | Role::Leaving => {}
            Role::Secondary { address } => self.secondary_left(address),
            Role::Rival { .. } => self.rival_left(),
            Role::Primary { is_accepted, .. } => self.primary_left(connection, *is_accepted),
            Role::Upstream => self.upstream_left(connection),
            Role::Storage(storage) => self.storage_left(connection, *storage),
            Role::Client(client) => self.client_lost(connection, *client),
            Role::Admin(admin) => self.admin_left(*admin),
        }
    }
}
