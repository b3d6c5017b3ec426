//! New oids, which the primary master hands out in stretches.
//!
//! Key decision: they are given up with the connection to the master. The next master knows only
//! the oids that were committed, and hands out the others again.

use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use zodium_neo::Message;
use zodium_neo::messages::AskNewOIDs;
use zodium_types::Oid;

use crate::NeoError;
use crate::cluster::Cluster;
use crate::session::Session;

/// Oids that are asked for at once.
const STRETCH: u32 = 1000;
/// Most oids in a row. Masters answer with each of them, in one message.
const COUNT_MAX: u32 = 1 << 20;

/// Oids that no client of the cluster has used yet.
#[derive(Default)]
pub(super) struct OidStock(Mutex<Stock>);

#[derive(Default)]
struct Stock {
    oids: Vec<RangeInclusive<u64>>,
    /// Where they come from.
    session: Weak<Session>,
}

impl OidStock {
    /// Takes `count` oids in a row. Blocking when the stock is used up, or the master was lost.
    pub(super) fn take(
        &self,
        cluster: &Cluster,
        count: u64,
    ) -> Result<RangeInclusive<u64>, NeoError> {
        // Held while the master is asked: others that wait need its answer too.
        let mut stock = self.0.lock();
        let session = cluster.session(cluster.deadline())?;
        if stock.session.as_ptr() != Arc::as_ptr(&session) {
            *stock = Stock { oids: Vec::new(), session: Arc::downgrade(&session) };
        }
        if let Some(oids) = take(&mut stock.oids, count) {
            return Ok(oids);
        }
        let asked = u32::try_from(count).ok().filter(|count| *count <= COUNT_MAX);
        let what = "a NEO cluster gives at most 1,048,576 new oids at once";
        let asked = asked.ok_or(NeoError::Unsupported { what })?.max(STRETCH);
        let asked = session.master.ask(AskNewOIDs { count: asked }, |answer| match answer {
            Message::AnswerNewOIDs(answer) => Some(answer.oids),
            _ => None,
        })?;
        let oids = asked.wait()?;
        oids.iter().for_each(|oid| cluster.commits.note_oid(*oid));
        stock.oids = stretches(&oids);
        let peer = session.master.peer();
        take(&mut stock.oids, count)
            .ok_or_else(|| NeoError::lost(peer, format!("it gave no {count} new oids in a row")))
    }
}

/// Takes oids off the first stretch that is long enough. Shorter ones before it are given up.
fn take(stock: &mut Vec<RangeInclusive<u64>>, count: u64) -> Option<RangeInclusive<u64>> {
    let beyond_first = count.checked_sub(1)?;
    let place = stock.iter().position(|one| one.end() - one.start() >= beyond_first)?;
    stock.drain(..place);
    let first = stock.first_mut()?;
    let (start, end) = (*first.start(), *first.end());
    let taken = start..=start + beyond_first;
    if *taken.end() == end {
        stock.remove(0);
    } else {
        *first = taken.end() + 1..=end;
    }
    Some(taken)
}

/// Oids as stretches without gaps.
fn stretches(oids: &[Oid]) -> Vec<RangeInclusive<u64>> {
    let mut all: Vec<RangeInclusive<u64>> = Vec::new();
    for Oid(oid) in oids {
        match all.last_mut() {
            Some(last) if last.end().checked_add(1) == Some(*oid) => *last = *last.start()..=*oid,
            _ => all.push(*oid..=*oid),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oids_are_taken_in_a_row_and_once() {
        let mut stock = stretches(&[1, 2, 4, 5, 6, 7, 8].map(Oid));
        assert_eq!(stock, [1..=2, 4..=8]);
        assert_eq!(take(&mut stock, 3), Some(4..=6), "the first stretch is too short");
        assert_eq!(take(&mut stock, 3), None);
        assert_eq!(take(&mut stock, 2), Some(7..=8));
        assert!(stock.is_empty());
        assert_eq!(take(&mut stock, 0), None);
    }
}
