//! The system calls that a server makes, each with its preparation.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicU32;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fs::fdatasync;
use rustix::io::{ReadWriteFlags, pread, preadv2, pwrite, readv, writev};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::thread::futex;

const BLOCK: usize = 4096;
/// Number of calls, or of pieces of one call, in a batch.
const BATCH: usize = 16;
const PIECE: usize = 256;
const FILE_BLOCKS: usize = 256;

/// A call by its name.
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) prepare: fn(&mut Fixture) -> io::Result<()>,
    pub(super) make: fn(&mut Fixture) -> io::Result<()>,
    /// Whether it is so slow that fewer samples are taken.
    pub(super) is_slow: bool,
}

/// The sockets and files that the calls use.
pub(super) struct Fixture {
    near: TcpStream,
    far: TcpStream,
    file: File,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    block: Vec<u8>,
    place: usize,
    word: AtomicU32,
}

impl Fixture {
    /// A connection to itself, and a file of 1 MiB.
    pub(super) fn new(path: &Path) -> io::Result<Fixture> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, _) = listener.accept()?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let mut file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.write_all(&vec![7; FILE_BLOCKS * BLOCK])?;
        file.sync_all()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &near, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Fixture {
            near,
            far,
            file,
            epoll,
            events: Vec::with_capacity(BATCH),
            block: vec![0; BLOCK],
            place: 0,
            word: AtomicU32::new(0),
        })
    }

    fn next_offset(&mut self) -> u64 {
        self.place = (self.place + 97) % FILE_BLOCKS;
        (self.place * BLOCK) as u64
    }

    /// Reads what was sent to the far end.
    fn drain(&mut self) -> io::Result<()> {
        self.far.set_nonblocking(true)?;
        while self.far.read(&mut self.block).is_ok_and(|count| count > 0) {}
        self.far.set_nonblocking(false)
    }

    /// Sends a block to the near end, and leaves nothing else there.
    fn deliver(&mut self) -> io::Result<()> {
        self.empty_near()?;
        self.far.write_all(&self.block)?;
        // Waits until it has arrived.
        let mut seen = [0; BLOCK];
        while self.near.peek(&mut seen)? < BLOCK {}
        Ok(())
    }

    fn empty_near(&mut self) -> io::Result<()> {
        self.near.set_nonblocking(true)?;
        while self.near.read(&mut self.block).is_ok_and(|count| count > 0) {}
        self.near.set_nonblocking(false)
    }
}

fn nothing(_: &mut Fixture) -> io::Result<()> {
    Ok(())
}

const fn call(
    name: &'static str,
    prepare: fn(&mut Fixture) -> io::Result<()>,
    make: fn(&mut Fixture) -> io::Result<()>,
) -> Call {
    Call { name, prepare, make, is_slow: false }
}

/// All calls. The first one is empty: the cost of the clock, which is part of all others.
pub(super) fn calls() -> Vec<Call> {
    let sync =
        call("fdatasync after a write of 4 KiB", dirty, |fixture| Ok(fdatasync(&fixture.file)?));
    vec![
        call("nothing (the clock)", nothing, nothing),
        call("getppid", nothing, |_| {
            std::hint::black_box(rustix::process::getppid());
            Ok(())
        }),
        call("read 4 KiB, TCP", Fixture::deliver, |fixture| {
            fixture.near.read(&mut fixture.block).map(drop)
        }),
        call("recv 4 KiB, TCP", Fixture::deliver, |fixture| {
            Ok(recv(&fixture.near, &mut fixture.block[..], RecvFlags::empty()).map(drop)?)
        }),
        call("readv 2 x 2 KiB, TCP", Fixture::deliver, |fixture| {
            let (one, two) = fixture.block.split_at_mut(BLOCK / 2);
            Ok(readv(&fixture.near, &mut [IoSliceMut::new(one), IoSliceMut::new(two)]).map(drop)?)
        }),
        call("write 4 KiB, TCP", Fixture::drain, |fixture| fixture.near.write_all(&fixture.block)),
        call("send 4 KiB, TCP", Fixture::drain, |fixture| {
            Ok(send(&fixture.near, &fixture.block, SendFlags::empty()).map(drop)?)
        }),
        call("writev 2 x 2 KiB, TCP", Fixture::drain, |fixture| {
            let (one, two) = fixture.block.split_at(BLOCK / 2);
            Ok(writev(&fixture.near, &[IoSlice::new(one), IoSlice::new(two)]).map(drop)?)
        }),
        call("16 writes of 256 B, TCP", Fixture::drain, |fixture| {
            let pieces = fixture.block.chunks(PIECE).take(BATCH);
            pieces.into_iter().try_for_each(|piece| fixture.near.write_all(piece))
        }),
        call("writev 16 x 256 B, TCP", Fixture::drain, |fixture| {
            let pieces: Vec<IoSlice<'_>> = fixture.block.chunks(PIECE).map(IoSlice::new).collect();
            Ok(writev(&fixture.near, &pieces).map(drop)?)
        }),
        call("epoll_wait, one is ready", Fixture::deliver, wait),
        call("epoll_wait, none is", Fixture::empty_near, wait),
        call("pread 4 KiB, cached", nothing, |fixture| {
            let offset = fixture.next_offset();
            Ok(pread(&fixture.file, &mut fixture.block[..], offset).map(drop)?)
        }),
        call("preadv2 4 KiB, cached, NOWAIT", nothing, |fixture| {
            let offset = fixture.next_offset();
            let mut slices = [IoSliceMut::new(&mut fixture.block)];
            Ok(preadv2(&fixture.file, &mut slices, offset, ReadWriteFlags::NOWAIT).map(drop)?)
        }),
        call("16 preads of 256 B, cached", nothing, |fixture| {
            let offset = fixture.next_offset();
            for (number, piece) in fixture.block.chunks_mut(PIECE).enumerate() {
                pread(&fixture.file, piece, offset + (number * PIECE) as u64)?;
            }
            Ok(())
        }),
        call("preadv2 16 x 256 B, cached", nothing, |fixture| {
            let offset = fixture.next_offset();
            let mut slices: Vec<IoSliceMut<'_>> =
                fixture.block.chunks_mut(PIECE).map(IoSliceMut::new).collect();
            Ok(preadv2(&fixture.file, &mut slices, offset, ReadWriteFlags::empty()).map(drop)?)
        }),
        call("pwrite 4 KiB", nothing, |fixture| {
            let offset = fixture.next_offset();
            Ok(pwrite(&fixture.file, &fixture.block, offset).map(drop)?)
        }),
        call("futex wake, without waiter", nothing, |fixture| {
            Ok(futex::wake(&fixture.word, futex::Flags::PRIVATE, 1).map(drop)?)
        }),
        Call { is_slow: true, ..sync },
    ]
}

fn dirty(fixture: &mut Fixture) -> io::Result<()> {
    let offset = fixture.next_offset();
    Ok(pwrite(&fixture.file, &fixture.block, offset).map(drop)?)
}

fn wait(fixture: &mut Fixture) -> io::Result<()> {
    fixture.events.clear();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(epoll::wait(&fixture.epoll, spare_capacity(&mut fixture.events), Some(&now)).map(drop)?)
}
