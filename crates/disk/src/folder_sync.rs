//! Syncs folders, as far as the file system can.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Once;

use rustix::io::Errno;
use tracing::warn;

/// Makes the names in a folder durable. Some file systems, such as vboxsf, cannot sync folders,
/// and say that the call is invalid: nothing more can be done there.
///
/// # Errors
/// Those of the system.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    static WARNED: Once = Once::new();
    match File::open(folder)?.sync_all() {
        Err(error) if is_unsupported(&error) => {
            WARNED.call_once(|| {
                warn!(folder = %folder.display(), %error,
                    "the file system cannot sync folders: after a power cut new names of files \
                     may be lost");
            });
            Ok(())
        }
        outcome => outcome,
    }
}

/// Whether the file system has no such call, rather than failed at it.
fn is_unsupported(error: &io::Error) -> bool {
    let unsupported = [Errno::INVAL, Errno::NOTSUP, Errno::NOSYS];
    Errno::from_io_error(error).is_some_and(|errno| unsupported.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_failed_is_told_from_one_that_is_not_there() {
        for errno in [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS] {
            assert!(is_unsupported(&errno.into()), "{errno}");
        }
        for errno in [Errno::IO, Errno::NOSPC, Errno::ROFS, Errno::DQUOT] {
            assert!(!is_unsupported(&errno.into()), "{errno}");
        }
        assert!(sync_folder(Path::new("/no/such/folder")).is_err());
        sync_folder(&std::env::temp_dir()).unwrap();
    }
}
