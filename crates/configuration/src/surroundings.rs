//! The environment that the meaning of a configuration depends on.

use std::path::{Path, PathBuf};

use crate::error::ConfigurationError;

/// Working directory and environment variables, passed to the readers explicitly.
pub struct Surroundings<'a> {
    /// The working directory, absolute.
    pub directory: PathBuf,
    /// Looks up an environment variable.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
}

impl Surroundings<'_> {
    /// The surroundings of this process.
    ///
    /// # Errors
    ///
    /// The working directory does not exist or cannot be read.
    pub fn of_this_process() -> Result<Surroundings<'static>, ConfigurationError> {
        let directory = std::env::current_dir()
            .map_err(|source| ConfigurationError::Unreadable { path: ".".into(), source })?;
        Ok(Surroundings { directory, environment: &|name| std::env::var(name).ok() })
    }

    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name)
    }

    pub(crate) fn absolute(&self, path: &Path) -> PathBuf {
        absolute(&self.directory, path)
    }
}

/// A path relative to a directory, without redundant dots.
pub(crate) fn absolute(directory: &Path, path: &Path) -> PathBuf {
    directory.join(path).components().collect()
}
