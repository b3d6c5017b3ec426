//! Requests are read as they were sent, however they are cut and whatever stands in them.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use proptest::prelude::*;
use zodium_resp::{FrameError, RequestLimits, RequestReader, Step};

fn sent(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn read_all(bytes: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, FrameError> {
    let (mut reader, mut requests, mut rest) = (RequestReader::default(), Vec::new(), bytes);
    loop {
        match reader.read(rest, &RequestLimits::default())? {
            Step::Incomplete(at_least) => {
                assert!(at_least > rest.len());
                return Ok(requests);
            }
            Step::Nothing(count) => rest = &rest[count..],
            Step::Request(count) => {
                requests.push(reader.arguments(rest).iter().map(<[u8]>::to_vec).collect());
                rest = &rest[count..];
            }
        }
        reader.next();
    }
}

/// Gives a reader a byte more at a time.
fn read_slowly(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = RequestReader::default();
    for end in 0..=bytes.len() {
        match reader.read(&bytes[..end], &RequestLimits::default()).unwrap() {
            Step::Request(count) => {
                assert_eq!(count, bytes.len());
                return reader.arguments(bytes).iter().map(<[u8]>::to_vec).collect();
            }
            Step::Nothing(count) => panic!("nothing in {count} bytes"),
            Step::Incomplete(at_least) => assert!(at_least <= bytes.len() && at_least > end),
        }
    }
    panic!("the request is not whole");
}

proptest! {
    #[test]
    fn requests_come_as_they_were_sent(
        requests in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 0..5),
    ) {
        let bytes: Vec<u8> = requests.iter().flat_map(|words| sent(words)).collect();
        prop_assert_eq!(read_all(&bytes).unwrap(), requests.clone());
        for words in &requests {
            prop_assert_eq!(&read_slowly(&sent(words)), words);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_all(&bytes);
        let _ = read_all(&[b"*2\r\n$", &bytes[..]].concat());
    }
}

#[test]
fn errors_have_the_texts_of_the_stock_server() {
    let long = "1".repeat(70_000);
    for (bytes, text) in [
        ("*a\r\n".to_owned(), "invalid multibulk length"),
        ("*20000000000\r\n".to_owned(), "invalid multibulk length"),
        ("*1\r\n$-5\r\n".to_owned(), "invalid bulk length"),
        ("*1\r\n$600000000\r\n".to_owned(), "invalid bulk length"),
        ("*1\r\nx".to_owned(), "expected '$', got 'x'"),
        ("set \"a\r\n".to_owned(), "unbalanced quotes in request"),
        (long.clone(), "too big inline request"),
        (format!("*{long}"), "too big mbulk count string"),
        (format!("*1\r\n${long}"), "too big bulk count string"),
    ] {
        let error = read_all(bytes.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), format!("Protocol error: {text}"));
    }
}

#[test]
fn little_is_taken_before_authentication() {
    let limits = RequestLimits { is_authenticated: false, ..RequestLimits::default() };
    let read = |bytes: &[u8]| RequestReader::default().read(bytes, &limits);
    assert_eq!(read(b"*11\r\n"), Err(FrameError::UnauthenticatedArguments));
    assert_eq!(read(b"*1\r\n$16385\r\n"), Err(FrameError::UnauthenticatedBulk));
    assert_eq!(read(b"*1\r\n$4\r\nPING\r\n"), Ok(Step::Request(14)));
}

#[test]
fn what_is_empty_is_skipped() {
    let requests = read_all(b"\r\n\n*0\r\n*-1\r\nping\n  \r\nset a 'b c'\r\n").unwrap();
    assert_eq!(
        requests,
        [vec![b"ping".to_vec()], vec![b"set".to_vec(), b"a".into(), b"b c".into()]]
    );
}
