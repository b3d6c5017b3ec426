//! Packs, and crashes right after them.

use std::time::Duration;

use zodium_disk::Clock;
use zodium_types::Tid;

use super::World;

/// Packs per thousand that a crash follows at once, where there are crashes. The next commit would
/// sync what the pack has left unsynced.
const CRASHES_AFTER: u64 = 200;

impl World {
    /// Packs up to a time of the last seconds.
    pub(super) fn pack(&self) {
        let Some(server) = self.server() else { return };
        if self.chance.permille(500) {
            self.stall(&server);
        }
        let back = Duration::from_millis(self.chance.number(0..=5000)).as_nanos() as u64;
        let until = Tid::from_unix_nanos(self.clock.unix_nanos().saturating_sub(back));
        self.event("pack", &[until.0]);
        {
            let mut history = self.history.borrow_mut();
            history.packed = history.packed.max(until.min(history.last_tid()));
        }
        self.is_packing.set(true);
        self.arm(&server.disk);
        self.depth.set(self.depth.get() + 1);
        let packed = server.storage.pack(until);
        self.depth.set(self.depth.get() - 1);
        self.is_packing.set(false);
        let has_freed = matches!(packed, Ok(Some(_)));
        if has_freed {
            self.event("pack that freed", &[server.file.size()]);
        }
        let may_fail = self.plan.faults > 0;
        let outcome =
            packed.map(|_| ()).or_else(|error| if may_fail { Ok(()) } else { Err(error) });
        self.check(outcome.map_err(|error| format!("a pack fails: {error}")));
        self.absorb(&server);
        if has_freed && self.plan.crashes > 0 && self.chance.permille(CRASHES_AFTER) {
            self.take_image();
        }
    }

    /// How often to pack. More often while the file is about to be reopened, so that both happen
    /// together.
    pub(super) fn pack_permille(&self) -> u64 {
        let server = self.server();
        let is_failed = server.is_some_and(|server| server.storage.write_failure().is_some());
        if is_failed { 200 } else { 20 }
    }
}
