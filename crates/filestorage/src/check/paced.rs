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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn progress_is_told_at_each_step_and_at_the_end() {
        let told = RefCell::new(Vec::new());
        let progress = |done, total| told.borrow_mut().push((done, total));
        let total = 3 * STEP_BYTES;
        let mut paced = Paced::new(&progress, total);
        let second = 2 * STEP_BYTES + 9;
        for position in [
            1,
            STEP_BYTES - 1,
            STEP_BYTES + 9,
            STEP_BYTES + 10,
            second - 1,
            second,
            total - 1,
            total,
        ] {
            paced.reach(position);
        }
        assert_eq!(told.take(), [(STEP_BYTES + 9, total), (second, total), (total, total)]);
        Paced::new(&progress, total).reach(STEP_BYTES);
        assert_eq!(told.take(), [(STEP_BYTES, total)]);
    }
}
