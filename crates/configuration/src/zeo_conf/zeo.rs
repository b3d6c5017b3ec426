//! `<zeo>` and the `<ssl>` in it: the server as a whole.

use super::section::Section;
use super::values;
use crate::error::{Findings, Mistake};
use crate::model::{Encoding, KeyPassword, ServerOptions, TlsOptions};
use crate::surroundings::Surroundings;

pub(super) const ZEO: [&str; 8] = [
    "address",
    "read-only",
    "invalidation-queue-size",
    "invalidation-age",
    "transaction-timeout",
    "pid-filename",
    "client-conflict-resolution",
    "msgpack",
];

/// Settings of ZEO 4, which later versions reject.
const GONE: [(&str, &str); 4] = [
    ("monitor-address", "remove it; metrics are served by [monitor] of TOML"),
    ("authentication-protocol", AUTHENTICATION),
    ("authentication-database", AUTHENTICATION),
    ("authentication-realm", AUTHENTICATION),
];

const AUTHENTICATION: &str = "remove it; an <ssl> section lets in clients by their certificates";

pub(super) const SSL: [&str; 4] = ["certificate", "key", "password-function", "authenticate"];

/// The environment variable for the password of a key, since its function cannot be called.
pub(super) const KEY_PASSWORD_VARIABLE: &str = "ZODIUM_KEY_PASSWORD";

/// The server of a file; reports a missing `<zeo>` section.
pub(super) fn server(
    whole: &Section,
    surroundings: &Surroundings,
    findings: &mut Findings,
) -> Option<ServerOptions> {
    let Some(zeo) = whole.only("zeo", findings) else {
        let message = "there is no <zeo> section, which has the address to listen on";
        let help = "write `<zeo>`, `address HOST:PORT`, `</zeo>`";
        findings.mistake(Mistake::new(whole.place.clone(), message).help(help));
        return None;
    };
    zeo.check_keys_beside(&GONE, &ZEO, findings);
    zeo.check_sections(&["ssl"], findings);
    let address = zeo.required("address", findings, |text| values::address(text, surroundings));
    let defaults = ServerOptions::default();
    let queue = zeo.setting("invalidation-queue-size", findings, values::count);
    let queue = queue.and_then(|count| usize::try_from(count).ok());
    Some(ServerOptions {
        addresses: address.into_iter().collect(),
        encoding: encoding(zeo, surroundings, findings),
        read_only: zeo.setting("read-only", findings, values::boolean).unwrap_or(false),
        invalidation_queue_size: queue.unwrap_or(defaults.invalidation_queue_size),
        invalidation_age: zeo.setting("invalidation-age", findings, values::seconds),
        transaction_timeout: zeo.setting("transaction-timeout", findings, values::whole_seconds),
        resolvable_classes: Vec::new(),
        client_conflict_resolution: zeo
            .setting("client-conflict-resolution", findings, values::boolean)
            .unwrap_or(defaults.client_conflict_resolution),
        pid_file: pid_file(zeo, surroundings, findings),
        tls: zeo.only("ssl", findings).and_then(|ssl| tls(ssl, surroundings, findings)),
        ..defaults
    })
}

/// The encoding: from the file, else from `ZEO_MSGPACK`, as in runzeo.
fn encoding(zeo: &Section, surroundings: &Surroundings, findings: &mut Findings) -> Encoding {
    let by_environment = surroundings.variable("ZEO_MSGPACK").is_some_and(|text| !text.is_empty());
    let is_given = zeo.value("msgpack").is_some();
    if by_environment && !is_given {
        let message = "msgpack is used because the environment variable ZEO_MSGPACK is set";
        findings.warning(&zeo.place, message);
    }
    match zeo.setting("msgpack", findings, values::boolean).unwrap_or(by_environment) {
        true => Encoding::Msgpack,
        false => Encoding::Pickle,
    }
}

/// The pid file: from the file, else below `INSTANCE_HOME` if that is set, as in runzeo.
fn pid_file(
    zeo: &Section,
    surroundings: &Surroundings,
    findings: &mut Findings,
) -> Option<std::path::PathBuf> {
    if zeo.value("pid-filename").is_some_and(|value| !value.text.is_empty()) {
        return zeo.setting("pid-filename", findings, |text| values::path(text, surroundings));
    }
    let home = surroundings.variable("INSTANCE_HOME").filter(|home| !home.is_empty())?;
    Some(surroundings.absolute(&std::path::Path::new(&home).join("var/ZEO.pid")))
}

fn tls(ssl: &Section, surroundings: &Surroundings, findings: &mut Findings) -> Option<TlsOptions> {
    ssl.check_keys(&SSL, findings);
    ssl.check_sections(&[], findings);
    let path = |text: &str| values::path(text, surroundings);
    let certificate = ssl.required("certificate", findings, path);
    let key = ssl.setting("key", findings, path);
    let key_password = key_password(ssl, surroundings, findings);
    let authenticate = ssl.required("authenticate", findings, |text| match text {
        "DYNAMIC" | "SIGNED" | "-" => Err(format!(
            "{text} names no certificates: give a PEM file, or a directory of PEM files, with \
             certificates of clients or of authorities"
        )),
        path => values::plain_path(path, surroundings),
    });
    Some(TlsOptions { certificate: certificate?, key, key_password, authenticate: authenticate? })
}

fn key_password(
    ssl: &Section,
    surroundings: &Surroundings,
    findings: &mut Findings,
) -> Option<KeyPassword> {
    let function = ssl.value("password-function").filter(|value| !value.text.is_empty())?;
    if surroundings.variable(KEY_PASSWORD_VARIABLE).is_some() {
        return Some(KeyPassword::Environment(KEY_PASSWORD_VARIABLE.to_owned()));
    }
    let message = "`password-function`: no Python function is ever called";
    let help =
        format!("give the key's password in the environment variable {KEY_PASSWORD_VARIABLE}");
    let other = "or write the configuration as TOML, with `key-password-file`";
    let mistake = Mistake::new(function.place.clone(), message).help(help).help(other);
    findings.mistake(mistake);
    None
}
