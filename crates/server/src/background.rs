//! Threads for files that a reload reads: a disk that hangs must not stop the server.
//!
//! Each file has a thread of its own, so that one that hangs does not keep others from being read.

use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use tracing::warn;

/// Reads a file again at reloads, while callers go on.
#[derive(Clone, Debug)]
pub(crate) struct Background {
    /// The file, for messages.
    what: &'static str,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Idle,
    Reading,
    /// Reading, and a reload has asked to read again since.
    ReadingAgain,
}

impl Background {
    /// Reads nothing yet.
    pub(crate) fn new(what: &'static str) -> Background {
        Background { what, state: Arc::new(Mutex::new(State::Idle)) }
    }

    /// Runs a job on a thread of its own; after the running one, if it has not ended yet.
    pub(crate) fn run(&self, job: impl Fn() + Send + 'static) {
        let what = self.what;
        let mut state = self.state.lock();
        if *state != State::Idle {
            *state = State::ReadingAgain;
            warn!(
                "SIGUSR2: {what} is still being read since the last reload; it is read again only \
                 after that"
            );
            return;
        }
        let of_thread = self.clone();
        let read = move || {
            loop {
                job();
                if !of_thread.goes_on() {
                    break;
                }
            }
        };
        match thread::Builder::new().name("reload".to_owned()).spawn(read) {
            Ok(_) => *state = State::Reading,
            Err(error) => warn!(%error, "SIGUSR2: {what} is not read again: no thread for it"),
        }
    }

    /// Whether the job is to run again.
    fn goes_on(&self) -> bool {
        let mut state = self.state.lock();
        let again = *state == State::ReadingAgain;
        *state = if again { State::Reading } else { State::Idle };
        again
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_that_hangs_is_read_once_more_and_keeps_no_other_waiting() {
        const PATIENCE: Duration = Duration::from_secs(60);
        let (hung, other) = (Background::new("one"), Background::new("other"));
        let (began, begins) = channel();
        let (let_go, wait) = channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        for _ in 0..3 {
            let (began, wait) = (began.clone(), Arc::clone(&wait));
            hung.run(move || {
                began.send(()).unwrap();
                wait.lock().recv().unwrap();
            });
        }
        begins.recv_timeout(PATIENCE).unwrap();
        let (done, ends) = channel();
        other.run(move || done.send(()).unwrap());
        ends.recv_timeout(PATIENCE).unwrap();
        assert!(begins.try_recv().is_err(), "one at a time");
        let_go.send(()).unwrap();
        begins.recv_timeout(PATIENCE).unwrap();
        let_go.send(()).unwrap();
        while *hung.state.lock() != State::Idle {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(begins.try_recv().is_err(), "two reloads while it hung are one");
        let (done, ends) = channel();
        hung.run(move || done.send(()).unwrap());
        ends.recv_timeout(PATIENCE).unwrap();
    }
}
