//! A connection between this process, as a master or a client, and a storage node.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::BytesMut;
use zodium_neo::{
    GREETING, Greeting, Message, MessageIds, Packet, Scan, Scanner, encode, read_greeting,
};

use crate::connection::PATIENCE;

const READ_BYTES: usize = 256 << 10;

/// A connection to a storage node. It blocks.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    ids: MessageIds,
    scanner: Scanner,
    has_greeted: bool,
    input: Vec<u8>,
    output: BytesMut,
    scratch: Vec<u8>,
}

impl Socket {
    pub(super) fn connect(address: SocketAddr) -> Result<Socket> {
        Socket::over(TcpStream::connect_timeout(&address, PATIENCE)?)
    }

    /// A connection that is there. The greeting leaves with the first message.
    pub(super) fn over(stream: TcpStream) -> Result<Socket> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut socket = Socket {
            stream,
            ids: MessageIds::default(),
            scanner: Scanner::default(),
            has_greeted: false,
            input: Vec::new(),
            output: BytesMut::from(&GREETING[..]),
            scratch: vec![0; READ_BYTES],
        };
        socket.set_patience(PATIENCE)?;
        Ok(socket)
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sets how long the node may be silent.
    pub(super) fn set_patience(&mut self, patience: Duration) -> Result<()> {
        Ok(self.stream.set_read_timeout(Some(patience))?)
    }

    /// Buffers a request or a notification; its id.
    pub(super) fn put<'a>(&mut self, message: impl Into<Message<'a>>) -> Result<u32> {
        let id = self.ids.take();
        encode(id, message, &mut self.output)?;
        Ok(id)
    }

    /// Sends a request or a notification.
    pub(super) fn send<'a>(&mut self, message: impl Into<Message<'a>>) -> Result<()> {
        self.put(message)?;
        self.flush()
    }

    /// Answers a request.
    pub(super) fn answer<'a>(&mut self, id: u32, message: impl Into<Message<'a>>) -> Result<()> {
        encode(id, message, &mut self.output)?;
        self.flush()
    }

    /// Sends what is buffered.
    pub(super) fn flush(&mut self) -> Result<()> {
        if !self.output.is_empty() {
            self.stream.write_all(&self.output).context("cannot send to a storage node")?;
            self.output.clear();
        }
        Ok(())
    }

    /// Reads once, and passes each packet on. An error of the node is one here.
    pub(super) fn receive(&mut self, mut each: impl FnMut(Packet<'_>) -> Result<()>) -> Result<()> {
        self.read()?;
        let mut consumed = 0;
        if !self.has_greeted {
            let Greeting::Complete(length) = read_greeting(&self.input)? else { return Ok(()) };
            (consumed, self.has_greeted) = (length, true);
        }
        while consumed < self.input.len() {
            let rest = self.input.get(consumed..).unwrap_or_default();
            let Scan::Complete(frame) = self.scanner.scan(rest)? else { break };
            consumed += frame.bytes().len();
            let packet = Packet::decode(frame)?;
            if let Message::Error(error) = &packet.message {
                bail!("a storage node answered {}: {}", error.code, error.message);
            }
            each(packet)?;
        }
        self.input.drain(..consumed);
        Ok(())
    }

    /// Receives until a packet is picked; others are ignored. The packets after it, if any came
    /// with it, are ignored too.
    pub(super) fn wait<T>(
        &mut self,
        mut pick: impl FnMut(Packet<'_>) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut picked = None;
        loop {
            self.receive(|packet| {
                if picked.is_none() {
                    picked = pick(packet)?;
                }
                Ok(())
            })?;
            if let Some(picked) = picked {
                return Ok(picked);
            }
        }
    }

    /// The bare connection. Nothing may be buffered.
    pub(super) fn into_stream(self) -> Result<TcpStream> {
        ensure!(self.input.is_empty(), "the storage node sent what was not asked for");
        Ok(self.stream)
    }

    fn read(&mut self) -> Result<()> {
        match self.stream.read(&mut self.scratch) {
            Ok(0) => bail!("the storage node closed the connection"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                bail!("the storage node has not answered in time")
            }
            read => {
                let count = read.context("cannot receive from a storage node")?;
                self.input.extend_from_slice(self.scratch.get(..count).unwrap_or_default());
                Ok(())
            }
        }
    }
}
