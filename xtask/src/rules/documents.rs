//! `documents`: what a newcomer looks for is there, and ARCHITECTURE.md names every crate.

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
        let unnamed = crates.iter().filter(|member| !is_named(&architecture.text, member));
        violations.extend(unnamed.map(|member| {
            let advice = format!("does not mention `{}`: say what it is for", member.folder);
            architecture.violation(1, RULE, advice)
        }));
    }
    violations
}

fn find<'a>(sources: &'a [Source], path: &str) -> Option<&'a Source> {
    sources.iter().find(|source| source.path == path)
}

/// By its folder, in one of the ways that are not plain words: `types` alone says nothing.
fn is_named(text: &str, member: &Crate) -> bool {
    let folder = member.folder.rsplit('/').next().unwrap_or(&member.folder);
    let ways = [
        format!("crates/{folder}"),
        format!("`{folder}`"),
        format!("`{folder}/`"),
        format!("`{}`", member.name),
    ];
    ways.iter().any(|way| text.contains(way))
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
    fn every_crate_is_named_in_the_architecture() {
        let crates = [Crate::of("zodium-types", "types", &[]), Crate::of("zodium-net", "net", &[])];
        for named in ["`types` and `net/`", "crates/types crates/net", "`zodium-types` `net`"] {
            assert_eq!(check(&crates, &documents(named)), []);
        }
        assert_eq!(check(&crates, &documents("`types`, a net of types")).len(), 1);
    }
}
