//! One mutation before its tests.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};

use super::process::{self, End};
use super::table::Mutation;
use super::tree::Tree;

/// Lines of the compiler that are shown.
const COMPILER_LINES_MAX: usize = 12;

/// What became of a mutation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    /// A test failed: its name, or the command where no test is named.
    Noticed(String),
    /// A test did not end.
    Hung,
    /// All tests passed.
    Survived,
    /// The entry is wrong: what the compiler says.
    DoesNotCompile(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Noticed(test) => write!(f, "noticed by {test}"),
            Verdict::Hung => write!(f, "noticed: the test does not end"),
            Verdict::Survived => write!(f, "SURVIVED"),
            Verdict::DoesNotCompile(output) => write!(f, "DOES NOT COMPILE\n{output}"),
        }
    }
}

/// Builds and runs tests in a copy of the repository.
pub(crate) struct Trial<'a> {
    tree: &'a Tree,
    target: PathBuf,
    output: PathBuf,
    timeout: Duration,
    /// How long the tests of a command take without a mutation.
    durations: HashMap<String, Duration>,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(
        tree: &'a Tree,
        target: PathBuf,
        output: PathBuf,
        timeout: Duration,
    ) -> Trial<'a> {
        Trial { tree, target, output, timeout, durations: HashMap::new() }
    }

    /// Makes sure that a command runs tests, which pass; measures how long they take.
    pub(crate) fn baseline(&mut self, command: &str) -> anyhow::Result<Duration> {
        let (verdict, duration) = self.run(command)?;
        if verdict != Verdict::Survived {
            bail!("without a mutation: cargo test {command}: {verdict}");
        }
        ensure!(passed_count(&self.output()?) > 0, "cargo test {command} runs no test");
        self.durations.insert(command.to_owned(), duration);
        Ok(duration)
    }

    /// Applies a mutation, runs its tests, and takes it back.
    pub(crate) fn judge(&self, mutation: &Mutation) -> anyhow::Result<Verdict> {
        let applied = self.tree.apply(mutation)?;
        let verdict = self.test_all(&mutation.tests);
        applied.revert()?;
        verdict
    }

    fn test_all(&self, commands: &[String]) -> anyhow::Result<Verdict> {
        for command in commands {
            match self.test(command)? {
                Verdict::Survived => {}
                verdict => return Ok(verdict),
            }
        }
        Ok(Verdict::Survived)
    }

    fn test(&self, command: &str) -> anyhow::Result<Verdict> {
        Ok(self.run(command)?.0)
    }

    /// Runs `cargo test` with these arguments, and says how long the tests took.
    fn run(&self, command: &str) -> anyhow::Result<(Verdict, Duration)> {
        // A build on a busy machine may take as long as it likes.
        let built = self.cargo(&["--no-run"], command, Duration::MAX)?;
        if !built.is_some_and(|status| status.success()) {
            let output = self.output()?;
            let errors = output.lines().skip_while(|line| !line.starts_with("error"));
            let errors: Vec<&str> = errors.take(COMPILER_LINES_MAX).collect();
            return Ok((Verdict::DoesNotCompile(errors.join("\n")), Duration::ZERO));
        }
        let began = Instant::now();
        let verdict = match self.cargo(&[], command, self.time_max(command))? {
            Some(status) if status.success() => Verdict::Survived,
            Some(_) => {
                let output = self.output()?;
                let test = first_failed(&output).map(str::to_owned);
                Verdict::Noticed(test.unwrap_or_else(|| format!("cargo test {command}")))
            }
            None => Verdict::Hung,
        };
        Ok((verdict, began.elapsed()))
    }

    fn time_max(&self, command: &str) -> Duration {
        let usual = self.durations.get(command);
        usual.map_or(self.timeout, |usual| self.timeout.min(process::time_max(*usual)))
    }

    /// The status of `cargo test`; `None` when it took too long.
    fn cargo(
        &self,
        options: &[&str],
        command: &str,
        time_max: Duration,
    ) -> anyhow::Result<Option<ExitStatus>> {
        let output = File::create(&self.output)
            .with_context(|| format!("cannot write {}", self.output.display()))?;
        let mut cargo = cargo("test");
        cargo
            .arg("-q")
            .args(options)
            .args(command.split_whitespace())
            .current_dir(&self.tree.root)
            .env("CARGO_TARGET_DIR", &self.target)
            // What tests are linked with; a backtrace is not looked at.
            .env("CARGO_PROFILE_DEV_DEBUG", "false")
            .stdout(output.try_clone()?)
            .stderr(output);
        Ok(match process::run(&mut cargo, time_max, || false)? {
            End::Exited(status) => Some(status),
            End::Stopped | End::TimedOut => None,
        })
    }

    fn output(&self) -> anyhow::Result<String> {
        let bytes = fs::read(&self.output)
            .with_context(|| format!("cannot read {}", self.output.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Cargo, as the one that runs this program.
pub(super) fn cargo(command: &str) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // A failure must not lie about where tests would look next time.
    cargo.arg(command).env("PROPTEST_FAILURE_PERSISTENCE", "off");
    cargo
}

/// The first failed test in what cargo prints.
fn first_failed(output: &str) -> Option<&str> {
    let mut lines = output.lines();
    lines.find_map(|line| line.strip_prefix("---- ")?.strip_suffix(" stdout ----"))
}

/// How many tests passed, of all programs that cargo ran.
fn passed_count(output: &str) -> usize {
    let results = output.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    results.filter_map(|line| line.split(' ').next()?.parse::<usize>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! Numbers.
/// Whether a number is even.
pub fn is_even(number: u32) -> bool {
    let half = number / 2;
    number == half + half
}
/// Which nothing tests.
pub fn is_odd(number: u32) -> bool {
    number % 2 == 1
}
#[cfg(test)]
mod tests {
    #[test]
    fn four_is_even() {
        assert!(super::is_even(4));
    }
}
";

    /// A package of its own, in which mutations are real.
    fn package() -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        let original = folder.path().join("original");
        let root = original.join("crates/a");
        fs::create_dir_all(root.join("src")).unwrap();
        fs::write(original.join("Cargo.toml"), "[workspace]\nmembers = [\"crates/*\"]\n").unwrap();
        let manifest =
            "[package]\nname = \"zodium-a\"\nedition = \"2024\"\n\n[lib]\npath = \"src/b.rs\"\n";
        fs::write(root.join("Cargo.toml"), manifest).unwrap();
        fs::write(root.join("src/b.rs"), CODE).unwrap();
        let tree = Tree::copy(&original, folder.path().join("tree")).unwrap();
        (folder, tree)
    }

    #[test]
    fn what_became_of_a_mutation_is_told_apart() {
        let (folder, tree) = package();
        let (target, output) = (folder.path().join("target"), folder.path().join("output.txt"));
        let seconds = |seconds| Duration::from_secs(seconds);
        let mut trial = Trial::new(&tree, target.clone(), output.clone(), seconds(600));
        let command = "-p zodium-a --lib";
        let judge = |trial: &Trial<'_>, before: &str, after: &str| {
            let mutation = Mutation {
                tests: vec![command.to_owned()],
                ..Mutation::of("a/mutation", before, after)
            };
            trial.judge(&mutation).unwrap()
        };
        trial.baseline(command).unwrap();
        let error = trial.baseline("-p zodium-a --lib five").unwrap_err().to_string();
        assert!(error.contains("runs no test"), "{error}");
        assert_eq!(
            judge(&trial, "number == half", "number != half"),
            Verdict::Noticed("tests::four_is_even".to_owned())
        );
        assert_eq!(judge(&trial, "== 1", "== 0"), Verdict::Survived);
        match judge(&trial, "let half = number / 2;", "let half = \"\";") {
            Verdict::DoesNotCompile(output) => assert!(output.contains("error"), "{output}"),
            verdict => panic!("{verdict}"),
        }
        let impatient = Trial::new(&tree, target, output, seconds(1));
        assert_eq!(judge(&impatient, "let half", "loop {}\nlet half"), Verdict::Hung);
        assert_eq!(trial.test(command).unwrap(), Verdict::Survived, "each was taken back");
    }
}
