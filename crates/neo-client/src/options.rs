//! What a client is told: the cluster, its masters, and its certificates.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use zodium_types::Address;

use crate::NeoError;

/// What the URL of a cluster begins with.
const SCHEME: &str = "neo://";
/// How long a call waits for a primary master, or for a storage.
const WAIT: Duration = Duration::from_secs(30);
/// Bytes of current revisions in memory.
const CACHE_BYTES: u64 = 64 << 20;
/// Longest time to wait that can be given.
const WAIT_SECONDS_MAX: u64 = 24 * 60 * 60;

/// How to open a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The name of the cluster.
    pub cluster: String,
    /// Masters, at least one. They tell of the others.
    pub masters: Vec<Address>,
    /// The files for TLS, if the cluster has it.
    pub tls: Option<TlsFiles>,
    /// Refuse commits. A backup cluster can be opened this way only.
    pub read_only: bool,
    /// How long a call waits for a primary master, or for a storage.
    pub wait: Duration,
    /// Most bytes of current revisions in memory; 0: none.
    pub cache_bytes: u64,
    /// Store data compressed where that makes them smaller.
    pub compress: bool,
}

/// The files that each node of a cluster with TLS has, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the cluster's authority.
    pub authority: PathBuf,
    /// The certificate of this node.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Options {
    /// The defaults, for a cluster.
    pub fn new(cluster: String, masters: Vec<Address>) -> Options {
        Options {
            cluster,
            masters,
            tls: None,
            read_only: false,
            wait: WAIT,
            cache_bytes: CACHE_BYTES,
            compress: true,
        }
    }

    /// Parses `neo://CLUSTER@HOST:PORT[,HOST:PORT...][?PARAMETERS]`.
    ///
    /// Parameters: `ca`, `cert` and `key` are the paths of PEM files, for TLS; `wait` is the number
    /// of seconds that a call waits for the cluster. `%40` in the name stands for an at sign.
    ///
    /// # Errors
    /// [`NeoError::Url`].
    ///
    /// ```
    /// use zodium_neo_client::Options;
    ///
    /// let options = Options::from_url("neo://main@10.0.0.1:9500,10.0.0.2:9500?wait=5")?;
    /// assert_eq!((&options.cluster[..], options.masters.len()), ("main", 2));
    /// # Ok::<(), zodium_neo_client::NeoError>(())
    /// ```
    pub fn from_url(url: &str) -> Result<Options, NeoError> {
        parse(url).map_err(|what| NeoError::Url { url: url.to_owned(), what })
    }
}

fn parse(url: &str) -> Result<Options, String> {
    let rest = url.strip_prefix(SCHEME).ok_or("it does not begin with neo://")?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (cluster, masters) =
        place.rsplit_once('@').ok_or("it has no @ after the cluster's name")?;
    let cluster = percent_decode_str(cluster).decode_utf8().map_err(|error| error.to_string())?;
    if cluster.is_empty() {
        return Err("the cluster has no name".to_owned());
    }
    let masters = masters.trim_end_matches('/').split(',').map(master).collect::<Result<_, _>>()?;
    let (mut wait, mut authority, mut certificate, mut key) = (WAIT, None, None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let path = || Some(PathBuf::from(value.as_ref()));
        match name.as_ref() {
            "ca" => authority = path(),
            "cert" => certificate = path(),
            "key" => key = path(),
            "wait" => wait = seconds(&value)?,
            _ => return Err(format!("there is no parameter {name:?}; known: ca, cert, key, wait")),
        }
    }
    let tls = match (authority, certificate, key) {
        (None, None, None) => None,
        (Some(authority), Some(certificate), Some(key)) => {
            Some(TlsFiles { authority, certificate, key })
        }
        _ => return Err("TLS needs ca, cert and key".to_owned()),
    };
    Ok(Options { tls, wait, ..Options::new(cluster.into_owned(), masters) })
}

fn master(text: &str) -> Result<Address, String> {
    match text.parse() {
        Ok(Address::Tcp { host, port }) if !host.is_empty() => Ok(Address::Tcp { host, port }),
        _ => Err(format!("{text:?} is not HOST:PORT of a master")),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds <= WAIT_SECONDS_MAX);
    let seconds = seconds.ok_or_else(|| {
        format!("wait is a number of seconds, {WAIT_SECONDS_MAX} at most, not {text:?}")
    })?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_names_cluster_masters_and_certificates() {
        let options = Options::from_url(
            "neo://my%40cluster@127.0.0.1:1,[::1]:2?ca=/a%20b&cert=/c&key=/d&wait=7",
        );
        let tcp = |host: &str, port| Address::Tcp { host: host.to_owned(), port };
        let tls = TlsFiles { authority: "/a b".into(), certificate: "/c".into(), key: "/d".into() };
        let expected = Options {
            cluster: "my@cluster".to_owned(),
            masters: vec![tcp("127.0.0.1", 1), tcp("::1", 2)],
            tls: Some(tls),
            read_only: false,
            wait: Duration::from_secs(7),
            cache_bytes: CACHE_BYTES,
            compress: true,
        };
        assert_eq!(options.unwrap(), expected);
        assert_eq!(Options::from_url("neo://a@b:1").unwrap().wait, WAIT);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, what) in [
            ("zeo://a@b:1", "begin with neo://"),
            ("neo://b:1", "no @"),
            ("neo://@b:1", "no name"),
            ("neo://a@b", "not HOST:PORT"),
            ("neo://a@b:1,", "not HOST:PORT"),
            ("neo://a@:1", "not HOST:PORT"),
            ("neo://a@b:1?ca=x", "TLS needs"),
            ("neo://a@b:1?wait=-1", "number of seconds"),
            ("neo://a@b:1?colour=red", "no parameter \"colour\""),
        ] {
            let error = Options::from_url(url).unwrap_err().to_string();
            assert!(error.contains(what), "{url}: {error}");
        }
    }
}
