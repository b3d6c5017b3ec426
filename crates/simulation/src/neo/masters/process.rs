//! A real master: its state machine, and its connections.

use zodium_neo::{ClusterState, LinkTask, Output, Packet, PartitionTable};
use zodium_neo_master::{Master, Settings};

use super::watch::Watch;
use crate::neo::addresses::address_of;
use crate::neo::context::{CLUSTER, Context};
use crate::neo::faulty;
use crate::neo::net::{End, WireId};
use crate::neo::wires::{Wires, each_packet};

/// Clocks are wrong by so many microseconds at most.
const ERROR_MICROS_MAX: u64 = 4_000_000;

/// A master that runs.
pub(crate) struct Process {
    place: usize,
    master: Master,
    wires: Wires,
    watch: Watch,
    /// Times that it waits for.
    alarms: Vec<u64>,
    /// Microseconds by which its clock is wrong.
    error: i64,
}

impl Process {
    /// Starts the master at a place.
    pub(super) fn start(context: &mut Context, place: usize) -> Process {
        let plan = &context.plan;
        let error = match plan.wrong_clocks {
            true => context.chance.size(ERROR_MICROS_MAX) as i64,
            false => 0,
        };
        let error = if context.chance.permille(500) { -error } else { error };
        let settings = Settings {
            cluster: CLUSTER.to_owned(),
            masters: plan.master_addresses(),
            address: address_of(End::Master(place)),
            node: None,
            replicas: plan.replicas,
            partitions: plan.partitions,
            autostart: Some(plan.storages as u32),
            upstream: None,
            begins_as_backup: false,
        };
        let (wires, watch, alarms) = (Wires::default(), Watch::new(place), Vec::new());
        let master = Master::new(settings);
        let mut process = Process { place, master, wires, watch, alarms, error };
        process.act(context, Master::start);
        process
    }

    /// Has the master do something, which it is told the time before.
    fn act(&mut self, context: &mut Context, act: impl FnOnce(&mut Master)) {
        self.master.set_time(context.now(self.error));
        act(&mut self.master);
        self.apply(context);
    }

    pub(super) fn accepted(&mut self, context: &mut Context, wire: WireId) {
        self.master.set_time(context.now(self.error));
        let connection = self.master.accepted(format!("connection {}", wire.0));
        self.wires.add(connection, wire);
        self.apply(context);
    }

    pub(super) fn dialled(&mut self, context: &mut Context, wire: WireId, is_there: bool) {
        if !is_there {
            return self.closed(context, wire);
        }
        if let Some(connection) = self.wires.connection(wire) {
            self.act(context, |master| master.connected(connection));
        }
    }

    pub(super) fn closed(&mut self, context: &mut Context, wire: WireId) {
        if let Some(connection) = self.wires.forget(wire) {
            self.act(context, |master| master.closed(connection));
        }
    }

    pub(super) fn received(&mut self, context: &mut Context, wire: WireId, packet: Packet<'_>) {
        let Some(connection) = self.wires.connection(wire) else { return };
        let Some(packet) = faulty::told(context, packet) else { return };
        self.watch.hears(context, &packet.message);
        self.act(context, |master| master.received(connection, packet));
    }

    pub(super) fn has_alarm(&self) -> bool {
        !self.alarms.is_empty()
    }

    /// A time that the master waits for has come.
    pub(super) fn wake(&mut self, context: &mut Context) {
        let alarm = self.alarms.remove(0);
        self.act(context, |master| master.woken(alarm));
    }

    /// Does what the master asks for.
    fn apply(&mut self, context: &mut Context) {
        let end = End::Master(self.place);
        loop {
            let outputs = self.master.take_outputs();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    Output::Link(task) => {
                        self.watch_sent(context, &task);
                        if let Some(over) = self.wires.apply(context, end, task) {
                            self.master.closed(over);
                        }
                    }
                    Output::Wake { alarm, .. } => self.alarms.push(alarm),
                    Output::Exit => context.violate(format!("master {} ends", self.place)),
                }
            }
            if self.master.status().state != Some(ClusterState::Running) {
                // Without nodes that are connected no message says so.
                self.watch.stops();
            }
        }
    }

    /// Has the watch see what the master sends.
    fn watch_sent(&mut self, context: &mut Context, task: &LinkTask) {
        if let LinkTask::Send { packet, .. } = task {
            let watch = &mut self.watch;
            each_packet(context, packet, |context, _, packet| watch.sends(context, packet));
        }
    }

    /// Whether it is the primary master of a cluster that runs, and nothing is left to do; or
    /// follows such a one.
    pub(super) fn is_idle(&mut self) -> bool {
        let status = self.master.status();
        let is_running = status.state == Some(ClusterState::Running)
            && status.storages_down == 0
            && status.storages_starting.is_empty()
            && status.transactions == 0
            && self.watch.is_up_to_date();
        if status.is_primary { is_running } else { status.primary.is_some() }
    }

    /// The partition table, if it is the primary master.
    pub(super) fn table(&self) -> Option<&PartitionTable> {
        self.watch.table()
    }

    pub(super) fn describe(&mut self) -> String {
        let rows = self.watch.table().map(|table| format!("{:?}", table.rows()));
        format!("master {}: {:?}, cells {rows:?}", self.place, self.master.status())
    }
}
