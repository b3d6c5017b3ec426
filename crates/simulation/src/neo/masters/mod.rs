//! The masters of a run: a model, or real ones.

mod operator;
mod process;
mod starts;
mod watch;

use zodium_neo::{Packet, PartitionTable};

use super::context::Context;
use super::master::Master as Model;
use super::net::WireId;
use process::Process;

pub(super) use operator::{Operator, Wish};
pub(super) use starts::look;

/// A master that runs.
pub(super) enum Master {
    Model(Box<Model>),
    Real(Box<Process>),
}

impl Master {
    /// Starts the master at a place.
    pub(super) fn start(context: &mut Context, place: usize) -> Master {
        match context.plan.masters {
            0 => Master::Model(Box::new(Model::new())),
            _ => Master::Real(Box::new(Process::start(context, place))),
        }
    }

    /// A process has connected.
    pub(super) fn accepted(&mut self, context: &mut Context, wire: WireId) {
        match self {
            Master::Model(model) => model.accepted(wire),
            Master::Real(process) => process.accepted(context, wire),
        }
    }

    /// A connection that it dialled is there, or cannot be made.
    pub(super) fn dialled(&mut self, context: &mut Context, wire: WireId, is_there: bool) {
        if let Master::Real(process) = self {
            process.dialled(context, wire, is_there);
        }
    }

    /// A connection has ended.
    pub(super) fn closed(&mut self, context: &mut Context, wire: WireId) {
        match self {
            Master::Model(model) => model.closed(context, wire),
            Master::Real(process) => process.closed(context, wire),
        }
    }

    /// A packet has arrived.
    pub(super) fn received(&mut self, context: &mut Context, wire: WireId, packet: Packet<'_>) {
        match self {
            Master::Model(model) => model.received(context, wire, packet),
            Master::Real(process) => process.received(context, wire, packet),
        }
    }

    /// Whether it waits for a time to pass.
    pub(super) fn has_alarm(&self) -> bool {
        matches!(self, Master::Real(process) if process.has_alarm())
    }

    /// That time has passed.
    pub(super) fn wake(&mut self, context: &mut Context) {
        if let Master::Real(process) = self {
            process.wake(context);
        }
    }

    /// Whether nothing is left to do.
    pub(super) fn is_idle(&mut self, context: &Context) -> bool {
        match self {
            Master::Model(model) => model.is_idle(context),
            Master::Real(process) => process.is_idle(),
        }
    }

    /// The partition table, if it is the primary master.
    pub(super) fn table(&self) -> Option<&PartitionTable> {
        match self {
            Master::Model(model) => model.table.as_ref(),
            Master::Real(process) => process.table(),
        }
    }

    pub(super) fn describe(&mut self) -> String {
        match self {
            Master::Model(model) => model.describe(),
            Master::Real(process) => process.describe(),
        }
    }
}
