//! The admin: what it holds, and how events reach its parts.

use std::time::Duration;

use tracing::info;
use zodium_neo::{Address, ConnectionId, Lost, Masters, NodeId, Packet};

use crate::Output;
use crate::backups::Backup;
use crate::health::Health;
use crate::members::Members;
use crate::monitor::Round;
use crate::notes::{LOOK_ALARM, Notes};
use crate::peer::{Asked, Links, Role};
use crate::settings::Settings;
use crate::table::Table;
use crate::upstream::Upstream;

/// The admin of a NEO cluster.
#[derive(Debug)]
pub struct Admin {
    pub(crate) settings: Settings,
    /// The id that a master has given, or the one to ask for.
    pub(crate) id: Option<NodeId>,
    pub(crate) masters: Masters,
    /// The connection to the primary master.
    pub(crate) primary: Option<ConnectionId>,
    /// The id of the primary master, while it is connected.
    pub(crate) primary_id: Option<NodeId>,
    pub(crate) links: Links,
    pub(crate) members: Members,
    /// The last known table; it stays while there is no master.
    pub(crate) table: Option<Table>,
    /// How the own cluster is.
    pub(crate) own: Health,
    /// The backup clusters, in the order of the settings.
    pub(crate) backups: Vec<Backup>,
    pub(crate) upstream: Upstream,
    pub(crate) round: Round,
    pub(crate) notes: Notes,
}

impl Admin {
    /// Creates an admin. It does nothing until [`Admin::start`].
    pub fn new(settings: Settings) -> Admin {
        Admin {
            id: settings.node,
            masters: Masters::new(settings.masters.clone()),
            primary: None,
            primary_id: None,
            links: Links::default(),
            members: Members::default(),
            table: None,
            own: Health::default(),
            backups: settings.backups.iter().map(|_| Backup::default()).collect(),
            upstream: Upstream::default(),
            round: Round::default(),
            notes: Notes::default(),
            settings,
        }
    }

    /// Begins to look for the primary master.
    pub fn start(&mut self) {
        self.dial_master(Duration::ZERO);
        self.begin_looks();
    }

    /// A peer has connected. `name` is its address, for log lines.
    pub fn accepted(&mut self, name: String) -> ConnectionId {
        self.links.accepted(name, Role::Operator)
    }

    /// A connection that was dialled is there.
    pub fn connected(&mut self, connection: ConnectionId) {
        match self.links.role(connection) {
            Some(Role::Master { .. }) => self.identify_to_master(connection),
            Some(Role::Upstream { .. }) => self.identify_to_upstream(connection),
            _ => {}
        }
        self.handle_lost();
    }

    /// A connection has ended, or could not be made.
    pub fn closed(&mut self, connection: ConnectionId) {
        let Some(lost) = self.links.ended(connection) else { return };
        self.peer_lost(connection, lost);
        self.handle_lost();
    }

    /// A packet has arrived.
    pub fn received(&mut self, connection: ConnectionId, packet: Packet<'_>) {
        let Packet { id, message } = packet;
        let Some(role) = self.links.role(connection) else { return };
        let name = message.name();
        let handled = match *role {
            Role::Master { is_primary: true, .. } => self.primary_says(connection, id, message),
            Role::Master { .. } => self.candidate_says(connection, message),
            Role::Operator => self.operator_says(connection, id, message),
            Role::Backup { place } => self.backup_says(connection, place, id, message),
            Role::Upstream { .. } => self.upstream_says(connection, id, message),
        };
        if let Err(refusal) = handled {
            self.links.refuse((connection, id), name, &refusal);
        }
        self.handle_lost();
    }

    /// The time of an alarm has come; `alarm` is the number of [`Output::Wake`].
    pub fn woken(&mut self, alarm: u64) {
        match alarm {
            LOOK_ALARM => self.look(),
            round => self.round_overdue(round),
        }
        self.handle_lost();
    }

    /// What is to be done now, in order.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        self.links.take_outputs()
    }

    /// The masters that are known.
    pub fn masters(&self) -> &[Address] {
        self.masters.addresses()
    }

    /// Closes a connection after what was sent, and handles its end.
    pub(crate) fn close(&mut self, connection: ConnectionId) {
        self.links.close(connection);
        self.handle_lost();
    }

    /// Handles the ends of connections that were closed here.
    fn handle_lost(&mut self) {
        while let Some((connection, lost)) = self.links.take_lost() {
            self.peer_lost(connection, lost);
        }
    }

    /// What the end of a connection means for the parts of the admin.
    fn peer_lost(&mut self, connection: ConnectionId, lost: Lost<Role, Asked>) {
        match lost.role {
            Role::Master { is_primary, .. } => self.master_lost(is_primary, lost.asked),
            Role::Operator => self.forget_operator(connection),
            Role::Backup { place } => self.backup_lost(connection, place),
            Role::Upstream { .. } => self.upstream_lost(),
        }
    }

    /// Ends the process.
    pub(crate) fn exit(&mut self) {
        info!("the cluster has stopped, and so does its admin");
        self.links.push(Output::Exit);
    }
}
