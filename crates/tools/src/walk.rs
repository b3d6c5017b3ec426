//! Walks through the log of a storage.

use std::ops::ControlFlow;

use zodium_storage::{LogItem, Read};

use crate::{TidRange, ToolError};

/// Shows `visit` each transaction of the range, and each of its records after it, until an error.
///
/// # Errors
/// The storage's, or what `visit` gave.
pub fn walk(
    storage: &dyn Read,
    range: TidRange,
    visit: &mut dyn FnMut(LogItem<'_>) -> Result<(), ToolError>,
) -> Result<(), ToolError> {
    if range.is_empty() {
        return Ok(());
    }
    let mut cursor = storage.iterate(range.min, range.max)?;
    let mut failure = None;
    loop {
        let is_over = cursor.read(true, &mut |item| match visit(item) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        })?;
        match failure.take() {
            Some(error) => return Err(error),
            None if is_over => return Ok(()),
            // A storage may pause before the end.
            None => {}
        }
    }
}
