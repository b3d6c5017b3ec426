//! Misbehaving helpers: the conflict is not resolved, the call returns in time, and the next one
//! gets another helper. Each helper here is a shell script in place of Python.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tempfile::TempDir;
use zodium_resolver::{Limits, PythonResolver};

/// A script cannot be executed while a forked child of another thread has it open for writing.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const GREET: &str = "echo $$ >> $0.started; printf 'H\\0\\0\\0\\0' >&0\n";
/// Reads a request with records of one byte each.
const TAKE: &str = "dd bs=1 count=15 <&0 >/dev/null 2>&1\n";
const FOR_EVER: &str = "exec sleep 10000\n";

struct Scene {
    folder: TempDir,
    resolver: PythonResolver,
    _turn: MutexGuard<'static, ()>,
}

impl Scene {
    fn new(script: &[&str], limits: Limits) -> Scene {
        let turn = ONE_AT_A_TIME.lock();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("python");
        fs::write(&path, format!("#!/bin/sh\n{}", script.concat())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let resolver = PythonResolver::new(path, limits);
        Scene { folder, resolver, _turn: turn }
    }

    fn resolve(&self) -> Option<Vec<u8>> {
        self.resolver.resolve(b"o", b"c", b"n")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The process ids of all helpers that greeted.
    fn started(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("python.started")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn briefly() -> Limits {
    Limits { call_time_max: Duration::from_millis(300), ..Limits::default() }
}

fn is_running(process: &str) -> bool {
    Path::new("/proc").join(process).exists()
}

#[test]
fn an_answer_is_taken_and_the_helper_kept_until_it_has_done_its_share() {
    let answers = [
        "while ",
        "dd bs=1 count=15 <&0 2>/dev/null | grep -q ocn",
        "; do printf 'R\\0\\0\\0\\002ok' >&0; done\n",
    ];
    let scene = Scene::new(
        &[&[GREET][..], &answers].concat(),
        Limits { calls_max: 2, ..Limits::default() },
    );
    for _ in 0..5 {
        assert_eq!(scene.resolve().as_deref(), Some(&b"ok"[..]));
    }
    let started = scene.started();
    assert_eq!(started.len(), 3);
    assert!(!is_running(&started[0]) && !is_running(&started[1]) && is_running(&started[2]));
    let Scene { resolver, folder: _folder, _turn } = scene;
    drop(resolver);
    assert!(!is_running(&started[2]));
}

#[test]
fn a_helper_that_does_not_answer_is_killed_and_replaced() {
    let scene = Scene::new(&[GREET, TAKE, FOR_EVER], briefly());
    for count in 1..=2 {
        assert_eq!(scene.resolve(), None);
        let started = scene.started();
        assert_eq!(started.len(), count);
        assert!(!is_running(&started[count - 1]));
    }
    // After consecutive failures there is a pause.
    assert_eq!(scene.resolve(), None);
    assert_eq!(scene.resolve(), None);
    assert_eq!(scene.started().len(), 3);
}

#[test]
fn a_helper_that_takes_no_request_is_killed() {
    let scene = Scene::new(&[GREET, FOR_EVER], briefly());
    let large = vec![0; 4 << 20];
    assert_eq!(scene.resolver.resolve(&large, &large, &large), None);
    assert!(!is_running(&scene.started()[0]));
}

#[test]
fn a_helper_that_does_not_greet_is_killed() {
    let limits = Limits { start_time_max: Duration::from_millis(300), ..Limits::default() };
    let scene = Scene::new(&["echo $$ >> $0.started\n", FOR_EVER], limits);
    assert_eq!(scene.resolve(), None);
    assert!(scene.started().iter().all(|process| !is_running(process)));
}

#[test]
fn malformed_answers_end_the_helper() {
    for answer in ["Z\\0\\0\\0\\0", "R\\0\\0\\0\\0", "R\\177\\0\\0\\0", "R\\0\\0", ""] {
        let answer = format!("printf '{answer}' >&0\n");
        let scene = Scene::new(&[GREET, TAKE, &answer], Limits::default());
        assert_eq!(scene.resolve(), None, "{answer}");
        assert!(!is_running(&scene.started()[0]), "{answer}");
    }
    let scene = Scene::new(&["printf 'X\\0\\0\\0\\004none' >&0\n", FOR_EVER], Limits::default());
    assert_eq!(scene.resolve(), None);
}

#[test]
fn what_a_helper_has_started_is_killed_with_it() {
    let background = "sleep 10000 & echo $! > $0.background\n";
    // Like the real helper, the leader of a session.
    let leader = "[ -n \"$LEADS\" ] || { export LEADS=1; exec setsid \"$0\"; }\n";
    // What comes before the greeting has more time than a call.
    let scene = Scene::new(&[leader, background, GREET, TAKE, FOR_EVER], briefly());
    assert_eq!(scene.resolve(), None);
    let background = fs::read_to_string(scene.path("python.background")).unwrap();
    let stat = Path::new("/proc").join(background.trim()).join("stat");
    // Killed, but perhaps not dead yet, or not reaped yet by its parent.
    let is_alive = || {
        let state = fs::read_to_string(&stat).unwrap_or_default();
        !(state.is_empty() || state.contains(") Z ") || state.contains(") X "))
    };
    for _ in 0..3_000 {
        if !is_alive() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("it is still there");
}

#[test]
fn records_larger_than_may_be_are_not_sent() {
    let limits = Limits { record_bytes_max: 2, ..Limits::default() };
    let scene = Scene::new(&[GREET, FOR_EVER], limits);
    assert_eq!(scene.resolve(), None);
    assert!(scene.started().is_empty());
}

#[test]
fn conflicts_beyond_those_that_may_wait_are_not_resolved() {
    let wait = "touch $0.called; while [ ! -e $0.go ]; do sleep 0.01; done\n";
    let answer = "printf 'R\\0\\0\\0\\002ok' >&0\n";
    let limits =
        Limits { waiting_max: 1, call_time_max: Duration::from_secs(60), ..Limits::default() };
    let scene = Scene::new(&[GREET, TAKE, wait, answer, FOR_EVER], limits);
    thread::scope(|scope| {
        let first = scope.spawn(|| scene.resolve());
        while !scene.path("python.called").exists() {
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(scene.resolve(), None);
        fs::write(scene.path("python.go"), "").unwrap();
        assert_eq!(first.join().unwrap().as_deref(), Some(&b"ok"[..]));
    });
}
