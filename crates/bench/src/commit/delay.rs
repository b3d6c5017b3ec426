//! A proxy that adds a delay: it forwards each piece of data when it is due.
//!
//! One thread; pieces are due in the order of arrival, since the delay is the same for all. The
//! timer is set a little early and the rest is spent polling, because a sleeping processor wakes up
//! late. Writes block, so a peer that does not read holds up the others; clients and servers of the
//! benchmark always read.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use crate::options::DelayOptions;

const EVENTS_MAX: usize = 64;
const READ_BYTES: usize = 64 << 10;
const LISTENER: u64 = u64::MAX;
/// How long before a due time the proxy polls.
const AWAKE_BEFORE: Duration = Duration::from_micros(60);
/// The kernel's timer slack.
const TIMER_SLACK_NANOS: NonZeroU64 = NonZeroU64::MIN;

/// Forwards until it is killed.
pub(crate) fn serve(options: &DelayOptions) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))
        .with_context(|| format!("cannot listen on port {}", options.port))?;
    rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NANOS))?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let data = epoll::EventData::new_u64(LISTENER);
    epoll::add(&epoll, &listener, data, epoll::EventFlags::IN)?;
    let (streams, pieces) = (Vec::new(), VecDeque::new());
    let delay = options.round_trip_ms / 2;
    let mut proxy = Proxy { epoll, listener, to: options.to, delay, streams, pieces };
    proxy.run().context("the delay proxy failed")
}

struct Proxy {
    epoll: OwnedFd,
    listener: TcpListener,
    to: SocketAddr,
    /// The delay in each direction.
    delay: Duration,
    /// Pairs of streams, forwarded to each other. Closed ones leave a gap.
    streams: Vec<Option<TcpStream>>,
    pieces: VecDeque<Piece>,
}

struct Piece {
    due: Instant,
    to: usize,
    /// Empty at the end of the stream.
    bytes: Vec<u8>,
}

impl Proxy {
    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut scratch = vec![0; READ_BYTES];
        loop {
            let wait = self.pieces.front().map(|piece| self.until(piece.due));
            let wait = wait.map(|wait| Timespec {
                tv_sec: wait.as_secs().cast_signed(),
                tv_nsec: wait.subsec_nanos().into(),
            });
            epoll::wait(&self.epoll, spare_capacity(&mut events), wait.as_ref())?;
            let now = Instant::now();
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    key => self.receive(key as usize, now, &mut scratch)?,
                }
            }
            self.forward();
        }
    }

    /// How long the processor may sleep.
    fn until(&self, due: Instant) -> Duration {
        due.saturating_duration_since(Instant::now()).saturating_sub(AWAKE_BEFORE)
    }

    fn accept(&mut self) -> io::Result<()> {
        let (near, _) = self.listener.accept()?;
        let Ok(far) = TcpStream::connect(self.to) else { return Ok(()) };
        for stream in [near, far] {
            stream.set_nodelay(true)?;
            let data = epoll::EventData::new_u64(self.streams.len() as u64);
            epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN)?;
            self.streams.push(Some(stream));
        }
        Ok(())
    }

    fn receive(&mut self, from: usize, now: Instant, scratch: &mut [u8]) -> io::Result<()> {
        let Some(Some(stream)) = self.streams.get_mut(from) else { return Ok(()) };
        // A failed connection counts as closed.
        let count = stream.read(scratch).unwrap_or(0);
        if count == 0 {
            // Otherwise epoll would keep reporting it until the end of the stream is forwarded.
            epoll::delete(&self.epoll, &*stream)?;
        }
        let bytes = scratch.get(..count).unwrap_or_default().to_vec();
        self.pieces.push_back(Piece { due: now + self.delay, to: from ^ 1, bytes });
        Ok(())
    }

    /// Sends all pieces that are due.
    fn forward(&mut self) {
        while let Some(piece) = self.pieces.pop_front_if(|piece| piece.due <= Instant::now()) {
            let Some(Some(stream)) = self.streams.get_mut(piece.to) else { continue };
            if piece.bytes.is_empty() || stream.write_all(&piece.bytes).is_err() {
                self.close(piece.to);
            }
        }
    }

    /// Closes both sides: a client that has closed one direction needs nothing more.
    fn close(&mut self, key: usize) {
        for key in [key, key ^ 1] {
            if let Some(stream) = self.streams.get_mut(key) {
                *stream = None;
            }
        }
    }
}
