//! What is known of a crate's mutations, kept between runs in a folder: a run can go on where
//! another one was stopped.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Values by name, each in a file of its own, all of one state of the sources.
pub(super) struct Store {
    folder: PathBuf,
}

/// The name of the state of the sources.
const SOURCES: &str = "sources";

impl Store {
    /// Opens a store, and empties it if it is of another state of the sources.
    pub(super) fn open(folder: PathBuf, sources: u64) -> anyhow::Result<Store> {
        let store = Store { folder };
        if store.read(SOURCES)? != Some(sources) {
            if store.folder.exists() {
                fs::remove_dir_all(&store.folder).with_context(|| store.place())?;
            }
            fs::create_dir_all(&store.folder).with_context(|| store.place())?;
            store.write(SOURCES, &sources)?;
        }
        Ok(store)
    }

    /// The value with a name; made and kept if there is none.
    pub(super) fn read_or<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        make: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        if let Some(value) = self.read(name)? {
            return Ok(value);
        }
        let value = make()?;
        self.write(name, &value)?;
        Ok(value)
    }

    pub(super) fn read<T: DeserializeOwned>(&self, name: &str) -> anyhow::Result<Option<T>> {
        let text = self.text(name)?;
        text.map(|text| serde_json::from_str(&text)).transpose().with_context(|| self.place())
    }

    pub(super) fn write(&self, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
        // A run that is ended here leaves the value before.
        let unfinished = self.path("unfinished");
        fs::write(&unfinished, serde_json::to_string(value)?).with_context(|| self.place())?;
        fs::rename(unfinished, self.path(name)).with_context(|| self.place())
    }

    /// Adds a line to the list with a name.
    pub(super) fn append(&self, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
        let line = serde_json::to_string(value)? + "\n";
        let file = OpenOptions::new().append(true).create(true).open(self.path(name));
        file.and_then(|mut file| file.write_all(line.as_bytes())).with_context(|| self.place())
    }

    /// The list with a name, without a line that was not finished.
    pub(super) fn list<T: DeserializeOwned>(&self, name: &str) -> anyhow::Result<Vec<T>> {
        let text = self.text(name)?.unwrap_or_default();
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    fn text(&self, name: &str) -> anyhow::Result<Option<String>> {
        match fs::read_to_string(self.path(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| self.place()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    fn place(&self) -> String {
        format!("in {}", self.folder.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_lists_are_kept_until_the_sources_change() {
        let folder = tempfile::tempdir().unwrap();
        let open = |sources| Store::open(folder.path().join("store"), sources).unwrap();
        let store = open(1);
        assert_eq!(store.read_or("number", || Ok(7)).unwrap(), 7);
        store.append("list", &1).unwrap();
        store.append("list", &2).unwrap();
        let store = open(1);
        assert_eq!(store.read_or("number", || Ok(8)).unwrap(), 7);
        assert_eq!(store.list::<u32>("list").unwrap(), [1, 2]);
        let store = open(2);
        assert_eq!(store.read::<u32>("number").unwrap(), None);
        assert!(store.list::<u32>("list").unwrap().is_empty());
    }

    #[test]
    fn a_line_that_was_not_finished_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_owned(), 1).unwrap();
        store.append("list", &"a").unwrap();
        fs::write(store.path("list"), "\"a\"\n\"b").unwrap();
        assert_eq!(store.list::<String>("list").unwrap(), ["a"]);
    }
}
