//! The row that says which process writes to a database.
//!
//! `GET_LOCK` is local to a node of a Galera cluster, and ends with its connection. So each
//! transaction also changes a row of `config`: owner, term, and the number of the transaction. A
//! process that finds another owner there must not write any more. And after a lost connection the
//! number tells whether the last COMMIT has happened.

/// The name of the row.
pub(super) const NAME: &str = "zodium";

/// The row as this process writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    owner: u64,
    term: u64,
    /// The last transaction that is known to be committed.
    pub(super) serial: u64,
}

impl Fence {
    /// The row after a take-over: `found` is what was there.
    pub(super) fn after(found: Option<&str>, owner: u64) -> Fence {
        let term = found.and_then(term_of).unwrap_or(0);
        Fence { owner, term: term.saturating_add(1), serial: 0 }
    }

    /// The value of the row after a transaction.
    pub(super) fn value(&self, serial: u64) -> String {
        format!("{}{serial}", self.of_owner())
    }

    /// Whether a value of the row is of this process.
    pub(super) fn is_owner(&self, value: &[u8]) -> bool {
        value.starts_with(self.of_owner().as_bytes())
    }

    /// Whether a value of the row is of a process that came later.
    pub(super) fn is_overtaken(&self, value: &str) -> bool {
        term_of(value).is_some_and(|term| term > self.term)
    }

    fn of_owner(&self) -> String {
        format!("{:016x} {} ", self.owner, self.term)
    }
}

fn term_of(value: &str) -> Option<u64> {
    value.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_grow_with_each_owner() {
        let first = Fence::after(None, 1);
        assert_eq!(first.value(7), "0000000000000001 1 7");
        let second = Fence::after(Some(&first.value(7)), 2);
        assert_eq!(second.value(0), "0000000000000002 2 0");
        assert!(
            second.is_owner(b"0000000000000002 2 7") && !second.is_owner(b"0000000000000001 1 7")
        );
        assert!(first.is_overtaken(&second.value(0)) && !first.is_overtaken(&first.value(9)));
        assert!(!second.is_overtaken(&first.value(9)) && !first.is_overtaken("odd"));
        assert_eq!(Fence::after(Some("odd"), 3).value(0), "0000000000000003 1 0");
    }
}
