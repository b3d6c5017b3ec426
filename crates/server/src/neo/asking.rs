//! Commands that ask an admin: where it is, and their questions.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use zodium_neo::messages::{
    AnswerRecovery, AskClusterState, AskLastIDs, AskLastTransaction, AskMonitorInformation,
    AskNodeList, AskPartitionList, AskPrimary, AskRecovery, NodeInformation, Row,
    TweakPartitionTable,
};
use zodium_neo::{ClusterState, Message, NodeId, NodeType, TableId};
use zodium_neo_server::{AdminConnection, AskError, NodeTls};
use zodium_types::{Oid, Tid};

use super::addresses;

/// NEO's port of admins.
const PORT: u16 = 9999;

/// Where the admin is.
#[derive(Debug, Args)]
pub(super) struct AdminReach {
    /// The admin: HOST:PORT
    #[arg(short, long, value_name = "HOST:PORT", default_value = "127.0.0.1:9999")]
    address: String,

    /// Certificates of the cluster's authority, in PEM format
    #[arg(long, value_name = "PATH", requires_all = ["cert", "key"], help_heading = "TLS")]
    ca: Option<PathBuf>,

    /// Certificate of this command, in PEM format
    #[arg(long, value_name = "PATH", requires_all = ["ca", "key"], help_heading = "TLS")]
    cert: Option<PathBuf>,

    /// Key of the certificate, in PEM format
    #[arg(long, value_name = "PATH", requires_all = ["ca", "cert"], help_heading = "TLS")]
    key: Option<PathBuf>,
}

impl AdminReach {
    /// Connects, and runs `ask`; its outcome, or why the admin cannot be asked.
    pub(super) fn block_on<T>(
        &self,
        ask: impl AsyncFnOnce(&mut Asking) -> Result<T, AskError>,
    ) -> Result<Result<T, AskError>> {
        let tls = match (&self.ca, &self.cert, &self.key) {
            (Some(authority), Some(certificate), Some(key)) => {
                let tls = NodeTls::load(authority, certificate, key);
                Some(tls.context("cannot set up TLS")?)
            }
            _ => None,
        };
        let address = addresses::numeric(&self.address, Some(PORT)).context("--address")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(runtime.block_on(async {
            let connection = AdminConnection::open(address.into(), tls.as_ref()).await?;
            ask(&mut Asking(connection)).await
        }))
    }

    /// The admin, as it was given.
    pub(super) fn shown(&self) -> &str {
        &self.address
    }
}

/// A connection to an admin.
pub(super) struct Asking(pub(super) AdminConnection);

/// Rows of the partition table.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// `None`: the cluster has no table yet.
    pub(super) table: Option<TableId>,
    pub(super) replicas: u32,
    pub(super) rows: Vec<Row>,
}

/// The health of the cluster and of its backups; `None` stands for the cluster itself.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) warnings: Vec<Option<String>>,
    pub(super) problems: Vec<Option<String>>,
    pub(super) summary: String,
}

impl Asking {
    pub(super) async fn cluster_state(&mut self) -> Result<Option<ClusterState>, AskError> {
        let answer = |message: &Message<'_>| match message {
            Message::AnswerClusterState(answer) => Some(answer.state),
            _ => None,
        };
        self.0.ask(AskClusterState {}, answer).await
    }

    pub(super) async fn primary(&mut self) -> Result<NodeId, AskError> {
        let answer = |message: &Message<'_>| match message {
            Message::AnswerPrimary(answer) => Some(answer.id),
            _ => None,
        };
        self.0.ask(AskPrimary {}, answer).await
    }

    pub(super) async fn nodes(
        &mut self,
        node_type: Option<NodeType>,
    ) -> Result<Vec<NodeInformation>, AskError> {
        let answer = |message: &Message<'_>| match message {
            Message::AnswerNodeList(answer) => Some(answer.nodes.clone()),
            _ => None,
        };
        self.0.ask(AskNodeList { node_type }, answer).await
    }

    /// The rows from `first` to before `end`, where 0 stands for all that there are.
    pub(super) async fn rows(
        &mut self,
        first: u32,
        end: u32,
        node: Option<NodeId>,
    ) -> Result<Rows, AskError> {
        let answer = |message: &Message<'_>| match message {
            Message::AnswerPartitionList(answer) => {
                let (table, replicas) = (answer.table, answer.replicas);
                Some(Rows { table, replicas, rows: answer.rows.clone() })
            }
            _ => None,
        };
        self.0.ask(AskPartitionList { first, end, node }, answer).await
    }

    pub(super) async fn recovery(&mut self) -> Result<AnswerRecovery, AskError> {
        let answer = |message: &Message<'_>| match message {
            Message::AnswerRecovery(answer) => Some(answer.clone()),
            _ => None,
        };
        self.0.ask(AskRecovery {}, answer).await
    }

    /// The last transaction and the last object.
    pub(super) async fn last_ids(&mut self) -> Result<(Option<Tid>, Option<Oid>), AskError> {
        let answer = |message: &Message<'_>| match message {
            Message::AnswerLastIDs(answer) => Some((answer.last_tid, answer.last_oid)),
            _ => None,
        };
        self.0.ask(AskLastIDs {}, answer).await
    }

    pub(super) async fn last_transaction(&mut self) -> Result<Tid, AskError> {
        let answer = |message: &Message<'_>| match message {
            Message::AnswerLastTransaction(answer) => Some(answer.tid),
            _ => None,
        };
        self.0.ask(AskLastTransaction {}, answer).await
    }

    pub(super) async fn report(&mut self) -> Result<Report, AskError> {
        let owned =
            |names: &[Option<&str>]| names.iter().map(|name| name.map(str::to_owned)).collect();
        let answer = |message: &Message<'_>| match message {
            Message::AnswerMonitorInformation(answer) => Some(Report {
                warnings: owned(&answer.warnings),
                problems: owned(&answer.problems),
                summary: answer.summary.to_owned(),
            }),
            _ => None,
        };
        self.0.ask(AskMonitorInformation {}, answer).await
    }

    /// Balances the table; whether it changes, and its rows then.
    pub(super) async fn tweak(
        &mut self,
        dry_run: bool,
        excluded: Vec<NodeId>,
    ) -> Result<(bool, Vec<Row>), AskError> {
        let answer = |message: &Message<'_>| match message {
            Message::AnswerTweakPartitionTable(answer) => {
                Some((answer.changed, answer.rows.clone()))
            }
            _ => None,
        };
        self.0.ask(TweakPartitionTable { dry_run, excluded }, answer).await
    }
}
