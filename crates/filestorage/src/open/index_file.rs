//! `Data.fs.index`, the snapshot of the index that stock ZODB reads and writes.
//!
//! The file is a sequence of pickles: the end position covered, then for each 6-byte oid prefix
//! `(prefix, bucket)`, then `None`. A bucket is n 2-byte oid suffixes followed by n 6-byte
//! positions, all big-endian, at most 65536 entries. Reads and writes stream bucket by bucket. This
//! module handles the few opcodes itself, without a general pickle reader: no input can make it
//! allocate more than one bucket.
//!
//! The file has no checksum. A flipped bit in a position is found only when the position is used,
//! so a reader must compare the oid of each record with the oid it asked for.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};

use zodium_types::Oid;

/// Why an index file was rejected. None of these is fatal: the index can be rebuilt from the data
/// file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum IndexFileError {
    /// Reading failed.
    #[error("cannot read the index file: {0}")]
    Io(#[from] io::Error),
    /// The bytes are not an index.
    #[error("the index file is damaged at byte {offset}: {what}; the index has to be rebuilt")]
    Damaged {
        /// Byte offset of the unreadable pickle.
        offset: u64,
        /// Description of the error.
        what: &'static str,
    },
    /// A single pickled dictionary, the format before ZODB 3.10.
    #[error("the index file was written by a ZODB before 3.10; the index has to be rebuilt")]
    OldFormat,
}

/// Writes the index of a file whose first `end_position` bytes it covers, byte for byte as ZODB
/// does. `entries` come in ascending oid order.
///
/// # Errors
/// Those of `out`. `InvalidInput` when the entries are not in order, or a position is 0 or needs
/// more than 6 bytes. The caller must discard the output written so far.
pub(crate) fn write(
    out: impl Write,
    end_position: u64,
    entries: impl IntoIterator<Item = (Oid, u64)>,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    write_integer(&mut out, end_position)?;
    let mut bucket = Bucket::default();
    for (oid, position) in entries {
        if bucket.prefix != oid.0 >> SUFFIX_BITS && !bucket.suffixes.is_empty() {
            bucket.write(&mut out)?;
            bucket.suffixes.clear();
            bucket.positions.clear();
        }
        bucket.push(oid, position)?;
    }
    if !bucket.suffixes.is_empty() {
        bucket.write(&mut out)?;
    }
    out.write_all(&[PROTO, PROTOCOL, NONE, STOP])?;
    out.flush()
}

/// Reads an index, calls `entry` for each object in ascending oid order, and returns the end
/// position that the index covers.
///
/// Accepts the output of ZODB under Python 3 and Python 2. After an error, the caller must discard
/// the entries given so far.
pub(crate) fn read(
    input: impl Read,
    mut entry: impl FnMut(Oid, u64),
) -> Result<u64, IndexFileError> {
    let mut reader = PickleReader::new(input);
    let end_position = reader.end_position()?;
    let mut bytes = Vec::new();
    let mut prefix_last = None;
    while let Some(prefix) = reader.bucket(&mut bytes)? {
        if prefix_last.is_some_and(|last| prefix <= last) {
            return Err(reader.damaged("the oids are not in order"));
        }
        prefix_last = Some(prefix);
        unpack_bucket(prefix, &bytes, &mut entry).map_err(|what| reader.damaged(what))?;
    }
    reader.end_of_file()?;
    Ok(end_position)
}

/// The entries of one pickle to be written.
#[derive(Default)]
struct Bucket {
    prefix: u64,
    suffixes: Vec<u8>,
    positions: Vec<u8>,
    oid_last: Option<Oid>,
}

/// Reads the few opcodes that an index consists of.
struct PickleReader<R> {
    input: BufReader<R>,
    /// Offset of the next byte.
    offset: u64,
    /// Offset of the current pickle, for errors.
    pickle_offset: u64,
}

const SUFFIX_BITS: u32 = 16;
const PREFIX_BYTES: usize = 6;
const SUFFIX_BYTES: usize = 2;
const POSITION_BYTES: usize = 6;
/// Bytes of an entry in a bucket.
pub(crate) const ENTRY_BYTES: usize = SUFFIX_BYTES + POSITION_BYTES;
const BUCKET_BYTES_MAX: usize = ENTRY_BYTES << SUFFIX_BITS;
const BUFFER_BYTES: usize = 64 << 10;
/// Longest number in text: 20 digits and the `L` that ZODB under Python 2 adds.
const TEXT_BYTES_MAX: u64 = 24;

// Pickle opcodes, with the names of Python's `pickletools`.
const PROTO: u8 = 0x80;
const PROTOCOL: u8 = 3;
const STOP: u8 = b'.';
const NONE: u8 = b'N';
const MARK: u8 = b'(';
const TUPLE: u8 = b't';
const TUPLE2: u8 = 0x86;
const EMPTY_DICT: u8 = b'}';
const INT: u8 = b'I';
const LONG: u8 = b'L';
const BININT1: u8 = b'K';
const BININT2: u8 = b'M';
const BININT: u8 = b'J';
const LONG1: u8 = 0x8a;
const SHORT_BINBYTES: u8 = b'C';
const BINBYTES: u8 = b'B';
const SHORT_BINSTRING: u8 = b'U';
const BINSTRING: u8 = b'T';

const ENDS_EARLY: &str = "it ends early";
const NOT_A_PAIR: &str = "neither a pair of an oid prefix and a bucket nor the end mark";

impl Bucket {
    fn push(&mut self, oid: Oid, position: u64) -> io::Result<()> {
        if self.oid_last.is_some_and(|last| oid <= last) {
            return Err(invalid_input(format!("oid {oid} is not in ascending order")));
        }
        self.oid_last = Some(oid);
        if position == 0 {
            return Err(invalid_input(format!("oid {oid} is at position 0")));
        }
        let [0, 0, position @ ..] = position.to_be_bytes() else {
            return Err(invalid_input(format!("position {position} of oid {oid} is above 2^48")));
        };
        self.prefix = oid.0 >> SUFFIX_BITS;
        self.suffixes.extend_from_slice(&(oid.0 as u16).to_be_bytes());
        self.positions.extend_from_slice(&position);
        Ok(())
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let [_, _, prefix @ ..] = self.prefix.to_be_bytes();
        out.write_all(&[PROTO, PROTOCOL, SHORT_BINBYTES, PREFIX_BYTES as u8])?;
        out.write_all(&prefix)?;
        let length = self.suffixes.len() + self.positions.len();
        match u8::try_from(length) {
            Ok(length) => out.write_all(&[SHORT_BINBYTES, length])?,
            Err(_) => {
                out.write_all(&[BINBYTES])?;
                out.write_all(&(length as u32).to_le_bytes())?;
            }
        }
        out.write_all(&self.suffixes)?;
        out.write_all(&self.positions)?;
        out.write_all(&[TUPLE2, STOP])
    }
}

impl<R: Read> PickleReader<R> {
    fn new(input: R) -> PickleReader<R> {
        let input = BufReader::with_capacity(BUFFER_BYTES, input);
        PickleReader { input, offset: 0, pickle_offset: 0 }
    }

    fn end_position(&mut self) -> Result<u64, IndexFileError> {
        let opcode = self.first_opcode()?;
        if matches!(opcode, EMPTY_DICT | MARK) {
            return Err(IndexFileError::OldFormat);
        }
        let position = self.integer(opcode)?;
        self.expect(STOP, "more than a number where the end position should be")?;
        Ok(position)
    }

    /// Reads the next bucket into `bytes` and returns its prefix; `None` at the end mark.
    fn bucket(&mut self, bytes: &mut Vec<u8>) -> Result<Option<u64>, IndexFileError> {
        let mut opcode = self.first_opcode()?;
        if opcode == NONE {
            self.expect(STOP, NOT_A_PAIR)?;
            return Ok(None);
        }
        let is_marked = opcode == MARK;
        if is_marked {
            opcode = self.opcode()?;
        }
        self.bytes(opcode, bytes)?;
        let &[a, b, c, d, e, f] = bytes.as_slice() else {
            return Err(self.damaged("an oid prefix is not 6 bytes long"));
        };
        let opcode = self.opcode()?;
        self.bytes(opcode, bytes)?;
        self.expect(if is_marked { TUPLE } else { TUPLE2 }, NOT_A_PAIR)?;
        self.expect(STOP, NOT_A_PAIR)?;
        Ok(Some(u64::from_be_bytes([0, 0, a, b, c, d, e, f])))
    }

    fn end_of_file(&mut self) -> Result<(), IndexFileError> {
        self.pickle_offset = self.offset;
        match self.input.fill_buf()? {
            [] => Ok(()),
            _ => Err(self.damaged("something follows the end mark")),
        }
    }

    /// Returns a pickle's first opcode after the protocol opcode, which protocols 0 and 1 lack.
    fn first_opcode(&mut self) -> Result<u8, IndexFileError> {
        self.pickle_offset = self.offset;
        let opcode = self.opcode()?;
        if opcode != PROTO {
            return Ok(opcode);
        }
        match self.array()? {
            [0..=PROTOCOL] => self.opcode(),
            _ => Err(self.damaged("a pickle protocol above 3")),
        }
    }

    fn opcode(&mut self) -> Result<u8, IndexFileError> {
        let [opcode] = self.array()?;
        Ok(opcode)
    }

    fn expect(&mut self, opcode: u8, otherwise: &'static str) -> Result<(), IndexFileError> {
        if self.opcode()? == opcode { Ok(()) } else { Err(self.damaged(otherwise)) }
    }

    fn integer(&mut self, opcode: u8) -> Result<u64, IndexFileError> {
        match opcode {
            BININT1 => Ok(u64::from(u8::from_le_bytes(self.array()?))),
            BININT2 => Ok(u64::from(u16::from_le_bytes(self.array()?))),
            BININT => u64::try_from(i32::from_le_bytes(self.array()?))
                .map_err(|_| self.damaged("a negative end position")),
            LONG1 => self.long(),
            INT | LONG => self.number_in_text(),
            _ => Err(self.damaged("no number where the end position should be")),
        }
    }

    /// Reads a little-endian two's complement number of the given length.
    fn long(&mut self) -> Result<u64, IndexFileError> {
        let [length] = self.array()?;
        let mut bytes = [0; 8];
        let Some(low) = bytes.get_mut(..usize::from(length)) else {
            return Err(self.damaged("an end position of more than 8 bytes"));
        };
        self.fill(low)?;
        match low.last() {
            Some(0x80..) => Err(self.damaged("a negative end position")),
            _ => Ok(u64::from_le_bytes(bytes)),
        }
    }

    fn number_in_text(&mut self) -> Result<u64, IndexFileError> {
        let mut line = Vec::new();
        let length = (&mut self.input).take(TEXT_BYTES_MAX).read_until(b'\n', &mut line)?;
        self.offset += length as u64;
        let digits = line.strip_suffix(b"\n").map(|text| text.strip_suffix(b"L").unwrap_or(text));
        digits
            .and_then(|digits| str::from_utf8(digits).ok()?.parse().ok())
            .ok_or_else(|| self.damaged("the end position is not a number"))
    }

    fn bytes(&mut self, opcode: u8, bytes: &mut Vec<u8>) -> Result<(), IndexFileError> {
        let length = match opcode {
            SHORT_BINBYTES | SHORT_BINSTRING => usize::from(u8::from_le_bytes(self.array()?)),
            // A negative `BINSTRING` length becomes a number above the limit.
            BINBYTES | BINSTRING => u32::from_le_bytes(self.array()?) as usize,
            _ => return Err(self.damaged(NOT_A_PAIR)),
        };
        if length > BUCKET_BYTES_MAX {
            return Err(self.damaged("a bucket of more than 65536 objects"));
        }
        bytes.resize(length, 0);
        self.fill(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], IndexFileError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), IndexFileError> {
        match self.input.read_exact(bytes) {
            Ok(()) => {
                self.offset += bytes.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.damaged(ENDS_EARLY))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn damaged(&self, what: &'static str) -> IndexFileError {
        IndexFileError::Damaged { offset: self.pickle_offset, what }
    }
}

/// Gives the entries of a bucket, or describes its error.
fn unpack_bucket(
    prefix: u64,
    bytes: &[u8],
    entry: &mut impl FnMut(Oid, u64),
) -> Result<(), &'static str> {
    if !bytes.len().is_multiple_of(ENTRY_BYTES) {
        return Err("the length of a bucket is not a multiple of 8");
    }
    let (suffixes, positions) = bytes.split_at(bytes.len() / ENTRY_BYTES * SUFFIX_BYTES);
    let (suffixes, _) = suffixes.as_chunks::<SUFFIX_BYTES>();
    let (positions, _) = positions.as_chunks::<POSITION_BYTES>();
    let mut suffixes_from = 0;
    for (&suffix, &[a, b, c, d, e, f]) in suffixes.iter().zip(positions) {
        let suffix = u16::from_be_bytes(suffix);
        if u32::from(suffix) < suffixes_from {
            return Err("the oids are not in order");
        }
        suffixes_from = u32::from(suffix) + 1;
        let position = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        if position == 0 {
            return Err("an object at position 0");
        }
        entry(Oid(prefix << SUFFIX_BITS | u64::from(suffix)), position);
    }
    Ok(())
}

fn write_integer(out: &mut impl Write, value: u64) -> io::Result<()> {
    out.write_all(&[PROTO, PROTOCOL])?;
    let bytes = value.to_le_bytes();
    match value {
        0..=0xff => out.write_all(&[BININT1, bytes[0]])?,
        0x100..=0xffff => out.write_all(&[BININT2, bytes[0], bytes[1]])?,
        0x1_0000..=0x7fff_ffff => {
            out.write_all(&[BININT])?;
            out.write_all(&bytes[..4])?;
        }
        0x8000_0000..=0x7fff_ffff_ffff_ffff => {
            // The shortest form whose sign bit is clear.
            let length = 8 - (value.leading_zeros() as usize - 1) / 8;
            out.write_all(&[LONG1, length as u8])?;
            out.write_all(&bytes[..length])?;
        }
        _ => return Err(invalid_input(format!("end position {value} is above 2^63"))),
    }
    out.write_all(&[STOP])
}

fn invalid_input(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Output of ZODB 6.4 for the example of two objects in a file of 429 bytes.
    const EXAMPLE: [u8; 40] = *b"\x80\x03M\xad\x01.\
        \x80\x03C\x06\0\0\0\0\0\0C\x10\0\x01\0\x02\0\0\0\0\x01\x29\0\0\0\0\x01\x7a\x86.\
        \x80\x03N.";
    const EXAMPLE_ENTRIES: [(Oid, u64); 2] = [(Oid(1), 0x129), (Oid(2), 0x17a)];

    type Entries = Vec<(Oid, u64)>;

    fn written(end_position: u64, entries: &[(Oid, u64)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, end_position, entries.iter().copied()).unwrap();
        bytes
    }

    fn read_all(bytes: &[u8]) -> Result<(u64, Entries), IndexFileError> {
        let mut entries = Vec::new();
        let end_position = read(bytes, |oid, position| entries.push((oid, position)))?;
        Ok((end_position, entries))
    }

    fn assert_refused(bytes: &[u8], what: &str) {
        let error = read_all(bytes).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }

    fn pickle_of_bucket(prefix: [u8; 6], bucket: &[u8]) -> Vec<u8> {
        let length = (bucket.len() as u32).to_le_bytes();
        [b"\x80\x03C\x06", &prefix[..], b"B", &length, bucket, b"\x86."].concat()
    }

    fn file_of_bucket(bucket: &[u8]) -> Vec<u8> {
        [b"\x80\x03K\x09.", &pickle_of_bucket([0; 6], bucket)[..], b"\x80\x03N."].concat()
    }

    #[test]
    fn writes_the_bytes_zodb_writes() {
        assert_eq!(written(429, &EXAMPLE_ENTRIES), EXAMPLE);
    }

    #[test]
    fn writes_end_positions_of_all_sizes_like_zodb() {
        for (end_position, pickled) in [
            (0, &b"K\0"[..]),
            (0xff, b"K\xff"),
            (0x100, b"M\0\x01"),
            (0xffff, b"M\xff\xff"),
            (0x1_0000, b"J\0\0\x01\0"),
            (0x7fff_ffff, b"J\xff\xff\xff\x7f"),
            (0x8000_0000, b"\x8a\x05\0\0\0\x80\0"),
            (0x7f_ffff_ffff, b"\x8a\x05\xff\xff\xff\xff\x7f"),
            (0x80_0000_0000, b"\x8a\x06\0\0\0\0\x80\0"),
            (0x7fff_ffff_ffff_ffff, b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ] {
            let expected = [b"\x80\x03", pickled, b".\x80\x03N."].concat();
            assert_eq!(written(end_position, &[]), expected, "{end_position:#x}");
            assert_eq!(read_all(&expected).unwrap(), (end_position, vec![]));
        }
    }

    #[test]
    fn buckets_above_255_bytes_get_a_four_byte_length() {
        let entries: Entries = (0..32).map(|oid| (Oid(oid), 100)).collect();
        assert_eq!(&written(9, &entries[..31])[15..17], b"C\xf8");
        assert_eq!(&written(9, &entries)[15..20], b"B\0\x01\0\0");
    }

    #[test]
    fn full_buckets_and_the_last_oids_survive_a_round_trip() {
        let mut entries: Entries = (0x2_0000..0x4_0000).map(|oid| (Oid(oid), oid << 20)).collect();
        entries.extend((u64::MAX - 70_000..=u64::MAX).map(|oid| (Oid(oid), 0xffff_ffff_ffff)));
        assert_eq!(read_all(&written(1 << 47, &entries)).unwrap(), (1 << 47, entries));
    }

    #[test]
    fn refuses_to_write_what_no_reader_could_read() {
        for entries in [
            [(Oid(2), 100), (Oid(1), 100)],
            [(Oid(u64::MAX), 100), (Oid(u64::MAX), 100)],
            [(Oid(0x1_0000), 100), (Oid(0xffff), 100)],
            [(Oid(1), 100), (Oid(2), 1 << 48)],
            [(Oid(1), 0), (Oid(2), 100)],
        ] {
            let error = write(io::sink(), 200, entries).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        let error = write(io::sink(), 1 << 63, []).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn failure_of_the_output_is_reported() {
        let mut room = [0; 39];
        let error = write(&mut room[..], 429, EXAMPLE_ENTRIES).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    }

    #[test]
    fn reads_what_python_2_wrote() {
        let expected = (429, EXAMPLE_ENTRIES.to_vec());
        let suffixes_and_positions = &EXAMPLE[18..34];
        let pair = [b"U\x06\0\0\0\0\0\0U\x10", suffixes_and_positions].concat();
        let protocol_1 = [b"M\xad\x01.(", &pair[..], b"t.N."].concat();
        assert_eq!(read_all(&protocol_1).unwrap(), expected);
        let protocol_2 = [b"\x80\x02M\xad\x01.\x80\x02", &pair[..], b"\x86.\x80\x02N."].concat();
        assert_eq!(read_all(&protocol_2).unwrap(), expected);
        let long_string =
            [b"I429\n.(U\x06\0\0\0\0\0\0T\x10\0\0\0", suffixes_and_positions, b"t.N."].concat();
        assert_eq!(read_all(&long_string).unwrap(), expected);
    }

    #[test]
    fn reads_end_positions_in_text() {
        for (pickle, end_position) in [
            (&b"I5000000000\n.N."[..], 5_000_000_000),
            (b"L5000000000L\n.N.", 5_000_000_000),
            (b"I18446744073709551615\n.N.", u64::MAX),
            (b"\x8a\x00.N.", 0),
        ] {
            assert_eq!(read_all(pickle).unwrap(), (end_position, vec![]));
        }
    }

    #[test]
    fn refuses_end_positions_that_are_none() {
        for pickle in [
            &b"I-5\n.N."[..],
            b"I\n.N.",
            b"I18446744073709551616\n.N.",
            b"I1844674407370955161555555555555555555\n.N.",
            b"J\xff\xff\xff\xff.N.",
            b"\x8a\x01\xff.N.",
            b"\x8a\x02\0\x80.N.",
            b"\x8a\x09\0\0\0\0\0\0\0\0\x01.N.",
            b"N.",
            b"\x80\x04K\x05.N.",
        ] {
            assert!(read_all(pickle).is_err(), "{}", pickle.escape_ascii());
        }
    }

    #[test]
    fn old_single_dictionary_is_recognised() {
        for start in [&b"}q\x01(U\x05index"[..], b"\x80\x02}q\x01", b"(dp1\n"] {
            assert!(matches!(read_all(start), Err(IndexFileError::OldFormat)));
        }
    }

    #[test]
    fn refuses_damaged_buckets() {
        assert_refused(&file_of_bucket(&[0; 15]), "not a multiple of 8");
        assert_refused(&file_of_bucket(b"\0\x01\0\0\0\0\0\0"), "position 0");
        assert_refused(&file_of_bucket(b"\0\x01\0\x01\0\0\0\0\0\x09\0\0\0\0\0\x0a"), "order");
        let bucket = pickle_of_bucket([0, 0, 0, 0, 0, 1], b"\0\x01\0\0\0\0\0\x09");
        let twice = [b"K\x09.", &bucket[..], &bucket, b"N."].concat();
        assert_refused(&twice, "at byte 28: the oids are not in order");
        assert_refused(&[&EXAMPLE[..], b"N"].concat(), "at byte 40: something follows");
        assert_refused(b"K\x09.C\x05\0\0\0\0\0", "not 6 bytes");
        assert_refused(b"I429\n.K", "at byte 6");
    }

    #[test]
    fn an_index_that_cannot_be_read_is_not_a_damaged_one() {
        /// Fails after some bytes.
        struct Failing<'a>(&'a [u8]);

        impl Read for Failing<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if self.0.is_empty() {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                self.0.read(buffer)
            }
        }

        for length in 0..EXAMPLE.len() {
            let error = read(Failing(&EXAMPLE[..length]), |_, _| ()).unwrap_err();
            assert!(matches!(error, IndexFileError::Io(_)), "{length}: {error}");
        }
    }

    #[test]
    fn absurd_lengths_are_refused_before_anything_is_allocated() {
        for length in [BUCKET_BYTES_MAX as u32 + 1, 0x7fff_ffff, 0xffff_ffff] {
            let start = [b"K\x09.C\x06\0\0\0\0\0\0B", &length.to_le_bytes()[..]].concat();
            assert_refused(&start, "more than 65536 objects");
        }
    }

    #[test]
    fn truncated_file_is_refused_at_every_byte() {
        let entries: Entries = (0..200).map(|n| (Oid(n * 1000), 0x1_0000_0000 + n)).collect();
        for bytes in [EXAMPLE.to_vec(), written(1 << 40, &entries)] {
            for length in 0..bytes.len() {
                assert_refused(&bytes[..length], "ends early");
            }
        }
    }

    #[test]
    fn any_flipped_bit_gives_an_error_or_an_ordered_index() {
        let entries = [(Oid(1), 100), (Oid(7), 200), (Oid(0x7_0000), 150), (Oid(u64::MAX), 300)];
        let python_3 = written(0x1_2345_6789, &entries);
        let python_2 = b"I429\n.(U\x06\0\0\0\0\0\0T\x08\0\0\0\0\x01\0\0\0\0\x01\x29t.N.".to_vec();
        for bytes in [EXAMPLE.to_vec(), python_3, python_2] {
            assert!(read_all(&bytes).is_ok());
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                if let Ok((_, entries)) = read_all(&flipped) {
                    assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "bit {bit}");
                    assert!(entries.iter().all(|&(_, position)| position != 0), "bit {bit}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            end_position in 0..i64::MAX as u64,
            entries in prop::collection::btree_map(
                prop_oneof![0..300_u64, any::<u64>(), 0x1_ff00..0x2_0100_u64],
                1..1_u64 << 48,
                0..400,
            ),
        ) {
            let entries: Entries = entries.into_iter().map(|(oid, at)| (Oid(oid), at)).collect();
            prop_assert_eq!(
                read_all(&written(end_position, &entries)).unwrap(),
                (end_position, entries)
            );
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_all(&bytes);
        }
    }
}
