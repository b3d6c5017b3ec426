//! What became of all mutations: a line for each, and a score for each crate.

use std::collections::BTreeMap;
use std::fmt;

use super::table::Mutation;
use super::trial::Verdict;

/// A mutation and what became of it.
pub(crate) struct Result<'a> {
    pub(crate) mutation: &'a Mutation,
    pub(crate) verdict: Verdict,
}

impl fmt::Display for Result<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.mutation.name, self.verdict)
    }
}

/// All that has been tried.
#[derive(Default)]
pub(crate) struct Report<'a> {
    scores: BTreeMap<&'a str, Score>,
    /// What is to be mended: tests, or entries.
    unclean: Vec<String>,
}

#[derive(Clone, Copy, Default)]
struct Score {
    noticed: usize,
    all: usize,
}

impl<'a> Report<'a> {
    pub(crate) fn add(&mut self, result: Result<'a>) {
        let score = self.scores.entry(result.mutation.crate_folder()).or_default();
        score.all += 1;
        match result.verdict {
            Verdict::Noticed(_) | Verdict::Hung => score.noticed += 1,
            Verdict::Survived | Verdict::DoesNotCompile(_) => {
                self.unclean.push(format!("{result}\n  {}", result.mutation.why));
            }
        }
    }

    /// Whether every mutation was noticed.
    pub(crate) fn is_clean(&self) -> bool {
        self.unclean.is_empty()
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.unclean {
            writeln!(f, "{line}")?;
        }
        let mut total = Score::default();
        for (name, score) in &self.scores {
            total.noticed += score.noticed;
            total.all += score.all;
            writeln!(f, "{name:<24} {score}")?;
        }
        write!(f, "{:<24} {total}", "all")
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Score { noticed, all } = *self;
        let percent = 100.0 * noticed as f64 / all.max(1) as f64;
        write!(f, "{noticed:>4} of {all:>4} noticed, {percent:.0} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survivor_and_a_wrong_entry_spoil_the_score() {
        let mutation = Mutation::of("a/b", "x", "y");
        let report = |verdicts: &[Verdict]| {
            let mut report = Report::default();
            for verdict in verdicts {
                report.add(Result { mutation: &mutation, verdict: verdict.clone() });
            }
            (report.is_clean(), report.to_string())
        };
        let noticed = Verdict::Noticed("test".to_owned());
        let (is_clean, text) = report(&[noticed.clone(), Verdict::Hung]);
        assert!(is_clean);
        assert!(text.contains("crates/a") && text.contains("2 of    2 noticed, 100 %"), "{text}");
        for bad in [Verdict::Survived, Verdict::DoesNotCompile("error".to_owned())] {
            let (is_clean, text) = report(&[noticed.clone(), bad]);
            assert!(!is_clean);
            assert!(text.contains("1 of    2 noticed, 50 %"), "{text}");
            assert!(text.contains("a/b"), "{text}");
        }
    }
}
