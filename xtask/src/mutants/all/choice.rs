//! Which tests judge a mutation, and in which order: those that probably notice it come first.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::plan::Planned;
use super::record::Recorded;

/// Tests that take longer are tried last, and only if asked for.
const SLOW_SECONDS: f64 = 1.0;
/// The tests that are run first together, and how long they may take.
const FIRST_MAX: usize = 12;
const FIRST_SECONDS_MAX: f64 = 1.5;
/// How long tests that are run together later may take: a test that hangs is then noticed soon.
const LATER_SECONDS_MAX: f64 = 5.0;
/// What starting a program takes, in seconds.
const START_SECONDS: f64 = 0.05;
/// A test that has noticed so many mutations near this one is as good as any.
const NOTICED_ENOUGH: usize = 3;

/// The tests to choose among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Quick,
    Slow,
    All,
}

/// The tests of a crate, and what they have noticed so far.
pub(super) struct Choice<'a> {
    tests: &'a [Recorded],
    /// The tests that reach a mutation.
    reaching: HashMap<u32, Vec<usize>>,
    /// How many mutations of a file, or of a function in it, a test has noticed.
    noticed: HashMap<(&'a str, Option<&'a str>, &'a str), usize>,
}

impl<'a> Choice<'a> {
    pub(super) fn new(tests: &'a [Recorded]) -> Choice<'a> {
        let mut reaching: HashMap<u32, Vec<usize>> = HashMap::new();
        for (number, test) in tests.iter().enumerate().filter(|(_, test)| test.passes) {
            for id in &test.reached {
                reaching.entry(*id).or_default().push(number);
            }
        }
        Choice { tests, reaching, noticed: HashMap::new() }
    }

    /// Whether any test reaches a mutation.
    pub(super) fn is_reached(&self, mutation: &Planned) -> bool {
        self.reaching.contains_key(&mutation.id)
    }

    /// A test has noticed a mutation.
    pub(super) fn note(&mut self, mutation: &'a Planned, test: &str) {
        if let Some(known) = self.tests.iter().find(|known| known.test.name == test) {
            let mut functions = vec![None];
            functions.extend(mutation.function().map(Some));
            for function in functions {
                let key = (mutation.file.as_str(), function, known.test.name.as_str());
                *self.noticed.entry(key).or_default() += 1;
            }
        }
    }

    /// The tests that reach a mutation, in parts that are run one after the other. Each test is of
    /// the kind that is asked for.
    pub(super) fn stages(&self, mutation: &Planned, kind: Kind) -> Vec<Vec<&'a Recorded>> {
        let mut tests: Vec<&Recorded> = self.reaching(mutation, kind).collect();
        let enough = |function, test: &Recorded| {
            let key = (mutation.file.as_str(), function, test.test.name.as_str());
            self.noticed.get(&key).copied().unwrap_or_default().min(NOTICED_ENOUGH)
        };
        // A test that reaches few mutations is about them.
        let cost = |test: &Recorded| test.reached.len() as f64 * (START_SECONDS + test.seconds);
        tests.sort_by(|a, b| {
            let key = |test: &Recorded| {
                let in_function = mutation.function().map(|name| enough(Some(name), test));
                (test.seconds > SLOW_SECONDS, Reverse(in_function), Reverse(enough(None, test)))
            };
            key(a).cmp(&key(b)).then(cost(a).total_cmp(&cost(b)))
        });
        parts(tests)
    }

    /// How many tests of a kind reach a mutation.
    pub(super) fn count(&self, mutation: &Planned, kind: Kind) -> usize {
        self.reaching(mutation, kind).count()
    }

    fn reaching(&self, mutation: &Planned, kind: Kind) -> impl Iterator<Item = &'a Recorded> {
        let tests = self.reaching.get(&mutation.id).map_or(&[][..], Vec::as_slice);
        tests.iter().map(|number| &self.tests[*number]).filter(move |test| match kind {
            Kind::Quick => test.seconds <= SLOW_SECONDS,
            Kind::Slow => test.seconds > SLOW_SECONDS,
            Kind::All => true,
        })
    }
}

/// A small part first, then larger ones. A part has at least one test.
fn parts(tests: Vec<&Recorded>) -> Vec<Vec<&Recorded>> {
    let mut parts: Vec<Vec<&Recorded>> = Vec::new();
    let mut seconds = 0.0;
    for test in tests {
        let (count_max, seconds_max) = match parts.len() {
            0 | 1 => (FIRST_MAX, FIRST_SECONDS_MAX),
            _ => (usize::MAX, LATER_SECONDS_MAX),
        };
        match parts.last_mut() {
            Some(part) if part.len() < count_max && seconds + test.seconds <= seconds_max => {
                part.push(test);
                seconds += test.seconds;
            }
            _ => {
                parts.push(vec![test]);
                seconds = test.seconds;
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::super::plan::Genre;
    use super::super::programs::Test;
    use super::*;

    fn test(name: &str, seconds: f64, reached: &[u32]) -> Recorded {
        let test = Test { program: "all".to_owned(), name: name.to_owned() };
        Recorded { test, passes: true, seconds, reached: reached.to_owned() }
    }

    fn names<'a>(stages: &[Vec<&'a Recorded>]) -> Vec<Vec<&'a str>> {
        let names = |stage: &Vec<&'a Recorded>| {
            stage.iter().map(|test| &test.test.name[..]).collect::<Vec<&'a str>>()
        };
        stages.iter().map(names).collect()
    }

    fn mutation(id: u32) -> Planned {
        Planned::of(id, Genre::BinaryOperator, "a + b", "+", "-")
    }

    #[test]
    fn only_tests_that_reach_a_mutation_judge_it_and_the_closest_ones_first() {
        let failing = Recorded { passes: false, ..test("failing", 0.1, &[1]) };
        let tests = [
            test("broad", 0.1, &[1, 2, 3, 4]),
            test("close", 0.1, &[1]),
            test("other", 0.1, &[2]),
            failing,
        ];
        let choice = Choice::new(&tests);
        assert_eq!(names(&choice.stages(&mutation(1), Kind::All)), [["close", "broad"]]);
        assert!(choice.is_reached(&mutation(4)));
        assert!(!choice.is_reached(&mutation(5)));
        assert_eq!(names(&choice.stages(&mutation(5), Kind::All)), [[""; 0]; 0]);
    }

    #[test]
    fn a_test_that_noticed_another_mutation_of_the_function_comes_first() {
        let tests = [test("close", 0.1, &[1]), test("broad", 0.1, &[1, 2, 3, 4])];
        let (first, second) = (mutation(1), mutation(2));
        let mut choice = Choice::new(&tests);
        choice.note(&second, "broad");
        choice.note(&second, "no such test");
        assert_eq!(names(&choice.stages(&first, Kind::All)), [["broad", "close"]]);
    }

    #[test]
    fn slow_tests_come_last_or_not_at_all() {
        let tests = [test("slow", 1.1, &[1]), test("quick", 1.0, &[1, 2, 3])];
        let choice = Choice::new(&tests);
        let stages = |kind| names(&choice.stages(&mutation(1), kind));
        assert_eq!(stages(Kind::All), [["quick"], ["slow"]]);
        assert_eq!(stages(Kind::Quick), [["quick"]]);
        assert_eq!(stages(Kind::Slow), [["slow"]]);
        assert_eq!(choice.count(&mutation(1), Kind::Slow), 1);
    }

    #[test]
    fn the_first_part_is_small_and_later_ones_are_limited() {
        let all: Vec<Recorded> =
            (0..40).map(|number| test(&number.to_string(), 0.25, &[1])).collect();
        let parts = parts(all.iter().collect());
        let lengths: Vec<usize> = parts.iter().map(Vec::len).collect();
        assert_eq!(lengths, [6, 20, 14]);
        let quick: Vec<Recorded> = (0..40).map(|_| test("", 0.0, &[1])).collect();
        let lengths: Vec<usize> =
            super::parts(quick.iter().collect()).iter().map(Vec::len).collect();
        assert_eq!(lengths, [12, 28]);
    }
}
