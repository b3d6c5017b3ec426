//! Feeds one target from libFuzzer: that of the name in `ZODIUM_FUZZ_TARGET`.
//!
//! Without a name it lists all targets. The known inputs of the target are written to the folder in
//! `ZODIUM_FUZZ_CORPUS`, which is one of libFuzzer's arguments too. `make fuzz` runs all targets.
//!
//! Key decision: one program for all targets, since it takes minutes to build one.

#![no_main]

use std::path::Path;
use std::process::exit;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use zodium_fuzz::targets::{TARGETS, Target, find};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let Ok(name) = std::env::var("ZODIUM_FUZZ_TARGET") else {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        exit(0);
    };
    find(&name).unwrap_or_else(|| {
        eprintln!("there is no target {name}; without ZODIUM_FUZZ_TARGET this lists all");
        exit(2);
    })
});

fuzz_target!(init: prepare(), |input: &[u8]| TARGET.feed(input));

/// Runs before libFuzzer reads the corpus.
fn prepare() {
    let target = *TARGET;
    let corpus = std::env::var_os("ZODIUM_FUZZ_CORPUS").filter(|corpus| !corpus.is_empty());
    let Some(corpus) = corpus else { return };
    let written = target.known().and_then(|known| {
        known.iter().enumerate().try_for_each(|(number, input)| {
            std::fs::write(Path::new(&corpus).join(format!("known-{number}")), input)
        })
    });
    if let Err(error) = written {
        eprintln!("cannot write the known inputs to {}: {error}", corpus.display());
        exit(2);
    }
}
