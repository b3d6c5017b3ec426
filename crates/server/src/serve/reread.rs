//! Reads the configuration again at a reload, and tells what the next start would do.
//!
//! Nothing of it takes effect before a restart. A mistake in it would else be noticed only then.

use std::sync::Arc;

use anyhow::Result;
use tracing::{error, warn};
use zodium_configuration::Configuration;

use super::options::ServeOptions;
use super::overrides;
use crate::background::Background;
use crate::configuration_file;

/// The configuration that the server was started with, and where it is from.
#[derive(Debug)]
pub(super) struct Started {
    options: ServeOptions,
    configuration: Configuration,
    reading: Background,
}

impl Started {
    /// `None` without a file of configuration.
    pub(super) fn new(options: &ServeOptions, of: &Configuration) -> Option<Arc<Started>> {
        options.config.as_ref()?;
        Some(Arc::new(Started {
            options: options.clone(),
            configuration: of.clone(),
            reading: Background::new("the file of the configuration"),
        }))
    }

    /// Has the file read, and compared.
    pub(super) fn look(self: &Arc<Started>) {
        let started = Arc::clone(self);
        self.reading.run(move || started.compare());
    }

    fn compare(&self) {
        let Some(file) = &self.options.config else { return };
        if file.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            // A pipe was read at the start. It is empty now, or to read it could wait for ever.
            return;
        }
        let file = file.display();
        match self.read() {
            Err(error) => error!(
                %file,
                error = format!("{error:#}"),
                "SIGUSR2: the configuration has mistakes: the next start would fail"
            ),
            Ok(now) => {
                let settings = self.configuration.differences(&now).join(", ");
                if !settings.is_empty() {
                    warn!(%file, settings,
                        "SIGUSR2: settings of the configuration have changed: they take effect at \
                         a restart");
                }
            }
        }
    }

    fn read(&self) -> Result<Configuration> {
        let (configuration, _) = overrides::configuration(&self.options)?;
        configuration_file::refuse(&configuration.check())?;
        Ok(configuration)
    }
}
