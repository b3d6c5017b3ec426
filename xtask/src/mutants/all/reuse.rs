//! Crates of others that are built already: a new target folder begins with them.
//!
//! They are the larger part of a first build. Libraries are linked: the compiler writes a new file
//! in the place of an old one. All else is copied.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// Fills the folder of a profile with what another one has of crates that are not of the workspace.
/// A folder that exists is left alone.
pub(super) fn reuse(from: &Path, to: &Path, members: &[String]) -> anyhow::Result<()> {
    if to.exists() || !from.exists() {
        return Ok(());
    }
    let is_of_others = |name: &str| {
        let package = name.rsplit_once('-').map_or(name, |(package, _hash)| package);
        !members.iter().any(|member| member == package)
    };
    for folder in [".fingerprint", "build"] {
        for name in names(&from.join(folder))?.iter().filter(|name| is_of_others(name)) {
            copy(&from.join(folder).join(name), &to.join(folder).join(name))?;
        }
    }
    fs::create_dir_all(to.join("deps"))?;
    for name in names(&from.join("deps"))? {
        // Not programs: these are our own tests.
        let is_library = [".rlib", ".rmeta", ".so"].iter().any(|end| name.ends_with(end));
        let package = name.strip_prefix("lib").unwrap_or(&name).replace('_', "-");
        if is_library && is_of_others(&package) {
            fs::hard_link(from.join("deps").join(&name), to.join("deps").join(&name))
                .with_context(|| format!("cannot link {name}"))?;
        }
    }
    Ok(())
}

/// Copies a file, or a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        return names(from)?.iter().try_for_each(|name| copy(&from.join(name), &to.join(name)));
    }
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    // Cargo compares times.
    let modified = fs::metadata(from)?.modified()?;
    fs::File::open(to)?.set_modified(modified)?;
    Ok(())
}

fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("in {}", folder.display()))?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_crates_of_others_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let theirs = [
            ".fingerprint/syn-12/lib-syn",
            "build/syn-13/out/a/b",
            "deps/libsyn-14.rlib",
            "deps/libproc_macro2-15.rmeta",
        ];
        let ours = [
            ".fingerprint/zodium-a-12/lib-zodium_a",
            "deps/libzodium_a-13.rlib",
            "deps/all-14",
            "deps/all-14.d",
        ];
        for path in theirs.iter().chain(&ours) {
            fs::create_dir_all(from.join(path).parent().unwrap()).unwrap();
            fs::write(from.join(path), "").unwrap();
        }
        reuse(&from, &to, &["zodium-a".to_owned()]).unwrap();
        for path in theirs {
            let modified = |root: &Path| fs::metadata(root.join(path)).unwrap().modified().unwrap();
            assert_eq!(modified(&to), modified(&from), "{path}");
        }
        for path in ours {
            assert!(!to.join(path).exists(), "{path}");
        }
        fs::remove_file(to.join(theirs[2])).unwrap();
        reuse(&from, &to, &[]).unwrap();
        assert!(!to.join(theirs[2]).exists(), "what is there is left alone");
    }
}
