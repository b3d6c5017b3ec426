//! Writes a configuration as TOML, without settings that have their default values.

use std::path::Path;
use std::time::Duration;

use toml::Value;
use zodium_types::Address;

use super::FORMATS;
use super::server::ENCODINGS;
use crate::error::ConfigurationError;
use crate::model::{
    Configuration, KeyPassword, LogDestination, LogOptions, PackOptions, PackSchedule,
    ServerOptions, StorageKind, StorageOptions, TlsOptions, Weekday,
};

type Written<T = ()> = Result<T, ConfigurationError>;

impl Configuration {
    /// The configuration as TOML, which [`crate::read_toml`] reads back to the same.
    ///
    /// It has addresses, storages, and all settings that differ from the defaults. Paths are
    /// written unchanged, so they should be absolute.
    ///
    /// # Errors
    ///
    /// A path is not UTF-8.
    pub fn to_toml(&self) -> Result<String, ConfigurationError> {
        let mut writer = Writer { text: String::new() };
        writer.server(&self.server)?;
        self.storages.iter().try_for_each(|storage| writer.storage(storage))?;
        if self.log != LogOptions::default() {
            writer.log(&self.log)?;
        }
        if let Some(monitor) = &self.monitor {
            writer.table("[monitor]");
            writer.put("address", address(&monitor.address)?);
        }
        Ok(writer.text)
    }
}

struct Writer {
    text: String,
}

impl Writer {
    fn table(&mut self, header: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(header);
        self.text.push('\n');
    }

    fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.text.push_str(&format!("{key} = {}\n", value.into()));
    }

    fn put_changed<T: PartialEq + Into<Value>>(&mut self, key: &str, value: T, default: T) {
        if value != default {
            self.put(key, value);
        }
    }

    fn put_path(&mut self, key: &str, path: Option<&Path>) -> Written {
        if let Some(path) = path {
            self.put(key, path_text(path)?);
        }
        Ok(())
    }

    fn server(&mut self, server: &ServerOptions) -> Written {
        let defaults = ServerOptions::default();
        self.table("[server]");
        let addresses: Vec<_> = server.addresses.iter().map(address).collect::<Written<_>>()?;
        self.put("address", addresses);
        if server.encoding != defaults.encoding {
            self.put("encoding", word(server.encoding, &ENCODINGS));
        }
        self.put_changed("read-only", server.read_only, defaults.read_only);
        if let Some(workers) = server.workers {
            self.put("workers", i64::from(workers));
        }
        if server.invalidation_queue_size != defaults.invalidation_queue_size {
            self.put("invalidation-queue-size", integer(server.invalidation_queue_size as u64));
        }
        for (key, time) in [
            ("busy-poll", server.busy_poll),
            ("invalidation-age", server.invalidation_age),
            ("transaction-timeout", server.transaction_timeout),
        ] {
            if let Some(time) = time {
                self.put(key, duration(time));
            }
        }
        self.put_changed(
            "client-conflict-resolution",
            server.client_conflict_resolution,
            defaults.client_conflict_resolution,
        );
        if !server.resolvable_classes.is_empty() {
            self.put("resolvable-classes", server.resolvable_classes.clone());
        }
        self.put_path("python-resolver", server.python_resolver.as_deref())?;
        self.put_changed(
            "reopen-after-failure",
            server.reopen_after_failure,
            defaults.reopen_after_failure,
        );
        if server.message_bytes_max != defaults.message_bytes_max {
            self.put("message-size-max", bytes(server.message_bytes_max.into()));
        }
        if let Some(connections) = server.connections_max {
            self.put("connections-max", i64::from(connections));
        }
        if let Some(memory) = server.memory_bytes_max {
            self.put("memory-limit", bytes(memory));
        }
        if server.handshake_time_max != defaults.handshake_time_max {
            self.put("handshake-timeout", duration(server.handshake_time_max));
        }
        self.put_path("pid-file", server.pid_file.as_deref())?;
        server.tls.iter().try_for_each(|tls| self.tls(tls))
    }

    fn tls(&mut self, tls: &TlsOptions) -> Written {
        self.table("[server.tls]");
        self.put_path("certificate", Some(&tls.certificate))?;
        self.put_path("key", tls.key.as_deref())?;
        match &tls.key_password {
            Some(KeyPassword::File(path)) => self.put_path("key-password-file", Some(path))?,
            Some(KeyPassword::Environment(variable)) => {
                self.put("key-password-environment", variable.clone());
            }
            None => {}
        }
        self.put_path("authenticate", Some(&tls.authenticate))
    }

    fn storage(&mut self, storage: &StorageOptions) -> Written {
        let defaults = StorageOptions::new("", StorageKind::Memory);
        self.table("[[storage]]");
        self.put("name", storage.name.clone());
        match &storage.kind {
            StorageKind::File { path, truncate } => {
                self.put_path("path", Some(path))?;
                self.put_changed("truncate", *truncate, false);
            }
            StorageKind::Memory => self.put("memory", true),
        }
        self.put_path("blob-directory", storage.blob_directory.as_deref())?;
        self.put_changed("read-only", storage.read_only, defaults.read_only);
        if storage.cache_bytes != defaults.cache_bytes {
            self.put("cache-size", bytes(storage.cache_bytes));
        }
        if let Some(quota) = storage.quota_bytes {
            self.put("quota", bytes(quota));
        }
        if storage.checksums != defaults.checksums {
            self.put("checksums", storage.checksums.name().to_owned());
        }
        if storage.scrub_interval != defaults.scrub_interval {
            self.put("scrub-interval", duration(storage.scrub_interval.unwrap_or_default()));
        }
        if let Some(allow) = &storage.allow {
            self.put("allow", allow.clone());
        }
        if storage.pack != PackOptions::default() {
            self.pack(&storage.pack);
        }
        Ok(())
    }

    fn pack(&mut self, pack: &PackOptions) {
        let defaults = PackOptions::default();
        self.table("[storage.pack]");
        for (key, value, default) in [
            ("garbage-collection", pack.garbage_collection, defaults.garbage_collection),
            ("keep-old", pack.keep_old, defaults.keep_old),
            ("abort-on-dangling", pack.abort_on_dangling, defaults.abort_on_dangling),
        ] {
            self.put_changed(key, value, default);
        }
        if let Some(schedule) = &pack.schedule {
            let (hour, minute) = schedule.at;
            self.put("at", format!("{hour:02}:{minute:02}"));
            let days: Vec<_> = schedule.on.iter().copied().map(Weekday::name).collect();
            self.put_changed("on", days, Vec::new());
            self.put_changed("keep-days", schedule.keep_days, PackSchedule::KEEP_DAYS_DEFAULT);
        }
    }

    fn log(&mut self, log: &LogOptions) -> Written {
        self.table("[log]");
        let destinations = log.destinations.iter().map(|destination| match destination {
            LogDestination::Stdout => Ok("stdout".to_owned()),
            LogDestination::Stderr => Ok("stderr".to_owned()),
            LogDestination::File(path) => path_text(path),
        });
        self.put("to", destinations.collect::<Written<Vec<_>>>()?);
        self.put("format", word(log.format, &FORMATS));
        self.put("level", log.level.clone());
        Ok(())
    }
}

fn path_text(path: &Path) -> Written<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| ConfigurationError::NotUnicode { path: path.to_owned() })
}

fn address(address: &Address) -> Written<String> {
    match address {
        Address::Unix(path) => path_text(path),
        tcp @ Address::Tcp { .. } => Ok(tcp.to_string()),
    }
}

/// The word of a choice; every choice has one.
fn word<T: Copy + PartialEq>(chosen: T, choices: &[(&'static str, T)]) -> &'static str {
    choices.iter().find(|(_, choice)| *choice == chosen).map_or("", |(word, _)| word)
}

/// An integer as TOML, whose integers are signed; a larger one is written as a size in text.
fn integer(number: u64) -> Value {
    i64::try_from(number).map_or_else(|_| Value::from(number.to_string()), Value::from)
}

/// A size in the largest unit that gives a whole number.
fn bytes(bytes: u64) -> Value {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let whole = units.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    match whole {
        Some((name, unit)) => Value::from(format!("{}{name}", bytes / unit)),
        None => integer(bytes),
    }
}

/// A duration in the largest unit that gives a whole number, or exact to the nanosecond.
fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds == 0 && !duration.is_zero() && duration.subsec_nanos().is_multiple_of(1000) {
        return format!("{}us", duration.subsec_micros());
    }
    if duration.subsec_nanos() > 0 {
        return format!("{seconds}.{:09}s", duration.subsec_nanos());
    }
    let units = [("d", 24 * 60 * 60), ("h", 60 * 60), ("m", 60)];
    let whole = units.iter().find(|(_, unit)| seconds > 0 && seconds.is_multiple_of(*unit));
    let (name, unit) = whole.copied().unwrap_or(("s", 1));
    format!("{}{name}", seconds / unit)
}
