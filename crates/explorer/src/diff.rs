//! The difference between two states, line by line.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

/// Lines around a change that are shown.
const CONTEXT: usize = 3;
/// Longest time of a comparison; after it the difference is right, but not the shortest.
const TIME_MAX: Duration = Duration::from_millis(500);

/// A line of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiffLine {
    pub(crate) change: Change,
    pub(crate) text: String,
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Same,
    Removed,
    Added,
    /// Stands for lines that are the same.
    Omitted,
}

/// The changed lines, with some around them; none if the two are equal.
pub(crate) fn difference(old: &[String], new: &[String]) -> Vec<DiffLine> {
    let old: Vec<&str> = old.iter().map(String::as_str).collect();
    let new: Vec<&str> = new.iter().map(String::as_str).collect();
    let diff = TextDiff::configure().timeout(TIME_MAX).diff_slices(&old, &new);
    let mut lines = Vec::new();
    for (place, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if place > 0 {
            lines.push(DiffLine { change: Change::Omitted, text: String::new() });
        }
        for change in group.iter().flat_map(|operation| diff.iter_changes(operation)) {
            let tag = match change.tag() {
                ChangeTag::Equal => Change::Same,
                ChangeTag::Delete => Change::Removed,
                ChangeTag::Insert => Change::Added,
            };
            lines.push(DiffLine { change: tag, text: change.value().to_owned() });
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_and_their_surroundings_are_shown() {
        let old: Vec<String> = (0..40).map(|line| line.to_string()).collect();
        let mut new = old.clone();
        new[5] = "five".to_owned();
        new.push("40".to_owned());
        let lines = difference(&old, &new);
        let texts: Vec<_> = lines.iter().map(|line| (line.change, line.text.as_str())).collect();
        assert_eq!(texts[3..5], [(Change::Removed, "5"), (Change::Added, "five")]);
        assert!(texts.contains(&(Change::Omitted, "")));
        assert_eq!(texts.last(), Some(&(Change::Added, "40")));
        assert_eq!(difference(&old, &old), []);
    }
}
