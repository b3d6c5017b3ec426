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
    pub(super) prepare: fn(&mut Ground) -> io::Result<()>,
    pub(super) make: fn(&mut Ground) -> io::Result<()>,
    /// Whether it is so slow that fewer samples are taken.
    pub(super) is_slow: bool,
}

/// The sockets and files that the calls use.
pub(super) struct Ground {
    near: TcpStream,
    far: TcpStream,
    file: File,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    block: Vec<u8>,
    place: usize,
    word: AtomicU32,
}

impl Ground {
    /// A connection to itself, and a file of 1 MiB.
    pub(super) fn new(path: &Path) -> io::Result<Ground> {
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
        Ok(Ground {
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

fn nothing(_: &mut Ground) -> io::Result<()> {
    Ok(())
}

const fn call(
    name: &'static str,
    prepare: fn(&mut Ground) -> io::Result<()>,
    make: fn(&mut Ground) -> io::Result<()>,
) -> Call {
    Call { name, prepare, make, is_slow: false }
}

/// All calls. The first one is empty: the cost of the clock, which is part of all others.
pub(super) fn calls() -> Vec<Call> {
    let sync =
        call("fdatasync after a write of 4 KiB", dirty, |ground| Ok(fdatasync(&ground.file)?));
    vec![
        call("nothing (the clock)", nothing, nothing),
        call("getppid", nothing, |_| {
            std::hint::black_box(rustix::process::getppid());
            Ok(())
        }),
        call("read 4 KiB, TCP", Ground::deliver, |ground| {
            ground.near.read(&mut ground.block).map(drop)
        }),
        call("recv 4 KiB, TCP", Ground::deliver, |ground| {
            Ok(recv(&ground.near, &mut ground.block[..], RecvFlags::empty()).map(drop)?)
        }),
        call("readv 2 x 2 KiB, TCP", Ground::deliver, |ground| {
            let (one, two) = ground.block.split_at_mut(BLOCK / 2);
            Ok(readv(&ground.near, &mut [IoSliceMut::new(one), IoSliceMut::new(two)]).map(drop)?)
        }),
        call("write 4 KiB, TCP", Ground::drain, |ground| ground.near.write_all(&ground.block)),
        call("send 4 KiB, TCP", Ground::drain, |ground| {
            Ok(send(&ground.near, &ground.block, SendFlags::empty()).map(drop)?)
        }),
        call("writev 2 x 2 KiB, TCP", Ground::drain, |ground| {
            let (one, two) = ground.block.split_at(BLOCK / 2);
            Ok(writev(&ground.near, &[IoSlice::new(one), IoSlice::new(two)]).map(drop)?)
        }),
        call("16 writes of 256 B, TCP", Ground::drain, |ground| {
            let pieces = ground.block.chunks(PIECE).take(BATCH);
            pieces.into_iter().try_for_each(|piece| ground.near.write_all(piece))
        }),
        call("writev 16 x 256 B, TCP", Ground::drain, |ground| {
            let pieces: Vec<IoSlice<'_>> = ground.block.chunks(PIECE).map(IoSlice::new).collect();
            Ok(writev(&ground.near, &pieces).map(drop)?)
        }),
        call("epoll_wait, one is ready", Ground::deliver, wait),
        call("epoll_wait, none is", Ground::empty_near, wait),
        call("pread 4 KiB, cached", nothing, |ground| {
            let offset = ground.next_offset();
            Ok(pread(&ground.file, &mut ground.block[..], offset).map(drop)?)
        }),
        call("preadv2 4 KiB, cached, NOWAIT", nothing, |ground| {
            let offset = ground.next_offset();
            let mut slices = [IoSliceMut::new(&mut ground.block)];
            Ok(preadv2(&ground.file, &mut slices, offset, ReadWriteFlags::NOWAIT).map(drop)?)
        }),
        call("16 preads of 256 B, cached", nothing, |ground| {
            let offset = ground.next_offset();
            for (number, piece) in ground.block.chunks_mut(PIECE).enumerate() {
                pread(&ground.file, piece, offset + (number * PIECE) as u64)?;
            }
            Ok(())
        }),
        call("preadv2 16 x 256 B, cached", nothing, |ground| {
            let offset = ground.next_offset();
            let mut slices: Vec<IoSliceMut<'_>> =
                ground.block.chunks_mut(PIECE).map(IoSliceMut::new).collect();
            Ok(preadv2(&ground.file, &mut slices, offset, ReadWriteFlags::empty()).map(drop)?)
        }),
        call("pwrite 4 KiB", nothing, |ground| {
            let offset = ground.next_offset();
            Ok(pwrite(&ground.file, &ground.block, offset).map(drop)?)
        }),
        call("futex wake, without waiter", nothing, |ground| {
            Ok(futex::wake(&ground.word, futex::Flags::PRIVATE, 1).map(drop)?)
        }),
        Call { is_slow: true, ..sync },
    ]
}

fn dirty(ground: &mut Ground) -> io::Result<()> {
    let offset = ground.next_offset();
    Ok(pwrite(&ground.file, &ground.block, offset).map(drop)?)
}

fn wait(ground: &mut Ground) -> io::Result<()> {
    ground.events.clear();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(epoll::wait(&ground.epoll, spare_capacity(&mut ground.events), Some(&now)).map(drop)?)
}
