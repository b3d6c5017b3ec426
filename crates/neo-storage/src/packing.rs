//! Packs, in the background: one order after the other, partition by partition.
//!
//! The master says which orders are signed, and tells the oldest approved one that is not carried
//! out when it is asked. A step packs some objects of one partition; steps alternate with other
//! writes. How far a partition is, the database keeps by whole orders.

use tracing::info;
use zodium_neo::messages::{AskPackOrders, NotifyPackCompleted, PackOrder};
use zodium_neo::{CellState, Partition};
use zodium_types::{Oid, Tid};

use crate::Node;
use crate::cluster::Cluster;
use crate::database::{CellProgress, PackObjects};
use crate::links::{Asked, Links};
use crate::phase::Phase;
use crate::replication::Replication;

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
    /// The cells as the database told them, and as they were packed since: to ask it again after
    /// each one would take the square of their number.
    cells: Vec<CellProgress>,
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

    /// The master has decided on orders.
    pub(crate) fn packs_signed(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        approved: Vec<Tid>,
        rejected: Vec<Tid>,
    ) {
        let last = approved.iter().copied().max();
        if cluster.settings().packs {
            links.write(move |database| database.sign_packs(&approved, &rejected), |_, ()| {});
        }
        let Some(last) = last.filter(|last| *last > self.last) else { return };
        self.last = last;
        if cluster.phase() == Phase::Operating {
            self.look(links, cluster);
        }
    }

    /// Looks whether there is an order to carry out, and how far all cells are.
    pub(crate) fn look(&mut self, links: &mut Links, cluster: &Cluster) {
        if !cluster.settings().packs {
            let last = self.last;
            return self.tell_completed(links, last);
        }
        if self.is_busy {
            self.has_changed = true;
            return;
        }
        let Some(own) = cluster.id() else { return };
        (self.is_busy, self.has_changed) = (true, false);
        links.write_lazily(
            move |database| database.cells(own),
            |node, cells| {
                let Node { links, cluster, packing, replication, .. } = node;
                packing.is_busy = false;
                packing.cells = cells;
                packing.go_on(links, cluster, replication);
            },
        );
    }

    /// Packs the next cell, as long as it is known how far all are.
    fn go_on(&mut self, links: &mut Links, cluster: &Cluster, replication: &Replication) {
        match self.has_changed {
            true => self.look(links, cluster),
            false => self.pack_cells(links, cluster, replication),
        }
    }

    fn pack_cells(&mut self, links: &mut Links, cluster: &Cluster, replication: &Replication) {
        if let Some(packed) = self.cells.iter().map(|cell| cell.packed).min() {
            self.tell_completed(links, packed);
        }
        let cells = &self.cells;
        let last = self.last;
        let ready = |cell: &&CellProgress| can_pack(cluster, replication, cell, last);
        let waiting =
            |cell: &CellProgress| cell.packed < last && cluster.is_fetched(cell.partition);
        let waits_for_replicas = cells.iter().filter(ready).any(waiting);
        let ready = cells.iter().filter(ready).filter(|cell| !cluster.is_fetched(cell.partition));
        let behind = ready.min_by_key(|cell| (cell.packed, cell.partition)).copied();
        self.waits_for_replicas = waits_for_replicas;
        let Some(behind) = behind else { return };
        if behind.packed >= self.last {
            self.order = None;
            return;
        }
        let is_next = |order: &&PackOrder| order.id > behind.packed && self.is_for(&behind);
        if self.order.as_ref().filter(is_next).is_some() {
            return self.pack_step(links, cluster, Step { partition: behind.partition, from: 0 });
        }
        self.is_busy = true;
        let id = behind.packed.next();
        links.ask_master(AskPackOrders { id }, Asked::PackOrders(behind.packed));
    }

    /// Looks for packs again if some wait for replicas.
    pub(crate) fn resume(&mut self, links: &mut Links, cluster: &Cluster) {
        if self.waits_for_replicas {
            self.look(links, cluster);
        }
    }

    /// Whether the known order is the next one of a cell: it was asked for with this cell's state.
    fn is_for(&self, cell: &CellProgress) -> bool {
        self.asked_after == Some(cell.packed)
    }

    /// The master tells the next order after a pack.
    pub(crate) fn orders_told(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        after: Tid,
        orders: Vec<PackOrder>,
    ) {
        self.is_busy = false;
        let approved = orders.into_iter().find(|order| order.approved == Some(true));
        let Some(order) = approved else {
            if self.has_changed {
                self.look(links, cluster);
            }
            return;
        };
        info!(order = %order.id, until = %order.tid, is_partial = order.partial, "packing");
        self.order = Some(order);
        self.asked_after = Some(after);
        self.look(links, cluster);
    }

    fn pack_step(&mut self, links: &mut Links, cluster: &Cluster, step: Step) {
        let (Some(order), Some(own)) = (self.order.clone(), cluster.id()) else { return };
        let (partitions, id) = (cluster.partitions(), order.id);
        self.is_busy = true;
        let Step { partition, from } = step;
        links.write_lazily(
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
                let Node { links, cluster, packing, replication, .. } = node;
                packing.is_busy = false;
                match next {
                    None => {
                        let here = |cell: &&mut CellProgress| cell.partition == partition;
                        if let Some(cell) = packing.cells.iter_mut().find(here) {
                            cell.packed = id;
                        }
                        packing.go_on(links, cluster, replication);
                    }
                    // A cell that is taken away, or fetched, meanwhile is not packed further.
                    Some(from)
                        if cluster.is_readable(partition) && !cluster.is_fetched(partition) =>
                    {
                        packing.pack_step(links, cluster, Step { partition, from });
                    }
                    Some(_) => packing.look(links, cluster),
                }
            },
        );
    }

    fn tell_completed(&mut self, links: &mut Links, id: Tid) {
        if self.completed != Some(id) {
            self.completed = Some(id);
            links.notify_master(NotifyPackCompleted { id });
        }
    }
}

/// Whether a cell has all that orders up to `last` may need.
fn can_pack(cluster: &Cluster, replication: &Replication, cell: &CellProgress, last: Tid) -> bool {
    let state = cluster.state(cell.partition);
    state == Some(CellState::UpToDate) && replication.can_pack(cluster, cell.partition, last)
}
