//! RESP requests: arrays of bulk strings, and lines of words.

use zodium_resp::{FrameError, RequestLimits, RequestReader, Step};

use super::{Target, linear};

pub(super) const REQUESTS: Target = Target {
    name: "resp-requests",
    seeds: || {
        let seeds: [&[u8]; 10] = [
            b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n",
            b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n",
            b"set key \"a\\x41\\n\" 'b'\r\n",
            b"\r\n*0\r\n*-1\r\nping\n",
            b"*3\r\n$-1\r\n",
            b"*2147483647\r\n$0\r\n\r\n",
            b"*1\r\n$536870912\r\nx",
            b"*1\r\n:1\r\n",
            b"\"a\"b\r\n",
            b"*99999999999999999999\r\n",
        ];
        seeds.iter().map(|seed| seed.to_vec()).collect()
    },
    check,
    memory_bytes_max: linear,
};

/// Requests, each as its arguments.
type Requests = Vec<Vec<Vec<u8>>>;

/// Reading a stream whole and in pieces finds the same requests, and the same error.
fn check(input: &[u8]) {
    let whole = read(input, usize::MAX);
    for piece in [1, 7] {
        assert_eq!(whole, read(input, piece), "in pieces of {piece}");
    }
}

/// The requests of a stream that arrives in pieces, and its error.
fn read(input: &[u8], piece: usize) -> (Requests, Option<FrameError>) {
    let limits = RequestLimits::default();
    let (mut reader, mut requests) = (RequestReader::default(), Requests::new());
    let (mut start, mut end) = (0, piece.min(input.len()));
    loop {
        let bytes = &input[start..end];
        match reader.read(bytes, &limits) {
            Err(error) => return (requests, Some(error)),
            Ok(Step::Incomplete(at_least)) => {
                assert!(at_least > bytes.len());
                if end == input.len() {
                    return (requests, None);
                }
                end = end.saturating_add(piece).min(input.len());
                continue;
            }
            Ok(Step::Nothing(count)) => start += count,
            Ok(Step::Request(count)) => {
                let words = reader.arguments(bytes).iter().map(<[u8]>::to_vec);
                requests.push(words.collect());
                start += count;
            }
        }
        reader.next();
    }
}
