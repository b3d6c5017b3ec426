//! Explains errors about denied permission: the user of the process, and the owner of the file.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file of user names.
const USERS_FILE: &str = "/etc/passwd";

/// Adds user, owner and mode to an error about denied permission; leaves other errors unchanged.
///
/// It reads the state of the file now, so it must be called right after the error.
pub fn explain_denied(error: io::Error, path: &Path) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error;
    }
    match Denied::of(&error, path) {
        Some(denied) => io::Error::new(error.kind(), denied.to_string()),
        None => error,
    }
}

/// The facts of a denied access.
struct Denied<'a> {
    error: &'a io::Error,
    /// The process's user and group.
    process: (u32, u32),
    /// The file, or the nearest folder above it that can be read.
    path: PathBuf,
    metadata: Metadata,
}

impl<'a> Denied<'a> {
    fn of(error: &'a io::Error, path: &Path) -> Option<Denied<'a>> {
        let (path, metadata) = path.ancestors().find_map(|path| {
            let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            Some((path.to_owned(), std::fs::metadata(path).ok()?))
        })?;
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        Some(Denied { error, process: (user, group), path, metadata })
    }
}

impl fmt::Display for Denied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (process, group) = (user(self.process.0), self.process.1);
        let owner = user(self.metadata.uid());
        let kind = if self.metadata.is_dir() { "folder" } else { "file" };
        write!(
            f,
            "{}. This process runs as {process}, group {group}; the {kind} {} belongs to {owner}, \
             group {}, and has mode {:04o}. Run the process as that user, or change the owner or \
             the mode (chown, chmod)",
            self.error,
            self.path.display(),
            self.metadata.gid(),
            self.metadata.mode() & 0o7777,
        )
    }
}

/// A user's name, or its number if the name is not known.
fn user(id: u32) -> String {
    let users = std::fs::read_to_string(USERS_FILE).unwrap_or_default();
    match name_of(id, &users) {
        Some(name) => format!("user {name} ({id})"),
        None => format!("user {id}"),
    }
}

fn name_of(id: u32, users: &str) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, user) = (fields.next()?, fields.nth(1)?);
        (user.parse() == Ok(id)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_denied_access_is_explained_by_user_owner_and_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Data.fs");
        std::fs::write(&path, b"FS30").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let explained = explain_denied(denied(), &path);
        assert_eq!(explained.kind(), io::ErrorKind::PermissionDenied);
        let (text, id) = (explained.to_string(), rustix::process::geteuid().as_raw());
        assert!(text.contains(&format!("This process runs as {}, group", user(id))), "{text}");
        assert!(text.contains("Data.fs belongs to") && text.contains("mode 0640"), "{text}");
        // For a file that does not exist, its folder decides.
        let text = explain_denied(denied(), &folder.path().join("new.fs")).to_string();
        assert!(
            text.contains(&format!("the folder {} belongs", folder.path().display())),
            "{text}"
        );
        let other = explain_denied(io::ErrorKind::NotFound.into(), &path);
        assert_eq!(other.to_string(), io::Error::from(io::ErrorKind::NotFound).to_string());
    }

    #[test]
    fn users_are_called_by_their_names() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nzope:x:1001:1001::/srv/zope:/bin/sh\n";
        assert_eq!(name_of(1001, users), Some("zope"));
        assert_eq!(name_of(0, users), Some("root"));
        assert_eq!(name_of(5, users), None);
    }
}
