//! The second pass: each current object, loaded as a client loads it.

use rustc_hash::FxHashSet;
use zodium_storage::{Load, LogItem, Read, StorageError};
use zodium_types::{Oid, Tid};

use super::log::{Log, digest};
use super::{Findings, LogCheck, LogDamageKind};
use crate::references::collect;
use crate::{TidRange, ToolError, walk};

pub(super) fn load_objects(
    storage: &dyn Read,
    last: Tid,
    log: &Log,
    check: LogCheck,
    advance: &mut dyn FnMut(usize),
    findings: &mut Findings<'_>,
) -> Result<(), ToolError> {
    let mut loader = Loader { storage, log, unfound: Vec::new() };
    let (mut references, mut outcome) = (Vec::new(), Ok::<(), ToolError>(()));
    let (mut asked, mut tids, at_once) = (Vec::new(), Vec::new(), storage.loads_at_once());
    let mut load_asked = |asked: &mut Vec<(Oid, Tid)>, tids: &mut Vec<Tid>| {
        let loaded = storage.load_many_before(asked);
        for (((oid, _), tid), loaded) in asked.drain(..).zip(tids.drain(..)).zip(loaded) {
            let Some(data) = loader.checked(oid, tid, loaded, findings)? else { continue };
            advance(data.len());
            if check.references {
                loader.follow(oid, tid, &data, &mut references, findings);
            }
        }
        Ok(())
    };
    log.written.each(|oid, tid| {
        if outcome.is_ok() {
            asked.push((oid, last.next()));
            tids.push(Tid(tid));
            if asked.len() == at_once {
                outcome = load_asked(&mut asked, &mut tids);
            }
        }
    });
    outcome.and_then(|()| load_asked(&mut asked, &mut tids))?;
    loader.look_for_unfound(findings)
}

struct Loader<'c> {
    storage: &'c dyn Read,
    log: &'c Log,
    /// Objects that no load has found, with the transactions that wrote them.
    unfound: Vec<(Tid, Oid)>,
}

impl Loader<'_> {
    /// The data of an object that `tid` wrote last; `None` if it is deleted or damaged.
    fn checked(
        &mut self,
        oid: Oid,
        tid: Tid,
        loaded: Result<Load, StorageError>,
        findings: &mut Findings<'_>,
    ) -> Result<Option<bytes::Bytes>, ToolError> {
        let is_deleted = self.log.deleted.contains(&oid);
        let revision = match loaded.map_err(ToolError::from) {
            Ok(Load::Revision(revision)) => revision,
            Ok(Load::NoRevision | Load::Missing | Load::WouldBlock) => {
                if self.log.data.find(oid).is_some() && !is_deleted {
                    self.unfound.push((tid, oid));
                }
                return Ok(None);
            }
            Err(error) => {
                findings.damage_or(error, LogDamageKind::Load, Some(oid), Some(tid))?;
                return Ok(None);
            }
        };
        let serial = revision.serial;
        let what = match self.log.data.find(oid) {
            _ if !self.log.is_whole => return Ok(Some(revision.data)),
            _ if is_deleted => format!("the log deletes it, and a load finds {serial}"),
            _ if serial != tid => format!("a load finds {serial} in place of it"),
            Some(logged) if logged != digest(&revision.data) => {
                format!("a load finds {} other bytes than the log has", revision.data.len())
            }
            _ => return Ok(Some(revision.data)),
        };
        findings.add(LogDamageKind::Serial, Some(oid), Some(tid), what);
        Ok(None)
    }

    /// Looks for the references of an object that lead nowhere.
    fn follow(
        &self,
        oid: Oid,
        tid: Tid,
        data: &[u8],
        references: &mut Vec<Oid>,
        findings: &mut Findings<'_>,
    ) {
        if !collect(data, references) {
            findings.no_pickles(oid, tid, data, "its references cannot be read");
        }
        references.sort_unstable();
        references.dedup();
        for to in references.drain(..) {
            if let Some(why) = self.why_missing(to) {
                let what = format!("the reference to {to} leads nowhere: {why}");
                findings.add(LogDamageKind::Reference, Some(oid), Some(tid), what);
            }
        }
    }

    /// Looks whether the log still has the records that no load has found; a pack may have dropped
    /// them. It may have dropped many of one transaction, so each transaction is read once.
    fn look_for_unfound(&mut self, findings: &mut Findings<'_>) -> Result<(), ToolError> {
        self.unfound.sort_unstable();
        for written in self.unfound.chunk_by(|(one, _), (other, _)| one == other) {
            let (tid, _) = written[0];
            let mut logged = FxHashSet::default();
            walk(self.storage, TidRange { min: Some(tid), max: Some(tid) }, &mut |item| {
                if let LogItem::Record { oid, .. } = item {
                    logged.insert(oid);
                }
                Ok(())
            })?;
            for (_, oid) in written.iter().filter(|(_, oid)| logged.contains(oid)) {
                let what = "the log has it, and no load finds it".to_owned();
                findings.add(LogDamageKind::Load, Some(*oid), Some(tid), what);
            }
        }
        Ok(())
    }

    fn why_missing(&self, oid: Oid) -> Option<&'static str> {
        match self.log.written.find(oid) {
            // It may be among what could not be listed.
            None if !self.log.is_whole => None,
            None => Some("there is no such object"),
            Some(_) if self.log.deleted.contains(&oid) => Some("it is deleted"),
            Some(_) => None,
        }
    }
}
