//! `tidy`: every rule on every file, all violations at once.

use std::process::ExitCode;

use crate::mutants;
use crate::repository::Repository;
use crate::rules;
use crate::violation::Violation;

/// Prints the violations, one a line; any of them is a failure. Errors are what kept the rules
/// from being checked at all.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let repository = Repository::read()?;
    let violations = violations(&repository);
    for violation in &violations {
        println!("{violation}");
    }
    Ok(match violations.len() {
        0 => {
            println!("tidy: {} files", repository.sources.len());
            ExitCode::SUCCESS
        }
        count => {
            println!("tidy: {count} to mend");
            ExitCode::FAILURE
        }
    })
}

/// The violations of all rules in the order of files and lines.
fn violations(repository: &Repository) -> Vec<Violation> {
    let Repository { sources, crates, .. } = repository;
    let mut all = repository.unreadable.clone();
    all.extend(rules::dependencies::check(crates, sources));
    all.extend(rules::circles::check(sources));
    all.extend(rules::rooms::check(sources));
    all.extend(rules::spread::check(sources));
    all.extend(rules::unsafe_code::check(crates, sources));
    all.extend(rules::documents::check(crates, sources));
    all.extend(rules::named_tests::check(sources));
    all.extend(mutants::check(crates, sources));
    for source in sources {
        all.extend(rules::header::check(source));
        all.extend(rules::layout::check(source));
        all.extend(rules::leftovers::check(source));
        all.extend(rules::length::check(source));
        all.extend(rules::places::check(source));
        all.extend(rules::prose::check(source));
    }
    all.sort();
    all
}
