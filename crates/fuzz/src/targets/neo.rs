//! NEO's byte stream: greetings, the ends of messages, and messages.

use bytes::BytesMut;
use zodium_neo::{Greeting, Packet, Scan, Scanner, encode, read_greeting};

use super::{Target, linear};

/// A message of 64 KiB has the limit of its length before that of its values.
const LIMIT: usize = 60_000;

pub(super) const MESSAGES: Target = Target {
    name: "neo-messages",
    seeds: || {
        // One message of each kind, as NEO/py encodes it.
        let messages = include_str!("../../../neo/tests/messages.txt").lines();
        let digits = messages.filter_map(|line| line.split(' ').next());
        let mut seeds: Vec<_> = digits.map(bytes_of).filter(|seed| !seed.is_empty()).collect();
        seeds.extend(hostile());
        seeds.push(seeds.concat());
        seeds
    },
    check: check_messages,
    memory_bytes_max: linear,
};

pub(super) const GREETINGS: Target = Target {
    name: "neo-greetings",
    seeds: || {
        let greetings: [&[u8]; 6] = [
            b"\x92\xa3NEO\x05",
            b"\x92\xa3NEO\xcc\x85",
            b"\x92\xa3NEO\xcf\0\0\0\0\0\0\0\x05",
            b"\0\0\0\x06",
            b"\x16\x03\x01",
            b"GET / HTTP/1.1",
        ];
        greetings.iter().map(|greeting| greeting.to_vec()).collect()
    },
    check: check_greeting,
    memory_bytes_max: linear,
};

pub(super) fn bytes_of(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map_while(byte).collect()
}

/// Messages that announce much, or nest deep.
fn hostile() -> Vec<Vec<u8>> {
    let arguments: [&[u8]; 7] = [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\0",
        b"\x96\xd4\x04\x02\xc0\xc0\xc4\0\xc0\x81\xc4\x01a\x91\x91\x91\x91\x91\x91\x91\x91\xc0",
        b"\x96\xd4\x04\x02\xc0\xc0\xc4\0\xc0\x81\xc4\x01a\xcb\x7f\xf8\0\0\0\0\0\0",
        b"\x93\x01\0\xdc\0\x08\x90\x90\x90\x90\x90\x90\x90\x90",
    ];
    let message = |(code, arguments): (u8, &&[u8])| [&[0x93, 0, code][..], arguments].concat();
    [1, 1, 1, 1, 1, 1, 10].into_iter().zip(&arguments).map(message).collect()
}

/// Scanning a stream whole and byte by byte finds the same messages. A decoded message encodes to
/// a form that decodes to the same.
fn check_messages(input: &[u8]) {
    let (mut whole, mut piecewise) = (Scanner::new(LIMIT), Scanner::new(LIMIT));
    let mut rest = input;
    loop {
        let scan = whole.scan(rest);
        assert_eq!(scan_piecewise(&mut piecewise, rest), scan);
        let Ok(Scan::Complete(frame)) = scan else { break };
        assert!(frame.bytes().len() <= LIMIT);
        if let Ok(packet) = Packet::decode(frame) {
            check_packet(&packet);
        }
        rest = &rest[frame.bytes().len()..];
    }
}

/// The result of scanning each time that what was asked for is there.
fn scan_piecewise<'a>(
    scanner: &mut Scanner,
    buffer: &'a [u8],
) -> Result<Scan<'a>, zodium_neo::ScanError> {
    let mut there = 0;
    loop {
        match scanner.scan(&buffer[..there])? {
            Scan::Need(length) if length <= buffer.len() => {
                assert!(length > there);
                there = length;
            }
            Scan::Need(_) => return scanner.scan(buffer),
            complete => return Ok(complete),
        }
    }
}

fn check_packet(packet: &Packet<'_>) {
    let mut written = BytesMut::new();
    assert_eq!(encode(packet.id, packet.message.clone(), &mut written), Ok(()));
    let mut scanner = Scanner::default();
    let scan = scanner.scan(&written);
    assert!(matches!(scan, Ok(Scan::Complete(_))), "what is written is no whole message: {scan:?}");
    let Ok(Scan::Complete(frame)) = scan else { return };
    assert_eq!(frame.bytes().len(), written.len());
    let again = Packet::decode(frame);
    assert_eq!(again.map(|again| same(&again)), Ok(same(packet)));
}

/// Floats may be NaN, which differs from itself: their texts are compared.
fn same(packet: &Packet<'_>) -> String {
    format!("{packet:?}")
}

/// A greeting is as long as announced, and its truncations are not refused.
fn check_greeting(input: &[u8]) {
    match read_greeting(input) {
        Ok(Greeting::Complete(length)) => {
            assert!(length <= input.len());
            for end in 0..length {
                let part = read_greeting(&input[..end]);
                assert!(matches!(part, Ok(Greeting::Need(more)) if end < more && more <= length));
            }
        }
        Ok(Greeting::Need(length)) => assert!(length > input.len()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
