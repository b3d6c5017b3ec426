//! The table for people, which is also Markdown: what docs/benchmarks.md shows is its output.

use super::{Figures, Report, Sample};
use crate::statistics::Spread;

const HEADINGS: [&str; 9] = [
    "clients x in flight",
    "server",
    "wire",
    "server CPU us/request",
    "requests/s",
    "p50 us",
    "p99 us",
    "client CPU us",
    "CPU: zodium / it",
];
/// The server that the others are compared with.
const SUBJECT: &str = "zodium";

impl Report {
    /// The table with a line above that says what was measured on what.
    pub(super) fn table(&self) -> String {
        let (machine, dataset) = (&self.machine, &self.dataset);
        let mut text = format!(
            "{} objects, median {} bytes; {} rounds of {} s, median (min-max)\n{} x {}, {}, load \
             average {} before\n\n",
            dataset.objects,
            dataset.median_bytes,
            self.rounds,
            self.seconds,
            machine.cores,
            machine.cpu,
            machine.kernel,
            machine.load_average,
        );
        let mut rows = vec![HEADINGS.map(str::to_owned)];
        rows.extend(self.groups().iter().filter_map(|group| self.row(group)));
        text.push_str(&aligned(&rows));
        text
    }

    /// The samples of each server in each cell, cell by cell, as first measured.
    fn groups(&self) -> Vec<Vec<&Sample>> {
        let mut groups: Vec<Vec<&Sample>> = Vec::new();
        for sample in &self.samples {
            match groups.iter_mut().find(|group| group[0].is_like(sample)) {
                Some(group) => group.push(sample),
                None => groups.push(vec![sample]),
            }
        }
        groups
    }

    fn row(&self, group: &[&Sample]) -> Option<[String; 9]> {
        let first = group.first()?;
        let spread = |figure: fn(&Figures) -> f64| {
            Spread::of(group.iter().map(|sample| figure(&sample.figures)))
        };
        let ratio = Spread::of(group.iter().filter_map(|sample| self.cpu_ratio(sample)));
        Some([
            format!("{}x{}", first.clients, first.in_flight),
            first.server.clone(),
            first.wire.to_owned(),
            with_range(spread(|figures| figures.server_cpu_us)?, digits),
            with_range(spread(Figures::requests_per_second)?, thousands),
            digits(spread(|figures| figures.p50_us)?.median),
            digits(spread(|figures| figures.p99_us)?.median),
            digits(spread(|figures| figures.client_cpu_us)?.median),
            ratio.map_or(String::new(), |ratio| with_range(ratio, digits)),
        ])
    }

    /// Server CPU of the subject, divided by that of this sample, which is of the same round.
    fn cpu_ratio(&self, sample: &Sample) -> Option<f64> {
        let subject = self.samples.iter().find(|other| {
            other.server == SUBJECT && other.round == sample.round && other.is_same_cell(sample)
        })?;
        let ratio = subject.figures.server_cpu_us / sample.figures.server_cpu_us;
        (sample.server != SUBJECT && ratio.is_finite()).then_some(ratio)
    }
}

impl Sample {
    fn is_same_cell(&self, other: &Sample) -> bool {
        (self.clients, self.in_flight) == (other.clients, other.in_flight)
    }

    fn is_like(&self, other: &Sample) -> bool {
        self.server == other.server && self.is_same_cell(other)
    }
}

fn with_range(spread: Spread, format: fn(f64) -> String) -> String {
    let Spread { median, min, max } = spread;
    format!("{} ({}-{})", format(median), format(min), format(max))
}

/// Three digits or more.
fn digits(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn thousands(value: f64) -> String {
    format!("{}k", digits(value / 1000.0))
}

/// A Markdown table, its columns padded to be read as it is; words left, figures right.
fn aligned(rows: &[[String; 9]]) -> String {
    const WORDS: usize = 3;
    let widths: [usize; 9] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].len()).max().unwrap_or_default()
    });
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            text += &if column < WORDS {
                format!("| {cell:<width$} ")
            } else {
                format!("| {cell:>width$} ")
            };
        }
        text += "|\n";
        if index == 0 {
            for (column, width) in widths.into_iter().enumerate() {
                let end = if column < WORDS { '-' } else { ':' };
                text += &format!("|{}{end}", "-".repeat(width + 1));
            }
            text += "|\n";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::report::Objects;

    fn sample(server: &str, round: usize, server_cpu_us: f64) -> Sample {
        let figures = Figures {
            requests: 84_000,
            seconds: 2.0,
            server_cpu_us,
            client_cpu_us: 5.0,
            p50_us: 76.0,
            p99_us: 123.4,
        };
        let server = server.to_owned();
        Sample { server, wire: "M5", clients: 16, in_flight: 1, round, figures }
    }

    fn report(samples: Vec<Sample>) -> Report {
        Report {
            machine: Machine {
                cpu: "CPU".to_owned(),
                cores: 2,
                kernel: "Linux".to_owned(),
                load_average: 0.0,
            },
            dataset: Objects { objects: 3, median_bytes: 100, seed: 1 },
            seconds: 2.0,
            rounds: 3,
            samples,
        }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let samples = [6.0, 8.0, 7.0].into_iter().zip([12.0, 32.0, 28.0]).enumerate();
        let report = report(
            samples
                .flat_map(|(round, (ours, theirs))| {
                    [sample("zodium", round, ours), sample("zeo", round, theirs)]
                })
                .collect(),
        );
        let table = report.table();
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| 16x1")).collect();
        assert_eq!(rows.len(), 2);
        assert!(rows[0].contains(" 7.00 (6.00-8.00) |"), "{table}");
        assert!(rows[0].contains("42.0k (42.0k-42.0k)"), "{table}");
        assert!(rows[1].contains("28.0 (12.0-32.0)"), "{table}");
        assert!(rows[1].contains("| 0.25 (0.25-0.50) |"), "{table}");
    }

    #[test]
    fn the_table_is_markdown_with_columns_in_line() {
        let report = report(vec![sample("zodium", 0, 7.0), sample("another-server", 0, 170.0)]);
        let table = report.table();
        let lines: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{table}");
        assert!(lines[1].starts_with("|---") && lines[1].contains("--:|"));
    }
}
