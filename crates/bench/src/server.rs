//! Servers under test: separate processes, started, watched and stopped by process id.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::syncfs;
use rustix::process::{Pid, Signal, kill_process};

use crate::cpu::CpuTime;
use crate::interrupt::Interrupt;
use crate::options::{DatasetOptions, Peer, PeerSource};
use crate::wire::Protocol;

/// How long a server may take to accept connections; Python with a cold disk is slow.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long a server may take to end after SIGTERM.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);
/// The name of a server's data file in its folder.
pub(crate) const DATA: &str = "Data.fs";
const PORTS: std::ops::Range<u16> = 12_000..32_000;
const PORTS_TRIED: usize = 100;
/// How many lines of a failed server's log are shown.
const LOG_LINES_SHOWN: usize = 15;

/// How to start a server. `{path}` and `{port}` in the arguments are replaced.
#[derive(Clone, Debug)]
pub(crate) struct ServerCommand {
    pub(crate) name: String,
    /// The encoding that the server is configured to speak, if any.
    pub(crate) asked: Option<&'static str>,
    /// The kind of disk of its folder, where that matters.
    place: &'static str,
    pub(crate) protocol: Protocol,
    /// The address of a server that is running already.
    running: Option<SocketAddr>,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
    /// Whether a shell runs the command.
    shell: bool,
    /// The option for busy polling, which takes microseconds.
    polls_by: Option<&'static str>,
    /// Busy polling time in microseconds; 0: none.
    busy_poll_us: u32,
}

/// The data file that a server starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data<'a> {
    /// A copy for each server: a server locks its data file, also under other names.
    Copied(&'a Path),
    /// No file: each server makes its own.
    New,
}

/// A running server. Dropping it stops it, if the benchmark started it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    /// The encoding that it is configured to speak, if any.
    pub(crate) asked: Option<&'static str>,
    /// The kind of disk of its folder, where that matters.
    pub(crate) place: &'static str,
    pub(crate) protocol: Protocol,
    /// Busy polling time in microseconds; 0: none.
    pub(crate) busy_poll_us: u32,
    pub(crate) address: SocketAddr,
    /// The address of its metrics over HTTP.
    pub(crate) monitor: Option<SocketAddr>,
    process: Option<Process>,
}

/// A process that the benchmark started.
#[derive(Debug)]
struct Process {
    child: Child,
    log: PathBuf,
    data: PathBuf,
}

impl ServerCommand {
    /// Zodium, by its program.
    pub(crate) fn zodium(program: &Path, encoding: &'static str) -> ServerCommand {
        let mut arguments =
            words(&["serve", "{path}", "-a", "127.0.0.1:{port}", "--log-level=warn"]);
        if encoding == "M5" {
            arguments.push("--msgpack".to_owned());
        }
        let command = ServerCommand::new("zodium", Protocol::Zeo, program, arguments);
        ServerCommand { asked: Some(encoding), polls_by: Some("--busy-poll"), ..command }
    }

    /// ZEO/py, as `runzeo` starts it.
    pub(crate) fn zeo(python: &Path, encoding: &'static str) -> ServerCommand {
        let arguments = words(&["-m", "ZEO.runzeo", "-a", "127.0.0.1:{port}", "-f", "{path}"]);
        let mut command = ServerCommand::new("zeo", Protocol::Zeo, python, arguments);
        if encoding == "M5" {
            command.environment.push(("ZEO_MSGPACK", "1"));
        }
        ServerCommand { asked: Some(encoding), ..command }
    }

    /// A storage node of NEO.
    pub(crate) fn neo(name: &str, program: &Path, arguments: Vec<String>) -> ServerCommand {
        ServerCommand::new(name, Protocol::Neo, program, arguments)
    }

    /// A server of RESP.
    pub(crate) fn resp(name: &str, program: &Path, arguments: Vec<String>) -> ServerCommand {
        ServerCommand::new(name, Protocol::Resp, program, arguments)
    }

    /// A server of RESP that the user named.
    pub(crate) fn resp_peer(peer: &Peer) -> ServerCommand {
        ServerCommand { protocol: Protocol::Resp, ..ServerCommand::peer(peer) }
    }

    /// A peer that the user named.
    pub(crate) fn peer(peer: &Peer) -> ServerCommand {
        let of = |command: &str| {
            let arguments = vec!["-c".to_owned(), format!("exec {command}")];
            ServerCommand::new(&peer.name, Protocol::Zeo, Path::new("sh"), arguments)
        };
        match &peer.source {
            PeerSource::Command(command) => ServerCommand { shell: true, ..of(command) },
            PeerSource::Running(address) => ServerCommand { running: Some(*address), ..of("") },
        }
    }

    /// The floor, by this very program.
    pub(crate) fn floor(program: &Path, dataset: &DatasetOptions) -> ServerCommand {
        let arguments = words(&["floor-server", "--port={port}"]);
        let command = ServerCommand::raw("floor", program, arguments, dataset);
        ServerCommand { polls_by: Some("--busy-poll"), ..command }
    }

    /// The floor for clients of RESP.
    pub(crate) fn resp_floor(program: &Path, dataset: &DatasetOptions) -> ServerCommand {
        let command = ServerCommand::floor(program, dataset).with(&words(&["--resp"]));
        ServerCommand { protocol: Protocol::Resp, ..command }
    }

    /// A server by this very program that answers raw requests for the objects of a dataset.
    pub(crate) fn raw(
        name: &str,
        program: &Path,
        mut arguments: Vec<String>,
        dataset: &DatasetOptions,
    ) -> ServerCommand {
        arguments.extend(dataset.arguments());
        ServerCommand::new(name, Protocol::Raw, program, arguments)
    }

    /// A proxy that adds a delay on the way to a server.
    pub(crate) fn delay_proxy(program: &Path, to: SocketAddr, delay: Duration) -> ServerCommand {
        let mut arguments = words(&["delay-proxy", "--port={port}"]);
        arguments.push(format!("--to={to}"));
        arguments.push(format!("--round-trip-ms={}", delay.as_secs_f64() * 1e3));
        ServerCommand::new("proxy", Protocol::Raw, program, arguments)
    }

    /// The same command, labelled with the kind of disk of its folder.
    pub(crate) fn at(self, place: &'static str) -> ServerCommand {
        ServerCommand { place, ..self }
    }

    /// The same server with busy polling for so many microseconds; `None` if it cannot poll.
    pub(crate) fn polling(&self, microseconds: u32) -> Option<ServerCommand> {
        let mut command = self.clone();
        command.arguments.push(format!("{}={microseconds}", self.polls_by?));
        Some(ServerCommand { busy_poll_us: microseconds, ..command })
    }

    /// The same command with further arguments.
    pub(crate) fn with(mut self, arguments: &[String]) -> ServerCommand {
        self.arguments.extend_from_slice(arguments);
        self
    }

    /// Its label, which is unique within a comparison.
    pub(crate) fn label(&self) -> String {
        label(&self.name, self.asked, self.place, self.busy_poll_us)
    }

    fn new(
        name: &str,
        protocol: Protocol,
        program: &Path,
        arguments: Vec<String>,
    ) -> ServerCommand {
        ServerCommand {
            name: name.to_owned(),
            asked: None,
            place: "",
            protocol,
            running: None,
            program: program.to_owned(),
            arguments,
            environment: Vec::new(),
            shell: false,
            polls_by: None,
            busy_poll_us: 0,
        }
    }

    fn fill_in(&self, argument: &str, path: &Path, port: u16, monitor: u16) -> String {
        let path = path.display().to_string();
        let path = if self.shell { format!("'{}'", path.replace('\'', r"'\''")) } else { path };
        let argument = argument.replace("{path}", &path).replace("{port}", &port.to_string());
        argument.replace("{monitor}", &monitor.to_string())
    }
}

impl Server {
    /// Starts a server in a folder of its own within `folder`, and waits until it accepts
    /// connections.
    pub(crate) fn start(
        command: &ServerCommand,
        data: Data<'_>,
        folder: &Path,
        interrupt: &Interrupt,
    ) -> Result<Server> {
        let name = command.label();
        if let Some(address) = command.running {
            return Ok(Server::of(command, address, None, None));
        }
        let folder = folder.join(name.replace(' ', "-"));
        std::fs::create_dir(&folder)?;
        data.provide(&folder.join(DATA)).with_context(|| format!("cannot give {name} its file"))?;
        let mut server = Server::launch(command, &folder)?;
        server.wait_until_ready(POLL, START_PATIENCE, interrupt)?;
        Ok(server)
    }

    /// Starts a server on the data file in `folder`, without waiting for it.
    pub(crate) fn launch(command: &ServerCommand, folder: &Path) -> Result<Server> {
        let name = command.label();
        ensure!(command.running.is_none(), "{name} runs already, and cannot be started");
        let path = folder.join(DATA);
        let (address, monitor) = (free_address()?, free_address()?);
        let log = folder.join("log");
        let output = File::create(&log)?;
        let (port, at) = (address.port(), monitor.port());
        let arguments = command.arguments.iter().map(|text| command.fill_in(text, &path, port, at));
        let child = Command::new(&command.program)
            .args(arguments)
            .envs(command.environment.iter().copied())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {name} ({})", command.program.display()))?;
        let process = Process { child, log, data: path };
        let is_monitored = command.arguments.iter().any(|argument| argument.contains("{monitor}"));
        let monitor = is_monitored.then_some(monitor);
        Ok(Server::of(command, address, monitor, Some(process)))
    }

    fn of(
        command: &ServerCommand,
        address: SocketAddr,
        monitor: Option<SocketAddr>,
        process: Option<Process>,
    ) -> Server {
        let ServerCommand { asked, place, protocol, busy_poll_us, .. } = *command;
        let name = command.name.clone();
        Server { name, asked, place, protocol, busy_poll_us, address, monitor, process }
    }

    /// Its label, which is unique within a comparison.
    pub(crate) fn label(&self) -> String {
        label(&self.name, self.asked, self.place, self.busy_poll_us)
    }

    /// Its process id, if the benchmark started it.
    pub(crate) fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.child.id())
    }

    /// Its data file, if the benchmark started it.
    pub(crate) fn data(&self) -> Option<&Path> {
        self.process.as_ref().map(|process| process.data.as_path())
    }

    /// Processor time of all its threads so far; `None` if the benchmark did not start it.
    pub(crate) fn cpu_time(&self) -> Result<Option<CpuTime>> {
        let time = self.process_id().map(CpuTime::of_process).transpose();
        time.with_context(|| format!("cannot read the processor time of {}", self.name))
    }

    /// The last lines of its log, for an error message.
    pub(crate) fn last_words(&self) -> String {
        let Some(process) = &self.process else { return format!("{} runs elsewhere", self.name) };
        let log = std::fs::read_to_string(&process.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let shown = lines.len().saturating_sub(LOG_LINES_SHOWN);
        match lines.get(shown..) {
            None | Some([]) => format!("{} has logged nothing", self.name),
            Some(lines) => format!("the log of {} ends with:\n{}", self.name, lines.join("\n")),
        }
    }

    /// Tries to connect every `poll` until it accepts connections.
    pub(crate) fn wait_until_ready(
        &mut self,
        poll: Duration,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            if TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            let ended =
                self.process.as_mut().map(|process| process.child.try_wait()).transpose()?;
            if let Some(status) = ended.flatten() {
                bail!("{} did not start ({status}); {}", self.name, self.last_words());
            }
            if Instant::now() > deadline {
                let seconds = patience.as_secs();
                let (name, address, words) = (&self.name, self.address, self.last_words());
                bail!("{name} does not listen on {address} after {seconds} s; {words}");
            }
            interrupt.sleep(poll)?;
        }
    }
}

impl Data<'_> {
    /// Puts the data file and its index at `path`.
    fn provide(self, path: &Path) -> std::io::Result<()> {
        let Data::Copied(original) = self else { return Ok(()) };
        for suffix in ["", ".index"] {
            let [from, to] = [original, path].map(|path| format!("{}{suffix}", path.display()));
            std::fs::copy(from, to)?;
        }
        // Written out now, so that no measurement includes it.
        let folder = path.parent().unwrap_or(path);
        Ok(syncfs(File::open(folder)?)?)
    }
}

impl Process {
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

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("cannot stop process {}: {error}", self.child.id());
        }
    }
}

/// A free address. Its port is outside of the range that the system gives to outgoing connections:
/// connecting to a free port of that range may connect a socket to itself.
fn free_address() -> Result<SocketAddr> {
    for _ in 0..PORTS_TRIED {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, rand::random_range(PORTS)));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free port found from {} to {}", PORTS.start, PORTS.end)
}

fn label(name: &str, asked: Option<&str>, place: &str, busy_poll_us: u32) -> String {
    let polling = if busy_poll_us > 0 { "polling" } else { "" };
    let parts = [name, asked.unwrap_or_default(), place, polling];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(command: &str) -> ServerCommand {
        let source = PeerSource::Command(command.to_owned());
        ServerCommand::peer(&Peer { name: "peer".to_owned(), source })
    }

    fn start(command: &str) -> (tempfile::TempDir, Result<Server>) {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("Data.fs");
        for name in ["Data.fs", "Data.fs.index"] {
            std::fs::write(folder.path().join(name), "data").unwrap();
        }
        let interrupt = Interrupt::listen().unwrap();
        let server = Server::start(&peer(command), Data::Copied(&data), folder.path(), &interrupt);
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
        let path = Path::new("/tmp/it's here");
        let filled = peer("x {path} {port}").fill_in("{path}:{port}", path, 8, 9);
        assert_eq!(filled, r"'/tmp/it'\''s here':8");
        let filled = ServerCommand::zodium(path, "Z5").fill_in("{path}:{monitor}", path, 8, 9);
        assert_eq!(filled, "/tmp/it's here:9");
    }
}
