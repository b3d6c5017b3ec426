//! Writes a configuration as TOML, without settings that have their default values.

use crate::error::ConfigurationError;
use crate::model::Configuration;
use crate::settings::field::Group;
use crate::settings::log::LogOptions;
use crate::settings::packing::PackOptions;

impl Configuration {
    /// The configuration as TOML, which [`crate::read()`] reads back to the same.
    ///
    /// It has addresses and storages, or the node, and all settings that differ from the
    /// defaults. Paths are written unchanged, so they should be absolute.
    ///
    /// # Errors
    ///
    /// A path is not UTF-8.
    pub fn to_toml(&self) -> Result<String, ConfigurationError> {
        let mut text = String::new();
        match (&self.neo_storage, &self.neo_admin, &self.neo_master) {
            (Some(node), _, _) => write("[neo-storage]", node, &mut text)?,
            (None, Some(admin), _) => write("[neo-admin]", admin, &mut text)?,
            (None, None, Some(master)) => write("[neo-master]", master, &mut text)?,
            (None, None, None) => write("[server]", &self.server, &mut text)?,
        }
        if let Some(tls) = &self.server.tls {
            write("[server.tls]", tls, &mut text)?;
        }
        for storage in &self.storages {
            write("[[storage]]", storage, &mut text)?;
            if storage.pack != PackOptions::default() {
                write("[storage.pack]", &storage.pack, &mut text)?;
            }
        }
        if self.log != LogOptions::default() {
            write("[log]", &self.log, &mut text)?;
        }
        if let Some(monitor) = &self.monitor {
            write("[monitor]", monitor, &mut text)?;
        }
        Ok(text)
    }
}

/// Writes a table with the settings of a group.
fn write<G: Group>(header: &str, group: &G, text: &mut String) -> Result<(), ConfigurationError> {
    let empty_line = if text.is_empty() { "" } else { "\n" };
    text.push_str(&format!("{empty_line}{header}\n"));
    let default = G::default();
    for entry in G::entries() {
        let description = entry.description();
        let mut value = entry.written(group)?;
        if !description.is_required && !description.is_always_written {
            let default = entry.written(&default)?;
            value = value.filter(|value| Some(value) != default.as_ref());
        }
        if let Some(value) = value {
            text.push_str(&format!("{} = {value}\n", description.key));
        }
    }
    Ok(())
}
