//! Random mutations by cargo-mutants, of which it knows thousands: a part that a seed decides.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};

/// Tries about `wanted` of all mutations that `.cargo/mutants.toml` allows.
pub(crate) fn run(
    root: &Path,
    target: &Path,
    wanted: usize,
    seed: Option<u64>,
) -> anyhow::Result<ExitCode> {
    let seed = match seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    let listed = mutants(root)
        .arg("--list")
        .output()
        .context("cannot run cargo-mutants: install it (cargo install cargo-mutants)")?;
    ensure!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let count = listed.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    let (part, parts) = part(count, wanted, seed);
    println!("part {part} of {parts} of {count} mutations; again: --sample {wanted} --seed {seed}");
    let status = mutants(root)
        .args(["--shard", &format!("{part}/{parts}"), "--sharding", "round-robin"])
        .arg("--output")
        .arg(target.join("mutants"))
        .status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn mutants(root: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.arg("mutants").arg("--dir").arg(root);
    command
}

/// The part, from 0, and of how many: parts of about `wanted` mutations.
fn part(count: usize, wanted: usize, seed: u64) -> (u64, u64) {
    let parts = count.div_ceil(wanted.max(1)).max(1) as u64;
    (seed % parts, parts)
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
}
