//! Which transactions of a storage a command looks at.

use anyhow::{Result, bail};
use clap::Args;
use jiff::Zoned;
use zodium_storage::Read;
use zodium_tools::{TidRange, parse_tid};
use zodium_types::Tid;

/// The state of the storage that a command looks at.
#[derive(Debug, Args)]
pub(super) struct ViewArguments {
    /// Look at the storage as it was after this transaction, or at this time [default: its last
    /// transaction]
    #[arg(long, value_name = "TID|TIME")]
    at: Option<String>,
}

impl ViewArguments {
    /// The last transaction that counts.
    pub(super) fn last(&self, storage: &dyn Read) -> Result<Tid> {
        let last = storage.last_tid();
        match &self.at {
            Some(text) => Ok(parse_tid(text, &Zoned::now())?.min(last)),
            None => Ok(last),
        }
    }

    /// The transactions of a range that count: those that were there when the command began.
    pub(super) fn range(&self, arguments: &[String], storage: &dyn Read) -> Result<TidRange> {
        Ok(range_of(arguments)?.up_to(self.last(storage)?))
    }

    /// As [`ViewArguments::range`], of a log that no storage has.
    pub(super) fn range_of_log(&self, arguments: &[String]) -> Result<TidRange> {
        let range = range_of(arguments)?;
        match &self.at {
            Some(text) => Ok(range.up_to(parse_tid(text, &Zoned::now())?)),
            None => Ok(range),
        }
    }
}

fn range_of(arguments: &[String]) -> Result<TidRange> {
    match arguments {
        [] => Ok(TidRange::default()),
        [range] => Ok(TidRange::parse(range, &Zoned::now())?),
        [_, more, ..] => bail!("{more}: one range is enough"),
    }
}
