//! All mutations of a crate, built at once.
//!
//! To build a crate for each mutation takes most of the time. So each mutation is put behind a
//! switch that the program looks at while it runs: one build has them all. Then a mutation takes
//! one run of the tests that reach it. They are the tests of the crate itself.

mod build;
mod choice;
mod parallel;
mod plan;
mod programs;
mod record;
mod render;
mod report;
mod reuse;
mod run;
mod store;
#[cfg(test)]
mod switch;
mod switches;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::thread::available_parallelism;

use anyhow::Context as _;
use cargo_metadata::{Metadata, TargetKind};
use serde::{Deserialize, Serialize};

use self::build::{Builder, LeftOut};
use self::plan::Planned;
use self::programs::Programs;
use self::report::Report;
use self::run::Judge;
use self::store::Store;
use super::tree::Tree;
use crate::repository;

/// Names in the stores.
const LEFT_OUT: &str = "left_out";
const PROGRAMS: &str = "programs";
const LAST: &str = "last";

/// Which mutations to try, and how.
pub(super) struct Wanted<'a> {
    /// The folder of the crate, in `crates/`.
    pub(super) name: &'a str,
    /// Expressions for the names.
    pub(super) only: &'a [String],
    /// So many tests are run at a time: usually one for each processor.
    pub(super) jobs: Option<NonZero<usize>>,
    /// Whether slow tests are run too.
    pub(super) is_slow: bool,
}

/// The crate whose mutations are tried. Paths are relative to the root of the repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Crate {
    package: String,
    folder: String,
    /// The file that the library begins with.
    library: String,
}

/// Tries mutations of a crate in `folder`, where an earlier run may have begun; a failure if one of
/// those that were chosen and tried is not noticed.
pub(super) fn run(
    metadata: &Metadata,
    folder: &Path,
    wanted: &Wanted<'_>,
) -> anyhow::Result<ExitCode> {
    let root = metadata.workspace_root.as_std_path();
    let tried = Crate::find(metadata, wanted.name)?;
    let sources = hash_of_sources(root)?;
    let store = Store::open(folder.join(wanted.name), sources)?;
    let plan = store.read_or("plan", || plan::list(root, &tried, &[]))?;
    let builds = Store::open(folder.join("builds"), sources)?;
    // The copy holds the mutations of one crate at a time.
    let is_built = builds.read::<Option<Crate>>(LAST)?.flatten() == Some(tried.clone());
    let programs = match store.read(PROGRAMS)?.filter(|_| is_built) {
        Some(programs) => programs,
        None => {
            builds.write(LAST, &None::<Crate>)?;
            let programs = build(metadata, folder, &store, &tried, &plan)?;
            store.write(PROGRAMS, &programs)?;
            builds.write(LAST, &Some(&tried))?;
            programs
        }
    };
    let jobs = wanted.jobs.map_or_else(available_parallelism, Ok)?;
    let tests = store.read_or("tests", || record::record(&programs, jobs))?;
    let left_out: LeftOut = store.read(LEFT_OUT)?.unwrap_or_default();
    let mut chosen: Vec<&Planned> = plan.iter().collect();
    if !wanted.only.is_empty() {
        let names = plan::list(root, &tried, wanted.only)?.into_iter();
        let names: HashSet<String> = names.map(|planned| planned.name).collect();
        chosen.retain(|planned| names.contains(&planned.name));
    }
    let compiles = |planned: &&Planned| !left_out.contains_key(&planned.id);
    let to_try: Vec<&Planned> = chosen.iter().copied().filter(compiles).collect();
    Judge::new(&programs, &tests, &store).run(&to_try, wanted.is_slow, jobs)?;
    let judged = run::judged(&store)?;
    let report = Report::new(&chosen, &judged, &left_out);
    println!("\n{report}");
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the test programs in a copy of the repository.
fn build(
    metadata: &Metadata,
    folder: &Path,
    store: &Store,
    tried: &Crate,
    plan: &[Planned],
) -> anyhow::Result<Programs> {
    let tree = Tree::copy(metadata.workspace_root.as_std_path(), folder.join("tree"))?;
    let target = folder.join("target");
    let members: Vec<String> =
        metadata.packages.iter().map(|package| package.name.to_string()).collect();
    let built = metadata.target_directory.as_std_path();
    reuse::reuse(&built.join("debug"), &target.join("debug"), &members)?;
    let mut left_out: LeftOut = store.read(LEFT_OUT)?.unwrap_or_default();
    println!("building {} mutations of {}", plan.len(), tried.package);
    let programs = Builder { tree: &tree, target, tried, plan }
        .build(&mut left_out, |left_out| store.write(LEFT_OUT, left_out))?;
    Ok(programs)
}

impl Crate {
    /// The member of the workspace with a folder in `crates/`.
    fn find(metadata: &Metadata, name: &str) -> anyhow::Result<Crate> {
        let root = metadata.workspace_root.as_path();
        let folder = format!("crates/{name}");
        let package = metadata
            .packages
            .iter()
            .find(|package| package.manifest_path == root.join(&folder).join("Cargo.toml"));
        let package = package.with_context(|| format!("there is no crate in {folder}"))?;
        let library = package.targets.iter().find(|target| target.is_kind(TargetKind::Lib));
        let library = library.with_context(|| format!("the crate in {folder} has no library"))?;
        let library = library.src_path.strip_prefix(root)?.to_string();
        Ok(Crate { package: package.name.to_string(), folder, library })
    }
}

/// Says whether the crates and their tests are the same.
fn hash_of_sources(root: &Path) -> anyhow::Result<u64> {
    let mut files = repository::files(root)?;
    files.retain(|path| {
        let name = path.strip_prefix(root).unwrap_or(path);
        name.starts_with("crates") || name.starts_with("Cargo.toml") || name.ends_with("Cargo.lock")
    });
    files.sort();
    let mut hasher = DefaultHasher::new();
    for path in files {
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        (path.strip_prefix(root)?, bytes).hash(&mut hasher);
    }
    Ok(hasher.finish())
}
