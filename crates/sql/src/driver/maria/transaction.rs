//! What a transaction has changed so far, so that it can be run again.
//!
//! This process is the only one that writes ([`super::fence`]). So when a transaction is run again,
//! its reads would find what they have found, and it is enough to repeat its changes.

use std::sync::Arc;

use mysql::Value;

use super::Translated;

/// A transaction with more changes than that is not run again.
const BYTES_MAX: usize = 256 << 20;
/// What a change takes besides its values.
const CHANGE_BYTES: usize = 64;

/// A transaction under way.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    changes: Vec<Change>,
    bytes: usize,
}

/// A statement that changes rows.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) text: Arc<Translated>,
    pub(super) values: Vec<Value>,
}

impl Transaction {
    /// Notes a change that was made.
    pub(super) fn note(&mut self, text: &Arc<Translated>, values: Vec<Value>) {
        let bytes: usize = values.iter().map(bytes).sum();
        self.bytes = self.bytes.saturating_add(bytes + CHANGE_BYTES);
        match self.bytes > BYTES_MAX {
            true => self.changes = Vec::new(),
            false => self.changes.push(Change { text: Arc::clone(text), values }),
        }
    }

    /// The changes so far; `None` if they are too many to be kept.
    pub(super) fn changes(&self) -> Option<&[Change]> {
        (self.bytes <= BYTES_MAX).then_some(&self.changes)
    }
}

fn bytes(value: &Value) -> usize {
    match value {
        Value::Bytes(bytes) => bytes.len(),
        _ => size_of::<Value>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_is_too_large_is_not_kept() {
        let text = Arc::new(Translated::new("INSERT INTO a VALUES (?1)"));
        let mut transaction = Transaction::default();
        transaction.note(&text, vec![Value::Int(1)]);
        assert_eq!(transaction.changes().map(<[Change]>::len), Some(1));
        transaction.note(&text, vec![Value::Bytes(vec![0; BYTES_MAX])]);
        transaction.note(&text, vec![Value::Int(1)]);
        assert!(transaction.changes().is_none());
    }
}
