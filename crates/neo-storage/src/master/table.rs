//! What the master says of the partition table.

use zodium_neo::PartitionTable;
use zodium_neo::messages::{NotifyPartitionChanges, SendPartitionTable};

use crate::Node;
use crate::database::TableChange;
use crate::handling::{Handled, Refusal};
use crate::phase::Phase;

impl Node {
    pub(super) fn table_told(&mut self, message: SendPartitionTable) -> Handled {
        let table = PartitionTable::from_message(message);
        let table = table.map_err(|error| Refusal::protocol(error.to_string()))?;
        let Some(table) = table.filter(PartitionTable::is_filled) else {
            return Err(Refusal::protocol("a partition table with empty partitions"));
        };
        let known = self.table.as_ref().map_or(0, PartitionTable::partitions);
        if known != 0 && known != table.partitions() {
            let text = format!("{} partitions instead of {known}", table.partitions());
            return Err(Refusal::protocol(text));
        }
        self.table = Some(table);
        self.save_table(None);
        Ok(())
    }

    pub(super) fn table_changed(&mut self, message: &NotifyPartitionChanges) -> Handled {
        let Some(table) = &mut self.table else {
            return Err(Refusal::protocol("a change of a partition table that was not sent"));
        };
        table.apply(message).map_err(|error| Refusal::protocol(error.to_string()))?;
        let changed = message.changes.iter().map(|change| change.partition).collect();
        self.save_table(Some(changed));
        if self.phase == Phase::Operating {
            self.cells_changed(&message.changes);
        }
        Ok(())
    }

    fn save_table(&mut self, changed: Option<Vec<zodium_neo::Partition>>) {
        let (Some(table), Some(node)) = (self.table.clone(), self.id) else { return };
        let (backup_tid, last_pack) = (self.backup_tid, self.packing.last());
        let change = TableChange { table, node, backup_tid, last_pack, changed };
        self.write(move |database| database.set_table(&change), |_, ()| {});
    }
}
