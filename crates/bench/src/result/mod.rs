//! Results of all benchmarks in one shape: samples, and how to show them.
//!
//! The four formats (Go's benchmark lines, tables, JSON, HTML page) are made from this alone, so
//! that a file written by one run can be read and shown by another.

mod go;
mod number;
mod output;
mod sample;
mod table;

use serde::{Deserialize, Serialize};

pub(crate) use number::Shown;
pub(crate) use output::Output;
pub(crate) use sample::{Latencies, Sample};

use crate::machine::Machine;
use crate::statistics::Spread;

/// Version of the files that `report` reads; incremented when older files could be misread.
pub(crate) const FORMAT: u32 = 2;

/// A run; the content of a JSON file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Document {
    pub(crate) format: u32,
    pub(crate) program: String,
    pub(crate) command_line: Vec<String>,
    /// Seconds since 1970.
    pub(crate) started: u64,
    pub(crate) machine: Machine,
    pub(crate) measurements: Vec<Measurement>,
}

/// Samples that go into one table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// The name of the benchmark in Go's format: one word.
    pub(crate) benchmark: String,
    pub(crate) title: String,
    /// Notes for readers of the results, a sentence each.
    pub(crate) notes: Vec<String>,
    /// What is compared, in one word: servers or clients.
    #[serde(default = "server")]
    pub(crate) compared: String,
    /// The properties that make up a case, in the order of their columns.
    pub(crate) axes: Vec<Axis>,
    pub(crate) columns: Vec<Column>,
    pub(crate) ratios: Vec<Ratio>,
    pub(crate) charts: Vec<Chart>,
    pub(crate) samples: Vec<Sample>,
}

/// A property of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Axis {
    pub(crate) key: String,
    pub(crate) heading: String,
}

/// A value of each sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Column {
    pub(crate) key: String,
    pub(crate) heading: String,
    pub(crate) shown: Shown,
    /// Its unit in Go's format, and the factor to that unit.
    pub(crate) go: Option<(String, f64)>,
}

/// A value of the subject, divided by that of each other server in the same round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ratio {
    pub(crate) column: String,
    pub(crate) subject: String,
    pub(crate) heading: String,
}

/// A chart of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Chart {
    /// A value over a numeric axis, one line per server.
    Curve { axis: String, column: String },
    /// A bar for each server of each case.
    Bars { column: String },
    /// The distribution of latencies, one line per server.
    Latencies,
}

impl Document {
    /// A run that starts now, on this machine.
    pub(crate) fn begin(machine: Machine) -> Document {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Document {
            format: FORMAT,
            program: format!("zodium-bench {}", env!("CARGO_PKG_VERSION")),
            command_line: std::env::args().collect(),
            started: now.map_or(0, |time| time.as_secs()),
            machine,
            measurements: Vec::new(),
        }
    }
}

impl Measurement {
    pub(crate) fn new(benchmark: &str, title: String) -> Measurement {
        Measurement {
            benchmark: benchmark.to_owned(),
            title,
            notes: Vec::new(),
            compared: server(),
            axes: Vec::new(),
            columns: Vec::new(),
            ratios: Vec::new(),
            charts: Vec::new(),
            samples: Vec::new(),
        }
    }

    /// Sets what is compared, if not servers.
    pub(crate) fn compared(mut self, word: &str) -> Measurement {
        word.clone_into(&mut self.compared);
        self
    }

    /// Adds a property to tell cases apart.
    pub(crate) fn axis(mut self, key: &str, heading: &str) -> Measurement {
        self.axes.push(Axis { key: key.to_owned(), heading: heading.to_owned() });
        self
    }

    pub(crate) fn column(mut self, key: &str, heading: &str, shown: Shown) -> Measurement {
        let (key, heading) = (key.to_owned(), heading.to_owned());
        self.columns.push(Column { key, heading, shown, go: None });
        self
    }

    /// Sets the unit of the last column in Go's format.
    pub(crate) fn go(mut self, unit: &str, factor: f64) -> Measurement {
        if let Some(column) = self.columns.last_mut() {
            column.go = Some((unit.to_owned(), factor));
        }
        self
    }

    /// Adds a column of one of the [percentiles](Sample::percentiles), by its name there.
    pub(crate) fn latency(self, name: &str, heading: &str, shown: Shown) -> Measurement {
        let unit = format!("{}-ns", name.replace('_', "."));
        self.column(&format!("{name}_us"), heading, shown).go(&unit, 1e3)
    }

    /// Also shows the ratio of this value, subject over each other server.
    pub(crate) fn ratio(mut self, column: &str, subject: &str, heading: &str) -> Measurement {
        let [column, subject, heading] = [column, subject, heading].map(str::to_owned);
        self.ratios.push(Ratio { column, subject, heading });
        self
    }

    pub(crate) fn curve(mut self, axis: &str, column: &str) -> Measurement {
        self.charts.push(Chart::Curve { axis: axis.to_owned(), column: column.to_owned() });
        self
    }

    pub(crate) fn bars(mut self, column: &str) -> Measurement {
        self.charts.push(Chart::Bars { column: column.to_owned() });
        self
    }

    pub(crate) fn latencies(mut self) -> Measurement {
        self.charts.push(Chart::Latencies);
        self
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// The case of a sample, for people.
    pub(crate) fn case_name(&self, sample: &Sample) -> String {
        let named = self
            .axes
            .iter()
            .filter_map(|axis| Some(format!("{} {}", axis.heading, sample.case.get(&axis.key)?)));
        named.collect::<Vec<_>>().join(", ")
    }

    /// Splits [groups](Measurement::groups) by case, each with one of its samples.
    pub(crate) fn cases<'g, 's>(
        groups: &'g [Vec<&'s Sample>],
    ) -> impl Iterator<Item = (&'s Sample, &'g [Vec<&'s Sample>])> {
        let case = |group: &Vec<&'s Sample>| group.first().map(|sample| &sample.case);
        let cases = groups.chunk_by(move |one, next| case(one) == case(next));
        cases.filter_map(|case| Some((*case.first()?.first()?, case)))
    }

    /// The samples of each server in each case, in the order first measured.
    pub(crate) fn groups(&self) -> Vec<Vec<&Sample>> {
        let mut groups: Vec<Vec<&Sample>> = Vec::new();
        let mut place = std::collections::HashMap::new();
        for sample in &self.samples {
            let index = *place.entry(sample.identity()).or_insert(groups.len());
            match groups.get_mut(index) {
                Some(group) => group.push(sample),
                None => groups.push(vec![sample]),
            }
        }
        // Servers of one case are adjacent, even if the cases were measured server by server.
        let mut cases: Vec<&Sample> = Vec::new();
        for group in &groups {
            if let Some(first) = group.first()
                && !cases.iter().any(|case| case.case == first.case)
            {
                cases.push(first);
            }
        }
        let case_of = |group: &Vec<&Sample>| {
            cases.iter().position(|case| group.first().is_some_and(|first| first.case == case.case))
        };
        groups.sort_by_key(case_of);
        groups
    }

    /// The spread of a value over the rounds of a group; `None` if no sample has the value.
    pub(crate) fn spread(group: &[&Sample], key: &str) -> Option<Spread> {
        Spread::of(group.iter().filter_map(|sample| sample.values.get(key).copied()))
    }

    /// A ratio of a group, taken round by round; `None` for the subject itself.
    pub(crate) fn ratio_of(&self, ratio: &Ratio, group: &[&Sample]) -> Option<Spread> {
        Spread::of(group.iter().filter_map(|sample| self.sample_ratio(ratio, sample)))
    }

    /// Adds the ratios to the values of each sample, for readers of the files.
    fn note_ratios(&mut self) {
        for ratio in &self.ratios {
            let found: Vec<Option<f64>> =
                self.samples.iter().map(|sample| self.sample_ratio(ratio, sample)).collect();
            for (sample, value) in self.samples.iter_mut().zip(found) {
                sample.values.extend(value.map(|value| (ratio.key(), value)));
            }
        }
    }

    fn sample_ratio(&self, ratio: &Ratio, sample: &Sample) -> Option<f64> {
        if sample.server == ratio.subject {
            return None;
        }
        let subjects = || {
            self.samples.iter().filter(|other| {
                other.server == ratio.subject
                    && other.round == sample.round
                    && other.case == sample.case
            })
        };
        // The same encoding if there is one, else the first.
        let same = subjects().find(|other| other.wire == sample.wire);
        let subject = same.or_else(|| subjects().next())?;
        let value = |sample: &Sample| sample.values.get(&ratio.column).copied();
        Some(value(subject)? / value(sample)?).filter(|ratio| ratio.is_finite())
    }
}

/// The default of the field `compared`.
fn server() -> String {
    "server".to_owned()
}

impl Ratio {
    /// Its key among the values of a sample.
    fn key(&self) -> String {
        format!("{}_ratio", self.column)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample(server: &str, round: usize, cpu_us: f64) -> Sample {
        Sample::new(server, "M5", round)
            .case("clients", 16)
            .case("in_flight", 1)
            .value("server_cpu_us", cpu_us)
            .value("requests", 84_000.0)
            .value("requests_per_second", 42_000.0)
    }

    pub(crate) fn measurement(samples: Vec<Sample>) -> Measurement {
        let made = Measurement::new("Load", "Loads".to_owned())
            .axis("clients", "clients")
            .axis("in_flight", "in flight")
            .column("server_cpu_us", "server CPU us/request", Shown::Spread)
            .go("cpu-ns/op", 1e3)
            .column("requests_per_second", "requests/s", Shown::SpreadThousands)
            .go("req/s", 1.0)
            .ratio("server_cpu_us", "zodium", "CPU: zodium / it");
        Measurement { samples, ..made }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let samples = [6.0, 8.0, 7.0].into_iter().zip([12.0, 32.0, 28.0]).enumerate();
        let measured = measurement(
            samples
                .flat_map(|(round, (ours, theirs))| {
                    [sample("zodium", round, ours), sample("zeo", round, theirs)]
                })
                .collect(),
        );
        let groups = measured.groups();
        assert_eq!(groups.len(), 2);
        assert_eq!(measured.ratio_of(&measured.ratios[0], &groups[0]), None);
        let expected = Spread { median: 0.25, min: 0.25, max: 0.5 };
        assert_eq!(measured.ratio_of(&measured.ratios[0], &groups[1]), Some(expected));
    }

    #[test]
    fn ratios_are_of_the_same_encoding_if_it_was_measured() {
        let pickle = |server, cpu_us| Sample { wire: "Z5".to_owned(), ..sample(server, 0, cpu_us) };
        let raw = Sample { wire: "raw".to_owned(), ..sample("floor", 0, 3.0) };
        let samples =
            vec![sample("zodium", 0, 6.0), pickle("zodium", 8.0), pickle("zeo", 32.0), raw];
        let measured = measurement(samples);
        let median = |group: &Vec<&Sample>| {
            measured.ratio_of(&measured.ratios[0], group).map(|ratio| ratio.median)
        };
        let ratios: Vec<_> = measured.groups().iter().map(median).collect();
        assert_eq!(ratios, [None, None, Some(0.25), Some(2.0)]);
    }
}
