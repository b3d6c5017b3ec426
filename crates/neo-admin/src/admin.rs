//! The admin: what it holds, and how events reach its parts.

use std::time::Duration;

use rustc_hash::FxHashMap;
use tracing::{error, info};
use zodium_neo::{Address, ConnectionId, Masters, Message, NodeId, Packet};

use crate::Output;
use crate::backups::Backup;
use crate::handling::Refusal;
use crate::health::Health;
use crate::members::Members;
use crate::monitor::Round;
use crate::peer::{Asked, Peer, Peers, Role};
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
    pub(crate) peers: Peers,
    pub(crate) members: Members,
    /// The last known table; it stays while there is no master.
    pub(crate) table: Option<Table>,
    /// How the own cluster is.
    pub(crate) own: Health,
    /// The backup clusters, in the order of the settings.
    pub(crate) backups: Vec<Backup>,
    pub(crate) upstream: Upstream,
    pub(crate) round: Round,
    pub(crate) outputs: Vec<Output>,
}

impl Admin {
    /// Creates an admin. It does nothing until [`Admin::start`].
    pub fn new(settings: Settings) -> Admin {
        Admin {
            id: settings.node,
            masters: Masters::new(settings.masters.clone()),
            primary: None,
            primary_id: None,
            peers: Peers::default(),
            members: Members::default(),
            table: None,
            own: Health::default(),
            backups: settings.backups.iter().map(|_| Backup::default()).collect(),
            upstream: Upstream::default(),
            round: Round::default(),
            outputs: Vec::new(),
            settings,
        }
    }

    /// Begins to look for the primary master.
    pub fn start(&mut self) {
        self.dial_master(Duration::ZERO);
    }

    /// A peer has connected. `name` is its address, for log lines.
    pub fn accepted(&mut self, name: String) -> ConnectionId {
        self.peers.add(Peer::new(name, Role::Operator))
    }

    /// A connection that was dialled is there.
    pub fn connected(&mut self, connection: ConnectionId) {
        match self.peers.get(connection).map(|peer| &peer.role) {
            Some(Role::Master { .. }) => self.identify_to_master(connection),
            Some(Role::Upstream { .. }) => self.identify_to_upstream(connection),
            _ => {}
        }
    }

    /// A connection has ended, or could not be made.
    pub fn closed(&mut self, connection: ConnectionId) {
        let Some(peer) = self.peers.remove(connection) else { return };
        self.peer_lost(connection, &peer.role, peer.asked);
    }

    /// A packet has arrived.
    pub fn received(&mut self, connection: ConnectionId, packet: Packet<'_>) {
        let Packet { id, message } = packet;
        let Some(peer) = self.peers.get(connection) else { return };
        let name = message.name();
        let handled = match peer.role {
            Role::Leaving => return,
            Role::Master { is_primary: true, .. } => self.primary_says(connection, id, message),
            Role::Master { .. } => self.candidate_says(connection, message),
            Role::Operator => self.operator_says(connection, id, message),
            Role::Backup { place } => self.backup_says(connection, place, id, message),
            Role::Upstream { .. } => self.upstream_says(connection, id, message),
        };
        if let Err(refusal) = handled {
            self.refuse(connection, id, name, &refusal);
        }
    }

    /// The time of an alarm has come; `alarm` is the number of [`Output::Wake`].
    pub fn woken(&mut self, alarm: u64) {
        self.round_overdue(alarm);
    }

    /// What is to be done now, in order.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// The masters that are known.
    pub fn masters(&self) -> &[Address] {
        self.masters.addresses()
    }

    /// The address that a peer was accepted or dialled under.
    pub(crate) fn name_of(&self, connection: ConnectionId) -> String {
        self.peers.name_of(connection)
    }

    fn refuse(&mut self, connection: ConnectionId, id: u32, message: &str, refusal: &Refusal) {
        self.answer(connection, id, refusal.message());
        if refusal.is_end {
            refusal.log(&self.name_of(connection), message);
            self.close(connection);
        }
    }

    /// Answers a request.
    pub(crate) fn answer<'a>(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: impl Into<Message<'a>>,
    ) {
        let is_there = self.peers.get(connection).is_some_and(|peer| peer.role != Role::Leaving);
        if !is_there {
            return;
        }
        match self.peers.encode(id, message.into()) {
            Ok(packet) => self.outputs.push(Output::Send { connection, packet }),
            Err(error) => {
                let peer = self.name_of(connection);
                error!(peer, %error, "cannot send, closing the connection");
                self.close(connection);
            }
        }
    }

    /// Sends a notification.
    pub(crate) fn notify<'a>(&mut self, connection: ConnectionId, message: impl Into<Message<'a>>) {
        let Some(id) = self.peers.take_id(connection) else { return };
        self.answer(connection, id, message);
    }

    /// Sends a request.
    pub(crate) fn ask<'a>(
        &mut self,
        connection: ConnectionId,
        message: impl Into<Message<'a>>,
        asked: Asked,
    ) {
        let Some(id) = self.peers.expect(connection, asked) else { return };
        self.answer(connection, id, message);
    }

    /// Takes the request that an answer belongs to.
    pub(crate) fn answered(&mut self, connection: ConnectionId, id: u32) -> Option<Asked> {
        self.peers.answered(connection, id)
    }

    /// Dials a node.
    pub(crate) fn dial(&mut self, role: Role, address: Address, after: Duration) -> ConnectionId {
        let connection = self.peers.add(Peer::new(address.to_string(), role));
        self.outputs.push(Output::Dial { connection, address, after });
        connection
    }

    /// Closes a connection after what was sent. The driver reports its end later.
    pub(crate) fn close(&mut self, connection: ConnectionId) {
        let Some(peer) = self.peers.get_mut(connection) else { return };
        if peer.role == Role::Leaving {
            return;
        }
        let role = std::mem::replace(&mut peer.role, Role::Leaving);
        let asked = std::mem::take(&mut peer.asked);
        self.outputs.push(Output::Close { connection });
        self.peer_lost(connection, &role, asked);
    }

    /// What the end of a connection means for the parts of the admin.
    fn peer_lost(&mut self, connection: ConnectionId, role: &Role, asked: FxHashMap<u32, Asked>) {
        match role {
            Role::Master { is_primary, .. } => self.master_lost(*is_primary, asked),
            Role::Operator => self.forget_operator(connection),
            Role::Backup { place } => self.backup_lost(connection, *place),
            Role::Upstream { .. } => self.upstream_lost(),
            Role::Leaving => {}
        }
    }

    /// Ends the process.
    pub(crate) fn exit(&mut self) {
        info!("the cluster has stopped, and so does its admin");
        self.outputs.push(Output::Exit);
    }
}
