//! Everything the rules look at: the text files and the crates.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use cargo_metadata::{DependencyKind, MetadataCommand, Package};
use ignore::WalkBuilder;

use crate::source::Source;
use crate::violation::Violation;

/// The repository as it lies on the disk, with what is not committed yet.
pub(crate) struct Repository {
    pub(crate) sources: Vec<Source>,
    pub(crate) crates: Vec<Crate>,
    /// Files that should be sources and cannot be read as such.
    pub(crate) unreadable: Vec<Violation>,
}

/// A member of the workspace. Paths are relative to the root, with slashes.
#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) folder: String,
    pub(crate) manifest: String,
    /// The files that the library, programs, tests, examples and build scripts begin with.
    pub(crate) roots: Vec<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency on another member of the workspace.
#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Only tests, examples and benchmarks see it.
    pub(crate) is_for_tests: bool,
}

/// Written by cargo in each workspace, names of hosts included: no rule is about it.
const LOCK_FILE: &str = "Cargo.lock";

impl Repository {
    /// Reads the repository that this program was built from.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let metadata =
            MetadataCommand::new().no_deps().other_options(["--offline".to_owned()]).exec()?;
        let root = metadata.workspace_root.as_std_path();
        let crates: Vec<Crate> =
            metadata.packages.iter().map(|package| Crate::new(package, root)).collect();
        let (mut sources, mut unreadable) = (Vec::new(), Vec::new());
        for path in files(root)? {
            let name = relative(&path, root);
            if path.file_name().is_some_and(|name| name == LOCK_FILE) {
                continue;
            }
            let bytes = std::fs::read(&path).with_context(|| format!("cannot read {name}"))?;
            // What is not text is data for tests.
            let Ok(text) = String::from_utf8(bytes) else { continue };
            match Source::new(&name, text) {
                Ok(source) => sources.push(source),
                Err(violation) => unreadable.push(violation),
            }
        }
        mark_test_modules(&mut sources);
        Ok(Self { sources, crates, unreadable })
    }
}

impl Crate {
    fn new(package: &Package, root: &Path) -> Self {
        let manifest = relative(package.manifest_path.as_std_path(), root);
        let roots = package.targets.iter();
        let dependencies =
            package.dependencies.iter().filter(|dependency| dependency.path.is_some());
        Self {
            name: package.name.to_string(),
            folder: manifest.trim_end_matches("/Cargo.toml").to_owned(),
            roots: roots.map(|target| relative(target.src_path.as_std_path(), root)).collect(),
            dependencies: dependencies
                .map(|dependency| Dependency {
                    name: dependency.name.clone(),
                    is_for_tests: dependency.kind == DependencyKind::Development,
                })
                .collect(),
            manifest,
        }
    }
}

/// The files that belong to the repository: those that git would not ignore.
pub(crate) fn files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let walk = WalkBuilder::new(root)
        .standard_filters(false)
        .git_ignore(true)
        .require_git(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .build();
    for entry in walk {
        let entry = entry?;
        if entry.file_type().is_some_and(|kind| kind.is_file()) {
            files.push(entry.into_path());
        }
    }
    Ok(files)
}

fn relative(path: &Path, root: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// A file is a test if the module that declares it says so.
fn mark_test_modules(sources: &mut [Source]) {
    let modules: HashSet<String> = sources.iter().flat_map(Source::test_modules).collect();
    for source in sources.iter_mut().filter(|source| source.is_rust()) {
        let module = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
        source.is_test |= modules.contains(module);
    }
}

#[cfg(test)]
impl Crate {
    /// The crate in `crates/FOLDER`.
    pub(crate) fn of(name: &str, folder: &str, dependencies: &[(&str, bool)]) -> Self {
        let dependencies = dependencies.iter();
        Self {
            name: name.to_owned(),
            folder: format!("crates/{folder}"),
            manifest: format!("crates/{folder}/Cargo.toml"),
            roots: vec![format!("crates/{folder}/src/lib.rs")],
            dependencies: dependencies
                .map(|&(name, is_for_tests)| Dependency { name: name.to_owned(), is_for_tests })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_found_with_its_hidden_files_and_without_what_is_built() {
        let repository = Repository::read().unwrap();
        let names: Vec<&str> = repository.sources.iter().map(|source| &source.path[..]).collect();
        for wanted in ["Cargo.toml", ".gitignore", "xtask/src/main.rs"] {
            assert!(names.contains(&wanted), "{wanted}");
        }
        assert!(!names.iter().any(|name| name.starts_with("target/")));
        let xtask = repository.crates.iter().find(|member| member.name == "xtask").unwrap();
        assert_eq!(xtask.roots, ["xtask/src/main.rs"]);
        assert_eq!(xtask.dependencies.len(), 0);
    }

    #[test]
    fn files_of_test_modules_are_tests() {
        let mut sources = vec![
            Source::of("crates/zeo/src/lib.rs", "mod frame;\n#[cfg(test)]\nmod samples;\n"),
            Source::of("crates/zeo/src/frame.rs", ""),
            Source::of("crates/zeo/src/samples.rs", ""),
            Source::of("crates/zeo/src/samples/mod.rs", ""),
        ];
        mark_test_modules(&mut sources);
        let tests: Vec<bool> = sources.iter().map(|source| source.is_test).collect();
        assert_eq!(tests, [false, false, true, true]);
    }
}
