//! `<zeo>` and the `<ssl>` in it: the server as a whole.

use std::path::Path;

use super::section::Section;
use crate::error::{Findings, Mistake};
use crate::settings::field::Group;
use crate::settings::server::{Encoding, ServerOptions};
use crate::settings::tls::{KeyPassword, TlsOptions};
use crate::surroundings::Surroundings;

/// Settings of ZEO 4, which later versions reject.
const GONE: [(&str, &str); 4] = [
    ("monitor-address", "remove it; metrics are served by [monitor] of TOML"),
    ("authentication-protocol", AUTHENTICATION),
    ("authentication-database", AUTHENTICATION),
    ("authentication-realm", AUTHENTICATION),
];

const AUTHENTICATION: &str = "remove it; an <ssl> section lets in clients by their certificates";

pub(super) const PASSWORD_FUNCTION: &str = "password-function";

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
    let known: Vec<_> = ServerOptions::zeo_conf_keys().collect();
    zeo.check_keys_beside(&GONE, &known, findings);
    zeo.check_sections(&["ssl"], findings);
    zeo.require("address", findings);
    let mut server = ServerOptions { addresses: Vec::new(), ..ServerOptions::default() };
    server.take_zeo_conf(zeo, surroundings, findings);
    take_environment(zeo, surroundings, &mut server, findings);
    server.tls = zeo.only("ssl", findings).map(|ssl| tls(ssl, surroundings, findings));
    Some(server)
}

/// Takes what runzeo takes from the environment if the file does not have it.
fn take_environment(
    zeo: &Section,
    surroundings: &Surroundings,
    server: &mut ServerOptions,
    findings: &mut Findings,
) {
    let variable = |name| surroundings.variable(name).filter(|text| !text.is_empty());
    if variable("ZEO_MSGPACK").is_some() && zeo.value("msgpack").is_none() {
        let message = "msgpack is used because the environment variable ZEO_MSGPACK is set";
        findings.warning(&zeo.place, message);
        server.encoding = Encoding::Msgpack;
    }
    if zeo.value("pid-filename").is_none_or(|value| value.text.is_empty()) {
        // runzeo logs that it cannot write the file, and serves without it.
        let folder = |home| surroundings.absolute(&Path::new(&home).join("var"));
        let folder = variable("INSTANCE_HOME").map(folder).filter(|folder| folder.is_dir());
        server.pid_file = folder.map(|folder| folder.join("ZEO.pid"));
    }
}

fn tls(ssl: &Section, surroundings: &Surroundings, findings: &mut Findings) -> TlsOptions {
    let known: Vec<_> = TlsOptions::zeo_conf_keys().chain([PASSWORD_FUNCTION]).collect();
    ssl.check_keys(&known, findings);
    ssl.check_sections(&[], findings);
    let mut tls = TlsOptions::default();
    tls.take_zeo_conf(ssl, surroundings, findings);
    tls.key_password = key_password(ssl, surroundings, findings);
    tls
}

fn key_password(
    ssl: &Section,
    surroundings: &Surroundings,
    findings: &mut Findings,
) -> Option<KeyPassword> {
    let function = ssl.value(PASSWORD_FUNCTION).filter(|value| !value.text.is_empty())?;
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
