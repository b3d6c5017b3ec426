//! The arguments of a request: places in the bytes that were received.

use std::ops::Range;

use crate::{FrameError, inline};

/// Bytes of a kept request that are reserved at once.
const BYTES_RESERVED: usize = 64;
/// Most places of a kept request that are reserved at once.
const PLACES_RESERVED_MAX: usize = 16;

/// The arguments of a request, the command's name included. A cheap copy.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    bytes: &'a [u8],
    places: &'a [Range<usize>],
}

impl<'a> Arguments<'a> {
    /// Arguments at these places of `bytes`.
    pub(crate) fn new(bytes: &'a [u8], places: &'a [Range<usize>]) -> Arguments<'a> {
        Arguments { bytes, places }
    }

    /// The number of arguments, the name included.
    #[must_use]
    pub fn len(self) -> usize {
        self.places.len()
    }

    /// Whether there is not even a name. No reader returns such a request.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.places.is_empty()
    }

    /// The argument with this number; 0 is the name. Empty if there are fewer.
    #[must_use]
    pub fn word(self, number: usize) -> &'a [u8] {
        self.places.get(number).map_or(&[], |place| &self.bytes[place.clone()])
    }

    /// The arguments from this number on.
    #[must_use]
    pub fn from(self, number: usize) -> Arguments<'a> {
        let places = self.places.get(number..).unwrap_or_default();
        Arguments { bytes: self.bytes, places }
    }

    /// The arguments in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a [u8]> + DoubleEndedIterator + Clone {
        let bytes = self.bytes;
        self.places.iter().map(move |place| &bytes[place.clone()])
    }

    /// A copy that can be kept.
    #[must_use]
    pub fn to_request(self) -> OwnedRequest {
        self.iter().collect()
    }
}

/// A request that is kept: one that waits for `EXEC`, or for a list to be filled.
#[derive(Clone, Debug, Default)]
pub struct OwnedRequest {
    bytes: Vec<u8>,
    places: Vec<Range<usize>>,
}

impl OwnedRequest {
    /// The words of a line, as of an inline request.
    ///
    /// # Errors
    /// A quote is not closed, or closed within a word.
    pub fn of_line(line: &[u8]) -> Result<OwnedRequest, FrameError> {
        let mut request = OwnedRequest::default();
        inline::split(line, &mut request.bytes, &mut request.places)?;
        Ok(request)
    }

    /// Its arguments.
    #[must_use]
    pub fn arguments(&self) -> Arguments<'_> {
        Arguments::new(&self.bytes, &self.places)
    }

    /// One without arguments yet. It has room for so many short ones: each growth costs an
    /// allocation.
    #[must_use]
    pub fn with_room(arguments: usize) -> OwnedRequest {
        OwnedRequest {
            bytes: Vec::with_capacity(BYTES_RESERVED),
            places: Vec::with_capacity(arguments.min(PLACES_RESERVED_MAX)),
        }
    }

    /// Removes all arguments, and keeps their memory for others.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    /// The memory that it keeps for arguments, in bytes.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.bytes.capacity() + self.places.capacity() * size_of::<Range<usize>>()
    }

    /// Adds an argument.
    pub fn push(&mut self, word: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(word);
        self.places.push(start..self.bytes.len());
    }
}

impl<'a> FromIterator<&'a [u8]> for OwnedRequest {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(words: I) -> OwnedRequest {
        let words = words.into_iter();
        let mut request = OwnedRequest::with_room(words.size_hint().1.unwrap_or(0));
        words.for_each(|word| request.push(word));
        request
    }
}
