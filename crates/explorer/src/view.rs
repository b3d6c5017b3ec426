//! The state of the storage that a page looks at, and the addresses of pages about it.

use zodium_types::{Oid, Tid};

/// The state that a page looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The last transaction that counts, if it was chosen: `?at=`.
    pub(crate) at: Option<Tid>,
    /// The last transaction that counts.
    pub(crate) last: Tid,
}

impl View {
    /// The address of a page in the same view.
    pub(crate) fn link(&self, path: &str) -> String {
        self.link_with(path, &[])
    }

    /// The same with parameters.
    pub(crate) fn link_with(&self, path: &str, parameters: &[(&str, &str)]) -> String {
        let at = self.at.map(|at| at.to_string());
        let at = at.iter().map(|at| ("at", at.as_str()));
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(parameters.iter().copied().chain(at));
        match query.finish() {
            query if query.is_empty() => path.to_owned(),
            query => format!("{path}?{query}"),
        }
    }

    /// The page of an object.
    pub(crate) fn object(&self, oid: Oid) -> String {
        self.link(&object_path(oid))
    }

    /// The same view as of another transaction.
    pub(crate) fn at(&self, tid: Tid) -> View {
        View { at: Some(tid), last: tid.min(self.last) }
    }
}

/// The path of an object's page.
pub(crate) fn object_path(oid: Oid) -> String {
    format!("/object/0x{:x}", oid.0)
}

/// The address of a transaction's page, which is the same in each view.
pub(crate) fn transaction_path(tid: Tid) -> String {
    format!("/transaction/{tid}")
}
