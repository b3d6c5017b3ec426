//! The byte stream below the messages: frames and the handshake.

use bytes::BytesMut;
use zodium_zeo::codec::frame::{Frames, HEADER_LENGTH, encode_frame, split_frame};
use zodium_zeo::codec::{Encoding, Greeting};

use super::{Target, linear};

const LIMIT: u32 = 2000;

pub(super) const FRAMES: Target = Target {
    name: "frames",
    seeds: || {
        let streams: [&[u8]; 3] = [
            include_bytes!("../../corpus/requests.z5"),
            include_bytes!("../../corpus/replies.m5"),
            b"\0\0\0\0\0\0\0\x01x\0\0\0\x02M5",
        ];
        streams.iter().map(|stream| stream.to_vec()).collect()
    },
    check: check_frames,
    memory_bytes_max: linear,
};

pub(super) const HANDSHAKES: Target = Target {
    name: "handshakes",
    seeds: || {
        let greetings: [&[u8]; 6] =
            [b"Z5", b"M5", b"ruok", b"Z310", b"GET / HTTP/1.1", b"\x16\x03"];
        greetings.iter().map(|greeting| greeting.to_vec()).collect()
    },
    check: check_handshake,
    memory_bytes_max: linear,
};

/// Walking over frames, splitting them off, and splitting them off byte by byte give the same
/// result.
fn check_frames(input: &[u8]) {
    let mut walk = Frames::new(input, LIMIT);
    let mut whole = BytesMut::from(input);
    let mut piecewise = BytesMut::new();
    let mut bytes = input.iter();
    loop {
        let walked = walk.next_frame();
        let split = split_frame(&mut whole, LIMIT);
        let mut pieced = split_frame(&mut piecewise, LIMIT);
        while pieced == Ok(None) {
            let Some(byte) = bytes.next() else { break };
            piecewise.extend_from_slice(&[*byte]);
            pieced = split_frame(&mut piecewise, LIMIT);
        }
        assert_eq!(split.as_ref().map(Option::as_deref), walked.as_ref().map(|frame| *frame));
        assert_eq!(split, pieced);
        let Ok(Some(payload)) = walked else { break };
        let mut again = BytesMut::new();
        assert_eq!(encode_frame(&mut again, payload), Ok(()));
        assert_eq!(again.len(), HEADER_LENGTH + payload.len());
        assert_eq!(split_frame(&mut again, LIMIT), split);
    }
    assert!(walk.consumed() <= input.len());
}

fn check_handshake(input: &[u8]) {
    if let Ok(Greeting::Session(encoding)) = Greeting::from_payload(input) {
        assert_eq!(encoding.announcement(), input);
        assert_eq!(Encoding::from_announcement(input), Ok(encoding));
    }
    let _ = Encoding::from_announcement(input);
}
