//! A client that lists all keys, again and again, beside those that are measured.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, ensure};

use crate::connection;

/// Looks at each key, and finds none.
const KEYS: &[u8] = b"*2\r\n$4\r\nKEYS\r\n$8\r\nnothing*\r\n";
const NONE: &[u8] = b"*0\r\n";

/// Lists keys until it is dropped.
pub(super) struct Lister {
    stream: TcpStream,
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lister {
    /// Connects to a server, and waits for the first list.
    pub(super) fn start(address: SocketAddr) -> Result<Lister> {
        let stream = connection::connect(address).context("cannot connect to list keys")?;
        let (mut listing, has_ended) = (stream.try_clone()?, Arc::new(AtomicBool::new(false)));
        list(&mut listing)?;
        let ended = Arc::clone(&has_ended);
        let thread = std::thread::spawn(move || {
            let error = loop {
                if let Err(error) = list(&mut listing) {
                    break error;
                }
            };
            if !ended.load(Ordering::Relaxed) {
                eprintln!("the client that lists keys has ended: {error:#}");
            }
        });
        Ok(Lister { stream, has_ended, thread: Some(thread) })
    }
}

impl Drop for Lister {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        // Ends the wait for an answer. If the server has closed the connection, there is none.
        let _ = self.stream.shutdown(Shutdown::Both);
        // A panic of that thread has printed why.
        self.thread.take().map(JoinHandle::join);
    }
}

/// Lists all keys once.
fn list(stream: &mut TcpStream) -> Result<()> {
    let mut answer = [0; NONE.len()];
    stream.write_all(KEYS)?;
    stream.read_exact(&mut answer).context("cannot read a list of keys")?;
    ensure!(answer == NONE, "an answer to KEYS that is no empty list");
    Ok(())
}
