//! PEM files: sections with a label, optional headers, and content.

use std::path::{Path, PathBuf};

use pem::Pem;

use crate::TlsError;

/// The beginning of a section.
const BEGIN: &[u8] = b"-----BEGIN ";

/// The sections of one file, in order.
#[derive(Debug)]
pub(crate) struct PemFile {
    pub(crate) path: PathBuf,
    pub(crate) sections: Vec<Pem>,
}

impl PemFile {
    /// Reads a file, which may be without sections.
    pub(crate) fn read(path: &Path) -> Result<PemFile, TlsError> {
        let text = std::fs::read(path)
            .map_err(|reason| TlsError::Unreadable { path: path.to_owned(), reason })?;
        let broken = |reason| TlsError::NotPem { path: path.to_owned(), reason };
        let sections = pem::parse_many(&text).map_err(|error| broken(error.to_string()))?;
        // A truncated section is an error rather than ignored: it may be a revocation list.
        let begun = text.windows(BEGIN.len()).filter(|window| *window == BEGIN).count();
        if begun != sections.len() {
            return Err(broken("a section does not end".to_owned()));
        }
        Ok(PemFile { path: path.to_owned(), sections })
    }

    /// The contents of the sections with this label.
    pub(crate) fn labelled(&self, label: &str) -> impl Iterator<Item = &[u8]> {
        self.sections.iter().filter(move |section| section.tag() == label).map(Pem::contents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::Folder;

    #[test]
    fn sections_are_found_between_other_text() {
        let folder = Folder::new();
        let text = "Bag Attributes\n-----BEGIN A-----\r\nAAEC\r\n-----END A-----\nnote\n\
                    -----BEGIN B-----\nH: x\n\nAAEC\n-----END B-----\n";
        let file = PemFile::read(&folder.write("both.pem", text)).unwrap();
        assert_eq!(file.labelled("A").collect::<Vec<_>>(), [&[0, 1, 2]]);
        assert_eq!(file.sections[1].headers().get("H"), Some("x"));
        let none = PemFile::read(&folder.write("none.pem", "hello\n")).unwrap();
        assert!(none.sections.is_empty());
    }

    #[test]
    fn what_is_cut_off_is_an_error_that_names_the_file() {
        let folder = Folder::new();
        let whole = "-----BEGIN A-----\nAAEC\n-----END A-----\n";
        for broken in ["-----BEGIN A-----\nAAEC\n", "-----BEGIN A-----\nA?EC\n-----END A-----\n"] {
            let path = folder.write("cut.pem", format!("{whole}{broken}"));
            let error = PemFile::read(&path).unwrap_err().to_string();
            assert!(error.contains("cut.pem: not a PEM file"), "{error}");
        }
        let error = PemFile::read(&folder.path("absent.pem")).unwrap_err().to_string();
        assert!(error.contains("absent.pem: cannot be read: No such file"), "{error}");
    }
}
