//! Sends the keys of a file to a running server of Redis, Valkey or ours, with `RESTORE`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use zodium_resp_server::{DumpedKey, Server};
use zodium_types::Address;

/// Keys whose answers are waited for together.
const KEYS_AHEAD: usize = 64;
/// A server that answers nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest line of an answer.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// What was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copied {
    pub(crate) keys: u64,
    /// Keys that were there already, and were left as they are.
    pub(crate) kept: u64,
}

/// Sends all keys of `source` to the server at `address`.
pub(crate) fn copy(
    source: &Server,
    address: &Address,
    password: Option<&str>,
    replaces: bool,
) -> Result<Copied> {
    let mut target = Target::connect(address)
        .with_context(|| format!("cannot connect to {address}; is the server running there?"))?;
    target.enter(password)?;
    let (mut copied, mut database, mut outcome) = (Copied::default(), None, Ok(()));
    source.each_dumped(&mut |key| {
        if outcome.is_ok() {
            outcome = target.restore(&key, &mut database, replaces, &mut copied);
        }
        outcome.is_ok()
    });
    outcome.and_then(|()| target.settle(&mut copied)).with_context(|| {
        let Copied { keys, kept } = copied;
        format!("cannot copy all keys to {address}: {keys} were written, {kept} were there already")
    })?;
    Ok(copied)
}

/// A connection to the server that gets the keys.
struct Target {
    output: Box<dyn Write>,
    input: BufReader<Box<dyn Read>>,
    /// For each request without an answer, whether it restores a key.
    asked: Vec<bool>,
}

impl Target {
    fn connect(address: &Address) -> std::io::Result<Target> {
        let (output, input): (Box<dyn Write>, Box<dyn Read>) = match address {
            Address::Tcp { host, port } => {
                let host = if host.is_empty() { "localhost" } else { host };
                let stream = TcpStream::connect((host, *port))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                (Box::new(stream.try_clone()?), Box::new(stream))
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                (Box::new(stream.try_clone()?), Box::new(stream))
            }
        };
        Ok(Target { output, input: BufReader::new(input), asked: Vec::new() })
    }

    /// Waits until the server takes commands. One that wants a password may end the connection at
    /// the first long request, so nothing else is sent before this is answered.
    fn enter(&mut self, password: Option<&str>) -> Result<()> {
        if let Some(password) = password {
            self.ask(&[b"AUTH", password.as_bytes()])?;
            self.settle(&mut Copied::default()).context("the password was refused")?;
        }
        self.ask(&[b"PING"])?;
        self.settle(&mut Copied::default()).context("the server takes no commands")
    }

    /// Sends a key. `database` is the one that the connection has selected.
    fn restore(
        &mut self,
        key: &DumpedKey,
        database: &mut Option<usize>,
        replaces: bool,
        copied: &mut Copied,
    ) -> Result<()> {
        if *database != Some(key.database) {
            self.ask(&[b"SELECT", key.database.to_string().as_bytes()])?;
            *database = Some(key.database);
        }
        let time = key.expires_at.unwrap_or(0).to_string();
        let mut words: Vec<&[u8]> =
            vec![b"RESTORE", key.key, time.as_bytes(), &key.payload, b"ABSTTL"];
        if replaces {
            words.push(b"REPLACE");
        }
        self.ask(&words)?;
        if let Some(last) = self.asked.last_mut() {
            *last = true;
        }
        if self.asked.len() >= KEYS_AHEAD { self.settle(copied) } else { Ok(()) }
    }

    fn ask(&mut self, words: &[&[u8]]) -> Result<()> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).bytes());
            request.extend_from_slice(word);
            request.extend(b"\r\n");
        }
        self.output.write_all(&request).context("cannot send to the server")?;
        self.asked.push(false);
        Ok(())
    }

    /// Reads the answers to all requests. All of them are lines.
    fn settle(&mut self, copied: &mut Copied) -> Result<()> {
        for is_key in std::mem::take(&mut self.asked) {
            let mut line = Vec::new();
            let mut limited = self.input.by_ref().take(LINE_BYTES_MAX);
            limited.read_until(b'\n', &mut line).context("cannot receive from the server")?;
            let line = String::from_utf8_lossy(&line);
            match line.trim_end() {
                "" => bail!("the server has closed the connection"),
                answer if answer.starts_with('+') => copied.keys += u64::from(is_key),
                answer if is_key && answer.starts_with("-BUSYKEY") => copied.kept += 1,
                answer => bail!("the server answered: {}", answer.trim_start_matches('-')),
            }
        }
        Ok(())
    }
}
