//! Compares the index file with the data.
//!
//! The index is read before the length of the data file is taken, so that while a file is served
//! it never covers more than what is walked through. It is compared when the walk comes to the
//! end that the index says it covers.

use std::io;
use std::path::Path;

use zodium_disk::{Disk, FileStream, OpenMode, with_suffix};
use zodium_types::Oid;

use crate::format::{Damage, DamageKind};
use crate::open::IndexFileError;
use crate::open::read_index_file;
use crate::read::Positions;

/// Most differences that are reported one by one.
const TOLD_MAX: u64 = 100;

/// The result for the index file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexVerdict {
    /// There is none, or it is of a ZODB before 3.10, which is not used.
    None,
    /// It names the right record of every object.
    Agrees,
    /// It names other records.
    Differs,
}

/// The index file beside a data file.
pub(crate) struct IndexCheck {
    claimed: Option<(Positions, u64)>,
    verdict: IndexVerdict,
}

impl IndexCheck {
    pub(crate) fn without_index() -> IndexCheck {
        IndexCheck { claimed: None, verdict: IndexVerdict::None }
    }

    pub(crate) fn read(disk: &dyn Disk, path: &Path, report: &mut dyn FnMut(Damage)) -> IndexCheck {
        let mut check = IndexCheck::without_index();
        let file = match disk.open(&with_suffix(path, ".index"), OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return check,
            Err(error) => {
                check.differs(0, format!("the index file cannot be opened: {error}"), report);
                return check;
            }
        };
        let positions = Positions::new();
        let read = read_index_file(FileStream::new(file.as_ref()), |oid, at| {
            positions.publish(oid, at);
        });
        match read {
            Ok(end) => check.claimed = Some((positions, end)),
            Err(IndexFileError::OldFormat) => {}
            Err(error) => check.differs(0, error.to_string(), report),
        }
        check
    }

    /// Compares once a piece begins, or the file ends, at the end of the index.
    pub(crate) fn at(&mut self, start: u64, current: &Positions, report: &mut dyn FnMut(Damage)) {
        let Some((claimed, end)) = self.claimed.take_if(|(_, end)| *end <= start) else { return };
        if end != start {
            let what = format!("the index file ends at {end}, where no transaction does");
            return self.differs(end, what, report);
        }
        self.verdict = IndexVerdict::Agrees;
        let mut count = 0;
        let mut differ = |position: u64, what: String, oid: Oid| {
            count += 1;
            if count <= TOLD_MAX {
                let (kind, oid) = (DamageKind::Index, Some(oid));
                report(Damage { kind, position, what, oid, tid: None });
            }
        };
        for (oid, position) in claimed.iter() {
            match current.position(oid) {
                Some(real) if real == position => {}
                Some(real) => differ(real, format!("the index file says {position}"), oid),
                None => differ(position, "in the index file, not in the data".to_owned(), oid),
            }
        }
        for (oid, position) in current.iter() {
            if claimed.position(oid).is_none() {
                differ(position, "missing in the index file".to_owned(), oid);
            }
        }
        if count > 0 {
            self.verdict = IndexVerdict::Differs;
        }
        if let Some(more) = count.checked_sub(TOLD_MAX).filter(|more| *more > 0) {
            let what = format!("{more} more objects that the index file has elsewhere");
            self.differs(end, what, report);
        }
    }

    /// The end of the data file, where the last comparison is due.
    pub(crate) fn conclude(
        mut self,
        end: u64,
        current: &Positions,
        report: &mut dyn FnMut(Damage),
    ) -> IndexVerdict {
        self.at(end, current, report);
        if let Some((_, claimed)) = self.claimed.take() {
            let what = format!("the index file covers {claimed} bytes, the data file has {end}");
            self.differs(end, what, report);
        }
        self.verdict
    }

    fn differs(&mut self, position: u64, what: String, report: &mut dyn FnMut(Damage)) {
        self.verdict = IndexVerdict::Differs;
        report(Damage { kind: DamageKind::Index, position, what, oid: None, tid: None });
    }
}
