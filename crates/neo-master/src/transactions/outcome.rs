//! What became of a transaction, for a client that lost its connection while it finished it.

use zodium_neo::Request;
use zodium_neo::messages::AnswerFinalTID;
use zodium_types::Tid;

use super::{Transactions, Waiting};
use crate::cluster::Cluster;
use crate::peer::Links;

impl Transactions {
    /// A client asks for the tid of a transaction.
    pub(crate) fn final_tid(
        &mut self,
        cluster: &Cluster,
        links: &mut Links,
        request: Request,
        ttid: Tid,
    ) {
        if let Some(transaction) = self.all.get_mut(&ttid) {
            // It is answered at the commit.
            return transaction.wait(Waiting::Client(request));
        }
        // A tid is not before its ttid. Of older ones storages know.
        let tid = (ttid <= cluster.last_tid).then_some(Tid::MAX);
        links.answer(request, AnswerFinalTID { tid });
    }
}
