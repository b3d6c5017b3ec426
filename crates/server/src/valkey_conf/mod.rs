//! A configuration file of Valkey or Redis: what of it applies here.
//!
//! Addresses, passwords, certificates and the settings of `CONFIG SET` are taken. Directives
//! without which the server would be less safe than the file says are refused. All others are named
//! in the log.

mod listening;
mod syntax;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tracing::{info, warn};
use zodium_configuration::{RespSync, ServerOptions};
use zodium_resp_server::{Options, Server};

use listening::Listening;
use syntax::Directive;

/// Databases of a server.
const DATABASES: u32 = 16;

/// Directives that a server must not ignore, each with what to do.
const REFUSED: [(&str, &str); 7] = [
    ("user", "there is one user here: remove it, and set requirepass"),
    ("aclfile", "there is one user here: remove it, and set requirepass"),
    ("rename-command", "commands cannot be renamed or taken away here: remove it"),
    ("loadmodule", "there are no modules here: remove it"),
    ("replicaof", "this server copies no other: remove it, and see `zodium resp import --to`"),
    ("slaveof", "this server copies no other: remove it, and see `zodium resp import --to`"),
    (
        "tls-key-file-pass",
        "write the password to a file, and name that with --ssl-key-password-file",
    ),
];

/// What a file asks for, beside the options that it has changed.
#[derive(Debug)]
pub(crate) struct ValkeyConf {
    path: PathBuf,
    /// Those that may be settings of the server.
    directives: Vec<Directive>,
}

/// Applies the file that the options name, if they do. What the options say themselves goes before
/// it. `is_alone`: RESP is all that this process serves.
///
/// # Errors
/// The file cannot be read, or a directive cannot be followed; the text says which.
pub(crate) fn apply(options: &mut ServerOptions, is_alone: bool) -> Result<Option<ValkeyConf>> {
    let Some(path) = options.resp_config.clone() else { return Ok(None) };
    let (mut listening, mut directives) = (Listening::default(), Vec::new());
    // Of each kind the last one counts: files are included to override others.
    let (mut sync, mut connections_max) = (None, None);
    for directive in syntax::read(&path)? {
        let Directive { name, place, .. } = &directive;
        if let Some((_, remedy)) = REFUSED.iter().find(|(refused, _)| refused == name) {
            bail!("{place}: {name}: {remedy}");
        }
        match name.as_str() {
            "appendfsync" => {
                let named = RespSync::named(directive.word()?);
                let none = || format!("{place}: {name}: it is always, everysec or no");
                sync = Some(named.with_context(none)?);
            }
            "maxclients" if is_alone => {
                let number: u32 = directive.number()?;
                if number == 0 {
                    bail!("{place}: {name}: no client could connect");
                }
                connections_max = Some(number);
            }
            _ => {
                if !listening.take(&directive)? {
                    directives.push(directive);
                }
            }
        }
    }
    options.resp_sync = options.resp_sync.or(sync);
    options.connections_max = options.connections_max.or(connections_max);
    let conf = ValkeyConf { path, directives };
    conf.listen(&listening, options, is_alone).with_context(|| conf.path.display().to_string())?;
    Ok(Some(conf))
}

/// Checks the file that the options name, without a server.
///
/// # Errors
/// As those of [`apply`] and [`ValkeyConf::configure`].
pub(crate) fn check(options: &ServerOptions) -> Result<()> {
    let mut options = options.clone();
    match apply(&mut options, false)? {
        Some(conf) => conf.configure(&Server::new(Options::default()), &options),
        None => Ok(()),
    }
}

impl ValkeyConf {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The password of clients, if it has one.
    pub(crate) fn password(&self) -> Option<String> {
        let mut passwords = self.directives.iter().filter(|given| given.name == "requirepass");
        passwords
            .next_back()
            .map(|last| last.words.join(" "))
            .filter(|password| !password.is_empty())
    }

    fn listen(
        &self,
        listening: &Listening,
        options: &mut ServerOptions,
        is_alone: bool,
    ) -> Result<()> {
        if options.resp_addresses.is_empty() {
            let is_guarded = options.resp_password_file.is_some()
                || self.password().is_some()
                || options.tls.is_some();
            options.resp_addresses = listening.addresses(is_guarded)?;
        }
        if options.tls.is_none() {
            options.tls = listening.tls()?;
            if options.tls.is_some() && !is_alone {
                bail!("tls-port: ZEO's clients share the certificates: give --ssl-certificate");
            }
        }
        Ok(())
    }

    /// Changes the settings of a server, and tells which directives have no effect.
    ///
    /// # Errors
    /// A value is none for its setting.
    pub(crate) fn configure(&self, server: &Server, options: &ServerOptions) -> Result<()> {
        let (mut unused, mut is_appended, mut is_saved) = (Vec::new(), false, false);
        for directive in &self.directives {
            let Directive { name, words, place } = directive;
            let value = words.join(" ");
            if server.has_setting(name) && name != "save" {
                directive.word()?;
            }
            match name.as_str() {
                // The server has it since its start.
                "requirepass" => {}
                "appendonly" => is_appended = value != "no",
                "save" => is_saved = !value.is_empty(),
                "databases" => {
                    if value.parse().is_ok_and(|databases: u32| databases > DATABASES) {
                        bail!("{place}: there are {DATABASES} databases here, and no more");
                    }
                }
                "dir" | "appendfilename" => unused.push(name.as_str()),
                _ => match server.configure(name, &value) {
                    Ok(true) => {}
                    Ok(false) => unused.push(name.as_str()),
                    Err(reason) => bail!("{place}: {name}: {reason}"),
                },
            }
        }
        if (is_appended || is_saved) && options.resp_file.is_none() {
            warn!(
                "{} asks for keys on disk, but there is no file of keys: they are in memory only. \
                 Give one with --file, or --resp-file of `zodium serve`",
                self.path.display()
            );
        }
        unused.sort_unstable();
        unused.dedup();
        if !unused.is_empty() {
            let path = self.path.display();
            info!("directives of {path} without effect here: {}", unused.join(", "));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The options after a file with this text, and what the file asks for beside them.
    fn applied(text: &str) -> Result<(ServerOptions, ValkeyConf)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("valkey.conf");
        std::fs::write(&path, text).unwrap();
        let mut options = ServerOptions { resp_config: Some(path), ..ServerOptions::default() };
        let conf = apply(&mut options, true)?.unwrap();
        Ok((options, conf))
    }

    fn addresses(text: &str) -> String {
        match applied(text) {
            Ok((options, _)) => {
                let texts = options.resp_addresses.iter().map(ToString::to_string);
                texts.collect::<Vec<_>>().join(" ")
            }
            Err(error) => format!("{error:#}"),
        }
    }

    fn refusal(text: &str) -> String {
        let refused = applied(text)
            .and_then(|(options, conf)| conf.configure(&Server::new(Options::default()), &options));
        format!("{:#}", refused.unwrap_err())
    }

    #[test]
    fn a_server_listens_where_the_file_says() {
        assert_eq!(addresses("bind 127.0.0.1\nport 7000"), "127.0.0.1:7000");
        assert_eq!(addresses("PORT 0\nunixsocket /tmp/a.sock"), "/tmp/a.sock");
        assert!(addresses("").starts_with("127.0.0.1:6379"));
        // With IPv6 one address is for both kinds.
        let everywhere = ["[::]:6379", "0.0.0.0:6379"];
        assert!(everywhere.contains(&&*addresses("requirepass secret")));
        assert!(everywhere.contains(&&*addresses("protected-mode no\nbind * -::*")));
        assert_eq!(addresses("protected-mode no\nbind *"), "0.0.0.0:6379");
        assert_eq!(addresses("bind 127.0.0.1 -192.0.2.1\nrequirepass a"), "127.0.0.1:6379");
        assert!(addresses("bind 0.0.0.0").contains("Set requirepass"));
        assert!(addresses("tls-port 7000").contains("write port 0"));
        assert!(addresses("port 7000x").contains("valkey.conf:1: port: \"7000x\" is no number"));
    }

    #[test]
    fn connections_are_encrypted_as_the_file_says() {
        let text = "port 0\ntls-port 7000\nbind ::1\ntls-cert-file \"a b.pem\"\n\
                    tls-key-file k.pem\ntls-ca-cert-file ca.pem\ntls-auth-clients yes";
        let tls = applied(text).unwrap().0.tls.unwrap();
        assert_eq!((tls.certificate, tls.key), ("a b.pem".into(), Some("k.pem".into())));
        assert_eq!(tls.authenticate, PathBuf::from("ca.pem"));
        assert!(refusal("port 0\ntls-port 7000").contains("tls-cert-file"));
        assert!(refusal("tls-auth-clients no").contains("need certificates"));
    }

    #[test]
    fn what_the_options_say_goes_before_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("valkey.conf");
        std::fs::write(&path, "bind 10.0.0.1\nappendfsync no\nmaxclients 7\n").unwrap();
        let given: Vec<zodium_types::Address> = vec!["127.0.0.1:1".parse().unwrap()];
        let mut options = ServerOptions {
            resp_config: Some(path),
            resp_addresses: given.clone(),
            resp_sync: Some(RespSync::EverySecond),
            connections_max: Some(9),
            ..ServerOptions::default()
        };
        apply(&mut options, true).unwrap();
        assert_eq!((options.resp_addresses, options.connections_max), (given, Some(9)));
        assert_eq!(options.resp_sync, Some(RespSync::EverySecond));
    }

    #[test]
    fn the_last_of_each_kind_counts() {
        let text = "appendfsync no\nmaxclients 10\nmaxclients 20\nappendfsync always";
        let (options, _) = applied(text).unwrap();
        assert_eq!(options.resp_sync, Some(RespSync::Always));
        assert_eq!(options.connections_max, Some(20));
    }

    #[test]
    fn certificates_of_the_file_count_also_where_an_option_has_the_address() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("valkey.conf");
        let text = "port 0\ntls-port 7000\ntls-cert-file c.pem\ntls-ca-cert-file ca.pem";
        std::fs::write(&path, text).unwrap();
        let mut options = ServerOptions {
            resp_config: Some(path),
            resp_addresses: vec!["127.0.0.1:1".parse().unwrap()],
            ..ServerOptions::default()
        };
        apply(&mut options, true).unwrap();
        assert!(options.tls.is_some());
    }

    #[test]
    fn what_cannot_be_followed_is_refused_with_its_place() {
        assert!(
            refusal("# a\n\nmaxmemory lots")
                .contains("valkey.conf:3: maxmemory: argument must be a memory value")
        );
        assert!(refusal("user alice on >p ~* +@all").contains("valkey.conf:1: user: there is one"));
        assert!(refusal("maxclients 0").contains("valkey.conf:1: maxclients: no client"));
        assert!(
            refusal("requirepass \"a b\" # secret").contains("valkey.conf:1: requirepass: one")
        );
        assert!(refusal("port 1 2").contains("valkey.conf:1: port: one"));
        assert!(refusal("databases 32").contains("16 databases"));
        assert!(refusal("requirepass \"a").contains("valkey.conf:1: "));
        assert!(refusal("include /no/such/file").contains("/no/such/file"));
        assert!(refusal("appendfsync often").contains("always, everysec or no"));
    }

    #[test]
    fn an_included_file_stands_where_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other.conf");
        std::fs::write(&other, "maxclients 20\n").unwrap();
        let text = format!("maxclients 10\ninclude {}\nmaxmemory 1mb", other.display());
        let (options, conf) = applied(&text).unwrap();
        assert_eq!(options.connections_max, Some(20));
        assert_eq!(conf.directives[0].place.to_string().rsplit(':').next(), Some("3"));
    }

    #[test]
    fn files_that_include_themselves_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("loop.conf");
        std::fs::write(&path, format!("include {}", path.display())).unwrap();
        assert!(format!("{:#}", syntax::read(&path).unwrap_err()).contains("include each other"));
    }
}
