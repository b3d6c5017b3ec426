//! Takes requests off the front of received bytes, and remembers how far it got with one that is
//! not whole: no byte is looked at again, however the request is cut.

use std::ops::Range;

use crate::limits::{LINE_BYTES_MAX, UNKNOWN_ARGUMENTS_MAX, UNKNOWN_BULK_BYTES_MAX};
use crate::{Arguments, FrameError, RequestLimits, inline, parse_integer};

/// Places that are reserved at once. A client may announce more arguments than it sends.
const PLACES_RESERVED_MAX: usize = 1024;
/// Places that are kept for the next request.
const PLACES_KEPT_MAX: usize = 16 << 10;

/// Reads one request after the other.
#[derive(Debug, Default)]
pub struct RequestReader {
    /// Where the arguments are: in the received bytes, or in `unescaped`.
    places: Vec<Range<usize>>,
    /// Number of arguments that the request announced; 0 before that is known.
    announced: usize,
    /// Bytes of the request that have been read.
    at: usize,
    /// The words of an inline request.
    unescaped: Vec<u8>,
    is_inline: bool,
}

/// What a reader found at the front of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request of so many bytes. [`RequestReader::arguments`] has it until
    /// [`RequestReader::next`].
    Request(usize),
    /// So many bytes without a request, such as an empty line.
    Nothing(usize),
    /// The request is not whole. It has at least so many bytes.
    Incomplete(usize),
}

impl RequestReader {
    /// Reads on. `bytes` begins where the request begins; until it is whole, the caller gives the
    /// same bytes with more behind them.
    ///
    /// # Errors
    /// The bytes are no request, or it is larger than the limits.
    pub fn read(&mut self, bytes: &[u8], limits: &RequestLimits) -> Result<Step, FrameError> {
        if self.announced == 0 {
            match bytes.first() {
                None => return Ok(Step::Incomplete(1)),
                Some(b'*') => {
                    let Some(count) = self.count(bytes, limits)? else {
                        return Ok(Step::Incomplete(bytes.len() + 1));
                    };
                    if count == 0 {
                        return Ok(Step::Nothing(std::mem::take(&mut self.at)));
                    }
                    self.announced = count;
                    self.places.reserve(count.min(PLACES_RESERVED_MAX));
                }
                Some(_) => return self.inline(bytes),
            }
        }
        while self.places.len() < self.announced {
            if let Some(at_least) = self.bulk(bytes, limits)? {
                return Ok(Step::Incomplete(at_least));
            }
        }
        Ok(Step::Request(self.at))
    }

    /// The arguments of the request that [`RequestReader::read`] found in these bytes.
    #[must_use]
    pub fn arguments<'a>(&'a self, bytes: &'a [u8]) -> Arguments<'a> {
        match self.is_inline {
            true => Arguments::new(&self.unescaped, &self.places),
            false => Arguments::new(bytes, &self.places),
        }
    }

    /// Whether a line ends behind each argument of the request in these bytes, as it must in files.
    #[must_use]
    pub fn ends_lines(&self, bytes: &[u8]) -> bool {
        self.places.iter().all(|place| bytes[place.end..].starts_with(b"\r\n"))
    }

    /// Forgets the request, for the next one.
    pub fn next(&mut self) {
        if self.places.capacity() > PLACES_KEPT_MAX {
            self.places = Vec::new();
        }
        self.places.clear();
        (self.announced, self.at, self.is_inline) = (0, 0, false);
        self.unescaped = Vec::new();
    }

    /// The number of arguments; `None` if the line is not whole.
    fn count(&mut self, bytes: &[u8], limits: &RequestLimits) -> Result<Option<usize>, FrameError> {
        let Some((line, end)) = line(bytes, 1, FrameError::ArgumentCountTooLong)? else {
            return Ok(None);
        };
        let count = parse_integer(line).ok_or(FrameError::ArgumentCount)?;
        // Negative counts are skipped, as 0 is.
        let count = usize::try_from(count.max(0)).map_err(|_| FrameError::ArgumentCount)?;
        if count > limits.arguments_max {
            return Err(FrameError::ArgumentCount);
        }
        if count > UNKNOWN_ARGUMENTS_MAX && !limits.is_authenticated {
            return Err(FrameError::UnauthenticatedArguments);
        }
        self.at = end;
        Ok(Some(count))
    }

    /// Reads one argument. `Some`: it is not whole, and the request has at least so many bytes.
    fn bulk(&mut self, bytes: &[u8], limits: &RequestLimits) -> Result<Option<usize>, FrameError> {
        match bytes.get(self.at) {
            None => return Ok(Some(self.at + 1)),
            Some(b'$') => {}
            Some(other) => return Err(FrameError::NoBulk(*other)),
        }
        let found = line(bytes, self.at + 1, FrameError::BulkLengthTooLong)?;
        let Some((line, start)) = found else { return Ok(Some(bytes.len() + 1)) };
        let length = parse_integer(line).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|length| *length <= limits.bulk_bytes_max);
        let length = length.ok_or(FrameError::BulkLength)?;
        if length > UNKNOWN_BULK_BYTES_MAX && !limits.is_authenticated {
            return Err(FrameError::UnauthenticatedBulk);
        }
        let end = start + length;
        if bytes.len() < end + 2 {
            return Ok(Some(end + 2));
        }
        self.places.push(start..end);
        // The two bytes after it are not compared: the stock server does not either.
        self.at = end + 2;
        Ok(None)
    }

    fn inline(&mut self, bytes: &[u8]) -> Result<Step, FrameError> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            return match bytes.len() > LINE_BYTES_MAX {
                true => Err(FrameError::InlineTooLong),
                false => Ok(Step::Incomplete(bytes.len() + 1)),
            };
        };
        let line = &bytes[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        inline::split(line, &mut self.unescaped, &mut self.places)?;
        if self.places.is_empty() {
            return Ok(Step::Nothing(end + 1));
        }
        (self.is_inline, self.at) = (true, end + 1);
        self.announced = self.places.len();
        Ok(Step::Request(end + 1))
    }
}

/// The line from `start` to the next carriage return, and where the bytes after it begin. `None`
/// if it is not whole.
fn line(
    bytes: &[u8],
    start: usize,
    too_long: FrameError,
) -> Result<Option<(&[u8], usize)>, FrameError> {
    let rest = bytes.get(start..).unwrap_or_default();
    let looked_at = &rest[..rest.len().min(LINE_BYTES_MAX + 1)];
    match looked_at.iter().position(|byte| *byte == b'\r') {
        Some(length) if length + 1 < rest.len() => Ok(Some((&rest[..length], start + length + 2))),
        None if rest.len() > LINE_BYTES_MAX => Err(too_long),
        _ => Ok(None),
    }
}
