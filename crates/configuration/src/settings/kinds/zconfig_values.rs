//! Conversions of texts to values, as by ZConfig's datatypes, with Python's integers and floats.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use zodium_types::Address;

use crate::surroundings::Surroundings;

/// `yes`, `true`, `on`, `no`, `false`, `off`, in any case.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match &text.to_lowercase()[..] {
        "yes" | "true" | "on" => Ok(true),
        "no" | "false" | "off" => Ok(false),
        _ => Err(format!("{text:?} is neither `on` nor `off` (true, false, yes, no)")),
    }
}

/// A whole number as in Python, with an optional sign, and single underscores between digits.
pub(crate) fn integer(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is not a whole number");
    let digits = without_underscores(text.trim()).ok_or_else(wrong)?;
    digits.parse().map_err(|_| wrong())
}

/// A whole number, not below zero.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    u64::try_from(integer(text)?).map_err(|_| format!("{text:?} is below zero"))
}

/// Removes single underscores between digits; `None` for any other underscore.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at)).is_some_and(|byte| byte.is_ascii_digit())
    };
    let underscores = (0..bytes.len()).filter(|at| bytes[*at] == b'_');
    let mut between =
        underscores.map(|at| is_digit(at.checked_sub(1)) && is_digit(at.checked_add(1)));
    between.all(|between| between).then(|| text.replace('_', ""))
}

/// Whole seconds, at least one.
pub(crate) fn whole_seconds(text: &str) -> Result<Duration, String> {
    match integer(text) {
        Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds.unsigned_abs())),
        Ok(_) => Err("must be at least one second; leave it out for no limit".to_owned()),
        Err(wrong) => Err(format!("{wrong}: give seconds, without a unit")),
    }
}

/// Seconds, with an optional fraction.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a number of seconds");
    let number = without_underscores(text.trim()).ok_or_else(wrong)?;
    let seconds: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// A size in bytes, with optional `KB`, `MB` or `GB` for powers of 1,024.
pub(crate) fn byte_size(text: &str) -> Result<u64, String> {
    let lower = text.to_lowercase();
    let units = [("kb", 1_u64 << 10), ("mb", 1 << 20), ("gb", 1 << 30)];
    let unit = units.iter().find_map(|(unit, bytes)| Some((lower.strip_suffix(unit)?, *bytes)));
    let (number, unit) = unit.unwrap_or((&lower, 1));
    let number = count(number)
        .map_err(|_| format!("{text:?} is not a size: give a whole number and KB, MB or GB"))?;
    number.checked_mul(unit).ok_or_else(|| format!("{text:?} is more than any file can hold"))
}

/// An address: `host:port`, `port`, `:port`, or a path with a slash. No host: all interfaces.
pub(crate) fn address(text: &str, surroundings: &Surroundings) -> Result<Address, String> {
    if text.contains('/') {
        return Ok(Address::Unix(surroundings.absolute(Path::new(text))));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if bare.is_none() && host.contains(':') {
        return Err(match (host.parse::<Ipv6Addr>(), integer(port)) {
            (Ok(_), Ok(_)) => format!(
                "{text:?} has no brackets: give [{host}]:{port}, or [{text}]:PORT if the port is \
                 missing"
            ),
            _ => format!("{text:?} has no port: give [{text}]:PORT for IPv6"),
        });
    }
    let host = bare.unwrap_or(host);
    if host.contains(['[', ']']) {
        return Err(format!("{text:?} has no host: brackets are for one IPv6 address, [::1]:PORT"));
    }
    let Ok(port) = integer(port) else {
        return Err(format!(
            "{text:?} has no port: give HOST:PORT, a PORT, or a /path/to/a/socket"
        ));
    };
    let port =
        u16::try_from(port).map_err(|_| format!("{port} is not a port: ports end at 65535"))?;
    Ok(Address::Tcp { host: host.to_lowercase(), port })
}

/// A path, relative to the working directory or, with `~/`, to the home directory.
pub(crate) fn path(text: &str, surroundings: &Surroundings) -> Result<PathBuf, String> {
    let Some(rest) = text.strip_prefix('~') else { return plain_path(text, surroundings) };
    if !rest.is_empty() && !rest.starts_with('/') {
        return Err(format!("{text:?}: homes of other users are not looked up; write the path"));
    }
    let Some(home) = surroundings.variable("HOME") else {
        return Err(format!("{text:?}: HOME is not set; write the whole path"));
    };
    Ok(surroundings.absolute(&Path::new(&home).join(rest.trim_start_matches('/'))))
}

/// A path; an empty text means none, as in FileStorage.
pub(crate) fn path_or_none(
    text: &str,
    surroundings: &Surroundings,
) -> Result<Option<PathBuf>, String> {
    if text.is_empty() { Ok(None) } else { path(text, surroundings).map(Some) }
}

/// A path, or the name of a program that is looked up in `PATH`.
pub(crate) fn program(text: &str, surroundings: &Surroundings) -> Result<PathBuf, String> {
    let path = path(text, surroundings)?;
    let is_path = text.contains('/') || text.starts_with('~');
    Ok(if is_path { path } else { path.file_name().map(PathBuf::from).unwrap_or(path) })
}

/// A path, relative to the working directory; `~` has no special meaning.
pub(crate) fn plain_path(text: &str, surroundings: &Surroundings) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("no path is given".to_owned());
    }
    if text.contains('\0') {
        return Err(format!("{text:?} is not a path"));
    }
    Ok(surroundings.absolute(Path::new(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings() -> Surroundings<'static> {
        let environment = &|name: &str| (name == "HOME").then(|| "/users/zope".to_owned());
        Surroundings { directory: "/srv".into(), environment }
    }

    #[test]
    fn numbers_are_pythons() {
        for (text, expected) in
            [("0", Some(0)), ("-7", Some(-7)), ("+1_000", Some(1000)), (" 5 ", Some(5))]
        {
            assert_eq!(integer(text).ok(), expected, "{text}");
        }
        for text in ["", "_1", "1_", "1__0", "1.0", "0x1", "ten", "99999999999999999999", "-"] {
            assert!(integer(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, expected) in [
            ("10", 10),
            ("10KB", 10 << 10),
            ("10mb", 10 << 20),
            ("10 GB", 10 << 30),
            ("1_0Kb", 10 << 10),
        ] {
            assert_eq!(byte_size(text), Ok(expected), "{text}");
        }
        for text in ["", "KB", "1.5GB", "10MiB", "10M", "-1KB", "99999999999GB"] {
            assert!(byte_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_are_zeos() {
        let tcp = |host: &str, port| Ok(Address::Tcp { host: host.to_owned(), port });
        let address = |text| address(text, &surroundings());
        assert_eq!(address("8100"), tcp("", 8100));
        assert_eq!(address(":8100"), tcp("", 8100));
        assert_eq!(address("LocalHost:8100"), tcp("localhost", 8100));
        assert_eq!(address("[::1]:8100"), tcp("::1", 8100));
        assert_eq!(address("var/zeo.sock"), Ok(Address::Unix("/srv/var/zeo.sock".into())));
        for wrong in
            ["", "localhost", "localhost:", "::1:8100", "a:65536", "a:-1", "a:x", "[a:1", "[[a]]:1"]
        {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn paths_begin_at_the_working_directory_or_at_home() {
        let path = |text| path(text, &surroundings()).map(|path| path.display().to_string());
        assert_eq!(path("var/./Data.fs").as_deref(), Ok("/srv/var/Data.fs"));
        assert_eq!(path("/var//Data.fs").as_deref(), Ok("/var/Data.fs"));
        assert_eq!(path("~/Data.fs").as_deref(), Ok("/users/zope/Data.fs"));
        assert_eq!(path("~").as_deref(), Ok("/users/zope"));
        assert!(path("~root/Data.fs").is_err() && path("").is_err() && path("a\0").is_err());
    }

    #[test]
    fn a_program_is_a_path_or_a_name() {
        let program = |text| program(text, &surroundings()).map(|path| path.display().to_string());
        assert_eq!(program("python3").as_deref(), Ok("python3"));
        assert_eq!(program("./python3").as_deref(), Ok("/srv/python3"));
        assert_eq!(program("~/bin/python").as_deref(), Ok("/users/zope/bin/python"));
        assert!(program("").is_err());
    }

    #[test]
    fn durations_are_seconds() {
        assert_eq!(whole_seconds("30"), Ok(Duration::from_secs(30)));
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1_500)));
        for wrong in ["0", "-1", "30s", "1.5"] {
            assert!(whole_seconds(wrong).is_err(), "{wrong}");
        }
        for wrong in ["-1", "inf", "nan", "1e300", "5m"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
