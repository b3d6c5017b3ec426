//! Packs, in the background: one order after the other, partition by partition.
//!
//! The master says which orders are signed, and tells the oldest approved one that is not carried
//! out when it is asked. A step packs some objects of one partition; steps alternate with other
//! writes. How far a partition is, the database keeps by whole orders.

use tracing::info;
use zodium_neo::messages::{AskPackOrders, NotifyPackCompleted, PackOrder};
use zodium_neo::{Partition, PartitionTable};
use zodium_types::{Oid, Tid};

use crate::Node;
use crate::database::{CellProgress, PackObjects};
use crate::peer::Asked;
use crate::phase::Phase;

/// Objects of one step.
const STEP_OBJECTS: u32 = 500;

/// The state of packs.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    /// The last approved order.
    last: Tid,
    /// What the master was told last.
    completed: Option<Tid>,
    /// The order that is being carried out.
    order: Option<PackOrder>,
    /// After which order it was asked for.
    asked_after: Option<Tid>,
    /// Whether packs wait until other storages have fetched partitions.
    waits_for_replicas: bool,
    /// Whether a step, or a question to the master or to the database, is under way.
    is_busy: bool,
    /// Whether cells or orders have changed since the database was asked.
    has_changed: bool,
}

/// A cell to pack, and how far it is.
#[derive(Clone, Copy, Debug)]
struct Step {
    partition: Partition,
    /// The next object, or how many listed ones are done.
    from: u64,
}

impl Packing {
    /// The last approved order.
    pub(crate) fn last(&self) -> Tid {
        self.last
    }

    /// Notes what the master was told.
    pub(crate) fn note_completed(&mut self, id: Tid) {
        self.completed = Some(id);
    }
}

impl Node {
    /// The master has decided on orders.
    pub(crate) fn packs_signed(&mut self, approved: Vec<Tid>, rejected: Vec<Tid>) {
        let last = approved.iter().copied().max();
        if self.settings.packs {
            self.write(move |database| database.sign_packs(&approved, &rejected), |_, ()| {});
        }
        let Some(last) = last.filter(|last| *last > self.packing.last) else { return };
        self.packing.last = last;
        if self.phase == Phase::Operating {
            self.look_for_packs();
        }
    }

    /// Looks whether there is an order to carry out, and how far all cells are.
    pub(crate) fn look_for_packs(&mut self) {
        if !self.settings.packs {
            let last = self.packing.last;
            return self.tell_completed(last);
        }
        if self.packing.is_busy {
            self.packing.has_changed = true;
            return;
        }
        let Some(own) = self.id else { return };
        (self.packing.is_busy, self.packing.has_changed) = (true, false);
        self.write_lazily(
            move |database| database.cells(own),
            |node, cells| {
                node.packing.is_busy = false;
                match node.packing.has_changed {
                    true => node.look_for_packs(),
                    false => node.pack_cells(&cells),
                }
            },
        );
    }

    fn pack_cells(&mut self, cells: &[CellProgress]) {
        if let Some(packed) = cells.iter().map(|cell| cell.packed).min() {
            self.tell_completed(packed);
        }
        let (last, ready) = (self.packing.last, |cell: &&CellProgress| self.can_pack(cell));
        let waiting = |cell: &CellProgress| cell.packed < last && self.is_fetched(cell.partition);
        let waits_for_replicas = cells.iter().filter(ready).any(waiting);
        let ready = cells.iter().filter(ready).filter(|cell| !self.is_fetched(cell.partition));
        let behind = ready.min_by_key(|cell| (cell.packed, cell.partition));
        self.packing.waits_for_replicas = waits_for_replicas;
        let Some(behind) = behind else { return };
        if behind.packed >= self.packing.last {
            self.packing.order = None;
            return;
        }
        let is_next = |order: &&PackOrder| order.id > behind.packed && self.packing_is_for(behind);
        if self.packing.order.as_ref().filter(is_next).is_some() {
            return self.pack_step(Step { partition: behind.partition, from: 0 });
        }
        self.packing.is_busy = true;
        let id = behind.packed.next();
        self.ask_master(AskPackOrders { id }, Asked::PackOrders(behind.packed));
    }

    /// Looks for packs again if some wait for replicas.
    pub(crate) fn resume_packs(&mut self) {
        if self.packing.waits_for_replicas {
            self.look_for_packs();
        }
    }

    /// Whether the known order is the next one of a cell: it was asked for with this cell's state.
    fn packing_is_for(&self, cell: &CellProgress) -> bool {
        self.packing.asked_after == Some(cell.packed)
    }

    /// Whether a cell has all that an order may need.
    fn can_pack(&self, cell: &CellProgress) -> bool {
        let (Some(table), Some(own)) = (&self.table, self.id) else { return false };
        let state = table.state(cell.partition, own);
        state == Some(zodium_neo::CellState::UpToDate) && self.can_pack_in_backup(cell.partition)
    }

    /// The master tells the next order.
    pub(crate) fn pack_orders_told(&mut self, asked: Option<Asked>, orders: Vec<PackOrder>) {
        let Some(Asked::PackOrders(after)) = asked else { return };
        self.packing.is_busy = false;
        let approved = orders.into_iter().find(|order| order.approved == Some(true));
        let Some(order) = approved else {
            if self.packing.has_changed {
                self.look_for_packs();
            }
            return;
        };
        info!(order = %order.id, until = %order.tid, is_partial = order.partial, "packing");
        self.packing.order = Some(order);
        self.packing.asked_after = Some(after);
        self.look_for_packs();
    }

    fn pack_step(&mut self, step: Step) {
        let (Some(order), Some(own)) = (self.packing.order.clone(), self.id) else { return };
        let partitions = self.table.as_ref().map_or(0, PartitionTable::partitions);
        self.packing.is_busy = true;
        let Step { partition, from } = step;
        self.write_lazily(
            move |database| {
                let next = match &order.oids {
                    None => {
                        let objects = PackObjects::From(Oid(from), STEP_OBJECTS);
                        database.pack(partition, order.tid, objects)?.map(|oid| oid.0)
                    }
                    Some(oids) => {
                        let is_here =
                            |oid: &&Oid| Partition::of_oid(**oid, partitions) == Some(partition);
                        let here = oids.0.iter().filter(is_here).skip(from as usize);
                        let some: Vec<_> = here.take(STEP_OBJECTS as usize).copied().collect();
                        database.pack(partition, order.tid, PackObjects::These(&some))?;
                        let is_more = some.len() == STEP_OBJECTS as usize;
                        is_more.then_some(from + u64::from(STEP_OBJECTS))
                    }
                };
                if next.is_none() {
                    database.set_packed(own, partition, order.id)?;
                }
                Ok(next)
            },
            move |node, next| {
                node.packing.is_busy = false;
                match next {
                    // A cell that is taken away, or fetched, meanwhile is not packed further.
                    Some(from) if node.is_readable(partition) && !node.is_fetched(partition) => {
                        node.pack_step(Step { partition, from });
                    }
                    _ => node.look_for_packs(),
                }
            },
        );
    }

    fn tell_completed(&mut self, id: Tid) {
        if self.packing.completed != Some(id) {
            self.packing.completed = Some(id);
            self.notify_master(NotifyPackCompleted { id });
        }
    }
}
