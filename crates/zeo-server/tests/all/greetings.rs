//! What is answered to peers that are no clients of ZEO.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::{InProcess, Setup};
use zodium_pickle::Value;
use zodium_tls::AllowList;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

/// The frame that a server of msgpack announces itself with.
const ANNOUNCEMENT: &[u8] = b"\0\0\0\x02M5";

/// All that is answered to these bytes, after the announcement, until the server closes.
fn answer_to(server: &InProcess, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(server.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer.split_off(ANNOUNCEMENT.len())
}

#[test]
fn a_peer_of_another_protocol_is_told_so_in_its_own() {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let text = |bytes: &[u8]| String::from_utf8(answer_to(&server, bytes)).unwrap();
    let http = text(b"GET / HTTP/1.1\r\n\r\n");
    let (head, body) = http.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400 ") && body.contains("ZEO"), "{http}");
    let resp = text(b"PING\r\n");
    assert!(resp.starts_with("-ERR ") && resp.ends_with("\r\n"), "{resp}");
    for silent in [&b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"[..], b"SSH-2.0-OpenSSH_9\r\n"] {
        assert_eq!(text(silent), "");
    }
    must(server.close());
}

#[test]
fn the_status_is_told_to_monitors_before_the_handshake_and_to_clients() {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let mut client = must(Client::register(server.socket()));
    must(client.begin(1));
    must(client.store(1, Oid(1), Tid::ZERO, b"data"));
    let tid = must(client.commit(1));
    // A frame: its length precedes the text.
    let told = String::from_utf8(answer_to(&server, b"\0\0\0\x04ruok").split_off(4)).unwrap();
    assert!(told.starts_with(r#"{"1":{"#), "{told}");
    let last = format!(r#""last-transaction":"{tid}""#);
    for entry in [r#""connections":1"#, r#""commits":1"#, r#""stores":1"#, &last] {
        assert!(told.contains(entry), "{told} has no {entry}");
    }
    let Answer::Value(status) = must(client.ask("server_status", [])) else { panic!("no status") };
    let number = |name| status.entry(name).and_then(Value::as_u64);
    assert_eq!((number("connections"), number("commits")), (Some(1), Some(1)));
    assert_eq!(status.entry("last-transaction"), Some(&tid.to_string().as_str().into()));
    must(server.close());
}

#[test]
fn a_client_has_to_register_in_time_and_may_stay_then() {
    let handshake_time_max = Some(Duration::from_secs(2));
    let setup = Setup { handshake_time_max, ..Setup::default() };
    let server = must(InProcess::start_with(Encoding::Pickle, setup));
    let mut client = must(Client::register(server.socket()));
    let mut other = must(Client::connect(server.socket()));
    must(other.wait_closed());
    assert_eq!(must(client.ask("ping", [])), Answer::Value(Value::None));
    must(server.close());
}

#[test]
fn a_storage_for_others_is_neither_served_nor_told_of() {
    let setup = Setup { allow: Some(AllowList::new(["CN=other"])), ..Setup::default() };
    let server = must(InProcess::start_with(Encoding::Msgpack, setup));
    let mut client = must(Client::connect(server.socket()));
    let refusal = Answer::Error("builtins.ValueError".to_owned());
    assert_eq!(must(client.ask("register", ["1".into(), true.into()])), refusal);
    assert_eq!(client.refusal.as_sequence(), Some(&["unknown storage: 1".into()][..]));
    assert_eq!(answer_to(&server, b"\0\0\0\x04ruok"), b"\0\0\0\x02{}");
    must(server.close());
}
