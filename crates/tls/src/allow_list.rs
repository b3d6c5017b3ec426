//! Allow lists: which authenticated peers may use a storage.

use crate::PeerIdentity;

/// A list of subjects that are admitted: common names, or whole subjects.
///
/// An entry with a `=` is a whole subject (`CN=alice,O=Example`), in the order of RFC 4514 or of
/// `openssl x509 -subject`. Blanks around commas and `=` are ignored. Any other entry is a common
/// name. Both match exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowList {
    common_names: Vec<String>,
    subjects: Vec<Vec<String>>,
}

impl AllowList {
    /// Creates a list of these entries. An empty list admits no peer.
    pub fn new<'a>(entries: impl IntoIterator<Item = &'a str>) -> AllowList {
        let (subjects, common_names): (Vec<&str>, Vec<&str>) = entries
            .into_iter()
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
            .partition(|entry| entry.contains('='));
        AllowList {
            common_names: common_names.into_iter().map(str::to_owned).collect(),
            subjects: subjects.into_iter().map(parts).collect(),
        }
    }

    /// Whether this peer is admitted; false for a peer without an identity.
    pub fn admits(&self, peer: Option<&PeerIdentity>) -> bool {
        let Some(peer) = peer else { return false };
        let by_name = peer.common_name.as_ref().is_some_and(|n| self.common_names.contains(n));
        let subject = parts(&peer.subject);
        by_name
            || self
                .subjects
                .iter()
                .any(|allowed| *allowed == subject || allowed.iter().rev().eq(subject.iter()))
    }
}

/// The parts of a subject, `TYPE=value` each, without insignificant blanks.
fn parts(subject: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_escaped = false;
    for character in subject.chars() {
        match (parts.last_mut(), character) {
            (_, ',') if !is_escaped => parts.push(String::new()),
            (Some(part), character) => part.push(character),
            (None, _) => {}
        }
        is_escaped = character == '\\' && !is_escaped;
    }
    parts.iter().map(|part| plain(part)).collect()
}

fn plain(part: &str) -> String {
    match part.split_once('=') {
        Some((kind, value)) => format!("{}={}", kind.trim().to_uppercase(), value.trim()),
        None => part.trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(subject: &str, common_name: Option<&str>) -> PeerIdentity {
        PeerIdentity { subject: subject.into(), common_name: common_name.map(str::to_owned) }
    }

    #[test]
    fn a_common_name_or_a_whole_subject_lets_in() {
        let alice = peer("CN=alice,O=Ex\\, Inc", Some("alice"));
        for entry in [
            "alice",
            " alice ",
            "CN=alice,O=Ex\\, Inc",
            "cn = alice , o = Ex\\, Inc",
            "O = Ex\\, Inc, CN = alice",
        ] {
            assert!(AllowList::new([entry]).admits(Some(&alice)), "{entry}");
            assert!(AllowList::new(["bob", entry]).admits(Some(&alice)), "{entry}");
        }
        for entry in ["Alice", "ali", "CN=alice", "CN=alice,O=Ex", "alice,O=Ex\\, Inc", "*", ""] {
            assert!(!AllowList::new([entry]).admits(Some(&alice)), "{entry}");
        }
    }

    #[test]
    fn no_peer_without_an_identity_gets_in_and_none_by_an_empty_list() {
        assert!(!AllowList::new(["alice"]).admits(None));
        assert!(!AllowList::new([]).admits(Some(&peer("CN=alice", Some("alice")))));
        assert!(!AllowList::new([""]).admits(Some(&peer("", None))));
    }

    #[test]
    fn a_common_name_that_looks_like_a_subject_is_none() {
        let sly = peer("CN=CN=alice\\,O=Example", Some("CN=alice,O=Example"));
        assert!(!AllowList::new(["CN=alice,O=Example"]).admits(Some(&sly)));
    }
}
