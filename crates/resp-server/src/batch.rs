//! The requests that a client has sent at once: all are read before the first of them is executed,
//! so that their keys are looked up together.

use zodium_keyspace::{KEYS_AHEAD_MAX, Keyspace, Place, Reader};
use zodium_resp::{Arguments, FrameError, RequestLimits, RequestReader, Step};

/// Most requests of a batch.
const REQUESTS_MAX: usize = KEYS_AHEAD_MAX;
/// A longer argument is hardly a key: it is not hashed for nothing.
const KEY_BYTES_MAX: usize = 256;

/// Requests that were read, for one session of a worker after the other.
pub(crate) struct Batch {
    /// The reader of each request.
    readers: [RequestReader; REQUESTS_MAX],
    /// Where each is among the bytes: its begin and its end.
    bounds: [(usize, usize); REQUESTS_MAX],
    /// Where the key of each is, if it was looked up.
    places: [Option<Place>; REQUESTS_MAX],
    len: usize,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch {
            readers: std::array::from_fn(|_| RequestReader::default()),
            bounds: [(0, 0); REQUESTS_MAX],
            places: [None; REQUESTS_MAX],
            len: 0,
        }
    }
}

impl Batch {
    /// Reads requests at the front of `bytes`. `first` is the session's reader, which may have read
    /// a part of the first one. Returns what is behind them: a [`Step::Request`] says that there
    /// may be more of them.
    ///
    /// [`Batch::end`] must follow.
    pub(crate) fn read(
        &mut self,
        first: &mut RequestReader,
        bytes: &[u8],
        limits: &RequestLimits,
    ) -> Result<Step, FrameError> {
        std::mem::swap(first, &mut self.readers[0]);
        self.len = 0;
        let mut start = 0;
        loop {
            let Some(reader) = self.readers.get_mut(self.len) else { break Ok(Step::Request(0)) };
            let rest = &bytes[start..];
            match reader.read(rest, limits) {
                Ok(Step::Request(count)) => {
                    self.bounds[self.len] = (start, start + count);
                    start += count;
                    self.len += 1;
                }
                Ok(Step::Nothing(count)) => {
                    reader.next();
                    break Ok(Step::Nothing(count));
                }
                behind => break behind,
            }
        }
    }

    /// Looks up the keys of the requests, which were read from `bytes`. Most commands have their
    /// only key as the second word; what is none is looked up for nothing.
    pub(crate) fn look_ahead(
        &mut self,
        bytes: &[u8],
        keyspace: &Keyspace,
        reader: &Reader,
        database: usize,
    ) {
        self.places = [None; REQUESTS_MAX];
        if self.len < 2 || !keyspace.pays_to_look_ahead() {
            return;
        }
        for number in 0..self.len {
            let (arguments, _) = self.request(number, bytes);
            let key = arguments.word(1);
            let is_key = (1..=KEY_BYTES_MAX).contains(&key.len());
            self.places[number] = is_key.then(|| keyspace.place(key));
        }
        keyspace.look_ahead(reader, database, self.places.iter().flatten().copied());
    }

    /// Number of requests.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The arguments of a request, among the bytes that it was read of, and the place of its second
    /// word, if that was looked up.
    pub(crate) fn request<'a>(
        &'a self,
        number: usize,
        bytes: &'a [u8],
    ) -> (Arguments<'a>, Option<Place>) {
        let (start, _) = self.bounds[number];
        (self.readers[number].arguments(&bytes[start..]), self.places[number])
    }

    /// Where the first requests end, so many of them.
    pub(crate) fn end_of(&self, requests: usize) -> usize {
        requests.checked_sub(1).map_or(0, |last| self.bounds[last].1)
    }

    /// Forgets the requests. If all of them were executed, the session's reader goes on where this
    /// one has stopped; otherwise the others are read again.
    pub(crate) fn end(&mut self, first: &mut RequestReader, executed: usize) {
        let is_at_end = executed == self.len;
        let readers = self.readers.iter_mut().take(self.len + usize::from(!is_at_end));
        readers.for_each(RequestReader::next);
        let next = if is_at_end { self.len % REQUESTS_MAX } else { 0 };
        std::mem::swap(first, &mut self.readers[next]);
    }
}
