//! Where a database on a MariaDB server is, and as which user to connect.
//!
//! Two ways of writing it: a URL, and the text that NEO/py's storage takes. The password is in
//! neither of the texts that this type shows.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use zodium_types::Address;

use super::option_file::{self, OptionFile};
use super::tls::{MariaTls, TlsOptions};

/// The port of MariaDB.
const PORT: u16 = 3306;
/// What the URL of a database begins with.
const SCHEME: &str = "mysql://";
/// Where Debian and others have the socket of a server on the same machine.
const SOCKET: &str = "/run/mysqld/mysqld.sock";
/// The environment variable with the password of MariaDB's clients.
const CLIENTS_PASSWORD: &str = "MYSQL_PWD";

/// A database on a server.
#[derive(Clone, PartialEq, Eq)]
pub struct MariaAddress {
    hosts: Vec<Host>,
    user: String,
    password: Option<String>,
    database: String,
    engine: MariaEngine,
    /// The name that a new database's cluster gets.
    cluster: Option<String>,
    tls: Option<MariaTls>,
}

/// One server, or one node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Tcp(String, u16),
    /// The path of a socket.
    Socket(String),
}

/// The storage engine of new tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MariaEngine {
    /// The default.
    #[default]
    InnoDb,
    /// Log-structured, where the server has it.
    RocksDb,
}

/// Why an address is not understood. The text has no password.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct MariaAddressError(String);

fn refused<T>(text: impl Into<String>) -> Result<T, MariaAddressError> {
    Err(MariaAddressError(text.into()))
}

/// Which parts an address names.
#[derive(Default)]
struct Parts {
    hosts: Vec<Host>,
    user: Option<String>,
    password: Option<String>,
    database: String,
    cluster: Option<String>,
    engine: MariaEngine,
    file: Option<PathBuf>,
    tls: TlsOptions,
}

impl MariaEngine {
    /// The engine of that name, in any case.
    pub fn of_name(name: &str) -> Option<MariaEngine> {
        [MariaEngine::InnoDb, MariaEngine::RocksDb]
            .into_iter()
            .find(|engine| engine.name().eq_ignore_ascii_case(name))
    }

    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            MariaEngine::InnoDb => "InnoDB",
            MariaEngine::RocksDb => "RocksDB",
        }
    }
}

impl MariaAddress {
    /// The environment variable with a password that is not in the address.
    pub const PASSWORD_VARIABLE: &'static str = "ZODIUM_MYSQL_PASSWORD";

    /// An address as it is written, without its password, and the password; `None` without one.
    pub fn split_password(text: &str) -> Option<(String, String)> {
        let rest = text.strip_prefix(SCHEME);
        let scheme = if rest.is_some() { SCHEME } else { "" };
        let (before, query) = match rest {
            Some(rest) => rest.split_at(rest.find('?').unwrap_or(rest.len())),
            None => (text, ""),
        };
        let at = login_end(before, rest.is_some())?;
        let (user, password) = before[..at].split_once(':')?;
        let password = if rest.is_some() { decoded(password).ok()? } else { password.to_owned() };
        Some((format!("{scheme}{user}{}{query}", &before[at..]), password))
    }

    /// Whether a text is the URL of a database on a server.
    pub fn is_url(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// The database of `mysql://[user[:password]@]host[:port][,host...]/database[?name=value...]`.
    ///
    /// Names: `unix_socket`, `defaults_file`, `engine`, `cluster`, and `ssl-ca`, `ssl-cert`,
    /// `ssl-key` and `ssl-mode`. Percent signs begin the codes of other characters. What is not
    /// there comes from the option file, and the password from the environment.
    ///
    /// # Errors
    /// When the text is no such URL, or the option file cannot be read.
    pub fn of_url(url: &str) -> Result<MariaAddress, MariaAddressError> {
        let Some(rest) = url.strip_prefix(SCHEME) else {
            return refused("a database on a server is written mysql://user@host/database");
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = match login_end(rest, true) {
            Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
            None => (None, rest),
        };
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        let mut parts = Parts { database: decoded(database)?, ..Parts::default() };
        if let Some(login) = login {
            let (user, password) = match login.split_once(':') {
                Some((user, password)) => (user, Some(password)),
                None => (login, None),
            };
            parts.user = Some(decoded(user)?);
            parts.password = password.map(decoded).transpose()?;
        }
        for host in hosts.split(',').filter(|host| !host.is_empty()) {
            parts.hosts.push(tcp(host)?);
        }
        for option in query.split('&').filter(|option| !option.is_empty()) {
            parts.set(option)?;
        }
        parts.complete()
    }

    /// The database of `[user[:password]@]database[socket]`, as NEO/py's storage takes it. A socket
    /// begins with `~`, `.` or `/`.
    ///
    /// # Errors
    /// When no database is named.
    pub fn of_neo(text: &str, engine: MariaEngine) -> Result<MariaAddress, MariaAddressError> {
        let (login, rest) = match login_end(text, false) {
            Some(at) => (Some(&text[..at]), &text[at + 1..]),
            None => (None, text),
        };
        let (database, socket) = rest.split_at(rest.find(is_socket).unwrap_or(rest.len()));
        let mut parts = Parts { database: database.to_owned(), engine, ..Parts::default() };
        if let Some(login) = login {
            let (user, password) = match login.split_once(':') {
                Some((user, password)) => (user, Some(password.to_owned())),
                None => (login, None),
            };
            (parts.user, parts.password) = (Some(user.to_owned()), password);
        }
        if !socket.is_empty() {
            parts.hosts.push(Host::Socket(expanded(socket)));
        }
        parts.complete()
    }

    /// The same address, with another engine for new tables.
    pub fn with_engine(self, engine: MariaEngine) -> MariaAddress {
        MariaAddress { engine, ..self }
    }

    /// The name of the database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The cluster that a new database is for, if the address names one.
    pub fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// The engine of new tables.
    pub fn engine(&self) -> MariaEngine {
        self.engine
    }

    /// The hosts that are reached over TCP.
    pub fn tcp_hosts(&self) -> Vec<Address> {
        let tcp = |host: &Host| match host {
            Host::Tcp(host, port) => Some(Address::Tcp { host: host.clone(), port: *port }),
            Host::Socket(_) => None,
        };
        self.hosts.iter().filter_map(tcp).collect()
    }

    pub(super) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    pub(super) fn user(&self) -> &str {
        &self.user
    }

    pub(super) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    pub(super) fn tls(&self) -> Option<&MariaTls> {
        self.tls.as_ref()
    }
}

impl Parts {
    fn set(&mut self, option: &str) -> Result<(), MariaAddressError> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let value = decoded(value)?;
        if self.tls.set(&name.replace('_', "-"), &expanded(&value)).or_else(refused)? {
            return Ok(());
        }
        match name {
            "unix_socket" => self.hosts = vec![Host::Socket(expanded(&value))],
            "defaults_file" => self.file = Some(expanded(&value).into()),
            "cluster" => self.cluster = Some(value),
            "engine" => match MariaEngine::of_name(&value) {
                Some(engine) => self.engine = engine,
                None => return refused(format!("engine {value:?} is unknown: InnoDB or RocksDB")),
            },
            _ => {
                return refused(format!(
                    "{name:?} is unknown in the URL of a database; known are unix_socket, \
                     defaults_file, engine, cluster, ssl-ca, ssl-cert, ssl-key and ssl-mode"
                ));
            }
        }
        Ok(())
    }

    /// Takes what is missing from the option file and the environment.
    fn complete(self) -> Result<MariaAddress, MariaAddressError> {
        if self.database.is_empty() {
            return refused("no database is named; write its name after the host");
        }
        let file = match &self.file {
            Some(path) => option_file::read(path).or_else(|error| {
                refused(format!("{}: cannot read the option file: {error}", path.display()))
            })?,
            None => OptionFile::default(),
        };
        let hosts = match (self.hosts, file.socket, file.host) {
            (hosts, ..) if !hosts.is_empty() => hosts,
            (_, Some(socket), _) => vec![Host::Socket(expanded(&socket))],
            (_, _, Some(host)) => vec![Host::Tcp(host, file.port.unwrap_or(PORT))],
            _ => vec![local()],
        };
        let named = |name: &str| std::env::var(name).ok();
        let password = self.password.or_else(|| named(MariaAddress::PASSWORD_VARIABLE));
        Ok(MariaAddress {
            hosts,
            user: self.user.or(file.user).unwrap_or_else(own_name),
            password: password.or(file.password).or_else(|| named(CLIENTS_PASSWORD)),
            database: self.database,
            engine: self.engine,
            cluster: self.cluster,
            tls: self.tls.or(file.tls).complete().or_else(refused)?,
        })
    }
}

/// The server on this machine.
fn local() -> Host {
    match Path::new(SOCKET).exists() {
        true => Host::Socket(SOCKET.to_owned()),
        false => Host::Tcp("127.0.0.1".to_owned(), PORT),
    }
}

/// The user of this process, as MariaDB's clients take it.
fn own_name() -> String {
    std::env::var("USER").unwrap_or_else(|_| "root".to_owned())
}

/// Whether a character ends the name of a database in NEO's syntax, and begins a socket.
fn is_socket(c: char) -> bool {
    matches!(c, '~' | '.' | '/')
}

/// Where the at sign is that ends user and password. In NEO's syntax a database follows.
fn login_end(text: &str, is_url: bool) -> Option<usize> {
    let follows = |at: usize| text[at + 1..].chars().next().is_some_and(|c| !is_socket(c));
    let mut signs = text.rmatch_indices('@').map(|(at, _)| at);
    signs.find(|at| is_url || (*at > 0 && follows(*at)))
}

fn tcp(host: &str) -> Result<Host, MariaAddressError> {
    let wrong = || refused(format!("{host:?} is no host, or HOST:PORT; an IPv6 address is [::1]"));
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => match port.parse() {
            Ok(port) => (name, port),
            // Without a host it is a password.
            Err(_) => {
                let name = host.split(':').next().unwrap_or_default();
                return refused(format!(
                    "the port behind {name:?} is no number up to 65535; an IPv6 address is [::1]"
                ));
            }
        },
        _ => (host, PORT),
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    match name {
        "" => wrong(),
        name => Ok(Host::Tcp(decoded(name)?, port)),
    }
}

/// A path that may begin with the home folder.
fn expanded(path: &str) -> String {
    match (path.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{home}/{rest}"),
        _ => path.to_owned(),
    }
}

/// A text with codes such as `%40`.
fn decoded(text: &str) -> Result<String, MariaAddressError> {
    percent_encoding::percent_decode_str(text)
        .decode_utf8()
        .map(Into::into)
        .or_else(|_| refused("the URL of the database is no text in UTF-8"))
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Tcp(name, port) if name.contains(':') => write!(f, "[{name}]:{port}"),
            Host::Tcp(name, PORT) => f.write_str(name),
            Host::Tcp(name, port) => write!(f, "{name}:{port}"),
            Host::Socket(path) => f.write_str(path),
        }
    }
}

/// The address without its password.
impl fmt::Display for MariaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        for (place, host) in self.hosts.iter().enumerate() {
            match host {
                Host::Socket(_) => {}
                host if place == 0 => write!(f, "{host}")?,
                host => write!(f, ",{host}")?,
            }
        }
        write!(f, "/{}", self.database)
    }
}

impl fmt::Debug for MariaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neo(text: &str) -> (String, Option<String>, String, Option<Host>) {
        let found = MariaAddress::of_neo(text, MariaEngine::InnoDb).unwrap();
        let host = found.hosts.first().cloned().filter(|host| *host != local());
        (found.user, found.password, found.database, host)
    }

    #[test]
    fn neos_syntax_is_read_as_neo_reads_it() {
        let (text, socket) = (str::to_owned, |path: &str| Some(Host::Socket(path.to_owned())));
        assert_eq!(neo("u@d"), (text("u"), None, text("d"), None));
        assert_eq!(neo("u:p@d/s"), (text("u"), Some(text("p")), text("d"), socket("/s")));
        assert_eq!(neo("u:@d./s"), (text("u"), Some(text("")), text("d"), socket("./s")));
        assert_eq!(neo("u:a@b:c@d"), (text("u"), Some(text("a@b:c")), text("d"), None));
        assert_eq!(neo("d/s@x"), (text("d/s"), None, text("x"), None));
        assert_eq!(neo("d~/s"), (own_name(), None, text("d"), socket(&expanded("~/s"))));
    }

    #[test]
    fn urls_name_hosts_user_and_database() {
        let found =
            MariaAddress::of_url("mysql://u:p%40%3A@a,[::1]:7,b:8/d?engine=rocksdb&cluster=c");
        let found = found.unwrap();
        let tcp = |host: &str, port| Host::Tcp(host.to_owned(), port);
        assert_eq!(found.hosts, [tcp("a", PORT), tcp("::1", 7), tcp("b", 8)]);
        assert_eq!((found.user(), found.password()), ("u", Some("p@:")));
        assert_eq!((found.database(), found.cluster()), ("d", Some("c")));
        assert_eq!(found.engine(), MariaEngine::RocksDb);
        let found = MariaAddress::of_url("mysql://u@/d?unix_socket=/a/b").unwrap();
        assert_eq!(found.hosts, [Host::Socket("/a/b".to_owned())]);
        for wrong in ["mysql://", "mysql://h", "mysql://h:x/d", "mysql://h/d?x=y", "sqlite:///a"] {
            assert!(MariaAddress::of_url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let found = MariaAddress::of_url("mysql://user:secret@a:1,b/d").unwrap();
        assert_eq!(format!("{found} {found:?}"), "mysql://a:1,b/d mysql://a:1,b/d");
        for without_host in ["mysql://user:secret", "mysql://user:a:secret/d"] {
            let wrong = MariaAddress::of_url(without_host).unwrap_err().to_string();
            assert!(wrong.contains("user") && !wrong.contains("secret"), "{wrong}");
        }
        let wrong = MariaAddress::of_url("mysql://user:secret@a/d?b=secret").unwrap_err();
        assert!(!wrong.to_string().contains("secret"));
    }

    #[test]
    fn a_password_is_taken_out_of_an_address() {
        let split = |text: &str| MariaAddress::split_password(text);
        let both = |text: &str, password: &str| Some((text.to_owned(), password.to_owned()));
        assert_eq!(split("mysql://u:p%40@h/d?a=b:c@d"), both("mysql://u@h/d?a=b:c@d", "p@"));
        assert_eq!(split("u:p@x@d/socket"), both("u@d/socket", "p@x"));
        for none in ["mysql://u@h:1/d", "mysql://h:1/d", "u@d/s", "d", "d/a:b"] {
            assert_eq!(split(none), None, "{none}");
        }
    }

    #[test]
    fn an_option_file_has_what_the_url_has_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("my.cnf");
        let text = "[mysqld]\nuser=no\n[client]\nuser = u\npassword=\"p # q\"\nhost=h\nport=5\n";
        std::fs::write(&file, text).unwrap();
        let url = format!("mysql:///d?defaults_file={}", file.display());
        let found = MariaAddress::of_url(&url).unwrap();
        assert_eq!((found.user(), found.password()), ("u", Some("p # q")));
        assert_eq!(found.hosts, [Host::Tcp("h".to_owned(), 5)]);
        let url = format!("mysql://v@g/d?defaults_file={}", file.display());
        let found = MariaAddress::of_url(&url).unwrap();
        assert!(found.tls().is_none());
        assert_eq!((found.user(), found.hosts()), ("v", &[Host::Tcp("g".to_owned(), PORT)][..]));
    }
    #[test]
    fn tls_is_asked_for_by_the_url_or_by_the_option_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("my.cnf");
        let authority = file.display();
        std::fs::write(&file, format!("[client]\nssl_ca = {authority}\n")).unwrap();
        for (query, is_there) in [
            (format!("ssl-ca={authority}"), true),
            (format!("ssl_ca={authority}"), true),
            (format!("defaults_file={authority}"), true),
            (format!("defaults_file={authority}&ssl-mode=DISABLED"), false),
        ] {
            let found = MariaAddress::of_url(&format!("mysql://h/d?{query}")).unwrap();
            assert_eq!(found.tls().is_some(), is_there, "{query}");
        }
        let error = MariaAddress::of_url("mysql://h/d?ssl-key=/absent").unwrap_err();
        assert!(error.to_string().contains("give both"), "{error}");
    }
}
