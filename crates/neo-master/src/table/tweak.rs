//! Balancing the table: each storage gets as many cells as the others, off by one.
//!
//! The cells are dealt like cards: partition after partition, copy after copy, to one hand after
//! the other. A hand is the cells of one storage. So neighbouring objects are on many storages, and
//! each storage shares partitions with few others.
//!
//! Key decision: which storage gets which hand is an assignment problem, solved exactly: as few
//! cells as possible move. Then hands are exchanged while that brings copies farther apart.

use std::collections::BTreeSet;

use zodium_neo::messages::CellChange;
use zodium_neo::{CellState, NodeId, Partition};

use super::topology::{Devices, shared};
use super::{Cell, Table};

/// What it is worth to keep a cell, by its state. The sum over a table that was tweaked is larger
/// than over any other, so a second tweak changes nothing.
const UP_TO_DATE_WORTH: i64 = 4;
const OUT_OF_DATE_WORTH: i64 = 3;
const FEEDING_WORTH: i64 = 2;
/// A cell is worth more than all preferences for the order of storages together.
const CELL_UNIT: i64 = 1 << 32;

impl Table {
    /// Balances the cells of all storages but the `excluded`, whose cells stay. Gives the changes,
    /// or `None` without storages. A new table is up to date.
    pub(crate) fn tweak(
        &mut self,
        excluded: &BTreeSet<NodeId>,
        devices: &Devices,
    ) -> Option<Vec<CellChange>> {
        let nodes: Vec<_> = self.members.difference(excluded).copied().collect();
        if nodes.is_empty() {
            return None;
        }
        let copies = (self.replicas as usize).saturating_add(1).min(nodes.len());
        let hands = deal(self.rows.len(), nodes.len(), copies);
        let worths: Vec<Vec<i64>> = nodes.iter().map(|node| self.worths(*node, &hands)).collect();
        let mut hand_of = assign(&worths);
        if copies > 1 {
            spread(&mut hand_of, &hands, &nodes, devices, &worths);
        }
        let mut wanted = vec![BTreeSet::new(); self.rows.len()];
        for (node, hand) in nodes.iter().zip(&hand_of) {
            for row in &hands[*hand] {
                wanted[*row].insert(*node);
            }
        }
        let new_state = match self.id {
            Some(_) => CellState::OutOfDate,
            None => CellState::UpToDate,
        };
        let id = self.id;
        let new_cell = |node| Cell::given_after(node, new_state, id);
        let mut changes = Vec::new();
        let partitions = (0..).map(Partition);
        for ((partition, row), wanted) in partitions.zip(&mut self.rows).zip(&wanted) {
            give(partition, row, wanted, new_cell, &mut changes);
            let is_spare = |cell: &Cell| !wanted.contains(&cell.node) && nodes.contains(&cell.node);
            let kept = row.iter().filter(|cell| cell.is_readable() && wanted.contains(&cell.node));
            // Excluded storages do not count: they are about to leave.
            let missing = copies.saturating_sub(kept.count());
            take_back(partition, row, missing, is_spare, &mut changes);
        }
        Some(changes)
    }

    /// What each hand is worth to a storage.
    fn worths(&self, node: NodeId, hands: &[Vec<usize>]) -> Vec<i64> {
        let by_row: Vec<i64> = self.rows.iter().map(|row| worth(row, node)).collect();
        let of_hand = |hand: &Vec<usize>| hand.iter().map(|row| by_row[*row]).sum::<i64>();
        hands.iter().map(|hand| of_hand(hand) * CELL_UNIT).collect()
    }
}

fn worth(row: &[Cell], node: NodeId) -> i64 {
    let cell = row.iter().find(|cell| cell.node == node);
    cell.map_or(0, |cell| match cell.state {
        CellState::UpToDate => UP_TO_DATE_WORTH,
        CellState::OutOfDate => OUT_OF_DATE_WORTH,
        CellState::Feeding => FEEDING_WORTH,
        CellState::Corrupted | CellState::Discarded => 0,
    })
}

/// The rows of each hand.
fn deal(rows: usize, hands: usize, copies: usize) -> Vec<Vec<usize>> {
    let mut dealt = vec![Vec::new(); hands];
    let cells = (0..rows).flat_map(|row| std::iter::repeat_n(row, copies));
    for (place, row) in cells.enumerate() {
        dealt[place % hands].push(row);
    }
    dealt
}

/// Gives the wanted storages their cells.
fn give(
    partition: Partition,
    row: &mut Vec<Cell>,
    wanted: &BTreeSet<NodeId>,
    new_cell: impl Fn(NodeId) -> Cell,
    changes: &mut Vec<CellChange>,
) {
    for node in wanted {
        match row.iter_mut().find(|cell| cell.node == *node) {
            None => {
                let cell = new_cell(*node);
                changes.push(cell.change(partition));
                row.push(cell);
            }
            Some(cell) if cell.state == CellState::Feeding => {
                cell.set(CellState::UpToDate);
                changes.push(cell.change(partition));
            }
            Some(_) => {}
        }
    }
}

/// Removes spare cells. Readable ones stay and feed, up to as many as are `missing`.
fn take_back(
    partition: Partition,
    row: &mut Vec<Cell>,
    mut missing: usize,
    is_spare: impl Fn(&Cell) -> bool,
    changes: &mut Vec<CellChange>,
) {
    row.retain_mut(|cell| {
        if !is_spare(cell) {
            return true;
        }
        if cell.is_readable() && missing > 0 {
            missing -= 1;
            if cell.state != CellState::Feeding {
                cell.set(CellState::Feeding);
                changes.push(cell.change(partition));
            }
            return true;
        }
        changes.push(CellChange { partition, node: cell.node, state: CellState::Discarded });
        false
    });
}

/// For each node the hand, so that the sum of worths is largest. Equal ones stay in their order.
///
/// The Hungarian method with potentials: one augmenting path for each node.
fn assign(worths: &[Vec<i64>]) -> Vec<usize> {
    let count = worths.len();
    // The square of the distance prefers the order of both.
    let cost = |node: usize, hand: usize| -> i64 {
        let distance = node.abs_diff(hand) as i64;
        distance * distance - worths[node][hand]
    };
    // Index 0 stands for none.
    let (mut by_node, mut by_hand) = (vec![0_i64; count + 1], vec![0_i64; count + 1]);
    let mut node_of = vec![0_usize; count + 1];
    for node in 1..=count {
        node_of[0] = node;
        let mut hand = 0;
        let mut least = vec![i64::MAX; count + 1];
        let mut from = vec![0_usize; count + 1];
        let mut is_used = vec![false; count + 1];
        while node_of[hand] != 0 {
            is_used[hand] = true;
            let (row, mut delta, mut next) = (node_of[hand], i64::MAX, 0);
            for other in (1..=count).filter(|other| !is_used[*other]) {
                let reduced = cost(row - 1, other - 1) - by_node[row] - by_hand[other];
                if reduced < least[other] {
                    (least[other], from[other]) = (reduced, hand);
                }
                if least[other] < delta {
                    (delta, next) = (least[other], other);
                }
            }
            let hands = node_of.iter().zip(&mut by_hand).zip(is_used.iter().zip(&mut least));
            for ((owner, potential), (is_used, least)) in hands {
                if *is_used {
                    by_node[*owner] += delta;
                    *potential -= delta;
                } else if *least != i64::MAX {
                    *least -= delta;
                }
            }
            hand = next;
        }
        while hand != 0 {
            node_of[hand] = node_of[from[hand]];
            hand = from[hand];
        }
    }
    let mut hand_of = vec![0; count];
    for (hand, node) in node_of.iter().skip(1).enumerate() {
        hand_of[node - 1] = hand;
    }
    hand_of
}

/// Exchanges the hands of storages while copies of partitions get farther apart by it.
fn spread(
    hand_of: &mut [usize],
    hands: &[Vec<usize>],
    nodes: &[NodeId],
    devices: &Devices,
    worths: &[Vec<i64>],
) {
    let common = |one: &[usize], other: &[usize]| -> u64 {
        one.iter().filter(|row| other.binary_search(row).is_ok()).count() as u64
    };
    let overlaps: Vec<Vec<u64>> =
        hands.iter().map(|one| hands.iter().map(|other| common(one, other)).collect()).collect();
    let device = |node: usize| devices.get(&nodes[node]).map_or(&[][..], Vec::as_slice);
    let near: Vec<Vec<u64>> = (0..nodes.len())
        .map(|one| (0..nodes.len()).map(|other| shared(device(one), device(other))).collect())
        .collect();
    // How near a storage with a hand is to all but `apart`.
    let risk = |hand_of: &[usize], node: usize, hand: usize, apart: usize| -> u64 {
        let others = (0..nodes.len()).filter(|other| *other != node && *other != apart);
        others.map(|other| near[node][other] * overlaps[hand][hand_of[other]]).sum()
    };
    let mut is_better = true;
    while is_better {
        is_better = false;
        for one in 0..nodes.len() {
            for other in one + 1..nodes.len() {
                let (first, second) = (hand_of[one], hand_of[other]);
                let before = risk(hand_of, one, first, other) + risk(hand_of, other, second, one);
                let after = risk(hand_of, one, second, other) + risk(hand_of, other, first, one);
                let gain = |a: usize, b: usize| worths[one][a] + worths[other][b];
                let is_cheaper = gain(second, first) > gain(first, second);
                if after < before || after == before && is_cheaper {
                    hand_of.swap(one, other);
                    is_better = true;
                }
            }
        }
    }
}
