//! The finish of a voted transaction.

use std::sync::Arc;

use parking_lot::Mutex;
use zodium_neo::Message;
use zodium_neo::messages::AskFinishTransaction;
use zodium_storage::Finished;

use crate::NeoError;
use crate::cluster::Cluster;
use crate::commits::Unresolved;
use crate::connection::Then;
use crate::transaction::Finish;

impl Finish {
    /// Asks the primary master to commit the transaction. `done` is called with the outcome, after
    /// that of each earlier transaction.
    pub(crate) fn send(self, cluster: &Arc<Cluster>, done: Finished) {
        let Finish { session, ttid, oids, changed, deleted, checked, pack } = self;
        // A request that is not sent has no answer.
        let done = Arc::new(Mutex::new(Some(done)));
        let request = AskFinishTransaction { ttid, oids, deleted, checked, pack };
        let (cluster, answered) = (Arc::clone(cluster), Arc::clone(&done));
        let then: Then = Box::new(move |answer| {
            let Some(done) = answered.lock().take() else { return };
            match answer {
                Ok(Message::AnswerTransactionFinished(finished)) => {
                    cluster.commits.finished(finished.tid, changed, done);
                }
                Err(NeoError::Lost { .. }) => {
                    cluster.commits.unresolved(Unresolved { ttid, oids: changed, done });
                }
                Ok(other) => {
                    let (peer, message) = ("the primary master".into(), other.name());
                    done(Err(NeoError::Unexpected { peer, message }.into()));
                }
                Err(error) => done(Err(error.into())),
            }
        });
        let sent = session.master.send(|batch| batch.ask(request, then));
        if let Err(error) = sent {
            let done = done.lock().take();
            let error = match error {
                // The master aborts what a lost client has not finished.
                NeoError::Lost { .. } => NeoError::MasterLost,
                error => error,
            };
            if let Some(done) = done {
                done(Err(error.into()));
            }
        }
    }
}
