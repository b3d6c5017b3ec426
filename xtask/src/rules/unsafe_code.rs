//! `unsafe-code`: every crate forbids unsafe code, or is listed as one that may have some.

use crate::repository::Crate;
use crate::source::Source;
use crate::violation::Violation;

/// Crates for which unsafe code was measured to pay.
const ALLOWED: [&str; 1] = ["zodium-readlocks"];

const FORBID: &str = "#![forbid(unsafe_code)]";

/// Libraries, programs, tests, examples and build scripts that do not begin with the attribute.
pub(crate) fn check(crates: &[Crate], sources: &[Source]) -> Vec<Violation> {
    let strict = crates.iter().filter(|member| !ALLOWED.contains(&&member.name[..]));
    let roots = strict.flat_map(|member| &member.roots);
    let forbids = |root: &&String| {
        let source = sources.iter().find(|source| source.path == **root);
        source.is_some_and(|source| source.text.lines().any(|line| line == FORBID))
    };
    let lenient = roots.filter(|root| !forbids(root));
    lenient
        .map(|root| Violation {
            path: root.clone(),
            line: 1,
            rule: "unsafe-code",
            advice: format!("write {FORBID} below the header"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(text: &str) -> bool {
        let crates = [Crate::of("zodium-disk", "disk", &[])];
        let sources = [
            Source::of("crates/disk/src/lib.rs", text),
            Source::of("crates/disk/src/real.rs", "//! Not a root.\n"),
        ];
        !check(&crates, &sources).is_empty()
    }

    #[test]
    fn the_root_of_a_crate_must_forbid_unsafe_code() {
        assert!(!is_refused("//! Disk.\n\n#![forbid(unsafe_code)]\n"));
        assert!(is_refused("//! Disk.\n"));
        assert!(is_refused("//! Disk.\n// #![forbid(unsafe_code)]\n"));
        assert!(is_refused("//! Disk.\n#![deny(unsafe_code)]\n"));
    }

    #[test]
    fn a_root_that_is_no_source_is_refused() {
        assert_eq!(check(&[Crate::of("zodium-disk", "disk", &[])], &[]).len(), 1);
    }
}
