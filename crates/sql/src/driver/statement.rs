//! A statement, and its runs.

use std::marker::PhantomData;
use std::sync::Arc;

use rusqlite::{CachedStatement, params_from_iter};

use super::maria::Translated;
use super::{Error, MariaConnection, Parameter, Params, Result, Row, Rows};

/// A statement of a connection.
pub(crate) enum Statement<'c> {
    /// Goes back to the connection, compiled.
    Cached(CachedStatement<'c>),
    Once(rusqlite::Statement<'c>),
    Maria(&'c MariaConnection, Arc<Translated>),
}

/// The rows of a query, read by a function.
pub(crate) struct Mapped<'s, T, F> {
    rows: Rows<'s>,
    read: F,
    found: PhantomData<T>,
}

impl Statement<'_> {
    /// Runs a statement that gives no rows; the number of rows that it changed.
    pub(crate) fn execute(&mut self, parameters: impl Params) -> Result<usize> {
        parameters.with(|list| match self {
            Statement::Cached(statement) => Ok(statement.execute(params_from_iter(list))?),
            Statement::Once(statement) => Ok(statement.execute(params_from_iter(list))?),
            Statement::Maria(connection, text) => {
                let changed = connection.change(text, values(text, list))?;
                Ok(usize::try_from(changed).unwrap_or(usize::MAX))
            }
        })
    }

    /// Runs a query.
    pub(crate) fn query(&mut self, parameters: impl Params) -> Result<Rows<'_>> {
        parameters.with(|list| match self {
            Statement::Cached(statement) => {
                Ok(Rows::Sqlite(statement.query(params_from_iter(list))?))
            }
            Statement::Once(statement) => {
                Ok(Rows::Sqlite(statement.query(params_from_iter(list))?))
            }
            Statement::Maria(connection, text) => {
                let rows = connection.select(text, values(text, list))?;
                Ok(Rows::Maria(rows.into_iter(), None))
            }
        })
    }

    /// Runs a query, and reads its first row.
    pub(crate) fn query_row<T>(
        &mut self,
        parameters: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut rows = self.query(parameters)?;
        let row = rows.next()?.ok_or(Error::NoRow)?;
        read(&row)
    }

    /// Runs a query, and reads each row.
    pub(crate) fn query_map<T, F: FnMut(&Row<'_>) -> Result<T>>(
        &mut self,
        parameters: impl Params,
        read: F,
    ) -> Result<Mapped<'_, T, F>> {
        Ok(Mapped { rows: self.query(parameters)?, read, found: PhantomData })
    }
}

/// The values of a run, in the order in which the text has them.
fn values(text: &Translated, list: &[&dyn Parameter]) -> Vec<mysql::Value> {
    let value = |index: &usize| list.get(*index).map_or(mysql::Value::NULL, |one| one.to_maria());
    text.order().iter().map(value).collect()
}

impl<T, F: FnMut(&Row<'_>) -> Result<T>> Iterator for Mapped<'_, T, F> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        match self.rows.next() {
            Ok(row) => row.map(|row| (self.read)(&row)),
            Err(error) => Some(Err(error)),
        }
    }
}
