//! The figures as tables.

use std::fmt;

use super::packers::PackFigures;
use super::writers::{Commit, Stalls};
use crate::machine::Machine;
use crate::statistics::Spread;

/// What was measured.
pub(super) struct Report {
    machine: Machine,
    history: String,
    file_bytes: u64,
    /// By packer and round.
    pub(super) packs: Vec<(&'static str, usize, PackFigures)>,
    /// By server.
    pub(super) stalls: Vec<(String, Stalls)>,
}

impl Report {
    pub(super) fn new(machine: Machine, history: String, file_bytes: u64) -> Report {
        Report { machine, history, file_bytes, packs: Vec::new(), stalls: Vec::new() }
    }

    fn packs_of(&self, packer: &str) -> impl Iterator<Item = (usize, &PackFigures)> {
        let packs = self.packs.iter().filter(move |(name, ..)| *name == packer);
        packs.map(|(_, round, figures)| (*round, figures))
    }

    /// How many times faster we are, round by round.
    fn ratios(&self, packer: &str) -> impl Iterator<Item = f64> {
        self.packs_of(packer).filter_map(|(round, figures)| {
            let (_, ours) = self.packs_of("zodium").find(|(of, _)| *of == round)?;
            Some(ours.seconds / figures.seconds)
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { cpu, cores, kernel, load_average } = &self.machine;
        writeln!(f, "{}; a file of {} MB", self.history, self.file_bytes / 1_000_000)?;
        writeln!(f, "{cpu}, {cores} processors, {kernel}, load average {load_average}")?;
        writeln!(
            f,
            "\n| packer | seconds | MB/s | peak memory MB | packed file MB | zodium / it |"
        )?;
        writeln!(f, "|--------|--------:|-----:|---------------:|---------------:|------------:|")?;
        for name in ["zodium", "stock"] {
            let of = |figure: fn(&PackFigures) -> f64| {
                Spread::of(self.packs_of(name).map(|(_, figures)| figure(figures)))
            };
            let Some(seconds) = of(|figures| figures.seconds) else { continue };
            let peak = of(|figures| figures.peak_bytes as f64 / 1e6).map_or(0.0, |s| s.max);
            let file = of(|figures| figures.file_bytes as f64 / 1e6).map_or(0.0, |s| s.median);
            let rate = self.file_bytes as f64 / 1e6 / seconds.median;
            let ratio = Spread::of(self.ratios(name)).filter(|_| name != "zodium");
            let ratio = ratio.map_or(String::new(), |ratio| shown(ratio, 3));
            let seconds = shown(seconds, 2);
            writeln!(f, "| {name} | {seconds} | {rate:.0} | {peak:.0} | {file:.0} | {ratio} |")?;
        }
        writeln!(f, "\n| server | when | commits/s | p50 ms | p99 ms | longest ms |")?;
        writeln!(f, "|--------|------|----------:|-------:|-------:|-----------:|")?;
        let mut names: Vec<&str> = self.stalls.iter().map(|(name, _)| name.as_str()).collect();
        names.dedup();
        for (place, name) in names.iter().enumerate() {
            if names[..place].contains(name) {
                continue;
            }
            let of = || self.stalls.iter().filter(|(of, _)| of == name).map(|(_, stalls)| stalls);
            let before = |stalls: &Stalls| Round::new(stalls.before_seconds, &stalls.before);
            let during = |stalls: &Stalls| Round::new(stalls.pack_seconds, &stalls.during);
            write_row(f, name, "before", of().map(before).collect())?;
            write_row(f, name, "during the pack", of().map(during).collect())?;
        }
        Ok(())
    }
}

/// The commits of a round.
struct Round {
    seconds: f64,
    /// Their latencies in milliseconds, ascending.
    sorted: Vec<f64>,
}

impl Round {
    fn new(seconds: f64, commits: &[Commit]) -> Round {
        let mut sorted: Vec<_> = commits.iter().map(|c| c.took.as_secs_f64() * 1e3).collect();
        sorted.sort_by(f64::total_cmp);
        Round { seconds, sorted }
    }

    fn per_second(&self) -> f64 {
        self.sorted.len() as f64 / self.seconds
    }

    fn quantile(&self, part: f64) -> f64 {
        let place = (self.sorted.len().saturating_sub(1) as f64 * part).round() as usize;
        self.sorted.get(place).copied().unwrap_or(f64::NAN)
    }
}

/// One line: figures of each round, then their spread over the rounds.
fn write_row(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    when: &str,
    rounds: Vec<Round>,
) -> fmt::Result {
    let spread = |figure: &dyn Fn(&Round) -> f64, digits| {
        Spread::of(rounds.iter().map(figure)).map_or(String::new(), |s| shown(s, digits))
    };
    let rate = spread(&Round::per_second, 0);
    let [p50, p99, longest] =
        [0.5, 0.99, 1.0].map(|part| spread(&|round: &Round| round.quantile(part), 1));
    writeln!(f, "| {name} | {when} | {rate} | {p50} | {p99} | {longest} |")
}

fn shown(spread: Spread, digits: usize) -> String {
    let Spread { median, min, max } = spread;
    format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
}
