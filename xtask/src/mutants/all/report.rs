//! What became of all mutations of a crate, in a few lines.

use std::collections::HashMap;
use std::fmt;

use super::super::sample::Outcome;
use super::super::trial::Verdict;
use super::build::{LeftOut, Reason};
use super::plan::Planned;
use super::run::Judged;

/// The mutations that were chosen, and what is known of them.
pub(super) struct Report<'a> {
    chosen: usize,
    outcome: Outcome,
    missed: Vec<(&'a Planned, &'a Judged)>,
    without_place: usize,
    uncompiled: usize,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        chosen: &[&'a Planned],
        judged: &'a HashMap<u32, Judged>,
        left_out: &'a LeftOut,
    ) -> Report<'a> {
        let mut report = Report {
            chosen: chosen.len(),
            outcome: Outcome { noticed: 0, missed: 0 },
            missed: Vec::new(),
            without_place: 0,
            uncompiled: 0,
        };
        for mutation in chosen {
            match left_out.get(&mutation.id) {
                Some(Reason::NoPlace) => report.without_place += 1,
                Some(Reason::DoesNotCompile(_)) => report.uncompiled += 1,
                None => {
                    if let Some(judged) = judged.get(&mutation.id) {
                        report.add(mutation, judged);
                    }
                }
            }
        }
        report.missed.sort_by_key(|(mutation, _)| (&mutation.file, mutation.id));
        report
    }

    fn add(&mut self, mutation: &'a Planned, judged: &'a Judged) {
        match judged.verdict {
            Verdict::Noticed(_) | Verdict::Hung => self.outcome.noticed += 1,
            Verdict::Survived | Verdict::DoesNotCompile(_) => {
                self.outcome.missed += 1;
                self.missed.push((mutation, judged));
            }
        }
    }

    /// Whether every mutation that was tried was noticed.
    pub(super) fn is_clean(&self) -> bool {
        self.missed.is_empty()
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (mutation, judged) in &self.missed {
            let unreached = if judged.is_reached { "" } else { " (no test reaches it)" };
            writeln!(f, "{}{unreached}", mutation.name)?;
        }
        let Report { chosen, without_place, uncompiled, .. } = self;
        let tried = self.outcome.noticed + self.outcome.missed;
        let rest = chosen - without_place - uncompiled - tried;
        writeln!(
            f,
            "of {chosen} mutations {without_place} have no place for a switch, {uncompiled} do not \
             compile, {rest} are not tried yet"
        )?;
        let slow = self.missed.iter().filter(|(_, judged)| judged.slow_left > 0).count();
        if slow > 0 {
            writeln!(f, "{slow} that were not noticed have slow tests left: SLOW=1 runs them")?;
        }
        match rest {
            0 => {
                let noticed = self.outcome.noticed;
                let percent = 100.0 * noticed as f64 / tried.max(1) as f64;
                write!(f, "{noticed} of {tried} are noticed: {percent:.1} %")
            }
            _ => write!(f, "{}", self.outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Genre;
    use super::*;

    #[test]
    fn a_report_counts_and_names_what_was_missed() {
        let mutation =
            |id, at| Planned::of(id, Genre::BinaryOperator, "a + b - c * d / e", at, "%");
        let all = [mutation(1, "+"), mutation(2, "-"), mutation(3, "*"), mutation(4, "/")];
        let all: Vec<&Planned> = all.iter().collect();
        let judged = |id, verdict, slow_left| {
            (id, Judged { id, verdict, is_reached: slow_left > 0, slow_left })
        };
        let noticed = judged(1, Verdict::Noticed("test".to_owned()), 0);
        let left_out = LeftOut::from([(4, Reason::DoesNotCompile(String::new()))]);

        let known = HashMap::from([noticed.clone(), judged(2, Verdict::Survived, 3)]);
        let text = Report::new(&all, &known, &left_out).to_string();
        assert!(text.starts_with("a.rs:1:7: -\nof 4 mutations 0 have no place"), "{text}");
        assert!(text.contains("1 do not compile, 1 are not tried yet"), "{text}");
        assert!(text.contains("1 that were not noticed have slow tests left"), "{text}");
        assert!(text.contains("1 of 2 mutations") && text.contains("95 % confidence"), "{text}");

        let known = HashMap::from([
            noticed.clone(),
            judged(2, Verdict::Hung, 0),
            judged(3, Verdict::Survived, 0),
        ]);
        let report = Report::new(&all, &known, &left_out);
        let text = report.to_string();
        assert!(text.starts_with("a.rs:1:11: * (no test reaches it)\n"), "{text}");
        assert!(text.ends_with("2 of 3 are noticed: 66.7 %"), "{text}");
        assert!(!report.is_clean());
        assert!(Report::new(&all[..1], &known, &left_out).is_clean());
    }
}
