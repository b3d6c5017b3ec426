//! A helper process, from start to end.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;

use crate::Limits;
use crate::frame::{self, Answer, Greeting, HEADER_BYTES};

/// Run as `python -c`, so that no file has to be installed for it.
const PROGRAM: &str = include_str!("helper.py");
/// Longest text of a greeting.
const GREETING_BYTES_MAX: usize = 64 << 10;
/// The environment variables that are passed on: search paths of programs, libraries and modules.
const FORWARDED: [&str; 3] = ["PATH", "LD_LIBRARY_PATH", "PYTHONHOME"];
/// The search path of modules. Relative folders in it are relative to the server's folder.
const MODULES: &str = "PYTHONPATH";
/// Numeric libraries start threads when they are imported. Threads count as processes, and the
/// helper may have none.
const SET: [(&str, &str); 3] =
    [("LANG", "C.UTF-8"), ("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1")];

/// Why a helper cannot be used any longer.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// The interpreter could not be executed.
    #[error(
        "cannot run {}: {source}; name a Python that has ZODB and the application's classes",
        python.display()
    )]
    Spawn { python: PathBuf, source: io::Error },
    /// The helper reported the error itself.
    #[error("it cannot begin; does this Python have ZODB? {0}")]
    Refused(String),
    /// The helper ended, or closed its socket, before it was ready.
    #[error("it ended at its start ({0}); see standard error")]
    EndedAtStart(String),
    /// The helper was not ready in time.
    #[error("it was not ready within {0:?}, and was killed")]
    SlowStart(Duration),
    /// The helper ended between two calls.
    #[error("it ended while it had nothing to do ({0})")]
    EndedIdle(String),
    /// The helper ended during a call.
    #[error("it ended while it resolved a conflict ({0})")]
    Ended(String),
    /// The helper did not answer in time.
    #[error("it took longer than {0:?} for a conflict, and was killed")]
    Slow(Duration),
    /// The helper sent an invalid answer.
    #[error("its answer is malformed, and it was killed")]
    Malformed,
}

impl Failure {
    /// Whether it failed at its start, as the next one probably will.
    pub(crate) fn is_at_start(&self) -> bool {
        match self {
            Failure::Spawn { .. }
            | Failure::Refused(_)
            | Failure::EndedAtStart(_)
            | Failure::SlowStart(_) => true,
            Failure::EndedIdle(_) | Failure::Ended(_) | Failure::Slow(_) | Failure::Malformed => {
                false
            }
        }
    }
}

/// An error on the socket.
enum Broken {
    Late,
    Closed,
    Malformed,
}

/// A process that resolves conflicts; killed when dropped.
#[derive(Debug)]
pub(crate) struct Helper {
    child: Child,
    socket: UnixStream,
    calls: u32,
    without: String,
    /// How it ended. Its process id may belong to another process from then on.
    end: Option<String>,
}

impl Helper {
    /// Starts a helper, and waits until it is ready.
    pub(crate) fn start(python: &Path, limits: &Limits) -> Result<Helper, Failure> {
        let failed = |source| Failure::Spawn { python: python.to_owned(), source };
        let (socket, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(python);
        command.args(["-B", "-c", PROGRAM]).current_dir("/").env_clear();
        command.envs(FORWARDED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command
            .envs(modules(std::env::var_os(MODULES), &std::env::current_dir().unwrap_or_default()));
        command.envs(SET);
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        let child = command.spawn().map_err(failed)?;
        // Closes our copy of the helper's end of the socket, so that its end is noticed.
        drop(command);
        let mut helper = Helper { child, socket, calls: 0, without: String::new(), end: None };
        let deadline = Instant::now() + limits.start_time_max;
        match helper.greeting(deadline) {
            Ok(Greeting::Ready(without)) => {
                helper.without = without;
                Ok(helper)
            }
            Ok(Greeting::Refused(reason)) => Err(Failure::Refused(reason)),
            Err(Broken::Late) => Err(Failure::SlowStart(limits.start_time_max)),
            Err(Broken::Closed | Broken::Malformed) => Err(Failure::EndedAtStart(helper.ended())),
        }
    }

    /// The kinds of access that it has given up.
    pub(crate) fn without(&self) -> &str {
        &self.without
    }

    /// Number of conflicts it was given.
    pub(crate) fn calls(&self) -> u32 {
        self.calls
    }

    /// Asks the helper to resolve a conflict. After a failure it must not be used again.
    pub(crate) fn call(&mut self, records: [&[u8]; 3], limits: &Limits) -> Result<Answer, Failure> {
        self.calls += 1;
        let deadline = Instant::now() + limits.call_time_max;
        self.answer(records, limits.record_bytes_max, deadline).map_err(|broken| match broken {
            Broken::Late => Failure::Slow(limits.call_time_max),
            Broken::Closed => Failure::Ended(self.ended()),
            Broken::Malformed => Failure::Malformed,
        })
    }

    fn greeting(&mut self, deadline: Instant) -> Result<Greeting, Broken> {
        let (kind, payload) = self.read_frame(GREETING_BYTES_MAX, deadline)?;
        Greeting::new(kind, &payload).ok_or(Broken::Malformed)
    }

    fn answer(
        &mut self,
        records: [&[u8]; 3],
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Answer, Broken> {
        let request = frame::request(records).ok_or(Broken::Malformed)?;
        self.write(&request, deadline)?;
        let (kind, payload) = self.read_frame(bytes_max, deadline)?;
        Answer::new(kind, payload).ok_or(Broken::Malformed)
    }

    fn read_frame(&mut self, bytes_max: usize, deadline: Instant) -> Result<(u8, Vec<u8>), Broken> {
        let mut header = [0; HEADER_BYTES];
        self.read(&mut header, deadline)?;
        let (kind, length) = frame::header(header);
        if length > bytes_max {
            return Err(Broken::Malformed);
        }
        let mut payload = vec![0; length];
        self.read(&mut payload, deadline)?;
        Ok((kind, payload))
    }

    fn read(&mut self, mut wanted: &mut [u8], deadline: Instant) -> Result<(), Broken> {
        while !wanted.is_empty() {
            let left = time_left(deadline)?;
            self.socket.set_read_timeout(Some(left)).map_err(|_| Broken::Closed)?;
            match self.socket.read(wanted) {
                Ok(0) => return Err(Broken::Closed),
                Ok(count) => wanted = wanted.get_mut(count..).unwrap_or_default(),
                Err(error) => again(&error)?,
            }
        }
        Ok(())
    }

    fn write(&mut self, mut given: &[u8], deadline: Instant) -> Result<(), Broken> {
        while !given.is_empty() {
            let left = time_left(deadline)?;
            self.socket.set_write_timeout(Some(left)).map_err(|_| Broken::Closed)?;
            match self.socket.write(given) {
                Ok(count) => given = given.get(count..).unwrap_or_default(),
                Err(error) => again(&error)?,
            }
        }
        Ok(())
    }

    /// Fails if it has ended while idle.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                self.end = Some(described(status));
                Err(Failure::EndedIdle(described(status)))
            }
            Err(error) => Err(Failure::EndedIdle(error.to_string())),
        }
    }

    /// Kills it, with all processes that it may have started; returns how it ended.
    fn ended(&mut self) -> String {
        if let Some(end) = &self.end {
            return end.clone();
        }
        // It is the leader of a session, unless it ended before it created one.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.kill();
        let end = self.child.wait().map_or_else(|error| error.to_string(), described);
        self.end = Some(end.clone());
        end
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.ended();
    }
}

/// The search path of modules for a process that runs in another folder than this one, `folder`.
fn modules(path: Option<OsString>, folder: &Path) -> Option<(&'static str, OsString)> {
    let path = path.filter(|path| !path.is_empty())?;
    // An empty part is the folder itself.
    let absolute = std::env::split_paths(&path).map(|part| folder.join(part));
    Some((MODULES, std::env::join_paths(absolute).ok()?))
}

/// Describes how a process ended, with the limit that it exceeded.
fn described(status: ExitStatus) -> String {
    let limit = match status.signal() {
        Some(signal) if signal == Signal::XCPU.as_raw() => ": its processor time was used up",
        _ => "",
    };
    format!("{status}{limit}")
}

fn time_left(deadline: Instant) -> Result<Duration, Broken> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Broken::Late) } else { Ok(left) }
}

/// Decides whether a read or write may be retried: after a signal, or a timeout, for which the
/// caller checks the clock.
fn again(error: &io::Error) -> Result<(), Broken> {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    match error.kind() {
        Interrupted | TimedOut | WouldBlock => Ok(()),
        _ => Err(Broken::Closed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_folders_of_modules_are_those_of_the_server() {
        let given =
            |path: &str| modules(Some(path.into()), Path::new("/app")).map(|(_, path)| path);
        assert_eq!(given("src:/opt/lib::."), Some("/app/src:/opt/lib:/app/:/app/.".into()));
        assert_eq!((given(""), modules(None, Path::new("/app"))), (None, None));
    }
}
