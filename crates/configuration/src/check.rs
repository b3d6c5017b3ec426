//! Checks of a whole configuration: settings that contradict each other, and missing files.

mod one_file;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::Hash;
use std::path::{Path, PathBuf};

use zodium_types::Address;

use crate::model::Configuration;
use crate::settings::log::LogDestination;
use crate::settings::neo::{NodeAdapter, NodeOptions};
use crate::settings::neo_admin::AdminOptions;
use crate::settings::neo_master::MasterOptions;
use crate::settings::packing::PackSchedule;
use crate::settings::server::ServerOptions;
use crate::settings::storage::{StorageKind, StorageOptions};
use crate::settings::tls::{KeyPassword, TlsOptions};

/// Smallest memory limit for clients.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Advice for a storage that has no blobs. An image sets the variable for a data file.
const WITHOUT_BLOBS: &str =
    "remove `blob-directory`, as an option --blob-dir, or as a variable ZODIUM_BLOB_DIR";

/// A problem that keeps a configuration from being served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong.
    pub message: String,
    /// What to do next.
    pub advice: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.message, self.advice)
    }
}

impl Configuration {
    /// Checks that this configuration can be served, on this machine and now.
    ///
    /// It looks for files and environment variables. Gives all problems; none when all is well.
    #[must_use]
    pub fn check(&self) -> Vec<Problem> {
        let mut problems = Problems { found: self.check_paths() };
        if let Some(node) = &self.neo_storage {
            problems.one_of_two("[neo-storage]", "[[storage]]", !self.storages.is_empty());
            problems.one_of_two("[neo-storage]", "[neo-admin]", self.neo_admin.is_some());
            problems.one_of_two("[neo-storage]", "[neo-master]", self.neo_master.is_some());
            problems.node(node);
        } else if let Some(admin) = &self.neo_admin {
            problems.one_of_two("[neo-admin]", "[[storage]]", !self.storages.is_empty());
            problems.one_of_two("[neo-admin]", "[neo-master]", self.neo_master.is_some());
            problems.admin(admin);
        } else if let Some(master) = &self.neo_master {
            problems.one_of_two("[neo-master]", "[[storage]]", !self.storages.is_empty());
            problems.master(master);
        } else {
            problems.server(&self.server);
            problems.addresses(self);
            problems.storages(self);
        }
        problems.log(&self.log.destinations);
        problems.found
    }

    /// The problems of files that would be used for two purposes, which [`Configuration::check`]
    /// has too. Log files must not be opened before: one of them may be a data file.
    #[must_use]
    pub fn check_paths(&self) -> Vec<Problem> {
        one_file::problems(self)
    }
}

impl NodeOptions {
    /// The problem of a database that cannot be used, or that may be meant as another one.
    #[must_use]
    pub fn database_problem(&self) -> Option<Problem> {
        match (self.kind_of_database(), &self.engine) {
            (NodeAdapter::Importer, _) => Some(Problem {
                message: "the `adapter` importer is not implemented".to_owned(),
                advice: "copy the database into the running cluster with a client".to_owned(),
            }),
            (NodeAdapter::Sqlite, Some(engine)) => Some(Problem {
                message: format!("`engine` {engine}"),
                advice: "databases in SQLite have no engine; leave it out".to_owned(),
            }),
            _ => self.unclear_database(),
        }
    }

    /// The problem of a database that may be meant as a login at a server, with no adapter given.
    /// It may have a password in it, so it is not shown.
    #[must_use]
    pub fn unclear_database(&self) -> Option<Problem> {
        self.may_mean_a_server().then(|| Problem {
            message: "the `database` has an `@` in it, and there is no such file".to_owned(),
            advice: "give the `adapter`, mysql for a database on a MariaDB server, or sqlite for \
                     the path of a new file"
                .to_owned(),
        })
    }
}

struct Problems {
    found: Vec<Problem>,
}

impl Problems {
    fn add(&mut self, message: impl Into<String>, advice: impl Into<String>) {
        self.found.push(Problem { message: message.into(), advice: advice.into() });
    }

    fn add_if(&mut self, is_wrong: bool, message: impl Into<String>, advice: impl Into<String>) {
        if is_wrong {
            self.add(message, advice);
        }
    }

    fn one_of_two(&mut self, one: &str, other: &str, are_both: bool) {
        let advice = "one process is one of the two: put them in two files";
        self.add_if(are_both, format!("there are both {one} and {other}"), advice);
    }

    fn node(&mut self, node: &NodeOptions) {
        let advice = "give the name, or --cluster";
        self.add_if(node.cluster.is_empty(), "`cluster` is missing", advice);
        let advice = "give a path, or --database";
        self.add_if(node.database.is_empty(), "`database` is missing", advice);
        self.found.extend(node.database_problem());
        self.masters(&node.masters);
        self.node_tls([("ca", &node.ca), ("cert", &node.cert), ("key", &node.key)]);
    }

    fn admin(&mut self, admin: &AdminOptions) {
        let advice = "give the name, or --cluster";
        self.add_if(admin.cluster.is_empty(), "`cluster` is missing", advice);
        let advice = "let a monitoring system watch /health of --monitor, or `zodium neo ctl print \
                      summary`";
        let sends_mail = !admin.monitor_email.is_empty();
        self.add_if(sends_mail, "`monitor-email` is not implemented", advice);
        self.masters(&admin.masters);
        self.node_tls([("ca", &admin.ca), ("cert", &admin.cert), ("key", &admin.key)]);
    }

    fn master(&mut self, master: &MasterOptions) {
        let advice = "give the name, or --cluster";
        self.add_if(master.cluster.is_empty(), "`cluster` is missing", advice);
        let is_named = master.upstream_cluster.is_some();
        let is_part = is_named == master.upstream_masters.is_empty();
        let advice = "a backup cluster needs both, or leave both out";
        self.add_if(
            is_part,
            "only one of `upstream-cluster` and `upstream-masters` is given",
            advice,
        );
        let advice = "give the cluster to follow: `upstream-cluster` and `upstream-masters`";
        self.add_if(master.backup && !is_named, "`backup` without an upstream cluster", advice);
        let is_own = master.upstream_cluster.as_deref() == Some(&*master.cluster);
        let advice = "a backup is a cluster of its own, with another name";
        self.add_if(is_named && is_own, "`upstream-cluster` is this cluster", advice);
        self.node_tls([("ca", &master.ca), ("cert", &master.cert), ("key", &master.key)]);
    }

    fn masters(&mut self, masters: &[String]) {
        let is_empty = masters.iter().all(|text| text.trim().is_empty());
        self.add_if(is_empty, "`masters` names no master", "give at least one address");
    }

    fn node_tls(&mut self, files: [(&str, &Option<PathBuf>); 3]) {
        let given: Vec<_> = files.iter().filter_map(|(_, path)| path.as_ref()).collect();
        let advice = "TLS needs all three, or leave all out";
        let is_part = !given.is_empty() && given.len() < files.len();
        self.add_if(is_part, "only some of `ca`, `cert` and `key` are given", advice);
        for (name, path) in files {
            if let Some(path) = path {
                self.readable_file(name, path);
            }
        }
    }

    fn server(&mut self, server: &ServerOptions) {
        let is_idle = server.client_conflict_resolution && server.python_resolver.is_some();
        let advice = "`client-conflict-resolution` leaves all conflicts to the clients; drop one";
        self.add_if(is_idle, "`python-resolver` would get no conflicts", advice);
        let is_zero = server.transaction_timeout.is_some_and(|timeout| timeout.is_zero());
        let advice = "every commit would time out; omit it for no limit";
        self.add_if(is_zero, "`transaction-timeout` is 0", advice);
        let advice = "no client could register in time; the default is 30s";
        self.add_if(server.handshake_time_max.is_zero(), "`handshake-timeout` is 0", advice);
        let is_little = server.memory_bytes_max.is_some_and(|bytes| bytes < MEMORY_BYTES_MIN);
        let advice = "give 1MiB or more, or omit it for a quarter of the memory";
        self.add_if(is_little, "`memory-limit` leaves no room for messages", advice);
        if let Some(path) = &server.pid_file {
            self.parent("pid file", path);
        }
        if let Some(path) = &server.resp_password_file {
            self.readable_file("resp-password-file", path);
            // A pipe can be read only once.
            let text = path.is_file().then(|| std::fs::read_to_string(path).ok()).flatten();
            let is_empty = text.is_some_and(|text| text.lines().next().is_none_or(str::is_empty));
            let message = format!("{}: its first line is empty", path.display());
            self.add_if(is_empty, message, "write the password of Redis and Valkey clients there");
        }
        if let Some(path) = &server.resp_config {
            self.readable_file("resp-config", path);
        }
        if let Some(path) = &server.resp_file {
            self.parent("file of keys", path);
        }
        if let Some(tls) = &server.tls {
            self.tls(tls);
        }
    }

    fn tls(&mut self, tls: &TlsOptions) {
        self.readable_file("certificate", &tls.certificate);
        if let Some(key) = &tls.key {
            self.readable_file("key", key);
        }
        match &tls.key_password {
            Some(KeyPassword::File(path)) => self.readable_file("key's password", path),
            Some(KeyPassword::Environment(name)) => self.add_if(
                std::env::var_os(name).is_none(),
                format!("the key's password: the environment variable {name} is not set"),
                "set it where the server is started",
            ),
            None => {}
        }
        let path = &tls.authenticate;
        self.add_if(
            !path.exists(),
            format!("{}: there are no certificates to authenticate clients by", path.display()),
            "give a PEM file, or a directory of PEM files",
        );
    }

    fn addresses(&mut self, configuration: &Configuration) {
        let addresses = &configuration.server.addresses;
        self.add_if(addresses.is_empty(), "no `address` is given", "say where to listen");
        let monitor = configuration.monitor.as_ref().map(|monitor| &monitor.address);
        let is_socket = matches!(monitor, Some(Address::Unix(_)));
        let advice = "browsers and Prometheus need HOST:PORT";
        self.add_if(is_socket, "the monitor cannot listen on a Unix socket", advice);
        let resp = &configuration.server.resp_addresses;
        let addresses: Vec<_> = addresses.iter().chain(resp).chain(monitor).collect();
        for (position, address) in addresses.iter().enumerate() {
            if let Some(first) = addresses[..position].iter().find(|first| meet(first, address)) {
                let message = format!("the server cannot listen on both {first} and {address}");
                self.add(message, "remove one, or give it another port");
            }
            if let Address::Unix(path) = address {
                self.parent("socket", path);
            }
        }
    }

    fn storages(&mut self, configuration: &Configuration) {
        let storages = &configuration.storages;
        self.add_if(storages.is_empty(), "there is no storage", "say which data file to serve");
        // Each later storage is compared with the first that has the same value.
        let (mut names, mut files, mut blobs) = (FirstOf::new(), FirstOf::new(), FirstOf::new());
        for storage in storages {
            self.storage(storage, &configuration.server);
            self.shared(storage, &mut names, &mut files, &mut blobs);
        }
    }

    fn storage(&mut self, storage: &StorageOptions, server: &ServerOptions) {
        let name = &storage.name;
        self.add_if(name.is_empty(), "a storage has an empty name", "clients ask for \"1\"");
        match &storage.kind {
            StorageKind::File { path, truncate } => {
                self.data_file(storage, server, path, *truncate);
            }
            StorageKind::Sqlite { path, .. } => self.database(storage, server, path),
            StorageKind::Neo { .. } => self.cluster(storage),
            StorageKind::Maria { .. } => self.blobless(storage),
            StorageKind::Memory => self.memory(storage),
        }
        let advice = "no transaction would fit; omit it for no limit";
        let is_zero = storage.quota_bytes == Some(0);
        self.add_if(is_zero, format!("storage {name}: `quota` is 0"), advice);
        if let Some(allow) = &storage.allow {
            let message = format!("storage {name}: `allow` needs TLS");
            let advice = "clients are known by their certificates only; add [server.tls]";
            self.add_if(server.tls.is_none(), message, advice);
            let message = format!("storage {name}: `allow` is empty, so no client may use it");
            self.add_if(allow.is_empty(), message, "name at least one client, or remove it");
        }
        if let Some(schedule) = &storage.pack.schedule {
            let is_read_only = storage.read_only || server.read_only;
            let message = format!("storage {name}: a read-only storage is not packed");
            self.add_if(is_read_only, message, "remove `at`, or `read-only`");
            self.schedule(name, schedule);
        }
    }

    fn data_file(
        &mut self,
        storage: &StorageOptions,
        server: &ServerOptions,
        path: &Path,
        truncate: bool,
    ) {
        let name = &storage.name;
        self.parent("data file", path);
        let message = format!("storage {name}: {} is a directory", path.display());
        self.add_if(path.is_dir(), message, "give the path of the data file in it");
        let is_missing = storage.read_only && !path.exists();
        let message = format!("storage {name}: {} does not exist", path.display());
        self.add_if(is_missing, message, "a read-only storage is not created");
        let message = format!("storage {name}: `truncate` and `read-only` contradict each other");
        self.add_if(truncate && storage.read_only, message, "remove one of them");
        let is_there = truncate && !storage.read_only && server.read_only && path.exists();
        let message = format!("{}: a read-only server cannot recreate it", path.display());
        self.add_if(is_there, message, "remove one of the two settings");
        if let Some(directory) = &storage.blob_directory {
            self.parent("blob directory", directory);
            let message = format!("storage {name}: {} is not a directory", directory.display());
            let is_wrong = directory.exists() && !directory.is_dir();
            self.add_if(is_wrong, message, "give a directory for blobs");
        }
    }

    fn database(&mut self, storage: &StorageOptions, server: &ServerOptions, path: &Path) {
        let name = &storage.name;
        self.parent("database", path);
        let message = format!("storage {name}: {} is a directory", path.display());
        self.add_if(path.is_dir(), message, "give the path of the database in it");
        let is_missing = (storage.read_only || server.read_only) && !path.exists();
        let message = format!("storage {name}: {} does not exist", path.display());
        self.add_if(is_missing, message, "a read-only storage is not created");
        self.blobless(storage);
    }

    fn cluster(&mut self, storage: &StorageOptions) {
        let message = |what| format!("storage {}: a NEO cluster has no {what}", storage.name);
        let has_blobs = storage.blob_directory.is_some();
        self.add_if(has_blobs, message("blobs"), WITHOUT_BLOBS);
        let has_quota = storage.quota_bytes.is_some();
        self.add_if(has_quota, message("quota"), "remove `quota`");
    }

    fn blobless(&mut self, storage: &StorageOptions) {
        let message = format!("storage {}: a NEO database has no blobs", storage.name);
        let has_blobs = storage.blob_directory.is_some();
        self.add_if(has_blobs, message, WITHOUT_BLOBS);
    }

    fn memory(&mut self, storage: &StorageOptions) {
        let message = |what| format!("storage {}: a storage in memory has no {what}", storage.name);
        let has_blobs = storage.blob_directory.is_some();
        self.add_if(has_blobs, message("blobs"), WITHOUT_BLOBS);
        self.add_if(storage.read_only, message("read-only mode"), "remove `read-only`");
        let has_schedule = storage.pack.schedule.is_some();
        self.add_if(has_schedule, message("pack schedule"), "remove `at`");
    }

    fn schedule(&mut self, name: &str, schedule: &PackSchedule) {
        let (hour, minute) = schedule.at;
        let message = format!("storage {name}: {hour}:{minute:02} is not a time of day");
        self.add_if(hour > 23 || minute > 59, message, "give 0:00 to 23:59");
        let is_number = schedule.keep_days.is_finite() && schedule.keep_days >= 0.0;
        let message = format!("storage {name}: `keep-days` is {}", schedule.keep_days);
        self.add_if(!is_number, message, "give the days of history to keep, 0 or more");
    }

    /// Checks that no two storages share a name, a data file or a blob directory.
    fn shared<'a>(
        &mut self,
        storage: &'a StorageOptions,
        names: &mut FirstOf<'a, &'a str>,
        files: &mut FirstOf<'a, PathBuf>,
        blobs: &mut FirstOf<'a, PathBuf>,
    ) {
        let name = &storage.name[..];
        if first_of(names, name, name).is_some() {
            let message = format!("two storages are named {name}");
            self.add(message, "clients ask for a storage by its name");
        }
        if let StorageKind::File { path, .. } | StorageKind::Sqlite { path, .. } = &storage.kind
            && let Some(first) = first_of(files, resolved(path), name)
        {
            let path = path.display();
            let message = format!("storages {first} and {name} are one file, {path}");
            self.add(message, "only one server can have a file open");
        }
        if let Some(directory) = &storage.blob_directory
            && let Some(first) = first_of(blobs, resolved(directory), name)
        {
            let directory = directory.display();
            let message = format!("storages {first} and {name} share the blobs in {directory}");
            self.add(message, "give each its own directory: object ids repeat between storages");
        }
    }

    fn log(&mut self, destinations: &[LogDestination]) {
        let advice = "give at least \"stderr\"";
        self.add_if(destinations.is_empty(), "the log goes nowhere", advice);
        for (position, destination) in destinations.iter().enumerate() {
            let is_twice = destinations[..position].contains(destination);
            let message = format!("the log goes to {destination} twice");
            self.add_if(is_twice, message, "remove one of them");
            if let LogDestination::File(path) = destination {
                self.parent("log file", path);
            }
        }
    }

    fn parent(&mut self, what: &str, path: &Path) {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let message = format!("{}: there is no such directory for the {what}", path.display());
        let is_missing = parent.is_some_and(|parent| !parent.is_dir());
        self.add_if(is_missing, message, "create the directory, or correct the path");
    }

    fn readable_file(&mut self, what: &str, path: &Path) {
        let problem = match std::fs::File::open(path) {
            Ok(_) if path.is_dir() => "it is a directory".to_owned(),
            Ok(_) => return,
            Err(error) => error.to_string(),
        };
        let message = format!("{}: the {what} cannot be read: {problem}", path.display());
        self.add(message, "correct the path, or its permissions");
    }
}

/// The name of the first storage that has each value.
type FirstOf<'a, T> = HashMap<T, &'a str>;

/// The earlier storage with this value; `None` if the one of that name is the first.
fn first_of<'a, T: Hash + Eq>(
    first: &mut FirstOf<'a, T>,
    what: T,
    name: &'a str,
) -> Option<&'a str> {
    match first.entry(what) {
        Entry::Occupied(entry) => Some(entry.get()),
        Entry::Vacant(entry) => {
            entry.insert(name);
            None
        }
    }
}

/// A path with symbolic links resolved, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let resolve = |path: &Path| path.canonicalize().ok();
    let folder = |path: &Path| match path.parent()? {
        here if here.as_os_str().is_empty() => resolve(Path::new(".")),
        parent => resolve(parent),
    };
    let by_parent = || Some(folder(path)?.join(path.file_name()?));
    resolve(path).or_else(by_parent).unwrap_or_else(|| path.to_owned())
}

/// Whether a server cannot listen on both addresses.
fn meet(first: &Address, second: &Address) -> bool {
    match (first, second) {
        (Address::Tcp { host, port }, Address::Tcp { host: other, port: same }) => {
            let is_chosen_by_the_system = *port == 0;
            // Whether `::` takes connections to addresses of IPv4 too is a setting of the system.
            let takes = |host: &str, other: &str| match host {
                "::" => other.contains(':'),
                _ => (host.is_empty() || host == "0.0.0.0") && !other.contains(':'),
            };
            let meet = host == other || takes(host, other) || takes(other, host);
            port == same && !is_chosen_by_the_system && meet
        }
        (Address::Unix(path), Address::Unix(other)) => resolved(path) == resolved(other),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::settings::monitor::MonitorOptions;
    use crate::settings::packing::Weekday;

    /// A valid configuration, in a directory of its own.
    fn sound() -> (tempfile::TempDir, Configuration) {
        let directory = tempfile::tempdir().unwrap();
        let storages = ["one", "two"].map(|name| {
            let path = directory.path().join(name).with_extension("fs");
            let kind = StorageKind::File { path, truncate: false };
            let blobs = Some(directory.path().join(name));
            StorageOptions { blob_directory: blobs, ..StorageOptions::new(name, kind) }
        });
        let configuration = Configuration { storages: storages.into(), ..Configuration::default() };
        (directory, configuration)
    }

    /// The problems after a change to a valid configuration.
    fn problems(change: impl FnOnce(&Path, &mut Configuration)) -> Vec<String> {
        let (directory, mut configuration) = sound();
        assert_eq!(configuration.check(), []);
        change(directory.path(), &mut configuration);
        configuration.check().iter().map(Problem::to_string).collect()
    }

    fn assert_problem(expected: &str, change: impl FnOnce(&Path, &mut Configuration)) {
        let problems = problems(change);
        assert_eq!(problems.len(), 1, "{expected}: {problems:?}");
        assert!(problems[0].contains(expected), "{expected}: {problems:?}");
    }

    fn schedule() -> Option<PackSchedule> {
        Some(PackSchedule { at: (3, 30), on: vec![Weekday::Sunday], keep_days: 1.0 })
    }

    #[test]
    fn a_python_resolver_has_conflicts_to_resolve() {
        assert_problem("`python-resolver`", |_, c| {
            c.server.python_resolver = Some("python3".into());
            c.server.client_conflict_resolution = true;
        });
    }

    #[test]
    fn storages_share_nothing() {
        assert_problem("named one", |_, c| c.storages[1].name = "one".into());
        assert_problem("no storage", |_, c| c.storages.clear());
        assert_problem("empty name", |_, c| c.storages[0].name.clear());
        assert_problem("one file", |_, c| c.storages[1].kind = c.storages[0].kind.clone());
        assert_problem("one file", |directory, c| {
            std::fs::create_dir(directory.join("real")).unwrap();
            std::os::unix::fs::symlink("real", directory.join("link")).unwrap();
            for (storage, part) in c.storages.iter_mut().zip(["real", "link"]) {
                let path = directory.join(part).join("Data.fs");
                storage.kind = StorageKind::File { path, truncate: false };
            }
        });
        assert_problem("share the blobs", |_, c| {
            c.storages[1].blob_directory = c.storages[0].blob_directory.clone();
        });
    }

    #[test]
    fn each_of_many_storages_is_held_against_the_first_with_the_same_only() {
        let problems = problems(|_, c| c.storages = vec![c.storages[0].clone(); 100]);
        let count = |what| problems.iter().filter(|problem| problem.contains(what)).count();
        assert_eq!(["named one", "one file", "share the blobs"].map(count), [99; 3]);
    }

    #[test]
    fn settings_of_a_storage_do_not_contradict_each_other() {
        assert_problem("quota", |_, c| c.storages[0].quota_bytes = Some(0));
        assert_problem("needs TLS", |_, c| c.storages[0].allow = Some(vec!["CN=a".into()]));
        assert_problem("no blobs", |_, c| c.storages[0].kind = StorageKind::Memory);
        assert_problem("no blobs", |directory, c| {
            let path = directory.join("neo.sqlite");
            c.storages[0].kind = StorageKind::Sqlite { path, cluster: None };
        });
        let cluster = || StorageKind::Neo { url: "neo://a@127.0.0.1:1".to_owned() };
        assert_problem("no blobs", |_, c| c.storages[0].kind = cluster());
        assert_problem("has no quota", |_, c| {
            c.storages[0].kind = cluster();
            c.storages[0].blob_directory = None;
            c.storages[0].quota_bytes = Some(1 << 30);
        });
        assert_problem("is not packed", |_, c| {
            c.server.read_only = true;
            c.storages[0].pack.schedule = schedule();
        });
        assert_problem("has no pack schedule", |_, c| {
            c.storages[0].kind = StorageKind::Memory;
            c.storages[0].blob_directory = None;
            c.storages[0].pack.schedule = schedule();
        });
        assert_problem("time of day", |_, c| {
            c.storages[0].pack.schedule =
                schedule().map(|schedule| PackSchedule { at: (24, 0), ..schedule });
        });
        assert_problem("keep-days", |_, c| {
            c.storages[0].pack.schedule =
                schedule().map(|schedule| PackSchedule { keep_days: f64::NAN, ..schedule });
        });
    }

    #[test]
    fn settings_of_the_server_do_what_they_say() {
        assert_problem("`memory-limit`", |_, c| c.server.memory_bytes_max = Some(1023));
    }

    #[test]
    fn files_are_where_they_must_be() {
        assert_problem("does not exist", |_, c| c.storages[0].read_only = true);
        assert_problem("is a directory", |directory, c| {
            std::fs::create_dir(directory.join("one.fs")).unwrap();
            c.storages[1].kind =
                StorageKind::File { path: directory.join("other.fs"), truncate: false };
        });
        assert_problem("is not a directory", |directory, _| {
            std::fs::write(directory.join("one"), "").unwrap();
        });
        assert_problem("for the pid file", |_, c| c.server.pid_file = Some("/no/such".into()));
        assert_problem("for the socket", |_, c| {
            c.server.addresses = vec![Address::Unix("/no/such".into())];
        });
        assert_problem("for the log file", |_, c| {
            c.log.destinations = vec![LogDestination::File("/no/such".into())];
        });
    }

    #[test]
    fn what_a_server_that_only_reads_cannot_do_is_found() {
        assert_problem("cannot recreate it", |directory, c| {
            let path = directory.join("one.fs");
            std::fs::write(&path, "FS30").unwrap();
            c.storages[0].kind = StorageKind::File { path, truncate: true };
            c.server.read_only = true;
        });
        // An empty database is served in its place.
        let problems = problems(|directory, c| {
            let path = directory.join("one.fs");
            c.storages[0].kind = StorageKind::File { path, truncate: true };
            c.server.read_only = true;
        });
        assert_eq!(problems, [""; 0]);
        assert_problem("does not exist", |directory, c| {
            let path = directory.join("neo.sqlite");
            let kind = StorageKind::Sqlite { path, cluster: None };
            c.storages = vec![StorageOptions::new("neo", kind)];
            c.server.read_only = true;
        });
    }

    #[test]
    fn a_password_is_in_the_first_line() {
        for (text, expected) in [("", 1), ("\nsecret\n", 1), ("secret", 0)] {
            let problems = problems(|directory, c| {
                let path = directory.join("password");
                std::fs::write(&path, text).unwrap();
                c.server.resp_password_file = Some(path);
            });
            assert_eq!(problems.len(), expected, "{text:?}: {problems:?}");
        }
    }

    #[test]
    fn certificates_are_where_they_must_be() {
        let problems = problems(|directory, c| {
            c.server.tls = Some(TlsOptions {
                certificate: directory.join("certificate.pem"),
                key: Some(directory.to_owned()),
                key_password: Some(KeyPassword::Environment("ZODIUM_NO_SUCH_VARIABLE".into())),
                authenticate: directory.join("clients"),
            });
            c.storages[0].allow = Some(Vec::new());
        });
        for (problem, expected) in problems.iter().zip([
            "certificate cannot be read",
            "key cannot be read: it is a directory",
            "ZODIUM_NO_SUCH_VARIABLE",
            "authenticate clients by",
            "no client may use it",
        ]) {
            assert!(problem.contains(expected), "{expected}: {problem}");
        }
        assert_eq!(problems.len(), 5, "{problems:?}");
    }

    #[test]
    fn addresses_do_not_meet() {
        let meet =
            |first: &str, second: &str| meet(&first.parse().unwrap(), &second.parse().unwrap());
        for (first, second) in [
            ("a:1", "a:1"),
            ("8100", "127.0.0.1:8100"),
            ("127.0.0.1:8100", "0.0.0.0:8100"),
            ("[::1]:8100", "[::]:8100"),
            ("/run/a", "/run/./a"),
        ] {
            assert!(meet(first, second), "{first} {second}");
        }
        for (first, second) in [
            ("a:1", "a:2"),
            ("a:1", "b:1"),
            ("a:0", "a:0"),
            ("a:1", "/a:1"),
            ("[::1]:1", "0.0.0.0:1"),
            ("[::]:1", "0.0.0.0:1"),
        ] {
            assert!(!meet(first, second), "{first} {second}");
        }
        assert_problem("cannot listen on both", |_, c| {
            c.monitor = Some(MonitorOptions { address: c.server.addresses[0].clone() });
        });
        assert_problem("need HOST:PORT", |directory, c| {
            c.monitor = Some(MonitorOptions { address: Address::Unix(directory.join("monitor")) });
        });
        assert_problem("cannot listen on both", |_, c| {
            c.server.resp_addresses = vec![c.server.addresses[0].clone()];
        });
        assert_problem("cannot listen on both", |_, c| {
            c.server.resp_addresses = vec!["127.0.0.1:6379".parse().unwrap(); 2];
        });
        assert_problem("for the socket", |_, c| {
            c.server.resp_addresses = vec![Address::Unix("/no/such".into())];
        });
        assert_problem("no `address`", |_, c| c.server.addresses.clear());
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let problems = problems(|_, c| {
            c.server.handshake_time_max = Duration::ZERO;
            c.server.transaction_timeout = Some(Duration::ZERO);
            c.log.destinations = vec![LogDestination::Stderr, LogDestination::Stderr];
            c.storages.iter_mut().for_each(|storage| storage.quota_bytes = Some(0));
        });
        assert_eq!(problems.len(), 5, "{problems:?}");
    }
}
