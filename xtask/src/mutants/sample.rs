//! Random mutations by cargo-mutants, of which it knows thousands: a part that a seed decides.
//!
//! They are made in a copy of the repository, which keeps its target folder: the dependencies are
//! built once, not for each run.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};

use super::tree::Tree;

/// What a share of a sample says of all mutations, with this many standard deviations: 95 %.
const DEVIATIONS: f64 = 1.96;

/// Tries about `wanted` of the mutations that `.cargo/mutants.toml` allows, and whose names match
/// one of the expressions in `only`, if there are any. Uses `folder` for the copy and the results.
pub(crate) fn run(
    root: &Path,
    folder: &Path,
    wanted: usize,
    seed: Option<u64>,
    only: &[String],
) -> anyhow::Result<ExitCode> {
    let seed = match seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    let tree = Tree::copy(root, folder.join("tree"))?;
    let mutants = || {
        let mut command = mutants(&tree.root, only);
        command.env("CARGO_TARGET_DIR", folder.join("target"));
        command
    };
    let listed = output(mutants().arg("--list"))?;
    let count = listed.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    let (part, parts) = part(count, wanted, seed);
    println!("part {part} of {parts} of {count} mutations; again: --sample {wanted} --seed {seed}");
    let status = mutants()
        .args(["--shard", &format!("{part}/{parts}"), "--sharding", "round-robin"])
        .arg("--in-place")
        .arg("--output")
        .arg(folder)
        .status()?;
    println!("{}", Outcome::read(&folder.join("mutants.out"))?);
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// cargo-mutants for those mutations in a tree whose names match one of the expressions in `only`,
/// if there are any.
pub(super) fn mutants(tree: &Path, only: &[String]) -> Command {
    let mut command = Command::new("cargo");
    command
        .args(["mutants", "--dir"])
        .arg(tree)
        // What tests are linked with; a backtrace is not looked at.
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        // A failure must not lie about where tests would look next time.
        .env("PROPTEST_FAILURE_PERSISTENCE", "off");
    for name in only {
        command.args(["--re", name]);
    }
    command
}

/// What cargo-mutants prints.
pub(super) fn output(mutants: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = mutants
        .output()
        .context("cannot run cargo-mutants: install it (cargo install cargo-mutants)")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

/// The part, from 0, and of how many: parts of about `wanted` mutations.
fn part(count: usize, wanted: usize, seed: u64) -> (u64, u64) {
    let parts = count.div_ceil(wanted.max(1)).max(1) as u64;
    (seed % parts, parts)
}

/// What became of the mutations that compile.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) noticed: usize,
    pub(super) missed: usize,
}

impl Outcome {
    /// Counts the lists that cargo-mutants writes.
    fn read(folder: &Path) -> anyhow::Result<Outcome> {
        let count = |name: &str| -> anyhow::Result<usize> {
            let path = folder.join(name);
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Ok(text.lines().count())
        };
        let noticed = count("caught.txt")? + count("timeout.txt")?;
        Ok(Outcome { noticed, missed: count("missed.txt")? })
    }

    /// The percentages between which the share of all mutations is, in 19 of 20 samples (Wilson's
    /// interval).
    fn interval(&self) -> (f64, f64) {
        let count = (self.noticed + self.missed) as f64;
        let share = self.noticed as f64 / count;
        let square = DEVIATIONS * DEVIATIONS;
        let middle = share + square / (2.0 * count);
        let half = share * (1.0 - share) / count + square / (4.0 * count * count);
        let half = DEVIATIONS * half.sqrt();
        let whole = 1.0 + square / count;
        (100.0 * (middle - half) / whole, 100.0 * (middle + half) / whole)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { noticed, missed } = self;
        let count = noticed + missed;
        if count == 0 {
            return write!(f, "no mutation compiles");
        }
        let percent = 100.0 * *noticed as f64 / count as f64;
        let (least, most) = self.interval();
        write!(
            f,
            "{noticed} of {count} mutations that compile are noticed: {percent:.1} %; of all such \
             mutations {least:.1} to {most:.1} % (with 95 % confidence)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_part_and_each_part_is_about_as_large_as_wanted() {
        assert_eq!(part(4000, 50, 7), (7, 80));
        assert_eq!(part(4000, 50, 87), (7, 80));
        assert_eq!(part(10, 50, 3), (0, 1));
        assert_eq!(part(0, 0, 3), (0, 1));
    }

    #[test]
    fn lists_of_cargo_mutants_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Outcome::read(folder.path()).is_err());
        for (name, text) in [("caught.txt", "a\nb\n"), ("timeout.txt", "c\n"), ("missed.txt", "")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(Outcome::read(folder.path()).unwrap(), Outcome { noticed: 3, missed: 0 });
    }

    #[test]
    fn a_share_is_told_with_its_uncertainty() {
        let text = |noticed, missed| Outcome { noticed, missed }.to_string();
        assert!(text(81, 19).contains("81.0 %"));
        assert!(text(81, 19).contains("72.2 to 87.5 %"), "{}", text(81, 19));
        assert!(text(50, 0).contains("92.9 to 100.0 %"), "{}", text(50, 0));
        assert_eq!(text(0, 0), "no mutation compiles");
    }
}
