//! Servers under test: processes of their own, started, watched and ended by their id.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::cpu::CpuTime;
use crate::options::{DatasetOptions, Peer};
use crate::wire::Speech;

/// How long a server may take until it accepts connections; Python with a cold disk is slow.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long a server may take to end after SIGTERM.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);
const PORTS: std::ops::Range<u16> = 12_000..32_000;
const PORTS_TRIED: usize = 100;
/// How much of a failed server's log is shown.
const LOG_LINES_SHOWN: usize = 15;

/// How to start a server. `{path}` and `{port}` in the arguments are filled in.
#[derive(Clone, Debug)]
pub(crate) struct ServerCommand {
    pub(crate) name: String,
    pub(crate) speech: Speech,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
    /// Whether the arguments are read by a shell.
    shell: bool,
}

/// A server that runs. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) speech: Speech,
    pub(crate) address: SocketAddr,
    child: Child,
    log: PathBuf,
}

impl ServerCommand {
    /// Zodium from this very binary.
    pub(crate) fn zodium(program: &Path, workers: Option<u16>, pickle: bool) -> ServerCommand {
        let mut arguments =
            words(&["serve", "{path}", "-a", "127.0.0.1:{port}", "--log-level=warn"]);
        arguments.extend(workers.map(|count| format!("--workers={count}")));
        if !pickle {
            arguments.push("--msgpack".to_owned());
        }
        ServerCommand::new("zodium", Speech::Zeo, program, arguments)
    }

    /// ZEO/py, as `runzeo` starts it.
    pub(crate) fn zeo(python: &Path, pickle: bool) -> ServerCommand {
        let arguments = words(&["-m", "ZEO.runzeo", "-a", "127.0.0.1:{port}", "-f", "{path}"]);
        let mut command = ServerCommand::new("zeo", Speech::Zeo, python, arguments);
        if !pickle {
            command.environment.push(("ZEO_MSGPACK", "1"));
        }
        command
    }

    /// Whatever the user gave.
    pub(crate) fn peer(peer: &Peer) -> ServerCommand {
        let arguments = vec!["-c".to_owned(), format!("exec {}", peer.command)];
        let shell = true;
        let command = ServerCommand::new(&peer.name, Speech::Zeo, Path::new("sh"), arguments);
        ServerCommand { shell, ..command }
    }

    /// The floor, from this very binary.
    pub(crate) fn floor(program: &Path, dataset: &DatasetOptions) -> ServerCommand {
        let mut arguments = words(&["bench", "floor-server", "--port={port}"]);
        arguments.extend(dataset.arguments());
        ServerCommand::new("floor", Speech::Raw, program, arguments)
    }

    fn new(name: &str, speech: Speech, program: &Path, arguments: Vec<String>) -> ServerCommand {
        ServerCommand {
            name: name.to_owned(),
            speech,
            program: program.to_owned(),
            arguments,
            environment: Vec::new(),
            shell: false,
        }
    }

    fn fill_in(&self, argument: &str, path: &Path, port: u16) -> String {
        let path = path.display().to_string();
        let path = if self.shell { format!("'{}'", path.replace('\'', r"'\''")) } else { path };
        argument.replace("{path}", &path).replace("{port}", &port.to_string())
    }
}

impl Server {
    /// Starts a server on a copy of `data`, in a folder of its own within `folder`, and waits
    /// until it accepts connections.
    pub(crate) fn start(command: &ServerCommand, data: &Path, folder: &Path) -> Result<Server> {
        let name = &command.name;
        let folder = folder.join(name);
        std::fs::create_dir(&folder)?;
        let path = folder.join("Data.fs");
        for suffix in ["", ".index"] {
            let with_suffix = |path: &Path| format!("{}{suffix}", path.display());
            std::fs::copy(with_suffix(data), with_suffix(&path))?;
        }
        let address = free_address()?;
        let log = folder.join("log");
        let output = File::create(&log)?;
        let arguments =
            command.arguments.iter().map(|text| command.fill_in(text, &path, address.port()));
        let child = Command::new(&command.program)
            .args(arguments)
            .envs(command.environment.iter().copied())
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {name} ({})", command.program.display()))?;
        let name = name.clone();
        let mut server = Server { name, speech: command.speech, address, child, log };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Processor time of all its threads so far.
    pub(crate) fn cpu_time(&self) -> Result<CpuTime> {
        let time = CpuTime::of_process(self.child.id());
        time.with_context(|| format!("cannot read the processor time of {}", self.name))
    }

    /// What it logged last, for an error text.
    pub(crate) fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let shown = lines.len().saturating_sub(LOG_LINES_SHOWN);
        match lines.get(shown..) {
            None | Some([]) => format!("{} has logged nothing", self.name),
            Some(lines) => format!("the log of {} ends with:\n{}", self.name, lines.join("\n")),
        }
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            if TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} did not start ({status}); {}", self.name, self.last_words());
            }
            if Instant::now() > deadline {
                let seconds = START_PATIENCE.as_secs();
                let (name, address, words) = (&self.name, self.address, self.last_words());
                bail!("{name} does not listen on {address} after {seconds} s; {words}");
            }
            sleep(POLL);
        }
    }

    fn stop(&mut self) -> std::io::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let deadline = Instant::now() + STOP_PATIENCE;
        while Instant::now() < deadline {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            sleep(POLL);
        }
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("cannot stop {} (process {}): {error}", self.name, self.child.id());
        }
    }
}

/// An address that nobody listens on now. Its port is none that the system gives to outgoing
/// connections: knocking at one of those may find nobody but oneself.
fn free_address() -> Result<SocketAddr> {
    for _ in 0..PORTS_TRIED {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, rand::random_range(PORTS)));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free port found from {} to {}", PORTS.start, PORTS.end)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(command: &str) -> (tempfile::TempDir, Result<Server>) {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("Data.fs");
        for name in ["Data.fs", "Data.fs.index"] {
            std::fs::write(folder.path().join(name), "data").unwrap();
        }
        let peer = Peer { name: "peer".to_owned(), command: command.to_owned() };
        let server = Server::start(&ServerCommand::peer(&peer), &data, folder.path());
        (folder, server)
    }

    #[test]
    fn a_server_that_does_not_start_is_quoted() {
        let (_folder, server) = start("sh -c 'echo it is {port}; cat {path}; exit 3'");
        let error = server.unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("data"), "{error}");
    }

    #[test]
    fn paths_are_quoted_for_the_shell_only() {
        let peer = Peer { name: "peer".to_owned(), command: "x {path} {port}".to_owned() };
        let path = Path::new("/tmp/it's here");
        let filled = ServerCommand::peer(&peer).fill_in("{path}:{port}", path, 8);
        assert_eq!(filled, r"'/tmp/it'\''s here':8");
        let filled = ServerCommand::zodium(path, None, true).fill_in("{path}:{port}", path, 8);
        assert_eq!(filled, "/tmp/it's here:8");
    }
}
