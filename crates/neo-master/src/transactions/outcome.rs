//! What became of a transaction, for a client that lost its connection while it finished it.

use zodium_neo::ConnectionId;
use zodium_neo::messages::AnswerFinalTID;
use zodium_types::Tid;

use super::Waiting;
use crate::Master;

impl Master {
    /// A client asks for the tid of a transaction.
    pub(crate) fn final_tid(&mut self, connection: ConnectionId, request: u32, ttid: Tid) {
        if let Some(transaction) = self.transactions.all.get_mut(&ttid) {
            // It is answered at the commit.
            return transaction.wait(Waiting::Client { connection, request });
        }
        // A tid is not before its ttid. Of older ones storages know.
        let tid = (ttid <= self.cluster.last_tid).then_some(Tid::MAX);
        self.links.answer(connection, request, AnswerFinalTID { tid });
    }
}
