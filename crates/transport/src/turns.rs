//! The loops around a connection's leadership: that of a thread that waits for a reply, and that of
//! the background thread. [`Leadership`] says which of them reads.
//!
//! Key decision: a wait ends with the reply, and a connection that ends replies to every request.
//! So the loop needs no end of its own, and parks without a limit where neither a deadline nor an
//! interrupt can end it earlier.

use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::interrupt::{Interrupted, TICK};
use crate::leadership::{IDLE_DELAY, Leadership, Role, Watch};
use crate::patience::Patience;
use crate::poll::Poll;
use crate::promise::Promise;

/// A connection as its threads read it, one at a time.
pub trait Reader {
    /// The socket.
    fn socket(&self) -> BorrowedFd<'_>;

    /// Reads, and hands out what is there, until `is_done`, until the connection ends, or for a
    /// tick without a message. The end of the connection replies to all requests.
    fn read(&self, is_done: &dyn Fn() -> bool);

    /// Ends the connection, because the thread that read it has panicked: what it was handing out
    /// may be lost.
    fn end_after_panic(&self);
}

/// The threads of a connection, which take turns at reading it.
pub struct Turns {
    leadership: Mutex<Leadership>,
    /// Where the background thread waits while no caller reads.
    poll: Poll,
    patience: Patience,
}

/// The leader's role; handed over when dropped.
struct Leading<'t, R: Reader> {
    turns: &'t Turns,
    reader: &'t R,
}

impl<R: Reader> Drop for Leading<'_, R> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.reader.end_after_panic();
        }
        self.turns.leadership.lock().hand_over();
    }
}

impl Turns {
    /// No thread reads yet.
    ///
    /// # Errors
    /// When the system has no more file descriptors.
    pub fn new(patience: Patience) -> io::Result<Turns> {
        Ok(Turns { leadership: Mutex::default(), poll: Poll::new()?, patience })
    }

    /// Waits until a promise is complete, or until the deadline; reads for all threads if no other
    /// one does.
    ///
    /// # Errors
    /// When the calling thread is interrupted.
    pub fn wait<T>(
        &self,
        reader: &impl Reader,
        promise: &Promise<T>,
        deadline: Option<Instant>,
    ) -> Result<(), Interrupted> {
        if promise.is_complete() {
            return Ok(());
        }
        let mut has_parked = false;
        let mut next_look = None;
        let waited = loop {
            let role = self.leadership.lock().take_role();
            match role {
                Role::Leader { wakes_background } => {
                    if wakes_background {
                        self.poll.interrupt();
                    }
                    self.lead(reader, &|| promise.is_complete());
                }
                Role::Follower => {
                    next_look.get_or_insert_with(|| Instant::now() + TICK);
                    let is_first = !std::mem::replace(&mut has_parked, true);
                    if !is_first || promise.wake_on_completion() {
                        self.park(deadline);
                    }
                }
            }
            if promise.is_complete() {
                break Ok(());
            }
            if self.patience.has_ended_by(&mut next_look) {
                break Err(Interrupted);
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                break Ok(());
            }
        };
        if has_parked {
            self.leadership.lock().leave();
        }
        waited
    }

    /// Parks until the calling thread is woken, until the deadline, or until the next look whether
    /// it is interrupted.
    fn park(&self, deadline: Option<Instant>) {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match left {
            Some(left) => thread::park_timeout(left.min(TICK)),
            None if self.patience.may_end() => thread::park_timeout(TICK),
            None => thread::park(),
        }
    }

    /// Reads as [`Reader::read`], and hands the role over. The caller must be the leader.
    fn lead<R: Reader>(&self, reader: &R, is_done: &dyn Fn() -> bool) {
        let _leading = Leading { turns: self, reader };
        reader.read(is_done);
    }

    /// Makes the background thread the leader, without a poll. `false` if there is a leader, which
    /// will wake the calling thread when it stops.
    pub fn lead_at_once(&self) -> bool {
        self.leadership.lock().lead_at_once()
    }

    /// Reads for all until `is_done`, as the background thread that [leads at
    /// once](Turns::lead_at_once).
    pub fn lead_until<R: Reader>(&self, reader: &R, is_done: &dyn Fn() -> bool) {
        let _leading = Leading { turns: self, reader };
        while !is_done() {
            reader.read(is_done);
        }
    }

    /// One step of the background thread: it reads what comes while no caller reads, and lasts
    /// `left` at most.
    pub fn attend<R: Reader>(&self, reader: &R, left: Option<Duration>) {
        let watch = self.leadership.lock().watch();
        match (watch, left) {
            (Watch::Recheck, left) => {
                thread::park_timeout(left.map_or(IDLE_DELAY, |left| left.min(IDLE_DELAY)));
            }
            (Watch::UntilWoken, Some(left)) => thread::park_timeout(left),
            (Watch::UntilWoken, None) => thread::park(),
            (Watch::Socket, left) => self.watch_socket(reader, left),
        }
    }

    fn watch_socket<R: Reader>(&self, reader: &R, left: Option<Duration>) {
        let has_something = self.poll.wait(reader.socket(), left);
        let leads = self.leadership.lock().lead_in_background(has_something);
        if leads {
            // Reads once; a caller that started to wait meanwhile takes over.
            let looked = Cell::new(false);
            self.lead(reader, &|| looked.replace(true));
        }
        self.poll.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::Interrupt;

    /// A connection whose messages are bytes: each is the number of a request and its reply.
    struct Line {
        socket: UnixStream,
        turns: Turns,
        asked: Mutex<BTreeMap<u8, Arc<Promise<u8>>>>,
        has_ended: AtomicBool,
    }

    /// The message at which the thread that reads panics.
    const BOMB: u8 = 255;
    /// What the end of a connection replies.
    const END: u8 = 0;

    impl Line {
        fn new(patience: Patience) -> (UnixStream, Arc<Line>) {
            let (peer, socket) = UnixStream::pair().unwrap();
            socket.set_read_timeout(Some(TICK)).unwrap();
            let turns = Turns::new(patience).unwrap();
            let (asked, has_ended) = (Mutex::default(), AtomicBool::new(false));
            (peer, Arc::new(Line { socket, turns, asked, has_ended }))
        }

        fn ask(&self, number: u8) -> Arc<Promise<u8>> {
            let promise = Arc::new(Promise::default());
            self.asked.lock().insert(number, Arc::clone(&promise));
            promise
        }

        fn wait(&self, promise: &Promise<u8>) -> Option<u8> {
            self.turns.wait(self, promise, None).unwrap();
            promise.take()
        }

        fn end(&self) {
            self.has_ended.store(true, Ordering::SeqCst);
            let asked = std::mem::take(&mut *self.asked.lock());
            asked.values().for_each(|promise| promise.complete(END));
        }
    }

    impl Reader for Line {
        fn socket(&self) -> BorrowedFd<'_> {
            self.socket.as_fd()
        }

        fn read(&self, is_done: &dyn Fn() -> bool) {
            while !is_done() {
                let mut message = [0];
                match (&self.socket).read(&mut message) {
                    Ok(1) => {
                        assert_ne!(message[0], BOMB, "as the test wants it");
                        let promise = self.asked.lock().remove(&message[0]);
                        promise.into_iter().for_each(|promise| promise.complete(message[0]));
                    }
                    Ok(_) => return self.end(),
                    Err(_) => return,
                }
            }
        }

        fn end_after_panic(&self) {
            self.end();
        }
    }

    /// So many threads that wait for the replies 1, 2 and so on.
    fn waiters(line: &Arc<Line>, count: u8) -> Vec<thread::JoinHandle<Option<u8>>> {
        let promises: Vec<_> = (1..=count).map(|number| line.ask(number)).collect();
        let wait = |promise: Arc<Promise<u8>>| {
            let line = Arc::clone(line);
            thread::spawn(move || line.wait(&promise))
        };
        promises.into_iter().map(wait).collect()
    }

    #[test]
    fn each_waiter_gets_its_reply_in_whatever_order_they_come() {
        let (mut peer, line) = Line::new(Patience::default());
        for round in 0..50 {
            let waiters = waiters(&line, 8);
            let mut replies: Vec<u8> = (1..=8).collect();
            replies.rotate_left(round % 8);
            if round % 2 == 0 {
                replies.reverse();
            }
            replies.iter().for_each(|reply| peer.write_all(&[*reply]).unwrap());
            let got: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
            assert_eq!(got, (1..=8).map(Some).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_end_of_the_connection_ends_every_wait() {
        let (peer, line) = Line::new(Patience::default());
        let waiters = waiters(&line, 4);
        drop(peer);
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Some(END));
        }
    }

    #[test]
    fn a_leader_that_panics_ends_the_connection_of_the_others() {
        let (mut peer, line) = Line::new(Patience::default());
        let waiters = waiters(&line, 4);
        peer.write_all(&[BOMB]).unwrap();
        let ended: Vec<_> = waiters.into_iter().map(thread::JoinHandle::join).collect();
        assert_eq!(ended.iter().filter(|one| one.is_err()).count(), 1, "the leader");
        assert!(ended.into_iter().flatten().all(|reply| reply == Some(END)));
        assert!(line.turns.lead_at_once(), "the role was handed over");
    }

    #[test]
    fn a_wait_ends_at_its_deadline_in_both_roles() {
        let (_peer, line) = Line::new(Patience::default());
        let promise = line.ask(1);
        let deadline = || Some(Instant::now() + Duration::from_millis(1));
        line.turns.wait(&*line, &promise, deadline()).unwrap();
        assert!(line.turns.lead_at_once());
        line.turns.wait(&*line, &promise, deadline()).unwrap();
        assert!(!promise.is_complete());
    }

    struct Stopped;

    impl Interrupt for Stopped {
        fn may_stop(&self) -> bool {
            true
        }

        fn stops(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_wait_is_interrupted_in_both_roles() {
        let (_peer, line) = Line::new(Patience::new(Some(Arc::new(Stopped))));
        let promise = line.ask(1);
        assert_eq!(line.turns.wait(&*line, &promise, None), Err(Interrupted));
        assert!(line.turns.lead_at_once());
        assert_eq!(line.turns.wait(&*line, &promise, None), Err(Interrupted));
    }

    #[test]
    fn the_background_thread_reads_while_no_caller_does_and_steps_back_for_one() {
        let (mut peer, line) = Line::new(Patience::default());
        let background = {
            let line = Arc::clone(&line);
            thread::spawn(move || {
                while !line.has_ended.load(Ordering::SeqCst) {
                    line.turns.attend(&*line, None);
                }
            })
        };
        for number in 1..=20 {
            let promise = line.ask(number);
            if number % 2 == 0 {
                // No caller waits for this one.
                peer.write_all(&[number]).unwrap();
                while !promise.is_complete() {
                    thread::yield_now();
                }
            } else {
                let waiter = {
                    let (line, promise) = (Arc::clone(&line), Arc::clone(&promise));
                    thread::spawn(move || line.wait(&promise))
                };
                peer.write_all(&[number]).unwrap();
                assert_eq!(waiter.join().unwrap(), Some(number));
            }
        }
        drop(peer);
        background.join().unwrap();
    }

    #[test]
    fn a_caller_interrupts_the_poll_of_the_background_thread() {
        let (peer, line) = Line::new(Patience::default());
        let background = {
            let line = Arc::clone(&line);
            thread::spawn(move || line.turns.attend(&*line, None))
        };
        while !line.turns.leadership.lock().is_watched {
            thread::yield_now();
        }
        let promise = line.ask(1);
        line.turns.wait(&*line, &promise, Some(Instant::now())).unwrap();
        background.join().unwrap();
        drop(peer);
    }

    #[test]
    fn a_background_thread_that_leads_for_long_reads_for_callers() {
        let (mut peer, line) = Line::new(Patience::default());
        assert!(line.turns.lead_at_once());
        let waiters = waiters(&line, 3);
        let background = {
            let line = Arc::clone(&line);
            thread::spawn(move || {
                line.turns.lead_until(&*line, &|| line.has_ended.load(Ordering::SeqCst));
            })
        };
        peer.write_all(&[3, 1, 2]).unwrap();
        let got: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        assert_eq!(got, [Some(1), Some(2), Some(3)]);
        drop(peer);
        background.join().unwrap();
        assert!(line.turns.lead_at_once(), "the role was handed over");
    }
}
