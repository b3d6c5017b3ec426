//! Blobs that are fetched, and callers that stop waiting for them.

use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, mpsc};

use zodium_client::{ClientError, Interrupt, Options};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::common::peer::{Peer, play, play_with};
use crate::common::switch::Switch;

const OID: Oid = Oid(1);
const SERIAL: Tid = Tid(5);

fn send_chunk(peer: &mut Peer, chunk: &[u8]) {
    peer.tell("receiveBlobChunk", &Value::tuple([OID.into(), SERIAL.into(), chunk.into()]));
}

fn send_mark(peer: &mut Peer, name: &str) {
    peer.tell(name, &Value::tuple([OID.into(), SERIAL.into()]));
}

fn content_of(mut file: File) -> String {
    let mut content = String::new();
    file.read_to_string(&mut content).unwrap();
    content
}

#[test]
fn a_blob_is_whole_between_its_start_and_its_end_or_an_error() {
    for (sent, expected) in [
        ("", None),
        ("start chunk", None),
        ("start stop", Some("")),
        ("start chunk chunk stop", Some("AAAAAAAA")),
        ("start chunk stop start chunk stop", Some("AAAA")),
        ("start chunk start chunk stop", Some("AAAA")),
        ("start chunk stop chunk", None),
    ] {
        let script = |listener: &UnixListener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            let asked = peer.expect("sendBlob");
            for part in sent.split_whitespace() {
                match part {
                    "start" => send_mark(&mut peer, "receiveBlobStart"),
                    "stop" => send_mark(&mut peer, "receiveBlobStop"),
                    _ => send_chunk(&mut peer, b"AAAA"),
                }
            }
            peer.reply(&asked, Value::None);
        };
        play(script, |client, _| {
            let fetched = client.fetch_blob(OID, SERIAL, tempfile::tempfile().unwrap());
            match (expected, fetched) {
                (Some(expected), Ok(file)) => assert_eq!(content_of(file), expected, "{sent}"),
                (None, Err(ClientError::Unexpected { method, .. })) => {
                    assert_eq!(method, "sendBlob", "{sent}");
                }
                (_, other) => panic!("{sent}: {other:?}"),
            }
        });
    }
}

#[test]
fn a_blob_that_is_fetched_again_has_no_chunk_of_the_fetch_that_was_given_up() {
    let (given_up, is_given_up) = mpsc::channel();
    let script = move |listener: &UnixListener| {
        let mut peer = Peer::admitted(listener, Tid(10));
        let first = peer.expect("sendBlob");
        send_chunk(&mut peer, b"AAAA");
        is_given_up.recv().unwrap();
        // The caller asks again, and waits for the answer to the first request.
        peer.expect_silence();
        send_chunk(&mut peer, b"BBBB");
        peer.reply(&first, Value::None);
        let second = peer.expect("sendBlob");
        send_mark(&mut peer, "receiveBlobStart");
        send_chunk(&mut peer, b"AAAA");
        send_chunk(&mut peer, b"BBBB");
        send_mark(&mut peer, "receiveBlobStop");
        peer.reply(&second, Value::None);
    };
    let switch = Arc::new(Switch::default());
    let interrupt = Some(Arc::clone(&switch) as Arc<dyn Interrupt>);
    let options = |options| Options { interrupt, ..options };
    play_with(options, script, |client, _| {
        let fetch = || client.fetch_blob(OID, SERIAL, tempfile::tempfile().unwrap());
        switch.set(true);
        let error = fetch().unwrap_err();
        assert!(matches!(error, ClientError::Interrupted), "{error:?}");
        switch.set(false);
        given_up.send(()).unwrap();
        assert_eq!(content_of(fetch().unwrap()), "AAAABBBB");
    });
}

#[test]
fn a_blob_that_cannot_be_written_says_why() {
    let script = |listener: &UnixListener| {
        let mut peer = Peer::admitted(listener, Tid(10));
        let asked = peer.expect("sendBlob");
        for _ in 0..2 {
            send_chunk(&mut peer, b"AAAA");
        }
        send_mark(&mut peer, "receiveBlobStop");
        peer.reply(&asked, Value::None);
    };
    play(script, |client, _| {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let error = client.fetch_blob(OID, SERIAL, full).unwrap_err();
        let ClientError::File { reason, code, .. } = error else { panic!("{error:?}") };
        assert!(reason.contains("No space left on device"), "{reason}");
        assert_eq!(code, Some(28));
    });
}
