//! `mutants`: small changes of meaning, one at a time, each of which some test must notice.
//!
//! Mutations are data (`tests/mutants/*.toml`). They are applied to a copy of the repository below
//! `target/`, never to the checkout. The copy keeps a target folder of its own: cargo takes its
//! packages for those of the checkout, which would get mutated code. So a mutation costs one
//! incremental build and the tests that its entry names.

mod all;
mod process;
mod report;
mod sample;
mod table;
mod tree;
mod trial;

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use cargo_metadata::MetadataCommand;
use clap::Args;

use report::{Report, Result};
use table::Mutation;
pub(crate) use table::check;
use tree::Tree;
use trial::Trial;

/// What to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Only mutations whose name contains this text; may be given several times. Of those
    /// of cargo-mutants the name begins with the path of the file, and the text is a regular
    /// expression.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Only part K of N of the mutations; parts can run side by side.
    #[arg(long, value_name = "K/N", value_parser = Shard::parse)]
    shard: Option<Shard>,
    /// A test that runs longer, or many times as long as without a mutation, has noticed it.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout_seconds: u64,
    /// Trust that the tests pass without a mutation.
    #[arg(long)]
    skip_baseline: bool,
    /// Instead of the table: about N random mutations by cargo-mutants.
    #[arg(long, value_name = "N", conflicts_with = "shard")]
    sample: Option<usize>,
    /// Instead of the table: all mutations of a crate by cargo-mutants, built at once. A run that
    /// was stopped goes on.
    #[arg(long, value_name = "CRATE", conflicts_with_all = ["shard", "sample"])]
    all: Option<String>,
    /// So many tests at a time; one for each processor when it is not given.
    #[arg(long, requires = "all")]
    jobs: Option<NonZero<usize>>,
    /// Run tests that take more than a second too, after the others.
    #[arg(long, requires = "all")]
    slow: bool,
    /// Which random mutations; the time when it is not given.
    #[arg(long, requires = "sample")]
    seed: Option<u64>,
}

/// Every N-th mutation, from the K-th.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    part: usize,
    parts: usize,
}

impl Shard {
    const ALL: Shard = Shard { part: 1, parts: 1 };

    fn parse(text: &str) -> std::result::Result<Shard, String> {
        let numbers = text.split_once('/').and_then(|(part, parts)| {
            Some(Shard { part: part.parse().ok()?, parts: parts.parse().ok()? })
        });
        numbers
            .filter(|shard| (1..=shard.parts).contains(&shard.part))
            .ok_or_else(|| format!("{text}: write K/N, with K from 1 to N"))
    }

    fn of<T>(self, all: Vec<T>) -> Vec<T> {
        all.into_iter().skip(self.part - 1).step_by(self.parts).collect()
    }
}

/// Runs the chosen mutations; a failure if one survives, does not compile or is stale.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let metadata =
        MetadataCommand::new().no_deps().other_options(["--offline".to_owned()]).exec()?;
    let root = metadata.workspace_root.as_std_path();
    let target = metadata.target_directory.as_std_path();
    if let Some(wanted) = options.sample {
        let folder = target.join("mutants").join("sample");
        let _lock = lock(&folder)?;
        return sample::run(root, &folder, wanted, options.seed, &options.only);
    }
    if let Some(name) = &options.all {
        let folder = target.join("mutants").join("all");
        let _lock = lock(&folder)?;
        let Options { only, jobs, slow: is_slow, .. } = options;
        let wanted = all::Wanted { name, only, jobs: *jobs, is_slow: *is_slow };
        return all::run(&metadata, &folder, &wanted);
    }
    let shard = options.shard.unwrap_or(Shard::ALL);
    let mut chosen = shard.of(chosen(table::read(root)?, &options.only)?);
    // Fewer crates are built again between two of one crate.
    chosen.sort_by(|a, b| (&a.file, &a.tests).cmp(&(&b.file, &b.tests)));
    let stale: Vec<String> = chosen.iter().filter_map(|mutation| mutation.stale(root)).collect();
    ensure!(stale.is_empty(), "mend the table of mutations:\n{}", stale.join("\n"));
    let folder = target.join("mutants").join(format!("{}-of-{}", shard.part, shard.parts));
    let _lock = lock(&folder)?;
    let tree = Tree::copy(root, folder.join("tree"))?;
    let timeout = Duration::from_secs(options.timeout_seconds);
    let mut trial = Trial::new(&tree, folder.join("target"), folder.join("output.txt"), timeout);
    if !options.skip_baseline {
        baseline(&mut trial, &chosen)?;
    }
    let mut report = Report::default();
    for (number, mutation) in (1..).zip(&chosen) {
        let began = Instant::now();
        let verdict = trial.judge(mutation)?;
        let result = Result { mutation, verdict };
        println!("{number}/{} {result} ({} s)", chosen.len(), began.elapsed().as_secs());
        report.add(result);
    }
    println!("\n{report}");
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Keeps two runs out of one copy, for as long as the file is open.
fn lock(folder: &Path) -> anyhow::Result<File> {
    let in_folder = || format!("in {}", folder.display());
    fs::create_dir_all(folder).with_context(in_folder)?;
    let file = File::create(folder.join("lock")).with_context(in_folder)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let folder = folder.display();
            bail!(
                "another run uses {folder}: wait for its end, or run parts of the table (--shard)"
            )
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(in_folder),
    }
}

fn chosen(mut table: Vec<Mutation>, only: &[String]) -> anyhow::Result<Vec<Mutation>> {
    let wanted = |mutation: &Mutation| only.iter().any(|text| mutation.name.contains(text));
    table.retain(|mutation| only.is_empty() || wanted(mutation));
    ensure!(!table.is_empty(), "no mutation is named so: {}", only.join(", "));
    Ok(table)
}

/// The tests must pass without a mutation, or they would seem to notice anything.
fn baseline(trial: &mut Trial<'_>, chosen: &[Mutation]) -> anyhow::Result<()> {
    let commands: BTreeSet<&str> =
        chosen.iter().flat_map(|mutation| &mutation.tests).map(String::as_str).collect();
    for command in commands {
        let duration = trial.baseline(command)?;
        println!(
            "passes without a mutation: cargo test {command} ({:.1} s)",
            duration.as_secs_f64()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_everything_once() {
        let all: Vec<u32> = (0..17).collect();
        for parts in 1..20 {
            let shard = |part| Shard::parse(&format!("{part}/{parts}")).unwrap();
            let mut seen: Vec<u32> =
                (1..=parts).flat_map(|part| shard(part).of(all.clone())).collect();
            seen.sort_unstable();
            assert_eq!(seen, all);
        }
        for wrong in ["", "1", "0/2", "3/2", "1/0", "a/b", "1/2/3"] {
            assert!(Shard::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn two_runs_do_not_share_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        assert!(lock(folder.path()).unwrap_err().to_string().contains("another run"));
        drop(first);
        lock(folder.path()).unwrap();
    }

    #[test]
    fn a_name_that_no_mutation_has_is_an_error() {
        let table = || vec![Mutation::of("engine/a", "", ""), Mutation::of("zeo/b", "", "")];
        assert_eq!(chosen(table(), &[]).unwrap().len(), 2);
        assert_eq!(chosen(table(), &["zeo".to_owned()]).unwrap().len(), 1);
        assert!(chosen(table(), &["none".to_owned()]).is_err());
    }
}
