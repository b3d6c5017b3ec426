//! Which mutation is on. This file becomes a module of the crate whose mutations are tried.
//!
//! `ZODIUM_MUTATION` is the number of the mutation. With `ZODIUM_MUTATION_RECORD` none is on, and
//! the numbers of those that are reached are written to that file, one a line.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// More than any crate has.
const SWITCHES: usize = 1 << 16;
/// In the place of a number: the environment was not looked at yet.
const UNKNOWN: u32 = u32::MAX;
/// In the place of a number: what is reached is recorded.
const RECORDED: u32 = u32::MAX - 1;

static CHOSEN: AtomicU32 = AtomicU32::new(UNKNOWN);
static REACHED: [AtomicBool; SWITCHES] = [const { AtomicBool::new(false) }; SWITCHES];
static RECORD: OnceLock<Option<File>> = OnceLock::new();

/// Whether a mutation is on.
#[inline]
pub(crate) fn is_on(id: u32) -> bool {
    match CHOSEN.load(Ordering::Relaxed) {
        UNKNOWN => is_chosen(id, from_environment()),
        RECORDED => is_chosen(id, RECORDED),
        chosen => chosen == id,
    }
}

fn from_environment() -> u32 {
    let chosen = match std::env::var("ZODIUM_MUTATION") {
        Ok(number) => number.parse().unwrap_or(0),
        Err(_) if record().is_some() => RECORDED,
        Err(_) => 0,
    };
    CHOSEN.store(chosen, Ordering::Relaxed);
    chosen
}

#[cold]
fn is_chosen(id: u32, chosen: u32) -> bool {
    if chosen != RECORDED {
        return chosen == id;
    }
    let reached = &REACHED[id as usize];
    if !reached.swap(true, Ordering::Relaxed)
        && let Some(mut file) = record()
    {
        // One call of the system: lines of several processes are not mixed.
        let _ = file.write_all(format!("{id}\n").as_bytes());
    }
    false
}

fn record() -> Option<&'static File> {
    let file = RECORD.get_or_init(|| {
        let path = std::env::var_os("ZODIUM_MUTATION_RECORD")?;
        OpenOptions::new().append(true).create(true).open(path).ok()
    });
    file.as_ref()
}
