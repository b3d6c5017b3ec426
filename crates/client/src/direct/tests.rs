//! The client against a scripted peer.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustls::{ServerConnection, StreamOwned};
use rustls_pki_types::ServerName;
use zodium_pickle::Value;
use zodium_transport::{Socket, Transport};
use zodium_types::Tid;
use zodium_zeo::codec::frame::{encode_frame, split_frame};
use zodium_zeo::codec::{
    Encoding, Message, MessageId, decode_message, encode_error, encode_oneway, encode_reply,
};

use super::{DirectClient, DirectError, Stream, health};
use crate::Exception;
use crate::tls_peers::{accept, with_tls};

const LIMIT: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(20);

fn stream(socket: UnixStream) -> Stream {
    Stream { transport: Transport::new(Socket::Unix(socket)) }
}

/// The server's end of a connection.
struct Peer {
    stream: UnixStream,
    encoding: Encoding,
    input: BytesMut,
}

impl Peer {
    /// Runs `script` as the server; gives the client's end.
    fn start(
        encoding: Encoding,
        script: impl FnOnce(&mut Peer) + Send + 'static,
    ) -> (Stream, JoinHandle<()>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            let mut peer = Peer { stream: theirs, encoding, input: BytesMut::new() };
            peer.send(|out| encode_frame(out, encoding.announcement()));
            script(&mut peer);
        });
        (stream(ours), thread)
    }

    fn send<E: std::fmt::Debug>(&mut self, write: impl FnOnce(&mut BytesMut) -> Result<(), E>) {
        let mut out = BytesMut::new();
        write(&mut out).unwrap();
        // In two pieces, since frames may arrive in any pieces.
        let (head, tail) = out.split_at(out.len() / 2);
        self.stream.write_all(head).unwrap();
        self.stream.write_all(tail).unwrap();
    }

    fn frame(&mut self) -> Vec<u8> {
        loop {
            if let Some(payload) = split_frame(&mut self.input, 1000).unwrap() {
                return payload.to_vec();
            }
            let mut buffer = [0; 100];
            let count = self.stream.read(&mut buffer).unwrap();
            assert!(count > 0, "the client has gone");
            self.input.extend_from_slice(&buffer[..count]);
        }
    }

    fn message(&mut self) -> Message<'static> {
        let payload = self.frame();
        let message = decode_message(self.encoding, &payload).unwrap();
        Message {
            id: message.id,
            oneway: message.oneway,
            name: message.name.into_owned().into(),
            arguments: message
                .arguments
                .map(|all| all.into_iter().map(Value::into_owned).collect()),
        }
    }

    fn reply(&mut self, id: &MessageId, result: &Value<'_>) {
        let encoding = self.encoding;
        self.send(|out| encode_reply(encoding, out, id, result));
    }
}

#[test]
fn calls_are_answered_in_either_encoding_whatever_comes_between() {
    for encoding in [Encoding::Pickle, Encoding::Msgpack] {
        let (stream, peer) = Peer::start(encoding, move |peer| {
            assert_eq!(peer.frame(), encoding.announcement());
            let call = peer.message();
            assert_eq!(call.name, "register");
            assert_eq!(call.arguments, Some(vec!["1".into(), true.into()]));
            peer.reply(&call.id, &Tid(7).into());
            let call = peer.message();
            peer.send(|out| encode_oneway(encoding, out, "info", &Value::tuple([])));
            peer.reply(&MessageId::Number(99), &Value::None);
            peer.reply(&call.id, &Value::tuple([1.into()]));
        });
        let mut client = DirectClient::greet(stream, LIMIT).unwrap();
        assert_eq!(client.encoding(), encoding);
        assert_eq!(client.register("1", true).unwrap(), Tid(7));
        let answer = client.call("get_info", &Value::tuple([])).unwrap();
        assert_eq!(answer.as_sequence(), Some(&[Value::Int(1)][..]));
        assert!(matches!(client.call("x", &Value::tuple([])), Err(DirectError::Closed)));
        peer.join().unwrap();
    }
}

#[test]
fn each_call_has_a_number_of_its_own() {
    let (stream, peer) = Peer::start(Encoding::Pickle, |peer| {
        peer.frame();
        let calls = [peer.message(), peer.message()];
        assert_ne!(calls[0].id, calls[1].id);
        peer.reply(&calls[0].id, &1.into());
        peer.reply(&calls[1].id, &2.into());
    });
    let mut client = DirectClient::greet(stream, LIMIT).unwrap();
    let calls = [(); 2].map(|()| client.request("ping", &Value::tuple([])).unwrap());
    let answers = calls.map(|call| client.answer(&call, LIMIT).unwrap());
    assert_eq!(answers, [Some(1.into()), Some(2.into())]);
    peer.join().unwrap();
}

#[test]
fn an_exception_is_an_error_with_its_name_and_text() {
    let (stream, peer) = Peer::start(Encoding::Pickle, |peer| {
        peer.frame();
        let call = peer.message();
        let payload = Value::tuple(["unknown storage: x".into()]);
        peer.send(|out| {
            encode_error(Encoding::Pickle, out, &call.id, "builtins.ValueError", &payload)
        });
    });
    let mut client = DirectClient::greet(stream, LIMIT).unwrap();
    let Err(DirectError::Raised(raised)) = client.register("x", false) else { panic!() };
    assert_eq!(raised.to_string(), "unknown storage: x");
    let Exception { name, .. } = raised;
    assert_eq!(name, "builtins.ValueError");
    peer.join().unwrap();
}

#[test]
fn an_answer_that_takes_long_can_be_waited_for_again() {
    let (stream, peer) = Peer::start(Encoding::Msgpack, |peer| {
        peer.frame();
        let call = peer.message();
        assert!(peer.message().is_heartbeat());
        let told = peer.message();
        assert_eq!((&*told.name, told.oneway), ("iterator_gc", true));
        peer.reply(&call.id, &Value::None);
    });
    let mut client = DirectClient::greet(stream, LIMIT).unwrap();
    let pending = client.request("pack", &Value::tuple([Value::Float(1.5)])).unwrap();
    assert_eq!(client.answer(&pending, SHORT).unwrap(), None);
    client.give_sign_of_life().unwrap();
    client.tell("iterator_gc", &Value::tuple([Value::list([1.into()])])).unwrap();
    assert_eq!(client.answer(&pending, LIMIT).unwrap(), Some(Value::None));
    peer.join().unwrap();
}

#[test]
fn a_server_that_says_nothing_or_nonsense_is_told_apart() {
    let (silent, _kept) = UnixStream::pair().unwrap();
    assert!(matches!(
        DirectClient::greet(stream(silent), SHORT),
        Err(DirectError::NoGreeting { .. })
    ));
    for (says, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\n"[..], "this is not a ZEO server"),
        (b"\0\0\0\x04Z310", "does not speak ZEO 5"),
        (b"", "closed the connection before it said anything"),
    ] {
        let (ours, mut peer) = UnixStream::pair().unwrap();
        peer.write_all(says).unwrap();
        drop(peer);
        let error = health(stream(ours), LIMIT).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_server_that_takes_nothing_in_is_given_up_in_time() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut announcement = BytesMut::new();
    encode_frame(&mut announcement, Encoding::Pickle.announcement()).unwrap();
    theirs.write_all(&announcement).unwrap();
    let limit = 10 * SHORT;
    let mut client = DirectClient::greet(stream(ours), limit).unwrap();
    let begin = Instant::now();
    let long = Value::tuple([vec![7; 8 << 20].into()]);
    let error = client.tell("long", &long).unwrap_err();
    assert!(matches!(error, DirectError::Silent { limit: told } if told == limit), "{error}");
    assert!(begin.elapsed() >= limit);
}

#[test]
fn a_server_without_an_opened_storage_has_no_last_transaction() {
    let (stream, peer) = Peer::start(Encoding::Pickle, |peer| {
        peer.frame();
        for last in [Value::None, "no tid".into()] {
            let call = peer.message();
            peer.reply(&call.id, &last);
        }
    });
    let mut client = DirectClient::greet(stream, LIMIT).unwrap();
    assert_eq!(client.register("1", true).unwrap(), Tid::ZERO);
    assert!(matches!(client.register("1", true), Err(DirectError::Codec(_))));
    peer.join().unwrap();
}

/// Runs `script` as a server, after the TLS handshake; gives the client's end.
fn secured(
    script: impl FnOnce(StreamOwned<ServerConnection, UnixStream>) + Send + 'static,
) -> (Stream, JoinHandle<()>) {
    let (client, server) = with_tls();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || script(accept(server, theirs)));
    let name = ServerName::try_from("localhost").unwrap();
    (stream(ours).secure(client, name, LIMIT).unwrap(), thread)
}

/// What became of a TLS handshake with a server that does this, and how long it took.
fn handshake(limit: Duration, server: impl FnOnce(UnixStream) + Send) -> (DirectError, Duration) {
    let (client, _) = with_tls();
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || server(theirs));
        let name = ServerName::try_from("localhost").unwrap();
        let begin = Instant::now();
        let error = stream(ours).secure(client, name, limit).err().unwrap();
        (error, begin.elapsed())
    })
}

#[test]
fn a_tls_handshake_that_fails_says_whether_the_server_was_silent_or_left_or_has_no_tls() {
    let read = |stream: &mut UnixStream| assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    let (silent, waited) = handshake(10 * SHORT, |mut stream| {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    });
    assert!(matches!(silent, DirectError::Silent { limit } if limit == 10 * SHORT), "{silent}");
    assert!((10 * SHORT..LIMIT).contains(&waited), "{waited:?}");
    let (left, _) = handshake(LIMIT, |mut stream| read(&mut stream));
    assert!(matches!(left, DirectError::NoHandshake), "{left}");
    let (plain, _) = handshake(LIMIT, |mut stream| {
        read(&mut stream);
        stream.write_all(b"\0\0\0\x02Z5").unwrap();
    });
    assert!(matches!(plain, DirectError::Tls(_)), "{plain}");
}

#[test]
fn a_server_with_tls_that_does_not_greet_is_not_asked_for_tls() {
    let (silent, peer) = secured(|mut stream| {
        let end = stream.read(&mut [0; 64]);
        assert_eq!(end.unwrap(), 0, "the end of the client is an orderly one");
    });
    let error = DirectClient::greet(silent, SHORT).err().unwrap();
    assert!(matches!(error, DirectError::Silent { limit: SHORT }), "{error}");
    peer.join().unwrap();
    let (closed, peer) = secured(drop);
    let error = DirectClient::greet(closed, LIMIT).err().unwrap();
    assert!(matches!(error, DirectError::Closed), "{error}");
    peer.join().unwrap();
}

#[test]
fn what_is_no_tls_within_it_ends_the_connection_at_once() {
    let (garbled, peer) = secured(|mut stream| {
        stream.sock.write_all(b"no record of TLS").unwrap();
        // The client says why it leaves.
        assert!(stream.sock.read(&mut [0; 4096]).is_ok_and(|count| count > 0));
    });
    let begin = Instant::now();
    let error = DirectClient::greet(garbled, LIMIT).err().unwrap();
    assert!(matches!(error, DirectError::Tls(_)), "{error}");
    assert!(begin.elapsed() < LIMIT);
    peer.join().unwrap();
}

#[test]
fn health_is_the_status_of_each_storage() {
    for (answer, expected) in [
        (&br#"{"1": {"connections": 3}}"#[..], Ok(Some(3))),
        (b"[]", Err(())),
        (b"{", Err(())),
        (b"{}", Ok(None)),
    ] {
        let (stream, peer) = Peer::start(Encoding::Pickle, move |peer| {
            assert_eq!(peer.frame(), b"ruok");
            peer.send(|out| encode_frame(out, answer));
        });
        let found = health(stream, LIMIT);
        let found = found.map(|storages| storages.get("1")?.get("connections")?.as_u64());
        assert_eq!(found.map_err(drop), expected);
        peer.join().unwrap();
    }
}
