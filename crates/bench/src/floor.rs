//! The floor: a server that only sends the right number of bytes from memory.
//!
//! One thread with epoll answers everything that a read has brought with one gather-write. Large
//! objects are sent in place, small ones are copied, whichever is cheaper. It has no protocol, no
//! index and no cache, but sends the same bytes. So its cost is that of the hardware and the
//! kernel.

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
    let objects: Vec<Vec<u8>> = (0..dataset.len()).map(|oid| dataset.data(Oid(oid))).collect();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))
        .with_context(|| format!("cannot listen on port {}", options.port))?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let data = epoll::EventData::new_u64(LISTENER);
    epoll::add(&epoll, &listener, data, epoll::EventFlags::IN)?;
    let busy_poll = Duration::from_micros(options.busy_poll.into());
    let mut floor = Floor { epoll, listener, objects, links: Slab::new(), busy_poll };
    floor.run().context("the floor server failed")
}

struct Floor {
    epoll: OwnedFd,
    listener: TcpListener,
    objects: Vec<Vec<u8>>,
    links: Slab<Link>,
    /// How long it polls for events without sleeping, after each event.
    busy_poll: Duration,
}

struct Link {
    stream: TcpStream,
    /// The beginning of an incomplete request.
    rest: Vec<u8>,
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
        let open = if was_waiting { Ok(true) } else { link.receive(scratch, &self.objects) };
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
        Link { stream, rest: Vec::new(), pending, sent: 0, copies }
    }

    /// Reads once; `false` at the end of the stream. Nothing may be pending.
    fn receive(&mut self, scratch: &mut [u8], objects: &[Vec<u8>]) -> io::Result<bool> {
        let start = self.rest.len();
        let (old, new) = scratch.split_at_mut(start);
        let count = match self.stream.read(new) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            read => read?,
        };
        old.copy_from_slice(&self.rest);
        self.rest.clear();
        self.copies.clear();
        let (requests, rest) = scratch[..start + count].as_chunks::<RAW_REQUEST_BYTES>();
        for request in requests {
            let oid = request.first_chunk().map_or(u64::MAX, |oid| u64::from_be_bytes(*oid));
            self.answer(oid, objects)?;
        }
        self.rest.extend_from_slice(rest);
        Ok(count > 0)
    }

    fn answer(&mut self, oid: u64, objects: &[Vec<u8>]) -> io::Result<()> {
        let number = usize::try_from(oid).map_err(|_| ErrorKind::InvalidData)?;
        let object = objects.get(number).ok_or(ErrorKind::InvalidData)?;
        if object.len() >= IN_PLACE_BYTES_MIN {
            self.pending.push_back(Piece::Object(number));
            return Ok(());
        }
        let start = self.copies.len();
        self.copies.extend_from_slice(object);
        let end = self.copies.len();
        match self.pending.back_mut() {
            Some(Piece::Copies(range)) => range.end = end,
            _ => self.pending.push_back(Piece::Copies(start..end)),
        }
        Ok(())
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
