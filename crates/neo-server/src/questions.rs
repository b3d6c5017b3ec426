//! Questions to an admin, one after the other, as commands ask them.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use zodium_neo::messages::{Ping, Pong};
use zodium_neo::{
    Address, DecodeError, ErrorCode, GREETING, Greeting, GreetingError, Kind, Message, MessageIds,
    Packet, Scan, ScanError, Scanner, TooLong, encode, read_greeting,
};

use crate::dialling::connect;
use crate::tls::NodeTls;

/// Bytes read at once.
const READ_BYTES: usize = 16 << 10;
/// Longest silence while an answer is due. An admin answers at once, but asks the primary master.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// A connection to an admin, for a command.
pub struct AdminConnection {
    stream: Box<dyn Stream>,
    address: Address,
    received: BytesMut,
    scanner: Scanner,
    ids: MessageIds,
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// Why an admin does not answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AskError {
    /// It cannot be reached.
    #[error("cannot connect to the admin at {address}; is it running there?")]
    Unreachable {
        /// Where it was looked for.
        address: Address,
        /// Why.
        source: io::Error,
    },
    /// It is no admin, or has TLS and the command has none, or the other way round.
    #[error("{address} is no admin that this command can talk to")]
    NotNeo {
        /// Its address.
        address: Address,
        /// Why.
        source: GreetingError,
    },
    /// The connection has ended.
    #[error(
        "the admin at {address} has closed the connection; if the cluster has TLS, give --ca, \
         --cert and --key"
    )]
    Closed {
        /// Its address.
        address: Address,
    },
    /// The connection has failed.
    #[error("the connection to the admin at {address} has failed")]
    Lost {
        /// Its address.
        address: Address,
        /// Why.
        source: io::Error,
    },
    /// It says nothing.
    #[error(
        "the admin at {address} has not answered within {} s: it is stopped or overloaded, or the \
         primary master is, which it asks. A command may still be carried out",
        SILENCE_MAX.as_secs()
    )]
    Silent {
        /// Its address.
        address: Address,
    },
    /// An answer that cannot be read.
    #[error("the admin has sent what is no message")]
    NotAMessage(#[from] ScanError),
    /// An answer that cannot be read.
    #[error("the admin has sent what is no message")]
    Malformed(#[from] DecodeError),
    /// The question has too many arguments.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The admin or the master says no.
    #[error("{text}")]
    Refused {
        /// The kind of refusal.
        code: ErrorCode,
        /// Why, in their words.
        text: String,
    },
    /// Another node answers there.
    #[error(
        "{address} does not know the request {question}; is it the address of the cluster's admin?"
    )]
    NoAdmin {
        /// Where it was looked for.
        address: Address,
        /// The name of the message.
        question: &'static str,
    },
    /// An answer to another question.
    #[error("the admin has answered with {message}")]
    Unexpected {
        /// The name of the message.
        message: &'static str,
    },
}

impl AdminConnection {
    /// Connects to an admin.
    ///
    /// # Errors
    /// When nothing listens there, or when it is no admin.
    pub async fn open(address: Address, tls: Option<&NodeTls>) -> Result<Self, AskError> {
        let unreachable = |source| AskError::Unreachable { address: address.clone(), source };
        let stream = connect(&address).await.map_err(unreachable)?;
        let stream: Box<dyn Stream> = match tls {
            Some(tls) => Box::new(tls.connect(stream).await.map_err(unreachable)?),
            None => Box::new(stream),
        };
        let (received, scanner) = (BytesMut::new(), Scanner::default());
        let ids = MessageIds::default();
        let mut connection = AdminConnection { stream, address, received, scanner, ids };
        connection.send(&GREETING).await?;
        connection.take_greeting().await?;
        Ok(connection)
    }

    /// Asks, and hands the answer to `take`, which gives `None` for an answer of another kind.
    ///
    /// # Errors
    /// When the connection fails, or the answer is no.
    pub async fn ask<'a, T>(
        &mut self,
        question: impl Into<Message<'a>>,
        take: impl FnOnce(&Message<'_>) -> Option<T>,
    ) -> Result<T, AskError> {
        let (id, question) = (self.ids.take(), question.into());
        let name = question.name();
        self.send_message(id, question).await?;
        match self.wait(id, take).await {
            Err(AskError::Refused { code: ErrorCode::ProtocolError, text })
                if text.starts_with("unexpected") =>
            {
                Err(AskError::NoAdmin { address: self.address.clone(), question: name })
            }
            answered => answered,
        }
    }

    /// Gives a command, whose success is an error message of the code ACK; its text.
    ///
    /// # Errors
    /// As [`AdminConnection::ask`].
    pub async fn order<'a>(&mut self, order: impl Into<Message<'a>>) -> Result<String, AskError> {
        self.ask(order, |message| match message {
            Message::Error(error) if error.code == ErrorCode::Ack => Some(error.message.to_owned()),
            _ => None,
        })
        .await
    }

    /// Sends a notification, and waits until it is handled.
    ///
    /// # Errors
    /// As [`AdminConnection::ask`].
    pub async fn notify<'a>(&mut self, message: impl Into<Message<'a>>) -> Result<(), AskError> {
        let id = self.ids.take();
        self.send_message(id, message.into()).await?;
        self.ask(Ping {}, |message| matches!(message, Message::Pong(Pong {})).then_some(())).await
    }

    async fn send_message(&mut self, id: u32, message: Message<'_>) -> Result<(), AskError> {
        let mut packet = BytesMut::new();
        encode(id, message, &mut packet)?;
        self.send(&packet).await
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), AskError> {
        let sent = match self.stream.write_all(bytes).await {
            Ok(()) => self.stream.flush().await,
            failed => failed,
        };
        sent.map_err(|source| AskError::Lost { address: self.address.clone(), source })
    }

    async fn receive(&mut self) -> Result<(), AskError> {
        self.received.reserve(READ_BYTES);
        let read = timeout(SILENCE_MAX, self.stream.read_buf(&mut self.received)).await;
        let address = self.address.clone();
        let Ok(read) = read else { return Err(AskError::Silent { address }) };
        match read {
            Ok(0) => Err(AskError::Closed { address }),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(AskError::Closed { address })
            }
            Err(source) => Err(AskError::Lost { address, source }),
        }
    }

    async fn take_greeting(&mut self) -> Result<(), AskError> {
        loop {
            match read_greeting(&self.received) {
                Ok(Greeting::Complete(length)) => {
                    self.received.advance(length);
                    return Ok(());
                }
                Ok(Greeting::Need(_)) => self.receive().await?,
                Err(source) => {
                    return Err(AskError::NotNeo { address: self.address.clone(), source });
                }
            }
        }
    }

    /// Waits for the answer to the question with this id.
    ///
    /// Notifications, and requests, are not for a command. A refusal without a question is the
    /// reason why the connection ends.
    async fn wait<T>(
        &mut self,
        id: u32,
        take: impl FnOnce(&Message<'_>) -> Option<T>,
    ) -> Result<T, AskError> {
        loop {
            let length = loop {
                match self.scanner.scan(&self.received)? {
                    Scan::Complete(frame) => break frame.bytes().len(),
                    Scan::Need(_) => self.receive().await?,
                }
            };
            let frame = self.received.split_to(length);
            let mut scanner = Scanner::default();
            let Scan::Complete(frame) = scanner.scan(&frame)? else { continue };
            let Packet { id: found, message } = Packet::decode(frame)?;
            let refusal = match &message {
                Message::Error(error) if error.code != ErrorCode::Ack => {
                    Some(AskError::Refused { code: error.code, text: error.message.to_owned() })
                }
                _ => None,
            };
            if message.kind() != Kind::Answer || (found != id && refusal.is_none()) {
                continue;
            }
            let unexpected = AskError::Unexpected { message: message.name() };
            return refusal.map_or_else(|| take(&message).ok_or(unexpected), Err);
        }
    }
}

#[cfg(test)]
mod tests {
    use zodium_neo::messages::AskClusterState;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_admin_is_left_after_a_while() {
        let (stream, _admin) = tokio::io::duplex(READ_BYTES);
        let mut connection = AdminConnection {
            stream: Box::new(stream),
            address: "127.0.0.1:9999".parse::<std::net::SocketAddr>().unwrap().into(),
            received: BytesMut::new(),
            scanner: Scanner::default(),
            ids: MessageIds::default(),
        };
        let asked = connection.ask(AskClusterState {}, |_| Some(()));
        let error = asked.await.unwrap_err();
        assert!(matches!(error, AskError::Silent { .. }), "{error}");
        assert!(error.to_string().contains("not answered within 60 s"), "{error}");
    }
}
