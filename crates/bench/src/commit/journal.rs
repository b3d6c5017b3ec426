//! Records acknowledged commits, and verifies that they are present.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use anyhow::{Context, Result, ensure};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::MessageId;

use super::content::Content;
use super::link::Link;

/// Pending loads while everything is read back.
const IN_FLIGHT: usize = 64;

/// The last known revision of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) oid: Oid,
    pub(super) serial: Tid,
    /// How many times it was written.
    pub(super) count: u64,
}

/// Acknowledged writes by object.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: HashMap<Oid, Written>,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    last: Known,
    times: u64,
}

impl Journal {
    /// Records an acknowledged write.
    pub(super) fn note(&mut self, known: Known) {
        self.merge(Written { last: known, times: 1 });
    }

    /// Adds the journal of another client.
    pub(super) fn add(&mut self, other: &Journal) {
        other.entries.values().for_each(|written| self.merge(*written));
    }

    fn merge(&mut self, other: Written) {
        match self.entries.entry(other.last.oid) {
            Entry::Vacant(entry) => {
                entry.insert(other);
            }
            Entry::Occupied(mut entry) => {
                let written = entry.get_mut();
                written.times += other.times;
                if other.last.serial > written.last.serial {
                    written.last = other.last;
                }
            }
        }
    }

    /// Number of objects.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Loads everything: the last acknowledged revision must be the current one, and its count must
    /// include all acknowledged writes.
    pub(super) fn verify(&self, link: &mut Link, content: &Content) -> Result<()> {
        let written: Vec<&Written> = self.entries.values().collect();
        for batch in written.chunks(IN_FLIGHT) {
            for Written { last, .. } in batch {
                link.load(last.oid)?;
            }
            link.flush()?;
            let mut left = batch.len();
            while left > 0 {
                let received = link.receive()?.to_vec();
                for answer in link.answers(&received)? {
                    let id = answer.id.clone();
                    let MessageId::Load { oid, .. } = id else {
                        anyhow::bail!("{id:?} was answered, which was not asked for");
                    };
                    let written = self.entries.get(&oid);
                    let written = written.with_context(|| format!("{oid} was not asked for"))?;
                    written.check(&answer.expect(&id)?, content)?;
                    left -= 1;
                }
            }
        }
        Ok(())
    }
}

impl Written {
    fn check(&self, answer: &Value<'_>, content: &Content) -> Result<()> {
        let Known { oid, serial, count } = self.last;
        let parts = answer.as_sequence().context("a load was answered with no sequence")?;
        let got = parts.get(1).and_then(Value::as_tid);
        ensure!(
            got == Some(serial),
            "object {oid} was acknowledged with {serial}, but {got:?} is current"
        );
        let data = parts.first().and_then(Value::as_bytes).unwrap_or_default();
        let there = content.check(oid, data)?;
        ensure!(
            there == count && count == self.times,
            "object {oid} was written {} times, but what is there says {there}",
            self.times
        );
        Ok(())
    }
}
