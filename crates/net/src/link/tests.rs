//! A link between a session of lines and a peer in memory.

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::LocalSet;

use super::*;
use crate::peer_log::PeerLog;
use crate::session::Consumed;

/// Answers each line; lines from 1 KiB on come as large frames. A line of `!` is an order to
/// end.
struct Lines {
    link: Link,
    answer_bytes: usize,
    seen: Rc<Cell<usize>>,
    closed: Rc<Cell<bool>>,
    is_established: bool,
}

impl Lines {
    fn answer(&self, line: &[u8]) -> Result<(), CloseReason> {
        self.seen.set(self.seen.get() + 1);
        if line == b"!\n" {
            return Err(CloseReason::Done);
        }
        let mut output = self.link.output();
        output.buffer().extend_from_slice(format!("{} ", line.len()).as_bytes());
        output.push(Bytes::from(vec![b'.'; self.answer_bytes]));
        Ok(())
    }
}

impl Session for Lines {
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        let mut consumed = 0;
        while !self.link.is_congested() {
            let rest = &bytes[consumed..];
            // A line that begins with a number announces its own length.
            if let Some(length) =
                rest.strip_prefix(b"#").and_then(|r| r.split(|b| *b == b'#').next())
                && let Ok(frame) = std::str::from_utf8(length).unwrap_or_default().parse()
                && rest.len() < frame
            {
                return Ok(Consumed::Large { consumed, frame });
            }
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { break };
            self.answer(&rest[..=end])?;
            consumed += end + 1;
        }
        Ok(Consumed::Bytes(consumed))
    }

    fn received_large(&mut self, frame: Bytes) -> Result<(), CloseReason> {
        self.answer(&frame)
    }

    fn is_established(&self) -> bool {
        self.is_established
    }

    /// A commit comes at the last moment.
    fn park(&mut self) -> Option<Parked> {
        self.link.output().push(Bytes::from(vec![b'!'; 1000]));
        self.link.note_push(1000);
        Some(Box::new(()))
    }

    fn closed(&mut self) {
        self.closed.set(true);
    }
}

struct Running {
    peer: DuplexStream,
    link: Link,
    seen: Rc<Cell<usize>>,
    closed: Rc<Cell<bool>>,
}

/// A link over a pipe that holds 4 KiB each way.
fn start(answer_bytes: usize, limits: Limits) -> Running {
    start_with(answer_bytes, limits, true)
}

fn start_with(answer_bytes: usize, limits: Limits, is_established: bool) -> Running {
    let (peer, stream) = tokio::io::duplex(4096);
    let link = Link::new(
        "peer".to_owned(),
        Protocol::default(),
        None,
        limits,
        Arc::default(),
        PeerLog::default(),
    );
    let (seen, closed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let session = Lines {
        link: link.clone(),
        answer_bytes,
        seen: Rc::clone(&seen),
        closed: Rc::clone(&closed),
        is_established,
    };
    let shared = Rc::new(Shared::new(512, None));
    tokio::task::spawn_local(run(stream, link.clone(), session, shared));
    Running { peer, link, seen, closed }
}

fn run_local(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, test);
}

async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn frames_are_answered_however_they_are_cut() {
    run_local(async {
        for step in [1, 2, 3, 7, 100] {
            let mut running = start(0, Limits::default());
            for piece in b"a\nbb\nccc\n".chunks(step) {
                running.peer.write_all(piece).await.unwrap();
                settle().await;
            }
            let mut answer = [0; 6];
            running.peer.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"2 3 4 ");
        }
    });
}

#[test]
fn a_large_frame_comes_whole_between_small_ones() {
    run_local(async {
        let mut running = start(0, Limits::default());
        let mut large = b"#3000#".to_vec();
        large.resize(2999, b'x');
        large.push(b'\n');
        let sent = [b"a\n", &large[..], b"bb\n"].concat();
        running.peer.write_all(&sent).await.unwrap();
        let mut answer = [0; 9];
        running.peer.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"2 3000 3 ");
    });
}

#[test]
fn a_peer_that_does_not_read_answers_gets_no_new_ones_and_loses_none() {
    run_local(async {
        let limits = Limits { output_bytes_high: 10_000, ..Limits::default() };
        let mut running = start(1000, limits);
        running.peer.write_all("a\n".repeat(100).as_bytes()).await.unwrap();
        settle().await;
        // 4 KiB are in the pipe; 10 KB and the answer that exceeded them wait.
        assert!(running.seen.get() <= 16, "{} were answered", running.seen.get());
        assert!(running.link.output().len() < 12_000);
        let mut answers = vec![0; 100 * 1002];
        running.peer.read_exact(&mut answers).await.unwrap();
        assert_eq!(running.seen.get(), 100);
    });
}

#[test]
fn a_link_that_its_session_paces_takes_requests_while_the_peer_does_not_read() {
    run_local(async {
        let limits = Limits { output_bytes_high: 10_000, ..Limits::default() };
        let mut running = start(1000, limits);
        running.link.set_paced();
        running.peer.write_all("a\n".repeat(100).as_bytes()).await.unwrap();
        settle().await;
        assert_eq!(running.seen.get(), 100);
    });
}

#[test]
fn what_the_peer_does_not_read_is_counted_as_unsent_until_it_leaves_or_the_link_ends() {
    run_local(async {
        for is_read in [true, false] {
            let mut running = start(1000, Limits::default());
            let unsent = |running: &Running| running.link.metrics().unsent_bytes.value();
            running.peer.write_all("a\n".repeat(20).as_bytes()).await.unwrap();
            settle().await;
            assert!((10_000..20_040).contains(&unsent(&running)), "{}", unsent(&running));
            assert_eq!(unsent(&running), running.link.output().len() as u64);
            match is_read {
                true => drop(running.peer.read_exact(&mut [0; 20 * 1002]).await.unwrap()),
                false => drop(std::mem::replace(&mut running.peer, tokio::io::duplex(1).0)),
            }
            settle().await;
            assert_eq!(unsent(&running), 0);
        }
    });
}

#[test]
fn what_is_deferred_leaves_before_the_next_answer_or_when_the_link_is_woken() {
    run_local(async {
        let mut running = start(0, Limits::default());
        let news = |running: &Running| {
            running.link.output().buffer().extend_from_slice(b"news ");
            running.link.defer();
        };
        settle().await;
        news(&running);
        settle().await;
        assert_eq!(running.link.output().len(), 5);
        running.peer.write_all(b"a\n").await.unwrap();
        let mut answer = [0; 7];
        running.peer.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"news 2 ");
        // A request that is not answered yet does not send it.
        news(&running);
        running.peer.write_all(b"a").await.unwrap();
        settle().await;
        assert_eq!(running.link.output().len(), 5);
        running.link.wake();
        running.peer.read_exact(&mut answer[..5]).await.unwrap();
        // What is to leave does not wait for what is deferred later.
        running.link.output().buffer().extend_from_slice(b"first ");
        running.link.wake();
        news(&running);
        let mut both = [0; 11];
        running.peer.read_exact(&mut both).await.unwrap();
        assert_eq!(&both, b"first news ");
        // Deferred output also leaves when the link ends.
        news(&running);
        running.link.stop();
        running.peer.read_exact(&mut answer[..5]).await.unwrap();
        assert_eq!(running.peer.read(&mut answer).await.unwrap(), 0);
    });
}

#[test]
fn a_peer_that_lets_pushed_messages_pile_up_is_disconnected() {
    run_local(async {
        let limits = Limits { push_bytes_max: 50_000, ..Limits::default() };
        let mut running = start(0, limits);
        settle().await;
        for _ in 0..60 {
            running.link.output().push(Bytes::from(vec![b'!'; 1000]));
            running.link.note_push(1000);
            running.link.wake();
            settle().await;
        }
        assert!(running.closed.get());
        let mut rest = Vec::new();
        running.peer.read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() <= 4096);
    });
}

#[test]
fn a_large_message_is_sent_while_memory_is_short_and_only_one_waits() {
    run_local(async {
        let limits = Limits { memory: Memory::new(0), ..Limits::default() };
        let mut running = start(0, limits);
        settle().await;
        let push = |bytes| {
            running.link.output().push(Bytes::from(vec![b'!'; bytes]));
            running.link.note_push(bytes);
            running.link.wake();
        };
        push(3 * PUSH_BYTES_LOW);
        running.peer.read_exact(&mut vec![0; 3 * PUSH_BYTES_LOW]).await.unwrap();
        settle().await;
        push(3 * PUSH_BYTES_LOW);
        settle().await;
        assert!(!running.closed.get());
        push(1);
        settle().await;
        assert!(running.closed.get(), "the peer does not read");
    });
}

#[test]
fn a_shared_message_above_the_limit_is_sent_and_few_of_them_wait() {
    run_local(async {
        let limits = Limits { push_bytes_max: 50_000, ..Limits::default() };
        let mut running = start(0, limits);
        settle().await;
        let push = |bytes| {
            running.link.output().push(Bytes::from(vec![b'!'; bytes]));
            running.link.note_shared_push(bytes, 0);
            running.link.wake();
        };
        push(120_000);
        push(10_000);
        running.peer.read_exact(&mut vec![0; 130_000]).await.unwrap();
        settle().await;
        assert!(!running.closed.get());
        push(120_000);
        push(120_000);
        push(10_000);
        settle().await;
        assert!(running.closed.get(), "the peer does not read");
    });
}

#[test]
fn nothing_is_sent_behind_pushed_messages_that_were_dropped() {
    run_local(async {
        let limits = Limits { push_bytes_max: 50_000, ..Limits::default() };
        let mut running = start(0, limits);
        settle().await;
        let push = |byte, bytes| {
            running.link.output().push(Bytes::from(vec![byte; bytes]));
            running.link.note_push(bytes);
            running.link.wake();
        };
        push(b'!', 10_000);
        settle().await;
        push(b'!', 60_000);
        push(b'?', 100);
        running.link.output().push(Bytes::from_static(b"an answer"));
        running.link.wake();
        let mut all = Vec::new();
        running.peer.read_to_end(&mut all).await.unwrap();
        assert!(running.closed.get());
        let is_before = all.iter().all(|byte| *byte == b'!');
        assert_eq!((all.len(), is_before), (4096, true), "what the pipe had taken before");
    });
}

#[test]
fn a_session_that_loses_messages_when_it_parks_is_closed_and_does_not_move() {
    run_local(async {
        for push_bytes_max in [500, 50_000] {
            let limits = Limits { push_bytes_max, ..Limits::default() };
            let mut running = start(0, limits);
            settle().await;
            running.link.set_moving(true);
            settle().await;
            let mut all = Vec::new();
            running.peer.read_to_end(&mut all).await.unwrap();
            assert!(all.is_empty(), "the other worker would send it");
            assert_eq!(running.closed.get(), push_bytes_max == 500);
        }
    });
}

#[test]
fn answers_that_keep_the_output_full_are_not_held_against_a_peer_that_reads_them() {
    run_local(async {
        let limits = Limits { push_bytes_max: 30_000, ..Limits::default() };
        let mut running = start(0, limits);
        settle().await;
        running.link.output().push(Bytes::from(vec![b'.'; 20_000]));
        for _ in 0..100 {
            running.link.output().push(Bytes::from(vec![b'!'; 500]));
            running.link.note_push(500);
            running.link.wake();
            running.peer.read_exact(&mut [0; 500]).await.unwrap();
            settle().await;
        }
        assert!(!running.closed.get());
    });
}

#[test]
fn output_produced_as_fast_as_it_is_read_never_exceeds_its_limit() {
    run_local(async {
        let mut running = start(0, Limits::default());
        settle().await;
        let link = running.link.clone();
        let producer = tokio::task::spawn_local(async move {
            for _ in 0..100 {
                assert!(link.drained(3000).await);
                link.output().push(Bytes::from(vec![b'.'; 1000]));
                assert!(link.output().len() <= 4000);
                link.wake();
            }
        });
        let mut taken = vec![0; 100 * 1000];
        running.peer.read_exact(&mut taken).await.unwrap();
        producer.await.unwrap();

        let link = running.link.clone();
        link.output().push(Bytes::from(vec![b'.'; 100_000]));
        let waiting = tokio::task::spawn_local(async move { link.drained(10).await });
        settle().await;
        assert!(!waiting.is_finished());
        drop(running.peer);
        running.link.wake();
        assert!(!waiting.await.unwrap(), "the link has ended");
    });
}

#[test]
fn what_was_asked_before_the_end_is_answered() {
    run_local(async {
        let mut running = start(0, Limits::default());
        running.peer.write_all(b"a\nbb\n").await.unwrap();
        running.peer.shutdown().await.unwrap();
        let mut answers = String::new();
        running.peer.read_to_string(&mut answers).await.unwrap();
        assert_eq!(answers, "2 3 ");

        let mut running = start(0, Limits::default());
        running.peer.write_all(b"a\n!\nbb\n").await.unwrap();
        let mut answers = String::new();
        running.peer.read_to_string(&mut answers).await.unwrap();
        assert_eq!((answers.as_str(), running.seen.get()), ("2 ", 2));
    });
}

#[test]
fn a_peer_that_does_not_register_in_time_is_disconnected_whatever_it_sends() {
    run_local(async {
        let limits = Limits { handshake_time_max: Duration::from_secs(5), ..Limits::default() };
        let mut running = start_with(0, limits.clone(), false);
        for _ in 0..4 {
            running.peer.write_all(b"x").await.unwrap();
            sleep(Duration::from_secs(1)).await;
            assert!(!running.closed.get());
        }
        sleep(Duration::from_secs(2)).await;
        assert!(running.closed.get());

        let known = start_with(0, limits, true);
        sleep(Duration::from_secs(3600)).await;
        assert!(!known.closed.get());
    });
}

#[test]
fn while_memory_is_full_one_large_frame_after_the_other_comes_in() {
    run_local(async {
        let memory = Memory::new(1 << 20);
        let mut holder = memory.holder();
        holder.set(1 << 20);
        let limits = Limits { memory: Arc::clone(&memory), ..Limits::default() };
        let mut running: Vec<_> = (0..3).map(|_| start(0, limits.clone())).collect();
        let mut large = b"#300000#".to_vec();
        large.resize(300_000, b'x');
        let senders: Vec<_> = running
            .iter_mut()
            .map(|running| {
                let (_, other) = tokio::io::duplex(1);
                let peer = std::mem::replace(&mut running.peer, other);
                let large = large.clone();
                tokio::task::spawn_local(async move {
                    let mut peer = peer;
                    peer.write_all(&large).await.unwrap();
                    peer
                })
            })
            .collect();
        settle().await;
        // For the links that wait only the first read of the frame is held.
        assert!(memory.held_bytes() < (1 << 20) + 310_000, "{}", memory.held_bytes());
        for sender in senders {
            let mut peer = sender.await.unwrap();
            let mut answer = [0; 7];
            peer.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"300000 ");
        }
        assert_eq!(memory.held_bytes(), 1 << 20);
    });
}

#[test]
fn a_frame_that_goes_past_full_memory_has_a_time_limit() {
    run_local(async {
        let memory = Memory::new(0);
        let limits = Limits { memory, ..Limits::default() };
        let mut running = start(0, limits);
        running.peer.write_all(b"#300000#").await.unwrap();
        for _ in 0..29 {
            running.peer.write_all(b"x").await.unwrap();
            sleep(Duration::from_secs(1)).await;
            assert!(!running.closed.get());
        }
        sleep(Duration::from_secs(3)).await;
        assert!(running.closed.get());
    });
}

#[test]
fn while_memory_is_short_less_waits_to_be_sent() {
    run_local(async {
        let memory = Memory::new(8 << 20);
        let limits = Limits { memory: Arc::clone(&memory), ..Limits::default() };
        let mut running = start(1000, limits);
        running.peer.write_all("a\n".repeat(2000).as_bytes()).await.unwrap();
        settle().await;
        let before = running.link.output().len();
        assert_eq!(memory.held_bytes(), before as u64 / 4096 * 4096);
        let mut holder = memory.holder();
        holder.set(8 << 20);
        assert!(running.link.is_congested() == (before > OUTPUT_BYTES_LOW));
        running.link.output().push(Bytes::from(vec![b'.'; OUTPUT_BYTES_LOW]));
        assert!(running.link.is_congested());
    });
}

/// Never ready, as long as it waits.
struct Waiting {
    seen: Rc<Cell<usize>>,
    waits: Rc<Cell<bool>>,
    closed: Rc<Cell<bool>>,
}

impl Session for Waiting {
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        self.seen.set(self.seen.get() + bytes.len());
        Ok(Consumed::Bytes(bytes.len()))
    }

    fn received_large(&mut self, _: Bytes) -> Result<(), CloseReason> {
        Err(CloseReason::Refused)
    }

    fn is_ready(&self) -> bool {
        !self.waits.get()
    }

    fn watches_end(&self) -> bool {
        self.waits.get()
    }

    fn is_established(&self) -> bool {
        true
    }

    fn closed(&mut self) {
        self.closed.set(true);
    }
}

#[test]
fn the_end_of_a_peer_is_noticed_while_its_session_waits() {
    run_local(async {
        let (mut peer, stream) = tokio::io::duplex(1 << 20);
        let limits = Limits::default();
        let link = Link::new(
            "peer".to_owned(),
            Protocol::default(),
            None,
            limits,
            Arc::default(),
            PeerLog::default(),
        );
        let (seen, waits, closed) = (Rc::default(), Rc::new(Cell::new(true)), Rc::default());
        let session = Waiting {
            seen: Rc::clone(&seen),
            waits: Rc::clone(&waits),
            closed: Rc::clone(&closed),
        };
        let shared = Rc::new(Shared::new(512, None));
        tokio::task::spawn_local(run(stream, link.clone(), session, shared));
        peer.write_all(&[b'x'; 200_000]).await.unwrap();
        settle().await;
        // What was read ahead waits, and is bounded.
        assert_eq!(seen.get(), 0);
        assert!(link.memory().held_bytes() <= 64 << 10);
        waits.set(false);
        link.wake();
        for _ in 0..20 {
            settle().await;
        }
        assert_eq!(seen.get(), 200_000);
        waits.set(true);
        drop(peer);
        settle().await;
        assert!(closed.get());
    });
}

#[test]
fn an_orderly_stop_ends_an_idle_link() {
    run_local(async {
        let mut running = start(0, Limits::default());
        settle().await;
        running.link.stop();
        assert_eq!(running.peer.read(&mut [0; 8]).await.unwrap(), 0);
        assert!(running.closed.get());
    });
}
