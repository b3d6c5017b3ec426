//! Whether the client has a connection, and the wait for one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::{Condvar, Mutex, MutexGuard};
use zodium_transport::{Patience, TICK};
use zodium_types::Address;

use crate::ClientError;
use crate::cache::Stream;
use crate::connection::Connection;

/// A connection that is up to date with the server.
pub(crate) struct Established {
    pub(crate) connection: Arc<Connection>,
    /// Identifies its messages to the cache.
    pub(crate) stream: Stream,
    /// Whether the server refuses commits on it.
    pub(crate) is_read_only: bool,
    /// Whether the server has the methods that return many records.
    pub(crate) has_chunks: bool,
}

/// The reason before the first attempt to connect has come to anything.
const NOT_ATTEMPTED: &str = "no connection was attempted yet";

/// How the reason begins while an address has not answered the first attempt.
const UNANSWERED: &str = "no answer yet from ";

/// State of the connection.
#[derive(Clone)]
pub(crate) enum Phase {
    /// Not connected; the text is the error of the last attempt.
    Connecting(Arc<str>),
    Connected,
    Closed,
}

/// The connection of now. The connector sets it, and callers wait for it.
pub(crate) struct Standing {
    /// The established connection, if there is one. It may have ended.
    connection: ArcSwapOption<Established>,
    /// Relaxed: whether the connector is in the middle of a handshake.
    is_handshaking: AtomicBool,
    phase: Mutex<Phase>,
    /// Whether the phase is [`Phase::Closed`], for readers that take no lock. Set with `phase`
    /// locked, with Release; loaded with Acquire.
    is_closed: AtomicBool,
    phase_changed: Condvar,
    /// The thread that connects, which calls watchers too.
    connector: OnceLock<ThreadId>,
}

impl Standing {
    /// Makes the calling thread the one that connects.
    pub(crate) fn connect_here(&self) {
        let _ = self.connector.set(thread::current().id());
    }

    /// The established connection, if there is one. It may have ended.
    pub(crate) fn current(&self) -> Guard<Option<Arc<Established>>> {
        self.connection.load()
    }

    /// The connection; waits for one, at most for `limit`.
    pub(crate) fn established(
        &self,
        limit: Duration,
        patience: &Patience,
    ) -> Result<Arc<Established>, ClientError> {
        match self.usable() {
            Some(current) => Ok(current),
            None => self.wait(limit, patience),
        }
    }

    /// The established connection, unless it has ended.
    pub(crate) fn usable(&self) -> Option<Arc<Established>> {
        let current = self.connection.load_full();
        current.filter(|current| current.connection.end_reason().is_none())
    }

    fn wait(&self, limit: Duration, patience: &Patience) -> Result<Arc<Established>, ClientError> {
        if self.connector.get() == Some(&thread::current().id()) {
            return Err(ClientError::Nested);
        }
        let deadline = Instant::now() + limit;
        let mut phase = self.phase.lock();
        loop {
            if let Phase::Closed = &*phase {
                return Err(ClientError::Closed);
            }
            if let Some(current) = self.usable() {
                return Ok(current);
            }
            let tick = deadline.min(Instant::now() + TICK);
            if !self.phase_changed.wait_until(&mut phase, tick).timed_out() {
                continue;
            }
            if Instant::now() >= deadline {
                let reason = match &*phase {
                    Phase::Connecting(reason) => Arc::clone(reason),
                    Phase::Connected | Phase::Closed => "the connection has just ended".into(),
                };
                let waited_seconds = limit.as_secs_f64();
                return Err(ClientError::Unreachable { waited_seconds, reason });
            }
            if MutexGuard::unlocked(&mut phase, || patience.has_ended()) {
                return Err(ClientError::Interrupted);
            }
        }
    }

    /// Lets callers use a connection.
    pub(crate) fn begin(&self, current: Arc<Established>) {
        self.connection.store(Some(current));
        self.enter(Phase::Connected);
    }

    /// Forgets the connection.
    pub(crate) fn end(&self) {
        self.connection.store(None);
    }

    /// Enters a phase and wakes the threads that wait for a connection. [`Phase::Closed`] is final.
    pub(crate) fn enter(&self, next: Phase) {
        let mut phase = self.phase.lock();
        if matches!(next, Phase::Closed) {
            self.is_closed.store(true, Ordering::Release);
        }
        if !matches!(*phase, Phase::Closed) {
            *phase = next;
        }
        self.phase_changed.notify_all();
    }

    /// Notes the beginning of an attempt, for waits that end before it does.
    pub(crate) fn note_attempt(&self, address: &Address) {
        self.note_first(&format!("{UNANSWERED}{address}"));
    }

    /// Notes that a peer has accepted a connection, for waits that end before it answers.
    pub(crate) fn note_silence(&self, address: &Address, has_tls: bool) {
        let advice = match has_tls {
            true => "",
            false => {
                "; if it speaks TLS, it waits for the client to do so: give the client a \
                 certificate and `ssl_authenticate`"
            }
        };
        let text = format!(
            "{address} accepted the connection, but has not answered as a ZEO server{advice}"
        );
        self.note_first(&text);
    }

    /// Notes how far the first attempt is.
    fn note_first(&self, text: &str) {
        let mut phase = self.phase.lock();
        // The error of an attempt that was answered says more.
        if let Phase::Connecting(reason) = &mut *phase
            && (**reason == *NOT_ATTEMPTED || reason.starts_with(UNANSWERED))
        {
            *reason = text.into();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Whether the connector is in the middle of a handshake.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.is_handshaking.load(Ordering::Relaxed)
    }

    /// Notes the beginning or the end of a handshake.
    pub(crate) fn set_handshaking(&self, is_handshaking: bool) {
        self.is_handshaking.store(is_handshaking, Ordering::Relaxed);
    }
}

impl Default for Standing {
    fn default() -> Standing {
        Standing {
            connection: ArcSwapOption::empty(),
            is_handshaking: AtomicBool::new(false),
            phase: Mutex::new(Phase::Connecting(NOT_ATTEMPTED.into())),
            is_closed: AtomicBool::new(false),
            phase_changed: Condvar::new(),
            connector: OnceLock::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::{Client, Options};

    fn reason(standing: &Standing) -> String {
        match &*standing.phase.lock() {
            Phase::Connecting(reason) => reason.to_string(),
            Phase::Connected | Phase::Closed => panic!("it is not connecting"),
        }
    }

    #[test]
    fn the_first_attempt_is_told_of_as_far_as_it_has_come_and_later_ones_by_their_error() {
        let standing = Standing::default();
        let address = |port| Address::Tcp { host: "db.example".to_owned(), port };
        assert_eq!(reason(&standing), NOT_ATTEMPTED);
        for port in [1, 2] {
            standing.note_attempt(&address(port));
            assert_eq!(reason(&standing), format!("no answer yet from {}", address(port)));
        }
        standing.note_silence(&address(2), true);
        let silent = "db.example:2 accepted the connection, but has not answered as a ZEO server";
        assert_eq!(reason(&standing), silent);
        standing.note_silence(&address(2), false);
        assert_eq!(reason(&standing), silent, "it is known to speak TLS");
        let refused = "connection refused";
        standing.enter(Phase::Connecting(refused.into()));
        standing.note_attempt(&address(1));
        standing.note_silence(&address(1), false);
        assert_eq!(reason(&standing), refused);
        standing.enter(Phase::Closed);
        standing.enter(Phase::Connecting(refused.into()));
        assert!(standing.is_closed() && matches!(*standing.phase.lock(), Phase::Closed));
    }

    #[test]
    fn a_silent_peer_may_want_tls_only_if_there_is_none() {
        for (has_tls, says_so) in [(false, true), (true, false)] {
            let standing = Standing::default();
            let address = Address::Tcp { host: "db.example".to_owned(), port: 1 };
            standing.note_silence(&address, has_tls);
            assert_eq!(reason(&standing).contains("if it speaks TLS"), says_so);
        }
    }

    #[test]
    fn a_peer_that_accepts_and_stays_silent_is_named() {
        // The system accepts connections for it, and nothing answers.
        let peer = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = peer.local_addr().unwrap().port();
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port };
        // Long enough for the first attempt on a busy machine.
        let wait_timeout = Duration::from_secs(1);
        let options = Options { wait_timeout, ..Options::new(address.clone()) };
        let refused = Client::connect(options).err().unwrap();
        let expected = format!("{address} accepted the connection, but has not answered");
        assert!(refused.to_string().contains(&expected), "{refused}");
    }
}
