//! A client that lists all keys, again and again, beside those that are measured.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Looks at each key, and finds none.
const KEYS: &[u8] = b"*2\r\n$4\r\nKEYS\r\n$8\r\nnothing*\r\n";
const NONE: &[u8] = b"*0\r\n";
/// How long it takes until the end is noticed.
const PATIENCE: Duration = Duration::from_millis(100);

/// Lists keys until it is dropped.
pub(super) struct Lister {
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lister {
    /// Connects to a server, and waits for the first list.
    pub(super) fn start(address: SocketAddr) -> Result<Lister> {
        let mut stream = TcpStream::connect(address).context("cannot connect to list keys")?;
        stream.set_nodelay(true)?;
        list(&mut stream, &AtomicBool::new(false))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&has_ended);
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                if let Err(error) = list(&mut stream, &ended) {
                    eprintln!("the client that lists keys has ended: {error:#}");
                    break;
                }
            }
        });
        Ok(Lister { has_ended, thread: Some(thread) })
    }
}

impl Drop for Lister {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        // A panic of that thread has printed why.
        self.thread.take().map(JoinHandle::join);
    }
}

/// Lists all keys once, unless it is to end before the answer.
fn list(stream: &mut TcpStream, has_ended: &AtomicBool) -> Result<()> {
    stream.write_all(KEYS)?;
    let (mut answer, mut length) = ([0; NONE.len()], 0);
    while length < answer.len() {
        match stream.read(&mut answer[length..]) {
            Ok(0) => anyhow::bail!("the server has closed the connection"),
            Ok(read) => length += read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if has_ended.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
            Err(error) => return Err(error).context("cannot read a list of keys"),
        }
    }
    ensure!(answer == NONE, "an answer to KEYS that is no empty list");
    Ok(())
}
