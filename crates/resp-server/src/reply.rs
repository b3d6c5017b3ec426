//! The answer of a command, written to a link or to a buffer.

use bytes::{Bytes, BytesMut};
use zodium_keyspace::Text;
use zodium_net::Output;
use zodium_resp::{Version, write};

/// Longer values are sent without a copy.
const COPIED_BYTES_MAX: usize = zodium_keyspace::PACKED_BYTES_MAX;

/// Writes an answer in the version that a client speaks.
pub(crate) struct Reply<'a> {
    out: Out<'a>,
    pub(crate) version: Version,
}

enum Out<'a> {
    Link(&'a mut Output),
    Buffer(&'a mut BytesMut),
    Limited(&'a mut Limited),
}

/// An answer with a limit: once there are more bytes, no further values are copied.
pub(crate) struct Limited {
    pub(crate) bytes: BytesMut,
    bytes_max: usize,
    /// Whether values are missing.
    pub(crate) is_over: bool,
}

impl Limited {
    /// One in a buffer that is empty.
    pub(crate) fn in_buffer(bytes: BytesMut, bytes_max: usize) -> Limited {
        Limited { bytes, bytes_max, is_over: false }
    }

    /// Whether there is room for so many bytes more.
    fn admits(&mut self, more: usize) -> bool {
        self.is_over |= self.bytes.len().saturating_add(more) > self.bytes_max;
        !self.is_over
    }
}

impl<'a> Reply<'a> {
    /// Writes to the output of a link.
    pub(crate) fn to_link(output: &'a mut Output, version: Version) -> Reply<'a> {
        Reply { out: Out::Link(output), version }
    }

    /// Writes to a buffer.
    pub(crate) fn to_buffer(buffer: &'a mut BytesMut, version: Version) -> Reply<'a> {
        Reply { out: Out::Buffer(buffer), version }
    }

    /// Writes to a buffer with a limit.
    pub(crate) fn to_limited(limited: &'a mut Limited, version: Version) -> Reply<'a> {
        Reply { out: Out::Limited(limited), version }
    }

    /// The same target, for a part of the answer.
    pub(crate) fn part(&mut self) -> Reply<'_> {
        let out = match &mut self.out {
            Out::Link(output) => Out::Link(output),
            Out::Buffer(buffer) => Out::Buffer(buffer),
            Out::Limited(limited) => Out::Limited(limited),
        };
        Reply { out, version: self.version }
    }

    pub(crate) fn is_resp3(&self) -> bool {
        self.version == Version::Three
    }

    fn buffer(&mut self) -> &mut BytesMut {
        match &mut self.out {
            Out::Link(output) => output.buffer(),
            Out::Buffer(buffer) => buffer,
            Out::Limited(limited) => &mut limited.bytes,
        }
    }

    /// Bytes that were written, without those that the answer shares.
    pub(crate) fn written(&mut self) -> usize {
        self.buffer().len()
    }

    /// Takes back what was written after so many bytes. It must share nothing.
    pub(crate) fn cut(&mut self, written: usize) {
        self.buffer().truncate(written);
    }

    pub(crate) fn ok(&mut self) {
        self.simple("OK");
    }

    pub(crate) fn simple(&mut self, text: &str) {
        write::simple(self.buffer(), text);
    }

    pub(crate) fn error(&mut self, text: &str) {
        write::error(self.buffer(), text.as_bytes());
    }

    pub(crate) fn integer(&mut self, number: i64) {
        write::integer(self.buffer(), number);
    }

    pub(crate) fn count(&mut self, count: usize) {
        self.integer(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// An integer also in RESP3, where the command predates truth values.
    pub(crate) fn flag(&mut self, is_set: bool) {
        self.integer(i64::from(is_set));
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        if let Out::Limited(limited) = &mut self.out
            && !limited.admits(bytes.len())
        {
            return;
        }
        write::bulk(self.buffer(), bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    /// A string of a key.
    pub(crate) fn stored(&mut self, text: Text) {
        match text {
            Text::Packed(bytes) => self.bulk(bytes),
            Text::Shared(bytes) => self.shared(bytes),
        }
    }

    /// Bytes that the answer may share.
    pub(crate) fn shared(&mut self, bytes: &Bytes) {
        match &mut self.out {
            Out::Link(output) if bytes.len() > COPIED_BYTES_MAX => {
                write::bulk_header(output.buffer(), bytes.len());
                output.push(bytes.clone());
                output.buffer().extend_from_slice(b"\r\n");
            }
            _ => self.bulk(bytes),
        }
    }

    pub(crate) fn bulk_or_null<B: AsRef<[u8]>>(&mut self, bytes: Option<B>) {
        match bytes {
            Some(bytes) => self.bulk(bytes.as_ref()),
            None => self.null(),
        }
    }

    pub(crate) fn null(&mut self) {
        let version = self.version;
        write::null(self.buffer(), version);
    }

    pub(crate) fn null_array(&mut self) {
        let version = self.version;
        write::null_array(self.buffer(), version);
    }

    pub(crate) fn array(&mut self, elements: usize) {
        write::array(self.buffer(), elements);
    }

    pub(crate) fn map(&mut self, pairs: usize) {
        let version = self.version;
        write::map(self.buffer(), version, pairs);
    }

    pub(crate) fn set(&mut self, elements: usize) {
        let version = self.version;
        write::set(self.buffer(), version, elements);
    }

    pub(crate) fn push(&mut self, elements: usize) {
        let version = self.version;
        write::push(self.buffer(), version, elements);
    }

    pub(crate) fn double(&mut self, number: f64) {
        let version = self.version;
        write::double(self.buffer(), version, number);
    }

    /// A truth value, in RESP2 an integer.
    pub(crate) fn boolean(&mut self, value: bool) {
        let version = self.version;
        write::boolean(self.buffer(), version, value);
    }

    /// A number of any length; in RESP2 bytes.
    pub(crate) fn big_number(&mut self, digits: &str) {
        let version = self.version;
        write::big_number(self.buffer(), version, digits);
    }

    /// A text of a format with a name of three letters; in RESP2 bytes.
    pub(crate) fn verbatim_as(&mut self, format: &[u8], text: &[u8]) {
        let version = self.version;
        write::verbatim_as(self.buffer(), version, format, text);
    }

    pub(crate) fn verbatim(&mut self, text: &str) {
        let version = self.version;
        write::verbatim(self.buffer(), version, text.as_bytes());
    }

    /// Bytes each, as an array.
    pub(crate) fn words<B: AsRef<[u8]>>(&mut self, words: &[B]) {
        self.array(words.len());
        words.iter().for_each(|word| self.bulk(word.as_ref()));
    }
}
