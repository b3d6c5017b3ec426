//! Packing: all of it under the lock, since it is quick.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use zodium_pickle::{Reference, references_of_record};
use zodium_storage::{Pack, PackOptions, PackStep, Packed, StorageError};
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::MemoryStorage;
use crate::state::{Committed, Record, State};

impl Pack for MemoryStorage {
    fn pack(&self, until: Tid, options: &PackOptions<'_>) -> Result<Option<Packed>, StorageError> {
        self.check_writable()?;
        (options.progress)(PackStep::Marking, 0, self.state.read().objects.len() as u64);
        if options.cancelled.load(Ordering::Relaxed) {
            return Err(StorageError::PackCancelled("the pack was cancelled".into()));
        }
        let mut state = self.state.write();
        let kept = match options.gc {
            true => Some(reachable(&state, until)?),
            false => None,
        };
        let packed = packed_state(&state, until, kept.as_ref());
        let figures = Packed {
            size_before: size_of(&state),
            size_after: size_of(&packed),
            objects_before: state.objects.len() as u64,
            objects_after: packed.objects.len() as u64,
            ..Packed::default()
        };
        if figures.size_before == figures.size_after {
            return Ok(None);
        }
        *state = packed;
        drop(state);
        (options.packed)(&figures);
        Ok(Some(figures))
    }
}

fn size_of(state: &State) -> u64 {
    state.transactions.values().map(|committed| committed.bytes()).sum()
}

/// The objects that the root leads to at `until`, or that anything later refers to.
fn reachable(state: &State, until: Tid) -> Result<BTreeSet<Oid>, StorageError> {
    let later = state.transactions.range(until.next()..);
    let later = later.flat_map(|(_, committed)| &committed.records);
    let mut left = vec![Oid::ROOT];
    for (oid, record) in later {
        left.push(*oid);
        left.extend(references(record.data.as_deref())?);
    }
    let mut found = BTreeSet::new();
    while let Some(oid) = left.pop() {
        if !found.insert(oid) {
            continue;
        }
        let revisions = state.objects.get(&oid);
        let current = revisions.and_then(|all| all.range(..until.next()).next_back());
        if let Some((_, record)) = current {
            left.extend(references(record.data.as_deref())?);
        }
    }
    Ok(found)
}

fn references(data: Option<&[u8]>) -> Result<Vec<Oid>, StorageError> {
    let mut found = Vec::new();
    let Some(data) = data else { return Ok(found) };
    let read = references_of_record(data, &mut |reference| {
        if let Reference::Strong(oid) = reference {
            found.push(oid);
        }
    });
    read.map_err(|error| StorageError::Other(error.into()))?;
    Ok(found)
}

/// What is left after a pack; without `kept` no object is garbage.
fn packed_state(state: &State, until: Tid, kept: Option<&BTreeSet<Oid>>) -> State {
    let pointed_to: BTreeSet<(Oid, Tid)> = state
        .transactions
        .range(until.next()..)
        .flat_map(|(_, committed)| &committed.records)
        .flat_map(|(oid, record)| {
            [Some(record.data_tid), record.same_as].map(|tid| tid.map(|tid| (*oid, tid)))
        })
        .flatten()
        .collect();
    let is_kept = |oid: Oid, tid: Tid, is_deletion: bool| {
        let current = state.objects.get(&oid).and_then(|all| all.range(..until.next()).next_back());
        let is_current = current.is_some_and(|(current, _)| *current == tid);
        let is_used = kept.is_none_or(|kept| kept.contains(&oid));
        (is_current && is_used && !is_deletion) || pointed_to.contains(&(oid, tid))
    };
    let mut packed = State { generation: state.generation + 1, ..State::default() };
    for committed in state.transactions.values() {
        let mut left = Committed::clone(committed);
        if left.tid <= until {
            let tid = left.tid;
            left.records.retain(|(oid, record)| is_kept(*oid, tid, record.data.is_none()));
            if left.records.is_empty() || left.status == TransactionStatus::Undone {
                continue;
            }
            left.status = TransactionStatus::Packed;
        }
        packed.add(left);
    }
    inline_dropped(&mut packed);
    packed
}

/// Records whose data stood in one that was dropped have their own now.
fn inline_dropped(state: &mut State) {
    let objects = state.objects.clone();
    let is_there = |oid: &Oid, tid: Tid| objects.get(oid).is_some_and(|all| all.contains_key(&tid));
    let inline = |oid: &Oid, tid: Tid, record: &mut Record| {
        if !is_there(oid, record.data_tid) {
            record.data_tid = tid;
        }
        record.same_as = record.same_as.filter(|same| is_there(oid, *same));
    };
    for (tid, committed) in &mut state.transactions {
        for (oid, record) in &mut Arc::make_mut(committed).records {
            inline(oid, *tid, record);
        }
    }
    for (oid, revisions) in &mut state.objects {
        for (tid, record) in revisions {
            inline(oid, *tid, record);
        }
    }
}
