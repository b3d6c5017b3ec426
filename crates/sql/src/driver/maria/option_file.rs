//! Option files of MariaDB's clients (`my.cnf`): the settings of groups `client` and `zodium`.

use std::io;
use std::path::Path;

use super::tls::TlsOptions;

/// The groups that are read. A later line in the file counts.
const GROUPS: [&str; 3] = ["client", "client-mariadb", "zodium"];

/// What a file says.
#[derive(Default)]
pub(super) struct OptionFile {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) socket: Option<String>,
    pub(super) tls: TlsOptions,
}

/// Reads a file. Other options of it are those of other programs.
pub(super) fn read(path: &Path) -> io::Result<OptionFile> {
    let text = std::fs::read_to_string(path)?;
    let (mut found, mut is_ours) = (OptionFile::default(), false);
    for line in text.lines().map(str::trim) {
        if let Some(group) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_ours = GROUPS.contains(&group.trim());
        } else if let (true, Some((name, value))) = (is_ours, line.split_once('=')) {
            let value = unquoted(value.trim());
            match name.trim() {
                "user" => found.user = Some(value),
                "password" => found.password = Some(value),
                "host" => found.host = Some(value),
                "port" => found.port = value.parse().ok(),
                "socket" => found.socket = Some(value),
                name => {
                    let set = found.tls.set(&name.replace('_', "-"), &value);
                    set.map_err(io::Error::other)?;
                }
            }
        }
    }
    Ok(found)
}

/// A value without its quotes, or without the comment behind it.
fn unquoted(value: &str) -> String {
    for quote in ['"', '\''] {
        let rest = value.strip_prefix(quote);
        if let Some((inside, _)) = rest.and_then(|rest| rest.rsplit_once(quote)) {
            return inside.to_owned();
        }
    }
    value.split(" #").next().unwrap_or_default().trim_end().to_owned()
}
