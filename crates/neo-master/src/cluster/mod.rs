//! The facts of the cluster that all parts of a master need: its nodes, its table, its state.

mod broadcast;

use zodium_neo::{ClusterState, NodeId, NodeState, NodeType};
use zodium_types::Tid;

use crate::clock::Clock;
use crate::members::Members;
use crate::readiness::Readiness;
use crate::refused::Refused;
use crate::settings::Settings;
use crate::status::Counts;
use crate::table::{Devices, Table};

/// The cluster, as this master knows it.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    /// The id of this master, if it has one.
    pub(crate) id: Option<NodeId>,
    pub(crate) members: Members,
    pub(crate) table: Table,
    /// Which storages are ready for clients.
    pub(crate) readiness: Readiness,
    /// Storages that were refused lately.
    pub(crate) refused: Refused,
    /// The last committed transaction.
    pub(crate) last_tid: Tid,
    state: ClusterState,
    /// Whether nodes have been told of the state.
    is_state_told: bool,
    /// For the status; `None` after a change.
    counted: Option<Counts>,
}

impl Cluster {
    /// The cluster before the start of this master.
    pub(crate) fn new(settings: Settings) -> Cluster {
        let mut members = Members::default();
        settings.masters.iter().for_each(|address| members.add_master(address));
        members.add_master(&settings.address);
        Cluster {
            clock: Clock::default(),
            id: settings.node,
            members,
            table: Table::new(settings.partitions, settings.replicas),
            readiness: Readiness::default(),
            refused: Refused::default(),
            last_tid: Tid::ZERO,
            state: ClusterState::Recovering,
            is_state_told: false,
            counted: None,
            settings,
        }
    }

    /// The state of the cluster.
    pub(crate) fn state(&self) -> ClusterState {
        self.state
    }

    /// Whether storages operate: clients are served, or the cluster follows another one.
    pub(crate) fn is_operating(&self) -> bool {
        self.state == ClusterState::Running || self.is_following()
    }

    /// Whether the cluster follows another one, as a backup.
    pub(crate) fn is_following(&self) -> bool {
        matches!(
            self.state,
            ClusterState::StartingBackup | ClusterState::BackingUp | ClusterState::StoppingBackup
        )
    }

    /// Forgets the table: a recovery finds another one.
    pub(crate) fn forget_table(&mut self) {
        self.table = Table::new(self.settings.partitions, self.settings.replicas);
    }

    /// Forgets all nodes, and that they were told of the state. Which masters run, the primary one
    /// tells.
    pub(crate) fn forget_nodes(&mut self) {
        self.members.clear();
        for master in self.members.masters_mut() {
            (master.state, master.connection) = (NodeState::Down, None);
        }
        self.is_state_told = false;
    }

    /// Whether each partition can be read.
    pub(crate) fn is_operational(&self) -> bool {
        self.is_operational_without(&[])
    }

    /// Whether each partition can be read without some storages.
    pub(crate) fn is_operational_without(&self, excluded: &[NodeId]) -> bool {
        let is_there = |id| self.members.is_running(id) && !excluded.contains(&id);
        self.table.is_operational(is_there)
    }

    /// Where the devices of storages are.
    pub(crate) fn devices(&self) -> Devices {
        let storages = self.members.of(NodeType::Storage);
        storages.map(|(id, node)| (id, node.about.device.clone())).collect()
    }

    /// The nodes by kind and state. They are counted again after nodes or the table have changed.
    pub(crate) fn counts(&mut self) -> Counts {
        if let Some(counts) = self.counted {
            return counts;
        }
        let storages = self.members.of(NodeType::Storage);
        let is_running = |id: &NodeId| self.members.is_running(*id);
        let counts = Counts {
            storages: storages.filter(|(_, node)| node.state == NodeState::Running).count(),
            storages_down: self.table.nodes().iter().filter(|id| !is_running(id)).count(),
            clients: self.members.of(NodeType::Client).count(),
        };
        self.counted = Some(counts);
        counts
    }
}
