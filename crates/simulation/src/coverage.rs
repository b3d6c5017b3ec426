//! What must have happened in a number of runs: that they found nothing means little without it.

use std::collections::BTreeMap;

/// What is needed.
pub(crate) struct Coverage {
    /// Runs that are enough for all of it, if they are long enough.
    pub(crate) runs: u64,
    /// Steps of a run that is long enough.
    pub(crate) steps: u64,
    /// Kinds of events.
    pub(crate) kinds: &'static [&'static str],
    /// How often each kind has to happen.
    pub(crate) least: u64,
}

impl Coverage {
    /// What has not happened in this many runs of this many steps: of `always` in any number of
    /// runs, of `counts` and the kinds of events in enough of them.
    pub(crate) fn lacking(
        &self,
        (runs, steps): (u64, u64),
        happened: &BTreeMap<&'static str, u64>,
        always: &[(&'static str, u64)],
        counts: &[(&'static str, u64)],
    ) -> Vec<&'static str> {
        let none = |counts: &[(&'static str, u64)]| {
            let none = counts.iter().filter(|(_, count)| *count == 0);
            none.map(|(name, _)| *name).collect::<Vec<_>>()
        };
        let mut lacking = none(always);
        if runs >= self.runs && steps >= self.steps {
            let count = |kind: &&str| happened.get(*kind).copied().unwrap_or(0);
            lacking.extend(self.kinds.iter().filter(|kind| count(kind) < self.least));
            lacking.extend(none(counts));
        }
        lacking
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COVERAGE: Coverage = Coverage { runs: 2, steps: 10, kinds: &["crash"], least: 2 };

    fn lacking(runs: u64, steps: u64, crashes: u64, reads: u64) -> Vec<&'static str> {
        let happened = BTreeMap::from([("crash", crashes)]);
        COVERAGE.lacking((runs, steps), &happened, &[("reads", reads)], &[("packs", 0)])
    }

    #[test]
    fn few_runs_need_little() {
        assert_eq!(lacking(1, 10, 0, 1), [""; 0]);
        assert_eq!(lacking(2, 9, 0, 1), [""; 0]);
        assert_eq!(lacking(0, 10, 0, 0), ["reads"]);
    }

    #[test]
    fn many_runs_need_all() {
        assert_eq!(lacking(2, 10, 1, 1), ["crash", "packs"]);
        assert_eq!(lacking(3, 11, 2, 1), ["packs"]);
    }
}
