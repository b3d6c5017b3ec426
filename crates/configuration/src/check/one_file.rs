//! Checks that no path of a configuration has two uses: a log file that is a data file destroys it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};

use zodium_types::Address;

use super::{Problem, resolved};
use crate::model::Configuration;
use crate::settings::log::LogDestination;
use crate::settings::neo::NodeAdapter;
use crate::settings::storage::{StorageKind, StorageOptions};
use crate::settings::tls::KeyPassword;

/// The files that a writable FileStorage has beside its data file. A pack writes the last one. It
/// keeps the file of before as `.old`, which may be served too: a pack that would replace it then
/// is refused.
const BESIDE_DATA: [&str; 5] = [".lock", ".index", ".index.crc32c", ".checksums", ".pack"];
/// Those of an SQLite database.
const BESIDE_DATABASE: [&str; 3] = ["-wal", "-shm", "-journal"];
/// Those of the file of keys.
const BESIDE_KEYS: [&str; 2] = [".lock", ".new"];

/// That of a Unix socket.
const BESIDE_SOCKET: [&str; 1] = [".lock"];

/// What a path is for. Except for `Other`, uses of the same role are no problem, or are reported
/// elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The file of a storage.
    Data,
    /// A file beside it, or beside the file of keys.
    Beside,
    /// A Unix socket.
    Socket,
    /// A file that is only read.
    Read,
    /// A log file. Several may end in one place, such as a terminal.
    Log,
    /// A file that is written.
    Other,
}

#[derive(Default)]
struct Uses {
    first: HashMap<PathBuf, (Role, String)>,
    problems: Vec<Problem>,
}

/// The problems of paths that have two uses.
pub(super) fn problems(configuration: &Configuration) -> Vec<Problem> {
    let mut uses = Uses::default();
    for storage in &configuration.storages {
        uses.storage(storage, storage.read_only || configuration.server.read_only);
    }
    if let Some(node) = &configuration.neo_storage
        && node.kind_of_database() == NodeAdapter::Sqlite
    {
        let path = Path::new(&node.database);
        uses.add(Role::Data, "the database", path);
        uses.beside("the database", path, &BESIDE_DATABASE);
    }
    uses.server(configuration);
    for destination in &configuration.log.destinations {
        if let LogDestination::File(path) = destination {
            uses.add(Role::Log, "the log file", path);
        }
    }
    uses.problems
}

impl Uses {
    fn storage(&mut self, storage: &StorageOptions, is_read_only: bool) {
        let name = &storage.name;
        match &storage.kind {
            StorageKind::File { path, .. } => {
                self.add(Role::Data, &format!("the data file of storage {name}"), path);
                if !is_read_only {
                    self.beside(&format!("storage {name}"), path, &BESIDE_DATA);
                }
            }
            StorageKind::Sqlite { path, .. } => {
                self.add(Role::Data, &format!("the database of storage {name}"), path);
                self.beside(&format!("storage {name}"), path, &BESIDE_DATABASE);
            }
            StorageKind::Neo { .. } | StorageKind::Maria { .. } | StorageKind::Memory => {}
        }
    }

    fn server(&mut self, configuration: &Configuration) {
        let server = &configuration.server;
        for address in server.addresses.iter().chain(&server.resp_addresses) {
            if let Address::Unix(path) = address {
                self.add(Role::Socket, "the socket", path);
                self.beside("the socket", path, &BESIDE_SOCKET);
            }
        }
        if let Some(path) = &server.resp_file {
            self.add(Role::Other, "the file of keys", path);
            self.beside("the keys", path, &BESIDE_KEYS);
        }
        let mut read = vec![("the file of the password", server.resp_password_file.as_ref())];
        if let Some(tls) = &server.tls {
            read.push(("the certificate", Some(&tls.certificate)));
            read.push(("the key", tls.key.as_ref()));
            read.push(("the certificates of clients", Some(&tls.authenticate)));
            if let Some(KeyPassword::File(path)) = &tls.key_password {
                read.push(("the file of the key's password", Some(path)));
            }
        }
        for (what, path) in read {
            path.into_iter().for_each(|path| self.add(Role::Read, what, path));
        }
        if let Some(path) = &server.pid_file {
            self.add(Role::Other, "the pid file", path);
        }
    }

    fn beside(&mut self, whose: &str, path: &Path, suffixes: &[&str]) {
        for suffix in suffixes {
            let mut beside = resolved(path).into_os_string();
            beside.push(suffix);
            self.add(Role::Beside, &format!("the {suffix} file of {whose}"), Path::new(&beside));
        }
    }

    fn add(&mut self, role: Role, what: &str, path: &Path) {
        match self.first.entry(resolved(path)) {
            Entry::Occupied(entry) => {
                let (first_role, first) = entry.get();
                if role != *first_role || role == Role::Other {
                    let path = path.display();
                    self.problems.push(Problem {
                        message: format!("{first} and {what} are one file, {path}"),
                        advice: "give one of them another path".to_owned(),
                    });
                }
            }
            Entry::Vacant(entry) => {
                entry.insert((role, what.to_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::server::ServerOptions;

    fn configuration(folder: &Path) -> Configuration {
        let path = folder.join("Data.fs");
        let storage = StorageOptions::new("one", StorageKind::File { path, truncate: false });
        Configuration { storages: vec![storage], ..Configuration::default() }
    }

    fn messages(configuration: &Configuration) -> Vec<String> {
        problems(configuration).into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn no_file_is_written_for_two_purposes() {
        let folder = tempfile::tempdir().unwrap();
        for (name, first) in [
            ("Data.fs", "the data file of storage one"),
            ("./Data.fs", "the data file of storage one"),
            ("Data.fs.index", "the .index file of storage one"),
            ("Data.fs.checksums", "the .checksums file of storage one"),
        ] {
            let path = folder.path().join(name);
            let found = |server: ServerOptions| {
                messages(&Configuration { server, ..configuration(folder.path()) })
            };
            let expected = |what| [format!("{first} and {what} are one file, {}", path.display())];
            let pid_file = Some(path.clone());
            let server = ServerOptions { pid_file, ..ServerOptions::default() };
            assert_eq!(found(server), expected("the pid file"));
            let resp_file = Some(path.clone());
            let server = ServerOptions { resp_file, ..ServerOptions::default() };
            assert_eq!(found(server), expected("the file of keys"));
            let addresses = vec![Address::Unix(path.clone())];
            let server = ServerOptions { addresses, ..ServerOptions::default() };
            assert_eq!(found(server), expected("the socket"));
            let mut logged = configuration(folder.path());
            logged.log.destinations = vec![LogDestination::File(path.clone())];
            assert_eq!(messages(&logged), expected("the log file"));
            if name != "Data.fs" && name != "./Data.fs" {
                let kind = StorageKind::File { path: path.clone(), truncate: false };
                let mut two = configuration(folder.path());
                two.storages.push(StorageOptions::new("two", kind));
                assert_eq!(messages(&two), expected("the data file of storage two"));
                // What is only read has no files that are written beside it.
                two.server.read_only = true;
                assert_eq!(messages(&two), [""; 0]);
            }
        }
    }

    #[test]
    fn the_lock_file_of_a_socket_is_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let mut locked = configuration(folder.path());
        locked.server.addresses = vec![Address::Unix(folder.path().join("zeo.sock"))];
        assert_eq!(messages(&locked), [""; 0]);
        let path = folder.path().join("zeo.sock.lock");
        locked.server.pid_file = Some(path.clone());
        let expected = "the .lock file of the socket and the pid file are one file, ";
        assert_eq!(messages(&locked), [format!("{expected}{}", path.display())]);
    }

    #[test]
    fn what_may_share_a_file_or_stand_beside_one_does() {
        let folder = tempfile::tempdir().unwrap();
        let mut shared = configuration(folder.path());
        let log = |name: &str| LogDestination::File(folder.path().join(name));
        shared.log.destinations = vec![log("z.log"), log("./z.log")];
        let kind = StorageKind::File { path: folder.path().join("Data.fs.old"), truncate: false };
        shared.storages.push(StorageOptions::new("before", kind));
        assert_eq!(messages(&shared), [""; 0]);
    }
}
