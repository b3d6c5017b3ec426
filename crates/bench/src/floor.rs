//! The floor: a server that only sends the right number of bytes from memory.
//!
//! One thread with epoll answers everything that a read has brought with one gather-write. Large
//! objects are sent in place, small ones are copied, whichever is cheaper. It has no protocol, no
//! index and no cache, but sends the same bytes. So its cost is that of the hardware and the
//! kernel. To clients of RESP it sends answers of RESP, and stores nothing.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use slab::Slab;
use zodium_types::Oid;

use crate::options::FloorOptions;
use crate::resp_requests::{self, OK};
use crate::wire::RAW_REQUEST_BYTES;

const EVENTS_MAX: usize = 64;
const READ_BYTES: usize = 64 << 10;
/// Most pieces of one gather-write, as the system limits them.
const PIECES_MAX: usize = 1024;
/// Preparing more slots than this takes longer than sending them.
const PIECES_FEW: usize = 8;
/// Objects from this size on are sent in place; below, a copy costs less than another piece.
const IN_PLACE_BYTES_MIN: usize = 2048;
const LISTENER: u64 = u64::MAX;

/// Serves until it is killed.
pub(crate) fn serve(options: &FloorOptions) -> Result<()> {
    let dataset = options.dataset.dataset();
    let data = (0..dataset.len()).map(|oid| dataset.data(Oid(oid)));
    let (read, objects): (ReadRequest, Vec<_>) = match options.resp {
        true => (read_resp, data.map(|data| resp_requests::answer(&data)).collect()),
        false => (read_raw, data.collect()),
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))
        .with_context(|| format!("cannot listen on port {}", options.port))?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let data = epoll::EventData::new_u64(LISTENER);
    epoll::add(&epoll, &listener, data, epoll::EventFlags::IN)?;
    let busy_poll = Duration::from_micros(options.busy_poll.into());
    let mut floor = Floor { epoll, listener, objects, read, links: Slab::new(), busy_poll };
    floor.run().context("the floor server failed")
}

struct Floor {
    epoll: OwnedFd,
    listener: TcpListener,
    /// The answers to reads, by the number of the object.
    objects: Vec<Vec<u8>>,
    read: ReadRequest,
    links: Slab<Link>,
    /// How long it polls for events without sleeping, after each event.
    busy_poll: Duration,
}

/// Reads a request off its bytes.
type ReadRequest = fn(&[u8; RAW_REQUEST_BYTES]) -> Option<Request>;

/// A request for the object with this number.
enum Request {
    Read(usize),
    /// As many bytes follow as a read is answered with.
    Write(usize),
}

struct Link {
    stream: TcpStream,
    /// The beginning of an incomplete request.
    rest: Vec<u8>,
    /// Bytes of a write that are still to come.
    skip: usize,
    /// Pieces still to be sent.
    pending: VecDeque<Piece>,
    /// Bytes of the first piece that are sent already.
    sent: usize,
    /// Copies of the small objects of a batch.
    copies: Vec<u8>,
}

enum Piece {
    /// The object with this number, sent in place.
    Object(usize),
    /// A range of `copies`.
    Copies(Range<usize>),
}

impl Floor {
    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut scratch = vec![0; READ_BYTES];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut awake_until = None;
        loop {
            let is_awake = awake_until.is_some_and(|end| Instant::now() < end);
            let wait = is_awake.then_some(&now);
            if is_awake {
                // As a server does that shares its processor with its clients.
                std::thread::yield_now();
            }
            match epoll::wait(&self.epoll, spare_capacity(&mut events), wait) {
                // strace has just attached.
                Err(Errno::INTR) => continue,
                waited => waited?,
            };
            if !events.is_empty() && !self.busy_poll.is_zero() {
                awake_until = Some(Instant::now() + self.busy_poll);
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    key => self.take_turn(key, &mut scratch)?,
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        let (stream, _) = match self.listener.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            accepted => accepted?,
        };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let entry = self.links.vacant_entry();
        let data = epoll::EventData::new_u64(entry.key() as u64);
        let link = entry.insert(Link::new(stream));
        Ok(epoll::add(&self.epoll, &link.stream, data, epoll::EventFlags::IN)?)
    }

    /// Reads and answers. Nothing is read while the client does not accept its replies.
    fn take_turn(&mut self, key: u64, scratch: &mut [u8]) -> io::Result<()> {
        let Some(link) = self.links.get_mut(key as usize) else { return Ok(()) };
        let was_waiting = !link.pending.is_empty();
        let open =
            if was_waiting { Ok(true) } else { link.receive(scratch, self.read, &self.objects) };
        let open = open.and_then(|open| link.send(&self.objects).map(|()| open));
        let waits = !link.pending.is_empty();
        match open {
            Ok(true) if waits == was_waiting => Ok(()),
            Ok(true) => {
                let data = epoll::EventData::new_u64(key);
                let flags = if waits { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
                Ok(epoll::modify(&self.epoll, &link.stream, data, flags)?)
            }
            // Ended or failed: either way the socket is closed, which removes it from epoll.
            Ok(false) | Err(_) => {
                self.links.remove(key as usize);
                Ok(())
            }
        }
    }
}

impl Link {
    fn new(stream: TcpStream) -> Link {
        let (pending, copies) = (VecDeque::new(), Vec::new());
        Link { stream, rest: Vec::new(), skip: 0, pending, sent: 0, copies }
    }

    /// Reads once; `false` at the end of the stream. Nothing may be pending.
    fn receive(
        &mut self,
        scratch: &mut [u8],
        read: ReadRequest,
        objects: &[Vec<u8>],
    ) -> io::Result<bool> {
        let start = self.rest.len();
        let (old, new) = scratch.split_at_mut(start);
        let count = match self.stream.read(new) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            read => read?,
        };
        old.copy_from_slice(&self.rest);
        self.rest.clear();
        self.copies.clear();
        let mut bytes = &scratch[..start + count];
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let Some((request, further)) = bytes.split_first_chunk() else { break };
            self.answer(&read(request).ok_or(ErrorKind::InvalidData)?, objects)?;
            bytes = further;
        }
        self.rest.extend_from_slice(bytes);
        Ok(count > 0)
    }

    fn answer(&mut self, request: &Request, objects: &[Vec<u8>]) -> io::Result<()> {
        let (Request::Read(number) | Request::Write(number)) = *request;
        let object = objects.get(number).ok_or(ErrorKind::InvalidData)?;
        match request {
            Request::Write(_) => {
                self.skip = object.len();
                self.copy(OK);
            }
            Request::Read(_) if object.len() >= IN_PLACE_BYTES_MIN => {
                self.pending.push_back(Piece::Object(number));
            }
            Request::Read(_) => self.copy(object),
        }
        Ok(())
    }

    fn copy(&mut self, bytes: &[u8]) {
        let start = self.copies.len();
        self.copies.extend_from_slice(bytes);
        let end = self.copies.len();
        match self.pending.back_mut() {
            Some(Piece::Copies(range)) => range.end = end,
            _ => self.pending.push_back(Piece::Copies(start..end)),
        }
    }

    /// Sends pending pieces, as far as the socket accepts them.
    fn send(&mut self, objects: &[Vec<u8>]) -> io::Result<()> {
        while !self.pending.is_empty() {
            let written = if self.pending.len() <= PIECES_FEW {
                self.write::<PIECES_FEW>(objects)
            } else {
                self.write::<PIECES_MAX>(objects)
            };
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => self.advance(sent, objects),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes once, at most so many pieces.
    fn write<const PIECES: usize>(&self, objects: &[Vec<u8>]) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); PIECES];
        let mut offset = self.sent;
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pending) {
            *slice = IoSlice::new(&piece.bytes(objects, &self.copies)[offset..]);
            offset = 0;
            count += 1;
        }
        match &slices[..count] {
            [one] => (&self.stream).write(one),
            several => (&self.stream).write_vectored(several),
        }
    }

    fn advance(&mut self, sent: usize, objects: &[Vec<u8>]) {
        self.sent += sent;
        while let Some(piece) = self.pending.front() {
            let length = piece.bytes(objects, &self.copies).len();
            if self.sent < length {
                return;
            }
            self.sent -= length;
            self.pending.pop_front();
        }
    }
}

impl Piece {
    fn bytes<'a>(&self, objects: &'a [Vec<u8>], copies: &'a [u8]) -> &'a [u8] {
        match self {
            Piece::Object(number) => &objects[*number],
            Piece::Copies(range) => &copies[range.clone()],
        }
    }
}

fn read_raw(request: &[u8; RAW_REQUEST_BYTES]) -> Option<Request> {
    let oid = u64::from_be_bytes(*request.first_chunk()?);
    Some(Request::Read(usize::try_from(oid).ok()?))
}

fn read_resp(request: &[u8; RAW_REQUEST_BYTES]) -> Option<Request> {
    let (number, is_write) = resp_requests::read_head(request)?;
    Some(if is_write { Request::Write(number) } else { Request::Read(number) })
}
