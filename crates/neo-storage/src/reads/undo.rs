//! What an undo has to store.

use zodium_neo::messages::{AnswerObjectUndoSerial, AskObjectUndoSerial, UndoSerial};
use zodium_neo::{ErrorCode, Map};
use zodium_types::Oid;

use crate::ConnectionId;
use crate::cluster::Cluster;
use crate::commits::Commits;
use crate::database::Undone;
use crate::handling::{Handled, Refusal};
use crate::links::Links;

/// Reads what an undo has to store.
pub(super) fn undo_asked(
    links: &mut Links,
    cluster: &Cluster,
    commits: &Commits,
    from: (ConnectionId, u32),
    message: AskObjectUndoSerial,
) -> Handled {
    let AskObjectUndoSerial { ttid, end_tid, undone_tid, oids } = message;
    for oid in &oids {
        cluster.check_readable_oid(*oid)?;
    }
    let questions: Vec<_> = oids.iter().map(|oid| (*oid, commits.own_serial(ttid, *oid))).collect();
    links.read_for(
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
                node.cluster.check_readable_oid(oid)?;
                match undone {
                    Undone::Nothing => {}
                    Undone::Invisible => {
                        let code = ErrorCode::OidNotFound;
                        return Err(Refusal::answer(code, oid.to_string()));
                    }
                    Undone::Serials { current, undo, is_current } => {
                        let serial =
                            UndoSerial { current_serial: current, undo_serial: undo, is_current };
                        serials.0.push((oid, serial));
                    }
                }
            }
            node.links.answer(from, AnswerObjectUndoSerial { serials });
            Ok(())
        },
    );
    Ok(())
}
