//! `documents`: what a newcomer looks for is there, and ARCHITECTURE.md has a row for every crate.

use crate::repository::Crate;
use crate::source::Source;
use crate::violation::Violation;

const RULE: &str = "documents";

const WANTED: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
];

/// Documents that are missing, and crates that are missing in ARCHITECTURE.md.
pub(crate) fn check(crates: &[Crate], sources: &[Source]) -> Vec<Violation> {
    let missing = WANTED.iter().filter(|name| find(sources, name).is_none());
    let mut violations: Vec<_> = missing
        .map(|name| Violation {
            path: (*name).to_owned(),
            line: 1,
            rule: RULE,
            advice: "is missing: write it".to_owned(),
        })
        .collect();
    if let Some(architecture) = find(sources, "ARCHITECTURE.md") {
        let rowless = crates.iter().filter(|member| !has_row(&architecture.text, member));
        violations.extend(rowless.map(|member| {
            let advice = format!("has no row for `{}`: say what it is for", member.folder);
            architecture.violation(1, RULE, advice)
        }));
    }
    violations
}

fn find<'a>(sources: &'a [Source], path: &str) -> Option<&'a Source> {
    sources.iter().find(|source| source.path == path)
}

/// A row of a table begins with the folder. A mention elsewhere may be of a crate whose name begins
/// so.
fn has_row(text: &str, member: &Crate) -> bool {
    let starts = ["", "/"].map(|end| format!("| `{}{end}` |", member.folder));
    text.lines().any(|line| starts.iter().any(|start| line.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(architecture: &str) -> Vec<Source> {
        let text = |name: &str| if name == "ARCHITECTURE.md" { architecture } else { "" };
        WANTED.iter().map(|name| Source::of(name, text(name))).collect()
    }

    #[test]
    fn each_missing_document_is_reported() {
        for missing in WANTED {
            let mut documents = documents("");
            documents.retain(|source| source.path != missing);
            let violations = check(&[], &documents);
            assert_eq!((violations.len(), &violations[0].path[..]), (1, missing));
        }
        assert_eq!(check(&[], &documents("")), []);
    }

    #[test]
    fn every_crate_has_a_row_in_the_architecture() {
        let crates = [Crate::of("zodium-neo", "neo", &[]), Crate::of("zodium-sql", "sql", &[])];
        let row = |folder: &str| format!("| `crates/{folder}` | what it is | |\n");
        let all = row("neo") + &row("sql/");
        assert_eq!(check(&crates, &documents(&all)), []);
        let without =
            row("neo-storage") + &row("sql") + "`crates/neo` is in no row, `neo/` neither\n";
        assert_eq!(check(&crates, &documents(&without)).len(), 1);
    }
}
