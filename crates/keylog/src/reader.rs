//! Reading a log from its beginning: chunks of sound records, and where they end.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zodium_disk::{Disk, DiskFile, OpenMode};

use crate::OpenError;
use crate::record::{FRAME_BYTES, Found, Frame, HEADER_BYTES, MAGIC, SYNCED_BYTES, VERSION, find};

/// Bytes that are read at once.
const READ_BYTES: usize = 4 << 20;

/// Bytes of a log with the places of the records in them.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// Where its bytes begin in the log.
    start: u64,
    bytes: Arc<Vec<u8>>,
    places: Vec<Range<usize>>,
}

impl Chunk {
    /// The number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The body of a record; empty if there are fewer.
    #[must_use]
    pub fn record(&self, number: usize) -> &[u8] {
        self.places.get(number).map_or(&[], |place| &self.bytes[place.clone()])
    }

    /// Where the frame of a record begins in the log; that of the chunk if there are fewer.
    #[must_use]
    pub fn position(&self, number: usize) -> u64 {
        let body = self.places.get(number).map_or(FRAME_BYTES, |place| place.start);
        self.start + (body - FRAME_BYTES) as u64
    }

    /// The bodies of all records.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|place| &self.bytes[place.clone()])
    }
}

/// Reads a log.
#[derive(Debug)]
pub struct LogReader {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    length: u64,
    /// Where the next chunk begins: at a frame.
    position: u64,
    /// Where the first group begins, if it was read.
    group: Option<u64>,
}

impl LogReader {
    /// Opens a log to read it only; `None` if there is no such file.
    ///
    /// # Errors
    /// It cannot be read, or is no log.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Option<LogReader>, OpenError> {
        let path = path.to_path_buf();
        let file = match disk.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(OpenError::Io { action: "open", path, error }),
        };
        LogReader::of(file, path).map(Some)
    }

    /// Reads an open file.
    pub(crate) fn of(file: Arc<dyn DiskFile>, path: PathBuf) -> Result<LogReader, OpenError> {
        let failed = |error| OpenError::Io { action: "read", path: path.clone(), error };
        let length = file.length().map_err(failed)?;
        let mut header = [0; HEADER_BYTES];
        let count = file.read_up_to(&mut header, 0).map_err(failed)?;
        let start = &header[..count.min(MAGIC.len())];
        if !MAGIC.starts_with(start) {
            return Err(OpenError::NoLog { path });
        }
        if count < HEADER_BYTES {
            // It was created just before a crash.
            return Ok(LogReader { path, file, length: count as u64, position: 0, group: None });
        }
        let [.., v0, v1, v2, v3] = header;
        match u32::from_be_bytes([v0, v1, v2, v3]) {
            VERSION => {
                let position = HEADER_BYTES as u64;
                Ok(LogReader { path, file, length, position, group: None })
            }
            version => Err(OpenError::Version { path, version }),
        }
    }

    /// How far it has read: the end of the last sound record.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How long the file was when it took the place of another, as far as it was read; if it never
    /// did, the length of its header. A replacement has no groups, but what is appended has.
    pub(crate) fn base_length(&self) -> u64 {
        self.group.unwrap_or(self.position)
    }

    /// The length of the file.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The next records; `None` at the end of the sound ones.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged before its end.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, OpenError> {
        let mut wanted = READ_BYTES;
        loop {
            let mut bytes = self.read(self.position, wanted)?;
            let is_end = self.position + bytes.len() as u64 >= self.length;
            let Frames { places, end, group, found } = frames(&mut bytes);
            if end > 0 {
                let start = self.position;
                self.position += end as u64;
                self.group = self.group.or(group.map(|at| start + at as u64));
                return Ok(Some(Chunk { start, bytes: Arc::new(bytes), places }));
            }
            match found {
                None => return Ok(None),
                Some(Found::Incomplete(least)) if !is_end => wanted = least.max(2 * wanted),
                Some(_) => return self.check_tail().map(|()| None),
            }
        }
    }

    fn read(&self, position: u64, count: usize) -> Result<Vec<u8>, OpenError> {
        let left = usize::try_from(self.length.saturating_sub(position)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; count.min(left)];
        let read = self.file.read_up_to(&mut bytes, position).map_err(|error| OpenError::Io {
            action: "read",
            path: self.path.clone(),
            error,
        })?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Whether the bytes from here on are the end of a torn write: none of the sound frames behind
    /// them says that they were synced.
    fn check_tail(&self) -> Result<(), OpenError> {
        let mut position = self.position + 1;
        while position < self.length {
            let bytes = self.read(position, READ_BYTES)?;
            for start in 0..bytes.len() {
                let Found::Frame(Frame::Synced(synced)) = synced_frame(&bytes[start..]) else {
                    continue;
                };
                if synced > self.position {
                    let path = self.path.clone();
                    return Err(OpenError::Damaged { path, position: self.position });
                }
            }
            if bytes.len() < READ_BYTES {
                break;
            }
            // A frame may begin at the end of these bytes.
            position += (READ_BYTES - SYNCED_BYTES) as u64;
        }
        Ok(())
    }
}

/// The frame at the beginning of some bytes, if it is the first of a group.
fn synced_frame(bytes: &[u8]) -> Found {
    match bytes {
        [0xd1, b'S', ..] => find(&bytes[..bytes.len().min(SYNCED_BYTES)]),
        _ => Found::Damaged,
    }
}

/// What is at the beginning of some bytes.
#[derive(Default)]
struct Frames {
    /// The places of the records.
    places: Vec<Range<usize>>,
    /// Where the last sound frame ends that completes a record, or begins a group.
    end: usize,
    /// Where the first group begins.
    group: Option<usize>,
    /// What is behind them, if it is no sound frame.
    found: Option<Found>,
}

/// Finds the frames at the beginning of some bytes. The pieces of a record are moved together.
fn frames(bytes: &mut [u8]) -> Frames {
    let (mut frames, mut at) = (Frames::default(), 0);
    // The part of a record that goes on.
    let mut begun: Option<Range<usize>> = None;
    while at < bytes.len() || begun.is_some() {
        let (count, is_last) = match find(&bytes[at..]) {
            Found::Frame(Frame::Record(count)) => (count, true),
            Found::Frame(Frame::Piece(count)) => (count, false),
            Found::Frame(Frame::Synced(_)) if begun.is_none() => {
                frames.group.get_or_insert(at);
                at += SYNCED_BYTES;
                frames.end = at;
                continue;
            }
            Found::Incomplete(least) => {
                frames.found = Some(Found::Incomplete(at - frames.end + least));
                return frames;
            }
            Found::Frame(Frame::Synced(_)) | Found::Damaged => {
                frames.found = Some(Found::Damaged);
                return frames;
            }
        };
        let piece = at + FRAME_BYTES..at + FRAME_BYTES + count;
        at = piece.end;
        let body = match begun.take() {
            None => piece,
            Some(body) => {
                bytes.copy_within(piece, body.end);
                body.start..body.end + count
            }
        };
        if is_last {
            frames.places.push(body);
            frames.end = at;
        } else {
            begun = Some(body);
        }
    }
    frames
}
