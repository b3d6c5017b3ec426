//! A client connection: its pending requests, when they were sent, and the partial replies.
//!
//! The socket blocks. A write never waits for the server, because the requests in flight fit into
//! the socket buffers (see `IN_FLIGHT_MAX`). Of many connections, only those with data are read.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use zodium_types::Oid;

use crate::dataset::Dataset;
use crate::interrupt::Interrupt;
use crate::reply::WrongReply;
use crate::verifier::Verifier;
use crate::wire::{Protocol, Taken, Wire};

/// A server that sends nothing for so long while requests are pending has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Requests in flight while every object is requested once.
const SWEEP_IN_FLIGHT: usize = 64;

/// A connected client.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    wire: Wire,
    dataset: Arc<Dataset>,
    verifier: Verifier,
    in_flight: VecDeque<Asked>,
    output: BytesMut,
    /// The objects requested in `output`.
    unsent: Vec<Oid>,
    /// The beginning of an incomplete message.
    rest: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    oid: Oid,
    sent: Instant,
}

/// A read buffer shared by all connections of a thread, so that it stays in the processor's cache.
#[derive(Debug)]
pub(crate) struct Scratch(Vec<u8>);

impl Connection {
    /// Connects and performs the handshake.
    pub(crate) fn open(
        address: SocketAddr,
        protocol: Protocol,
        dataset: &Arc<Dataset>,
    ) -> Result<Connection> {
        let stream = connect(address)?;
        let mut rest = Vec::new();
        let wire = Wire::open(protocol, &stream, &mut rest)?;
        Ok(Connection { rest, ..Connection::over(stream, wire, dataset) })
    }

    /// A connection after its handshake.
    pub(crate) fn over(stream: TcpStream, wire: Wire, dataset: &Arc<Dataset>) -> Connection {
        Connection {
            stream,
            wire,
            dataset: Arc::clone(dataset),
            verifier: Verifier::Each,
            in_flight: VecDeque::new(),
            output: BytesMut::new(),
            unsent: Vec::new(),
            rest: Vec::new(),
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Replaces the verifier of received data; returns the previous one.
    pub(crate) fn replace_verifier(&mut self, verifier: Verifier) -> Verifier {
        std::mem::replace(&mut self.verifier, verifier)
    }

    /// `M5`, `Z5` or `raw`.
    pub(crate) fn wire_name(&self) -> &'static str {
        self.wire.name()
    }

    /// Whether no request is pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Encodes a request; [`Connection::send`] sends it.
    pub(crate) fn ask(&mut self, oid: Oid) -> Result<()> {
        self.wire.put_request(&mut self.output, oid)?;
        self.unsent.push(oid);
        Ok(())
    }

    /// Sends the encoded requests with one write.
    pub(crate) fn send(&mut self) -> Result<()> {
        let sent = Instant::now();
        self.in_flight.extend(self.unsent.drain(..).map(|oid| Asked { oid, sent }));
        self.stream.write_all(&self.output).context("cannot send")?;
        self.output.clear();
        Ok(())
    }

    /// Requests the objects from 0 to one below `count` once, several at a time, and checks every
    /// reply.
    pub(crate) fn sweep(&mut self, count: u64, interrupt: &Interrupt) -> Result<()> {
        let mut scratch = Scratch::new();
        for first in (0..count).step_by(SWEEP_IN_FLIGHT) {
            interrupt.check()?;
            let end = count.min(first + SWEEP_IN_FLIGHT as u64);
            (first..end).try_for_each(|oid| self.ask(Oid(oid)))?;
            self.send()?;
            while !self.is_idle() {
                self.receive(&mut scratch, |_| {})?;
            }
        }
        Ok(())
    }

    /// Reads once, checks the replies, and passes the latency of each one to `note`. Returns the
    /// number of replies.
    pub(crate) fn receive(
        &mut self,
        scratch: &mut Scratch,
        mut note: impl FnMut(Duration),
    ) -> Result<usize> {
        let length = self.read(scratch)?;
        let now = Instant::now();
        let mut bytes = scratch.0.get(..length).unwrap_or_default();
        let mut replies = 0;
        loop {
            let oldest = self.in_flight.front().map(|asked| asked.oid);
            match self.wire.take(bytes, &self.dataset, oldest, &mut self.verifier)? {
                Taken::Reply { oid, bytes: taken } => {
                    note(now.saturating_duration_since(self.answered(oid)?.sent));
                    replies += 1;
                    bytes = &bytes[taken..];
                }
                Taken::Notice { bytes: taken } => bytes = &bytes[taken..],
                Taken::Part => break,
            }
            if bytes.is_empty() {
                break;
            }
        }
        self.rest.extend_from_slice(bytes);
        Ok(replies)
    }

    /// Fills `scratch` with the incomplete message and the data of one read.
    fn read(&mut self, scratch: &mut Scratch) -> Result<usize> {
        let start = self.rest.len();
        if scratch.0.len() < 2 * start {
            scratch.0.resize(2 * start, 0);
        }
        let (old, new) = scratch.0.split_at_mut(start);
        old.copy_from_slice(&self.rest);
        self.rest.clear();
        match self.stream.read(new) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(count) => Ok(start + count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                bail!("the server has not answered for {} s", PATIENCE.as_secs())
            }
            Err(error) => Err(error).context("cannot receive"),
        }
    }

    fn answered(&mut self, oid: Oid) -> Result<Asked> {
        let index = self.in_flight.iter().position(|asked| asked.oid == oid);
        let asked = index.and_then(|index| self.in_flight.remove(index));
        asked.ok_or_else(|| WrongReply::NotAsked(oid).into())
    }
}

/// Connects to a server that must not be silent for long.
pub(crate) fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch(vec![0; 256 << 10])
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::spawn;

    use super::*;
    use crate::dataset::Shape;
    use crate::wire::RAW_REQUEST_BYTES;

    /// A raw server that serves one client: `answer` makes the reply for an object, which is sent
    /// in pieces of `piece` bytes.
    fn serve(
        dataset: &Arc<Dataset>,
        piece: usize,
        answer: fn(&Dataset, Oid) -> Vec<u8>,
    ) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let dataset = Arc::clone(dataset);
        spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let mut request = [0; RAW_REQUEST_BYTES];
            while stream.read_exact(&mut request).is_ok() {
                let oid = Oid::from_slice(&request[..8]).unwrap();
                for part in answer(&dataset, oid).chunks(piece) {
                    // The client may have closed already.
                    let _ = stream.write_all(part);
                }
            }
        });
        address
    }

    fn load_all(
        dataset: &Arc<Dataset>,
        piece: usize,
        answer: fn(&Dataset, Oid) -> Vec<u8>,
    ) -> Result<usize> {
        let address = serve(dataset, piece, answer);
        let mut connection = Connection::open(address, Protocol::Raw, dataset)?;
        (0..dataset.len()).try_for_each(|oid| connection.ask(Oid(oid)))?;
        connection.send()?;
        let mut scratch = Scratch(vec![0; 100]);
        let mut replies = 0;
        while !connection.is_idle() {
            replies += connection.receive(&mut scratch, |waited| assert!(waited < PATIENCE))?;
        }
        Ok(replies)
    }

    #[test]
    fn replies_in_pieces_of_any_size_are_put_together() {
        let dataset = Arc::new(Dataset::new(Shape::Fixed(150), 30, 1, 1));
        for piece in [1, 49, 150, 1000] {
            assert_eq!(load_all(&dataset, piece, Dataset::data).unwrap(), 30);
        }
    }

    #[test]
    fn a_wrong_byte_ends_the_load() {
        let dataset = Arc::new(Dataset::new(Shape::Fixed(150), 30, 1, 1));
        let error = load_all(&dataset, 150, |dataset, oid| {
            let mut data = dataset.data(oid);
            data[70] ^= u8::from(oid == Oid(20));
            data
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("object 0000000000000014") && error.contains("CRC-32C"), "{error}");
    }

    #[test]
    fn a_server_that_goes_away_is_noticed() {
        let dataset = Arc::new(Dataset::new(Shape::Fixed(150), 2, 1, 1));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut connection = Connection::open(address, Protocol::Raw, &dataset).unwrap();
        drop(listener.accept().unwrap());
        let error = connection.receive(&mut Scratch::new(), |_| {}).unwrap_err().to_string();
        assert!(error.contains("closed the connection"), "{error}");
    }
}
