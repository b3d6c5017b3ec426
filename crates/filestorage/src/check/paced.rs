//! Reports progress at intervals: the receiver may look at a clock or write to a terminal.

/// Bytes between two reports.
const STEP_BYTES: u64 = 8 << 20;

/// Reports progress at intervals.
pub(crate) struct Paced<'a> {
    progress: &'a dyn Fn(u64, u64),
    total: u64,
    next: u64,
}

impl<'a> Paced<'a> {
    pub(crate) fn new(progress: &'a dyn Fn(u64, u64), total: u64) -> Paced<'a> {
        Paced { progress, total, next: STEP_BYTES }
    }

    /// Notes that everything before `position` is done.
    pub(crate) fn reach(&mut self, position: u64) {
        if position >= self.next || position == self.total {
            (self.progress)(position, self.total);
            self.next = position + STEP_BYTES;
        }
    }
}
