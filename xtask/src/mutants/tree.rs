//! The copy of the repository that mutations are applied to.
//!
//! Only what differs is written, so that cargo takes the rest for built.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::table::Mutation;
use crate::repository;

/// A copy that holds what the checkout held when it was made.
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
}

impl Tree {
    /// Makes `root` a copy of the repository in `original`.
    pub(crate) fn copy(original: &Path, root: PathBuf) -> anyhow::Result<Tree> {
        let mut wanted = HashSet::new();
        for path in repository::files(original)? {
            let name = path.strip_prefix(original)?;
            let bytes =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let copy = root.join(name);
            if fs::read(&copy).ok().as_ref() != Some(&bytes) {
                write(&copy, &bytes)?;
            }
            wanted.insert(copy);
        }
        for path in repository::files(&root)? {
            if !wanted.contains(&path) {
                fs::remove_file(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(Tree { root })
    }

    /// Applies a mutation for as long as the guard lives.
    pub(crate) fn apply(&self, mutation: &Mutation) -> anyhow::Result<Applied> {
        let path = self.root.join(&mutation.file);
        let original =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        write(&path, mutation.apply(&original)?.as_bytes())?;
        Ok(Applied { path, original })
    }
}

/// A mutation in the copy.
pub(crate) struct Applied {
    path: PathBuf,
    original: String,
}

impl Applied {
    /// Takes the mutation back.
    pub(crate) fn revert(self) -> anyhow::Result<()> {
        write(&self.path, self.original.as_bytes())
    }
}

pub(super) fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_follows_its_original_and_leaves_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (original, copy) = (folder.path().join("original"), folder.path().join("copy"));
        for name in ["crates/a/src/b.rs", "gone.rs", ".gitignore", "target/c", "Cargo.lock"] {
            let text = if name == ".gitignore" { "/target\n" } else { "0 == 0" };
            write(&original.join(name), text.as_bytes()).unwrap();
        }
        Tree::copy(&original, copy.clone()).unwrap();
        assert!(copy.join("Cargo.lock").exists());
        assert!(!copy.join("target/c").exists());
        let written = fs::metadata(copy.join("Cargo.lock")).unwrap().modified().unwrap();
        fs::remove_file(original.join("gone.rs")).unwrap();
        let tree = Tree::copy(&original, copy.clone()).unwrap();
        assert!(!copy.join("gone.rs").exists());
        let unchanged = fs::metadata(copy.join("Cargo.lock")).unwrap().modified().unwrap();
        assert_eq!(unchanged, written, "what is the same is not written again");

        let text = |root: &Path| fs::read_to_string(root.join("crates/a/src/b.rs")).unwrap();
        let applied = tree.apply(&Mutation::of("a/b", "0 ==", "1 ==")).unwrap();
        assert_eq!((text(&copy), text(&original)), ("1 == 0".to_owned(), "0 == 0".to_owned()));
        applied.revert().unwrap();
        assert_eq!(text(&copy), "0 == 0");
    }
}
