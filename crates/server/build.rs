//! Has the program know the commit that it is built from: `ZODIUM_VERSION` is the version, and
//! behind it the commit in parentheses, if this is a checkout of its repository.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION");
    match commit() {
        Some(commit) => println!("cargo:rustc-env=ZODIUM_VERSION={version} ({commit})"),
        None => println!("cargo:rustc-env=ZODIUM_VERSION={version}"),
    }
}

fn commit() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    // The sources of a package may lie within the checkout of something else.
    let checkout = git(&root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&checkout) != root {
        return None;
    }
    // Each of them changes with the commit; not every repository has both.
    for file in ["HEAD", "logs/HEAD"] {
        let path = root.join(git(&root, &["rev-parse", "--git-path", file])?);
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    git(&root, &["rev-parse", "--short=10", "HEAD"])
}

/// What git prints; `None` without git, and if it fails.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let done = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(done.stdout).ok()?;
    done.status.success().then(|| text.trim().to_owned())
}
