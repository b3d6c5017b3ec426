//! Appends values of msgpack, in the forms that Python's `msgpack` gives them.

use bytes::buf::Writer as BufWriter;
use bytes::{BufMut, BytesMut};
use rmp::encode;

use super::reader::length_of;

/// Appends to a buffer. Writing to memory does not fail, so the results are dropped.
#[derive(Debug)]
pub(crate) struct Writer<'o> {
    out: BufWriter<&'o mut BytesMut>,
}

impl<'o> Writer<'o> {
    pub(crate) fn new(out: &'o mut BytesMut) -> Writer<'o> {
        Writer { out: out.writer() }
    }

    pub(crate) fn nil(&mut self) {
        let _ = encode::write_nil(&mut self.out);
    }

    pub(crate) fn bool(&mut self, value: bool) {
        let _ = encode::write_bool(&mut self.out, value);
    }

    pub(crate) fn float(&mut self, value: f64) {
        let _ = encode::write_f64(&mut self.out, value);
    }

    pub(crate) fn uint(&mut self, value: u64) {
        let _ = encode::write_uint(&mut self.out, value);
    }

    pub(crate) fn int(&mut self, value: i64) {
        let _ = encode::write_sint(&mut self.out, value);
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) {
        let _ = encode::write_bin_len(&mut self.out, length_of(value.len()));
        self.out.get_mut().put_slice(value);
    }

    /// Msgpack's type `str`, which NEO uses in the greeting only.
    pub(crate) fn msgpack_text(&mut self, value: &str) {
        let _ = encode::write_str_len(&mut self.out, length_of(value.len()));
        self.out.get_mut().put_slice(value.as_bytes());
    }

    /// The head of an array.
    pub(crate) fn array(&mut self, length: usize) {
        let _ = encode::write_array_len(&mut self.out, length_of(length));
    }

    /// The head of a map.
    pub(crate) fn map(&mut self, length: usize) {
        let _ = encode::write_map_len(&mut self.out, length_of(length));
    }

    pub(crate) fn extension(&mut self, kind: i8, payload: &[u8]) {
        let _ = encode::write_ext_meta(&mut self.out, length_of(payload.len()), kind);
        self.out.get_mut().put_slice(payload);
    }
}
