//! What the meaning of a configuration depends on beside its text.

use std::path::{Path, PathBuf};

use crate::error::ConfigurationError;

/// The process's surroundings, handed in so that reading depends on nothing unseen.
pub struct Surroundings<'a> {
    /// The working directory: absolute.
    pub directory: PathBuf,
    /// Looks up an environment variable.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
}

impl Surroundings<'_> {
    /// Those of this process.
    ///
    /// # Errors
    ///
    /// The working directory is gone or may not be seen.
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

/// A path as seen from a directory, without the dots that say nothing.
pub(crate) fn absolute(directory: &Path, path: &Path) -> PathBuf {
    directory.join(path).components().collect()
}
