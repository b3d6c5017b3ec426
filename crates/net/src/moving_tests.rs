//! Connections that move between workers.

use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use zodium_types::Address;

use crate::{
    Bound, CloseReason, Consumed, Link, Parked, Service, Session, Share, WorkerOptions, Workers,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Answers each line with the number of lines so far and that of the worker.
struct Counting {
    worker: usize,
}

struct Lines {
    link: Link,
    worker: usize,
    count: u64,
}

impl Service for Counting {
    type Session = Lines;

    fn open(&self, link: Link) -> Lines {
        Lines { link, worker: self.worker, count: 0 }
    }

    fn resume(&self, link: Link, parked: Parked) -> Option<Lines> {
        Some(Lines { link, worker: self.worker, count: *parked.downcast().ok()? })
    }
}

impl Session for Lines {
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        let mut consumed = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|l| l.ends_with(b"\n")) {
            self.count += 1;
            let answer = format!("{} {}\n", self.count, self.worker);
            self.link.output().buffer().extend_from_slice(answer.as_bytes());
            consumed += line.len();
        }
        Ok(Consumed::Bytes(consumed))
    }

    fn received_large(&mut self, _: bytes::Bytes) -> Result<(), CloseReason> {
        Err(CloseReason::Refused)
    }

    fn is_established(&self) -> bool {
        true
    }

    /// The second line must be answered first, so that a test sees a session that cannot go yet.
    fn park(&mut self) -> Option<Parked> {
        if self.count == 1 {
            return None;
        }
        self.link.output().buffer().extend_from_slice(b"moved\n");
        Some(Box::new(self.count))
    }

    fn closed(&mut self) {}
}

/// A client's side of a connection.
struct Client {
    reader: BufReader<std::net::TcpStream>,
}

impl Client {
    fn send(&mut self, text: &str) {
        self.reader.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

/// Runs a test with two workers and a client, whose connection worker 0 serves.
fn run(test: impl FnOnce(&Workers, Client)) {
    let options = WorkerOptions { count: 2, ..WorkerOptions::default() };
    let workers = Workers::start(options, |worker| Counting { worker }).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let any: Address = "127.0.0.1:0".parse().unwrap();
        let bound = Bound::bind(&any).await.unwrap();
        let address = bound.address().to_string();
        let listener = bound.listen().unwrap();
        let connecting = std::thread::spawn(|| std::net::TcpStream::connect(address).unwrap());
        let (incoming, peer) = listener.accept().await;
        workers.assign(incoming, peer);
        connecting.join().unwrap()
    });
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    test(&workers, Client { reader: BufReader::new(stream) });
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_session_goes_on_where_it_was_on_another_worker() {
    run(|workers, mut client| {
        client.send("one\ntwo\n");
        assert_eq!([client.line(), client.line()], ["1 0", "2 0"]);
        workers.hand_over(Share::All, 0, 1);
        // What a session appends when it parks is sent too.
        assert_eq!(client.line(), "moved");
        client.send("three\n");
        assert_eq!(client.line(), "3 1");
        workers.hand_over(Share::All, 1, 0);
        client.send("four\n");
        let mut next = [client.line(), client.line()];
        next.sort();
        assert!(next == ["4 0", "moved"] || next == ["4 1", "moved"], "{next:?}");
        let moved: u64 = workers.metrics().iter().map(|metrics| metrics.moved.value()).sum();
        assert_eq!(moved, 2);
        let accepted: u64 = workers.metrics().iter().map(|metrics| metrics.accepted.value()).sum();
        assert_eq!(accepted, 1);
    });
}

#[test]
fn a_session_at_work_and_half_a_request_stay_until_they_are_complete() {
    run(|workers, mut client| {
        client.send("one\n");
        assert_eq!(client.line(), "1 0");
        workers.hand_over(Share::All, 0, 1);
        client.send("two\nhalf");
        assert_eq!(client.line(), "2 0");
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(50) {
            assert_eq!(workers.metrics()[0].moved.value(), 0);
        }
        client.send(" of it\n");
        assert_eq!([client.line(), client.line()], ["3 0", "moved"]);
        client.send("four\n");
        assert_eq!(client.line(), "4 1");
    });
}

#[test]
fn half_of_the_connections_are_none_of_one() {
    run(|workers, mut client| {
        client.send("one\ntwo\n");
        assert_eq!([client.line(), client.line()], ["1 0", "2 0"]);
        workers.hand_over(Share::Half, 0, 1);
        client.send("three\n");
        assert_eq!(client.line(), "3 0");
    });
}
