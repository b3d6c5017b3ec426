//! Health of a server and of its storages.

use serde::Serialize;

/// The health of a server.
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    /// The phase of the server as a whole.
    pub phase: Phase,
    /// Each storage that is open.
    pub storages: Vec<StorageHealth>,
    /// Why Redis and Valkey clients are refused commands that write, if they are. It is told among
    /// the complaints.
    #[serde(skip)]
    pub keys_failure: Option<String>,
    /// Sentences about what an operator should look at, though everything is served.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The phases of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It is opening its storages.
    Opening,
    /// It is serving.
    Serving,
    /// It is stopping.
    Closing,
}

/// The health of one storage.
#[derive(Clone, Debug, Serialize)]
pub struct StorageHealth {
    /// The name that clients ask for.
    pub name: String,
    /// Whether it accepts commits.
    pub state: StorageState,
    /// Damaged places of its file, which are not served; all other data are.
    pub damaged: u64,
    /// The last failure, and what the server does about it, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Whether a storage accepts commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageState {
    /// It accepts commits.
    Writable,
    /// It is configured as read-only.
    ReadOnly,
    /// It has just refused a commit for lack of space.
    Full,
    /// A write has failed; it accepts no commits until the file is reopened.
    Failed,
    /// A write has not ended for long: commits wait for its disk.
    Stalled,
    /// It is a NEO cluster, or a database on a server, that cannot be reached. It accepts no
    /// commits until that can.
    Unreachable,
    /// Another program has changed its file; it accepts no commits until the file is as before.
    Changed,
    /// It serves nothing yet: a node that waits for its cluster.
    Waiting,
    /// It is being closed.
    Closing,
}

impl StorageState {
    /// Why it is not healthy; `None` when it is.
    pub fn complaint(self) -> Option<&'static str> {
        match self {
            StorageState::Writable | StorageState::ReadOnly => None,
            StorageState::Full => Some("refuses commits: there is no space left for them"),
            StorageState::Failed => Some("refuses commits since a write failed"),
            StorageState::Stalled => Some("completes no commits: its disk does not answer"),
            StorageState::Unreachable => Some("refuses commits"),
            StorageState::Changed => Some("refuses commits since another program changed its file"),
            StorageState::Waiting => Some("serves nothing yet"),
            StorageState::Closing => Some("is being closed"),
        }
    }
}

impl Health {
    /// Sentences about damage and notes, which is no reason to stop serving the rest.
    pub fn damages(&self) -> Vec<String> {
        let damaged = self.storages.iter().filter(|storage| storage.damaged > 0);
        let sentence = |storage: &StorageHealth| {
            format!(
                "storage {} has {} damaged places or blobs, which are not served; the log and \
                 `zodium check` (for blobs with --blob-dir) name them",
                storage.name, storage.damaged
            )
        };
        damaged.map(sentence).chain(self.notes.iter().cloned()).collect()
    }

    /// Sentences about what is wrong; empty when all is well.
    pub fn complaints(&self) -> Vec<String> {
        let server = match self.phase {
            Phase::Opening => Some("the server is opening its storages, or reading its keys"),
            Phase::Serving => None,
            Phase::Closing => Some("the server is stopping"),
        };
        let storages = self.storages.iter().filter_map(|storage| {
            let complaint = storage.state.complaint()?;
            Some(match &storage.failure {
                Some(failure) => format!("storage {} {complaint}: {failure}", storage.name),
                None => format!("storage {} {complaint}", storage.name),
            })
        });
        let keys = self.keys_failure.as_ref();
        let keys = keys.map(|reason| format!("RESP commands that write are refused: {reason}"));
        server.map(str::to_owned).into_iter().chain(storages).chain(keys).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_that_only_reads_is_well_and_one_that_failed_is_not() {
        let storage = |name: &str, state| StorageHealth {
            name: name.to_owned(),
            state,
            damaged: 0,
            failure: None,
        };
        let mut health = Health {
            phase: Phase::Serving,
            storages: vec![
                storage("1", StorageState::Writable),
                storage("2", StorageState::ReadOnly),
            ],
            keys_failure: None,
            notes: Vec::new(),
        };
        assert!(health.complaints().is_empty());
        health.storages.push(storage("3", StorageState::Failed));
        assert!(health.complaints()[0].starts_with("storage 3 refuses commits"));
        health.phase = Phase::Closing;
        assert_eq!(health.complaints().len(), 2);
        health.keys_failure = Some("keys.log: no space".to_owned());
        let expected = "RESP commands that write are refused: keys.log: no space";
        assert_eq!(health.complaints()[2], expected);
    }
}
