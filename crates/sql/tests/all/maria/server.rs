//! A server on a folder and a socket of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder};
use zodium_sql::{Location, MariaAddress, SqlOptions};

use crate::support;

/// How long a server may take to start.
const STARTING: Duration = Duration::from_secs(60);
/// Starts a server, and ends it as soon as its input ends: with this process. Debian has servers in
/// a folder that only root searches.
const SCRIPT: &str =
    "PATH=$PATH:/usr/sbin; \"$@\" & server=$!; cat; kill -9 $server; wait; rm -rf \"$FOLDER\"";

/// A server that is running.
#[derive(Debug)]
pub(crate) struct Server {
    folder: PathBuf,
    databases: AtomicU32,
    /// Its input ends with this process.
    _shell: Child,
}

/// An empty database on it.
#[derive(Debug)]
pub(crate) struct Database {
    socket: PathBuf,
    name: String,
}

impl Server {
    /// The server of all tests of this process.
    pub(crate) fn start() -> &'static Server {
        static SERVER: OnceLock<Server> = OnceLock::new();
        SERVER.get_or_init(Server::new)
    }

    /// Another server.
    pub(crate) fn new() -> Server {
        Server::with_network("--skip-networking")
    }

    /// Another server, which listens at a port.
    pub(crate) fn listening(port: u16) -> Server {
        Server::with_network(&format!("--bind-address=127.0.0.1 --port={port}"))
    }

    fn with_network(network: &str) -> Server {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let folder = folder.keep();
        let user =
            String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
        let user = format!("--user={}", user.trim());
        let data = format!("--datadir={}", folder.join("data").display());
        // A server that starts deletes temporary tables that it finds.
        let installed = Command::new("mariadb-install-db")
            .env("TMPDIR", &folder)
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .args([&user, &data])
            .output()
            .expect("mariadb-install-db can be run (Debian: mariadb-server)");
        assert!(installed.status.success(), "{installed:?}");
        let socket = folder.join("socket");
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "sh", "mariadbd", "--no-defaults"])
            .args(network.split(' '))
            .args(["--innodb-buffer-pool-size=64M", "--max-allowed-packet=64M"])
            // None of the tests with this server cuts the power.
            .args(["--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"])
            .args([&user, &data, &format!("--socket={}", socket.display())])
            .env("FOLDER", &folder)
            .env("TMPDIR", &folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("log")).unwrap())
            .spawn()
            .unwrap();
        let server = Server { folder, databases: AtomicU32::new(0), _shell: shell };
        let start = Instant::now();
        while let Err(error) = connect(&socket) {
            assert!(start.elapsed() < STARTING, "{error}: {}", server.log());
            sleep(Duration::from_millis(20));
        }
        server
    }

    /// A new database.
    pub(crate) fn database(&self) -> Database {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let database = Database { socket: self.socket(), name: format!("neo{number}") };
        let create = format!("CREATE DATABASE {}", database.name);
        connect(&self.socket()).unwrap().query_drop(create).unwrap();
        database
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Database {
    /// Options that create the tables.
    pub(crate) fn options(&self, partitions: u32) -> SqlOptions {
        self.options_behind(&self.socket, partitions)
    }

    /// The same, for a server behind a relay.
    pub(crate) fn options_behind(&self, socket: &Path, partitions: u32) -> SqlOptions {
        self.options_of("root", socket, partitions)
    }

    /// The same, for another user.
    pub(crate) fn options_of(&self, user: &str, socket: &Path, partitions: u32) -> SqlOptions {
        let url = format!("mysql://{user}@/{}?unix_socket={}", self.name, socket.display());
        let location = Location::Maria(MariaAddress::of_url(&url).unwrap());
        SqlOptions { location, ..support::options(Path::new(""), partitions) }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A connection for looking at it.
    pub(crate) fn connect(&self) -> Conn {
        let mut connection = connect(&self.socket).unwrap();
        connection.query_drop(format!("USE {}", self.name)).unwrap();
        connection
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Ok(mut connection) = connect(&self.socket) {
            let _ = connection.query_drop(format!("DROP DATABASE {}", self.name));
        }
    }
}

fn connect(socket: &Path) -> mysql::Result<Conn> {
    Conn::new(OptsBuilder::new().user(Some("root")).socket(Some(socket.display().to_string())))
}
