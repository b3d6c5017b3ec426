//! Names of objects that say what is in them.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// 32 bytes in hexadecimal digits: the SHA-256 of an object's content, or that hashed with the key
/// of the repository.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Hash(String);

impl Hash {
    pub(super) fn of(bytes: &[u8]) -> Hash {
        Hash::from_digest(&Sha256::digest(bytes))
    }

    pub(super) fn from_digest(digest: &[u8]) -> Hash {
        Hash(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    pub(super) fn parse(text: &str) -> Option<Hash> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (text.len() == 64 && text.bytes().all(is_digit)).then(|| Hash(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}
