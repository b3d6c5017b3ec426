//! The test programs of a crate, with all mutations in them, and running some of their tests.
//!
//! A mutation can make a test take any memory, time or disk, so each run has limits, a folder for
//! temporary files, and a process group of its own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::super::process::{self, End};
use super::super::trial::Verdict;

const MEMORY_KB_MAX: u64 = 12 << 20;
/// Blocks have 512 bytes: 3 GiB.
const FILE_BLOCKS_MAX: u64 = 6 << 20;
/// Tests may use a processor for so many times as long as they usually run, and this on top.
const PROCESSOR_SLOWDOWN_MAX: u64 = 6;
const PROCESSOR_SECONDS: u64 = 10;
/// The arguments: the limit of seconds, then the program with its own.
const LIMITED: &str = "ulimit -c 0; ulimit -t $1; ulimit -v $2; ulimit -f $3; shift 3; exec \"$@\"";

/// The programs by the names of their targets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Programs {
    pub(super) paths: BTreeMap<String, PathBuf>,
    /// The crate's, in the mutated tree.
    pub(super) folder: PathBuf,
}

/// A test of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Test {
    pub(super) program: String,
    pub(super) name: String,
}

/// Which mutation is on.
#[derive(Clone, Copy)]
pub(super) enum Switch<'a> {
    On(u32),
    /// None; those that are reached are written to a file.
    Record(&'a Path),
}

impl Programs {
    /// All tests that are not left out by themselves.
    pub(super) fn tests(&self) -> anyhow::Result<Vec<Test>> {
        let mut tests = Vec::new();
        for (program, path) in &self.paths {
            let list = |options: &[&str]| {
                let output = Command::new(path).arg("--list").args(options).output()?;
                ensure!(output.status.success(), "{} lists no tests", path.display());
                Ok(String::from_utf8(output.stdout)?)
            };
            let ignored = list(&["--ignored"])?;
            let ignored: Vec<&str> = listed(&ignored).collect();
            let all = list(&[])?;
            let run = listed(&all).filter(|name| !ignored.contains(name));
            tests.extend(run.map(|name| Test { program: program.clone(), name: name.to_owned() }));
        }
        Ok(tests)
    }

    /// Runs tests of one program, which take `usual` without a mutation, until one fails.
    pub(super) fn run(
        &self,
        program: &str,
        tests: &[&str],
        switch: Switch<'_>,
        usual: Duration,
    ) -> anyhow::Result<Verdict> {
        let path = self.paths.get(program).context("a program that is not built")?;
        let scratch = tempfile::Builder::new().prefix("mutant").tempdir()?;
        let (output, temporary) = (scratch.path().join("output"), scratch.path().join("t"));
        fs::create_dir(&temporary)?;
        let seconds =
            PROCESSOR_SECONDS + PROCESSOR_SLOWDOWN_MAX * usual.as_secs_f64().ceil() as u64;
        let mut command = Command::new("sh");
        command
            .args(["-c", LIMITED, "sh"])
            .args([seconds, MEMORY_KB_MAX, FILE_BLOCKS_MAX].map(|limit| limit.to_string()))
            .arg(path)
            .args(["--exact", "--test-threads=1"])
            .args(tests)
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("PROPTEST_FAILURE_PERSISTENCE", "off")
            .env("RUST_BACKTRACE", "0")
            .env("TMPDIR", &temporary)
            .stdout(File::create(&output)?)
            .stderr(Stdio::null());
        match switch {
            Switch::On(id) => command.env("ZODIUM_MUTATION", id.to_string()),
            Switch::Record(path) => command.env("ZODIUM_MUTATION_RECORD", path),
        };
        let failed = || failed(&fs::read(&output).unwrap_or_default());
        let end = process::run(&mut command, process::time_max(usual), || failed().is_some())?;
        Ok(verdict(&end, failed(), program))
    }
}

/// The tests that a program lists.
fn listed(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter_map(|line| line.strip_suffix(": test"))
}

fn verdict(end: &End, failed: Option<String>, program: &str) -> Verdict {
    let is_forced = |status: ExitStatus| {
        let forced = [Signal::XCPU, Signal::KILL].map(|signal| Some(signal.as_raw()));
        forced.contains(&status.signal())
    };
    match (end, failed) {
        (_, Some(test)) => Verdict::Noticed(test),
        (End::Exited(status), None) if status.success() => Verdict::Survived,
        (End::Exited(status), None) if !is_forced(*status) => {
            Verdict::Noticed(format!("{program}, {status}"))
        }
        _ => Verdict::Hung,
    }
}

/// The first failed test in what a test program prints.
fn failed(output: &[u8]) -> Option<String> {
    let output = String::from_utf8_lossy(output);
    let mut lines = output.lines();
    lines.find_map(|line| {
        let test = line.strip_prefix("test ")?.strip_suffix("FAILED")?;
        Some(test.split(' ').next()?.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script in the place of a test program.
    fn programs(folder: &Path, script: &str) -> Programs {
        let path = folder.join("program");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, mode).unwrap();
        let paths = [("all".to_owned(), path)].into();
        Programs { paths, folder: folder.to_owned() }
    }

    fn run(script: &str) -> Verdict {
        let folder = tempfile::tempdir().unwrap();
        let programs = programs(folder.path(), script);
        programs.run("all", &["a::b"], Switch::On(7), Duration::ZERO).unwrap()
    }

    #[test]
    fn what_became_of_tests_is_told_apart() {
        assert_eq!(run("echo test a::b ... ok"), Verdict::Survived);
        assert_eq!(run("kill -XCPU $$"), Verdict::Hung);
        for script in [
            "echo 'test a::b ... FAILED'; sleep 60",
            "echo 'test a::b - should panic ... FAILED'; exit 101",
            "echo 'test a::b ... printedFAILED'; exit 101",
        ] {
            assert_eq!(run(script), Verdict::Noticed("a::b".to_owned()));
        }
        match run("kill -ABRT $$") {
            Verdict::Noticed(text) => assert!(text.starts_with("all, signal: 6"), "{text}"),
            verdict => panic!("{verdict}"),
        }
    }

    #[test]
    fn tests_have_limits_and_a_folder_and_know_the_mutation() {
        let passes = |condition: &str| run(&format!("[ {condition} ]")) == Verdict::Survived;
        assert!(passes("$ZODIUM_MUTATION = 7"));
        assert!(!passes("$ZODIUM_MUTATION = 8"));
        assert!(passes("\"$*\" = '--exact --test-threads=1 a::b'"));
        assert!(passes("$(ulimit -t) = 10"));
        assert!(passes("$(ulimit -c) = 0"));
        assert!(passes("-d $TMPDIR"));
        assert!(passes("-z \"$(ls -A $TMPDIR)\""));
    }

    #[test]
    fn ignored_tests_are_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        let script = "case $* in --list) echo a: test; echo b: test; echo c: benchmark;; \
                      '--list --ignored') echo b: test;; esac";
        let tests = programs(folder.path(), script).tests().unwrap();
        assert_eq!(tests, [Test { program: "all".to_owned(), name: "a".to_owned() }]);
    }
}
