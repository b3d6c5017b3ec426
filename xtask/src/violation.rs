//! What a rule finds, written as compilers write it, so that editors can jump to it.

use std::fmt;

/// A place that breaks a rule. Ordered by place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    /// Relative to the root of the repository, with slashes.
    pub(crate) path: String,
    /// From 1.
    pub(crate) line: usize,
    /// The name of the rule.
    pub(crate) rule: &'static str,
    /// What is wrong, unless the rule's name says it, and what to do.
    pub(crate) advice: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_reads_like_a_compiler_message() {
        let violation = Violation {
            path: "crates/disk/src/lib.rs".to_owned(),
            line: 7,
            rule: "columns",
            advice: "wrap it".to_owned(),
        };
        assert_eq!(violation.to_string(), "crates/disk/src/lib.rs:7: columns: wrap it");
    }
}
