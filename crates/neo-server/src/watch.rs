//! A view of a running node for other threads: the monitor's.
//!
//! The node belongs to one thread. How far it is that thread notes after each change; everything
//! else another thread asks for, and waits.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use zodium_neo::TableId;
use zodium_neo_storage::{Node, State, Status};
use zodium_net::LinkMetrics;

/// A view of a node, from before it runs until after its end. Clones share it.
#[derive(Clone)]
pub struct NodeWatch {
    brief: watch::Receiver<Brief>,
    questions: UnboundedSender<Question>,
    links: Arc<LinkMetrics>,
}

/// The node's end of a view.
pub struct Watched {
    pub(crate) notes: Notes,
    pub(crate) questions: UnboundedReceiver<Question>,
    pub(crate) links: Arc<LinkMetrics>,
}

/// What the node's thread notes for others.
pub(crate) struct Notes {
    brief: watch::Sender<Brief>,
    /// The state and the partition table that were noted last.
    noted: Cell<(State, Option<TableId>)>,
}

/// What is known of a node without asking it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brief {
    /// How far it is.
    pub state: State,
    /// Whether cells of it are marked as corrupted.
    pub has_corrupted_cells: bool,
}

/// What a node says of itself, and its driver of the connections.
#[derive(Clone, Debug, Default)]
pub struct NodeReport {
    /// The node.
    pub status: Status,
    /// Bytes that wait to be sent.
    pub unsent_bytes: u64,
}

pub(crate) type Question = oneshot::Sender<NodeReport>;

impl NodeWatch {
    /// Creates a view; its other end is for [`ServeNode`](crate::ServeNode).
    pub fn new() -> (NodeWatch, Watched) {
        let links = Arc::<LinkMetrics>::default();
        let (sender, questions) = unbounded_channel();
        let (noting, brief) = watch::channel(Brief::default());
        let notes = Notes { brief: noting, noted: Cell::default() };
        let watched = Watched { notes, questions, links: Arc::clone(&links) };
        (NodeWatch { brief, questions: sender, links }, watched)
    }

    /// What is known without asking.
    pub fn brief(&self) -> Brief {
        *self.brief.borrow()
    }

    /// Waits until something else is known without asking; `false` when the node has ended.
    pub async fn changed(&mut self) -> bool {
        self.brief.changed().await.is_ok()
    }

    /// The counters of its connections.
    pub fn links(&self) -> &LinkMetrics {
        &self.links
    }

    /// Asks the node; `None` if it has ended.
    pub async fn report(&self) -> Option<NodeReport> {
        let (sender, answer) = oneshot::channel();
        self.questions.send(sender).ok()?;
        answer.await.ok()
    }
}

impl Notes {
    /// Notes what is known without asking, if it may have changed.
    pub(crate) fn take(&self, node: &Node) {
        let now = (node.state(), node.table_id());
        if self.noted.replace(now) != now {
            let has_corrupted_cells = node.has_corrupted_cells();
            // Readers may be gone.
            let _ = self.brief.send_replace(Brief { state: now.0, has_corrupted_cells });
        }
    }
}

impl fmt::Debug for NodeWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeWatch").field("brief", &self.brief()).finish_non_exhaustive()
    }
}
