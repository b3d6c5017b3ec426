//! Looks ahead in what a client has sent at once, for the keys of its next requests.

use zodium_keyspace::{AHEAD_KEYS_MAX, Ahead, Keyspace};
use zodium_resp::{RequestLimits, RequestReader, Step};

/// A longer argument is hardly a key: it is not hashed for nothing.
const KEY_BYTES_MAX: usize = 256;
/// Requests that are executed without looking ahead after it did not pay.
const REQUESTS_BEFORE_RETRY: usize = 1000;

/// How far the requests of a client have been looked at.
#[derive(Debug, Default)]
pub(crate) struct LookAhead {
    reader: RequestReader,
    /// Requests that are executed before it is worth to look ahead again.
    executed_before_next: usize,
}

impl LookAhead {
    /// Whether it is worth to look ahead. To be asked once before each request.
    pub(crate) fn is_due(&mut self) -> bool {
        let is_due = self.executed_before_next == 0;
        self.executed_before_next = self.executed_before_next.saturating_sub(1);
        is_due
    }

    /// Looks at the requests in `bytes`, before the first of them is executed.
    pub(crate) fn look(
        &mut self,
        keyspace: &Keyspace,
        database: usize,
        bytes: &[u8],
        limits: &RequestLimits,
    ) {
        let (mut ahead, mut at, mut requests) = (Ahead::new(keyspace, database), 0, 0);
        while let Some(rest) = bytes.get(at..)
            && requests < AHEAD_KEYS_MAX
            && let Ok(Step::Request(count)) = self.reader.read(rest, limits)
        {
            // Most commands have their only key there. What is none is looked up for nothing.
            let arguments = self.reader.arguments(rest);
            if arguments.len() > 1 && arguments.word(1).len() <= KEY_BYTES_MAX {
                ahead.add(arguments.word(1));
            }
            self.reader.next();
            (at, requests) = (at + count, requests + 1);
        }
        self.reader.next();
        let pays = requests < 2 || ahead.fetch();
        self.executed_before_next = match pays {
            true => requests.saturating_sub(1),
            false => REQUESTS_BEFORE_RETRY,
        };
    }
}
