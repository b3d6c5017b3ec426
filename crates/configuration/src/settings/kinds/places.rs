//! Places: paths, programs, addresses.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use toml::Value;
use toml::de::DeValue;
use zodium_types::{Address, AddressError};

use super::{Converted, Kind, Values, Written, string, unicode, zconfig_values};
use crate::error::ConfigurationError;
use crate::surroundings::{Surroundings, absolute};

/// The path of a file or directory.
pub(crate) struct File;

/// The path of a program, or its name, which is looked up in `PATH`.
pub(crate) struct Program;

/// An address to listen on.
pub(crate) struct Location;

/// A path in TOML, which is relative to a directory.
fn path(value: &DeValue, directory: &Path) -> Converted<PathBuf> {
    let path = string(value)?;
    if path.is_empty() || path.contains('\0') {
        return Err(format!("{path:?} is not a path"));
    }
    Ok(absolute(directory, Path::new(path)))
}

/// A path as text, which TOML is.
fn path_text(path: &Path) -> Written<Value> {
    let text = path.to_str().map(Value::from);
    text.ok_or_else(|| ConfigurationError::NotUnicode { path: path.to_owned() })
}

impl Kind for File {
    type Value = PathBuf;

    fn values(&self) -> Values {
        Values { is_path: true, ..Values::default() }
    }

    fn text(&self, text: &OsStr) -> Converted<PathBuf> {
        if text.is_empty() { Err("give a path".to_owned()) } else { Ok(text.into()) }
    }

    fn toml(&self, value: &DeValue, directory: &Path) -> Converted<PathBuf> {
        path(value, directory)
    }

    fn zeo_conf(&self, text: &str, surroundings: &Surroundings) -> Converted<PathBuf> {
        zconfig_values::path(text, surroundings)
    }

    fn written(&self, value: &PathBuf) -> Written<Value> {
        path_text(value)
    }
}

impl Kind for Program {
    type Value = PathBuf;

    fn values(&self) -> Values {
        Values { is_path: true, ..Values::default() }
    }

    /// A path is relative to the working directory of now; a name stays a name.
    fn text(&self, text: &OsStr) -> Converted<PathBuf> {
        let program = File.text(text)?;
        let is_name = program.components().count() == 1 && !program.has_root();
        let absolute = (!is_name).then(|| std::path::absolute(&program).ok()).flatten();
        Ok(absolute.unwrap_or(program))
    }

    fn toml(&self, value: &DeValue, directory: &Path) -> Converted<PathBuf> {
        let path = path(value, directory)?;
        let is_path = value.as_str().is_some_and(|text| text.contains('/'));
        Ok(if is_path { path } else { path.file_name().map(PathBuf::from).unwrap_or(path) })
    }

    fn zeo_conf(&self, text: &str, surroundings: &Surroundings) -> Converted<PathBuf> {
        zconfig_values::program(text, surroundings)
    }

    fn written(&self, value: &PathBuf) -> Written<Value> {
        path_text(value)
    }
}

impl Kind for Location {
    type Value = Address;

    fn text(&self, text: &OsStr) -> Converted<Address> {
        unicode(text)?.parse().map_err(|error: AddressError| error.to_string())
    }

    fn toml(&self, value: &DeValue, directory: &Path) -> Converted<Address> {
        let address = match value {
            DeValue::Integer(port) => self.text(OsStr::new(&port.to_string()))?,
            other => self.text(OsStr::new(string(other)?))?,
        };
        match address {
            Address::Unix(_) => path(value, directory).map(Address::Unix),
            tcp @ Address::Tcp { .. } => Ok(tcp),
        }
    }

    fn zeo_conf(&self, text: &str, surroundings: &Surroundings) -> Converted<Address> {
        zconfig_values::address(text, surroundings)
    }

    fn written(&self, value: &Address) -> Written<Value> {
        match value {
            Address::Unix(path) => path_text(path),
            tcp @ Address::Tcp { .. } => Ok(Value::from(tcp.to_string())),
        }
    }
}
