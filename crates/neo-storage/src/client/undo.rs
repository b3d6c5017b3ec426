//! What an undo has to store.

use zodium_neo::messages::{AnswerObjectUndoSerial, AskObjectUndoSerial, UndoSerial};
use zodium_neo::{ErrorCode, Map};
use zodium_types::{Oid, Tid};

use crate::database::Undone;
use crate::handling::{Handled, Refusal};
use crate::{ConnectionId, Node};

impl Node {
    pub(super) fn undo_asked(
        &mut self,
        from: (ConnectionId, u32),
        message: AskObjectUndoSerial,
    ) -> Handled {
        let AskObjectUndoSerial { ttid, end_tid, undone_tid, oids } = message;
        for oid in &oids {
            self.readable_partition_of_oid(*oid)?;
        }
        let questions: Vec<_> =
            oids.iter().map(|oid| (*oid, self.own_serial(ttid, *oid))).collect();
        self.read_for(
            from,
            move |database| {
                let ask = |(oid, own)| {
                    let undone = database.undone(oid, end_tid, undone_tid, own)?;
                    Ok((oid, undone))
                };
                questions.into_iter().map(ask).collect::<Result<Vec<(Oid, Undone)>, _>>()
            },
            move |node, found| {
                let mut serials = Map::default();
                for (oid, undone) in found {
                    node.readable_partition_of_oid(oid)?;
                    match undone {
                        Undone::Nothing => {}
                        Undone::Invisible => {
                            let code = ErrorCode::OidNotFound;
                            return Err(Refusal::answer(code, oid.to_string()));
                        }
                        Undone::Serials { current, undo, is_current } => {
                            let serial = UndoSerial {
                                current_serial: current,
                                undo_serial: undo,
                                is_current,
                            };
                            serials.0.push((oid, serial));
                        }
                    }
                }
                node.answer(from.0, from.1, AnswerObjectUndoSerial { serials });
                Ok(())
            },
        );
        Ok(())
    }

    /// The serial of an object that the undoing transaction has stored itself.
    fn own_serial(&self, ttid: Tid, oid: Oid) -> Option<Tid> {
        let transaction = self.transactions.all.get(&ttid)?;
        let stored = transaction.objects.get(&oid)?.stored.as_ref()?;
        Some(stored.data_serial.unwrap_or(ttid))
    }
}
