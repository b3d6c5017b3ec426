//! Parses storage URLs.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use zodium_tls::{CertificateFiles, ClientFiles, Password, Trust};
use zodium_types::Address;

use crate::ClientError;
use crate::options::{Access, Options, TIMEOUT_MAX, TlsOptions, WarmUpList};

/// The target of a URL.
pub(crate) enum Place {
    /// A storage on a server.
    Server(Box<Options>),
    /// A `Data.fs`.
    File(PathBuf),
}

/// The port of hosts in URLs `zodium://` without one, as in the Python package.
const PORT: u16 = 8100;

/// Paths of certificates and keys in a URL.
#[derive(Default)]
struct TlsParts {
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    key_password_file: Option<PathBuf>,
    authenticate: Option<PathBuf>,
    server_name: Option<String>,
}

impl Options {
    /// Parses a URL into options, which can be changed before use.
    ///
    /// The form is `zeo://HOST:PORT/STORAGE?PARAMETERS`; the scheme `zodium` means the same, with
    /// port 8100 for hosts that have none.
    /// Several servers are separated by commas, and `zeo:///path/to/socket` is a Unix socket.
    /// `/STORAGE` can be left out, or be the parameter `storage`. Further parameters:
    ///
    /// - `wait`, `read_only`, `read_only_fallback`: 1 or 0, or true or false;
    /// - `wait_timeout`: seconds;
    /// - `client_label`, `cache_path`, and `cache_size`: bytes, also as 20MB;
    /// - `warm_up`: the path of the warm-up list, or `off`;
    /// - for TLS `ssl_certificate`, `ssl_key`, `ssl_key_password_file`, `ssl_authenticate`: paths;
    /// - `ssl_server_hostname`.
    ///
    /// ```
    /// use zodium_client::Options;
    ///
    /// let options = Options::from_url("zeo://db1:8100,db2:8100/main?cache_size=64MiB")?;
    /// assert_eq!(options.addresses.len(), 2);
    /// assert_eq!((&options.storage[..], options.cache_bytes), ("main", 64 << 20));
    /// # Ok::<(), zodium_client::ClientError>(())
    /// ```
    pub fn from_url(url: &str) -> Result<Options, ClientError> {
        match Place::from_url(url)? {
            Place::Server(options) => Ok(*options),
            Place::File(_) => Err(ClientError::options(format!(
                "{url}: a file has no server to connect to; Database::open_with opens both"
            ))),
        }
    }
}

impl Place {
    pub(crate) fn from_url(url: &str) -> Result<Place, ClientError> {
        let wrong = |what: &str| {
            ClientError::options(format!(
                "{url}: {what}; give zeo://HOST:PORT/STORAGE, zeo:///path/to/socket, or \
                 file:///path/to/Data.fs"
            ))
        };
        let (scheme, rest) = url.split_once(':').ok_or_else(|| wrong("it has no scheme"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        match scheme {
            "file" => {
                let path = rest.strip_prefix("//").unwrap_or(rest);
                let path = PathBuf::from(decoded(path).into_owned());
                if path.as_os_str().is_empty() {
                    return Err(wrong("it names no file"));
                }
                Ok(Place::File(path))
            }
            "zeo" | "zodium" => {
                let rest = rest.strip_prefix("//").ok_or_else(|| wrong("// is missing"))?;
                let port = (scheme == "zodium").then_some(PORT);
                let mut options = server(rest, port).map_err(|what| wrong(&what))?;
                parameters(&mut options, query).map_err(|what| wrong(&what))?;
                Ok(Place::Server(Box::new(options)))
            }
            _ => Err(wrong("its scheme is none of zeo, zodium and file")),
        }
    }
}

/// Parses the part before the parameters. `port` is that of hosts without one.
fn server(rest: &str, port: Option<u16>) -> Result<Options, String> {
    if rest.starts_with('/') {
        return Ok(Options::new(Address::Unix(PathBuf::from(decoded(rest).into_owned()))));
    }
    let (hosts, storage) = rest.split_once('/').unwrap_or((rest, ""));
    let mut addresses = Vec::new();
    for host in hosts.split(',') {
        let given = with_port(host, port)?;
        addresses.push(given.parse::<Address>().map_err(|error| error.to_string())?);
    }
    let first = addresses.first().cloned().ok_or("it names no server")?;
    let mut options = Options { addresses, ..Options::new(first) };
    if !storage.is_empty() {
        options.storage = decoded(storage).into_owned();
    }
    Ok(options)
}

fn with_port(host: &str, port: Option<u16>) -> Result<Cow<'_, str>, String> {
    if host.contains(':') && !host.ends_with(']') {
        return Ok(Cow::Borrowed(host));
    }
    // A number would be taken for a host, though it is meant as a port.
    let is_host = !host.is_empty() && !host.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.filter(|_| is_host).ok_or_else(|| format!("{host:?} has no port"))?;
    Ok(Cow::Owned(format!("{host}:{port}")))
}

fn parameters(options: &mut Options, query: &str) -> Result<(), String> {
    let mut tls = TlsParts::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let path = || Some(PathBuf::from(value.as_ref()));
        match name.as_ref() {
            "storage" => options.storage = value.into_owned(),
            "wait" => options.wait = truth(&name, &value)?,
            "wait_timeout" => options.wait_timeout = seconds(&name, &value)?,
            "read_only" if truth(&name, &value)? => options.access = Access::ReadOnly,
            "read_only_fallback" if truth(&name, &value)? => options.access = Access::Fallback,
            "read_only" | "read_only_fallback" => {}
            "client_label" => options.label = Some(value.into_owned()),
            "cache_size" => options.cache_bytes = size(&name, &value)?,
            "cache_path" => options.cache_path = path(),
            "warm_up" if value == "off" => options.warm_up = WarmUpList::Off,
            "warm_up" => options.warm_up = WarmUpList::File(PathBuf::from(value.as_ref())),
            "ssl_certificate" => tls.certificate = path(),
            "ssl_key" => tls.key = path(),
            "ssl_key_password_file" => tls.key_password_file = path(),
            "ssl_authenticate" => tls.authenticate = path(),
            "ssl_server_hostname" => tls.server_name = Some(value.into_owned()),
            _ => return Err(format!("there is no parameter {name:?}")),
        }
    }
    options.tls = tls.options()?;
    Ok(())
}

impl TlsParts {
    fn options(self) -> Result<Option<TlsOptions>, String> {
        let TlsParts { certificate, key, key_password_file, authenticate, server_name } = self;
        let is_more_given = key.is_some() || key_password_file.is_some();
        let own = match certificate {
            Some(certificate) => Some(CertificateFiles {
                certificate,
                key,
                key_password: key_password_file.map(Password::File),
            }),
            None if is_more_given => return Err("a key needs its ssl_certificate".to_owned()),
            None => None,
        };
        match authenticate {
            Some(path) => {
                let files = ClientFiles { own, trust: Trust::Listed(path) };
                Ok(Some(TlsOptions { files, server_name }))
            }
            None if own.is_some() || server_name.is_some() => {
                Err("TLS needs ssl_authenticate, to know the server by".to_owned())
            }
            None => Ok(None),
        }
    }
}

fn truth(name: &str, value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(format!("{name} is 1 or 0, not {value:?}")),
    }
}

fn seconds(name: &str, value: &str) -> Result<Duration, String> {
    let seconds = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let seconds = seconds.map(|seconds: Duration| seconds.min(TIMEOUT_MAX));
    seconds.ok_or_else(|| format!("{name} is a number of seconds, not {value:?}"))
}

fn size(name: &str, value: &str) -> Result<usize, String> {
    let bytes = value.parse::<ByteSize>().ok().and_then(|size| usize::try_from(size.as_u64()).ok());
    bytes.ok_or_else(|| format!("{name} is a number of bytes or a size like 20MiB, not {value:?}"))
}

fn decoded(text: &str) -> Cow<'_, str> {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> Options {
        Options::from_url(url).unwrap()
    }

    fn refusal(url: &str) -> String {
        Options::from_url(url).err().unwrap().to_string()
    }

    #[test]
    fn servers_and_storages_are_where_the_url_says() {
        let tcp = options("zodium://db.example:8100");
        assert_eq!(tcp.addresses, ["db.example:8100".parse().unwrap()]);
        assert_eq!(tcp.storage, "1");
        assert_eq!(options("zeo://a:1,[::1]:2/main%20one").storage, "main one");
        assert_eq!(options("zeo://a:1,[::1]:2").addresses[1], "[::1]:2".parse().unwrap());
        for (url, address) in [
            ("zodium://db.example/main", "db.example:8100"),
            ("zodium://[::1]", "[::1]:8100"),
            ("zodium://a:1,b", "a:1"),
        ] {
            assert_eq!(options(url).addresses[0], address.parse().unwrap(), "{url}");
        }
        assert_eq!(options("zodium://a:1,b").addresses[1], "b:8100".parse().unwrap());
        let unix = options("zeo:///run/zeo%20one.sock?storage=2");
        assert_eq!(unix.addresses, [Address::Unix("/run/zeo one.sock".into())]);
        assert_eq!(unix.storage, "2");
    }

    #[test]
    fn parameters_are_options() {
        let all = options(
            "zeo://a:1?wait=no&wait_timeout=2.5&read_only_fallback=1&client_label=a+b&\
             cache_size=5MiB&cache_path=/tmp/c&ssl_authenticate=/ca&ssl_server_hostname=db",
        );
        assert_eq!((all.wait, all.wait_timeout), (false, Duration::from_millis(2500)));
        assert_eq!((all.access, all.label.as_deref()), (Access::Fallback, Some("a b")));
        let longest = options("zeo://a:1?wait_timeout=9223372036854775807").wait_timeout;
        assert_eq!(longest, Duration::from_secs(100 * 365 * 86_400));
        assert!(std::time::Instant::now().checked_add(longest).is_some());
        assert_eq!((all.cache_bytes, all.cache_path), (5 << 20, Some("/tmp/c".into())));
        assert_eq!(all.warm_up, WarmUpList::BesideCache);
        let tls = all.tls.unwrap();
        assert_eq!(tls.files, ClientFiles { own: None, trust: Trust::Listed("/ca".into()) });
        assert_eq!(tls.server_name.as_deref(), Some("db"));
        let tls = options(
            "zeo://a:1?ssl_authenticate=/ca&ssl_certificate=/own&ssl_key=/key&\
             ssl_key_password_file=/password",
        );
        let own = tls.tls.unwrap().files.own.unwrap();
        assert_eq!((own.certificate, own.key), ("/own".into(), Some("/key".into())));
        assert_eq!(own.key_password, Some(Password::File("/password".into())));
    }

    #[test]
    fn a_client_writes_unless_the_url_says_otherwise() {
        for (query, access) in [
            ("", Access::ReadWrite),
            ("?read_only=1", Access::ReadOnly),
            ("?read_only=0", Access::ReadWrite),
            ("?read_only_fallback=yes", Access::Fallback),
            ("?read_only_fallback=no", Access::ReadWrite),
            ("?read_only=TRUE", Access::ReadOnly),
            ("?read_only=off", Access::ReadWrite),
        ] {
            assert_eq!(options(&format!("zeo://a:1{query}")).access, access, "{query}");
        }
    }

    #[test]
    fn the_warm_up_list_has_a_path_or_there_is_none() {
        let path = WarmUpList::File("/var/first".into());
        assert_eq!(options("zeo://a:1?warm_up=/var/first").warm_up, path);
        assert_eq!(options("zeo://a:1?warm_up=off").warm_up, WarmUpList::Off);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, what) in [
            ("localhost", "no scheme"),
            ("http://a:1", "none of zeo"),
            ("zeo:a:1", "// is missing"),
            ("zeo://a", "no port"),
            ("zeo://[::1]", "no port"),
            ("zodium://", "no port"),
            ("zodium://8100/main", "no port"),
            ("zeo://a:x", "not an address"),
            ("zeo://a:1?wait=perhaps", "wait is 1 or 0"),
            ("zeo://a:1?wait_timeout=-1", "number of seconds"),
            ("zeo://a:1?cache_size=big", "number of bytes"),
            ("zeo://a:1?colour=red", "no parameter \"colour\""),
            ("zeo://a:1?ssl_key=k", "ssl_certificate"),
            ("zeo://a:1?ssl_certificate=c", "ssl_authenticate"),
            ("zeo://a:1?ssl_server_hostname=db", "ssl_authenticate"),
            ("zeo://a:1?ssl_key_password_file=p", "ssl_certificate"),
            ("file:", "no file"),
            ("file:///Data.fs", "open_with"),
        ] {
            let said = refusal(url);
            assert!(said.contains(what), "{url}: {said}");
        }
    }
}
