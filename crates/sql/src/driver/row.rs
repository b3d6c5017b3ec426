//! The rows of a query, and the values of their columns.

use std::vec::IntoIter;

use mysql::Value;
use rusqlite::types::FromSql;

use super::{Error, Result};

/// The rows of a query. Those of SQLite are found one by one, those of a server come at once.
pub(crate) enum Rows<'s> {
    Sqlite(rusqlite::Rows<'s>),
    Maria(IntoIter<mysql::Row>, Option<mysql::Row>),
}

/// A row.
pub(crate) enum Row<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    Maria(&'r mysql::Row),
}

/// A value that a column can have.
pub(crate) trait Column: FromSql {
    /// The value that a server has sent; `None` if it has another type.
    fn of_maria(value: &Value) -> Option<Self>;
}

impl Rows<'_> {
    /// The next row.
    pub(crate) fn next(&mut self) -> Result<Option<Row<'_>>> {
        match self {
            Rows::Sqlite(rows) => Ok(rows.next()?.map(Row::Sqlite)),
            Rows::Maria(rows, current) => {
                *current = rows.next();
                Ok(current.as_ref().map(Row::Maria))
            }
        }
    }
}

impl Row<'_> {
    /// The value of a column.
    pub(crate) fn get<T: Column>(&self, column: usize) -> Result<T> {
        match self {
            Row::Sqlite(row) => Ok(row.get(column)?),
            Row::Maria(row) => {
                row.as_ref(column).and_then(T::of_maria).ok_or(Error::Column(column))
            }
        }
    }

    /// The bytes of a column.
    pub(crate) fn bytes(&self, column: usize) -> Result<&[u8]> {
        match self {
            Row::Sqlite(row) => row.get_ref(column)?.as_blob().map_err(|_| Error::Column(column)),
            Row::Maria(row) => match row.as_ref(column) {
                Some(Value::Bytes(bytes)) => Ok(bytes),
                _ => Err(Error::Column(column)),
            },
        }
    }
}

impl Column for i64 {
    fn of_maria(value: &Value) -> Option<i64> {
        match value {
            Value::Int(number) => Some(*number),
            Value::UInt(number) => i64::try_from(*number).ok(),
            _ => None,
        }
    }
}

macro_rules! smaller {
    ($($number:ty)*) => {$(
        impl Column for $number {
            fn of_maria(value: &Value) -> Option<$number> {
                <$number>::try_from(i64::of_maria(value)?).ok()
            }
        }
    )*};
}
smaller!(i32 u32 u8);

impl Column for bool {
    fn of_maria(value: &Value) -> Option<bool> {
        i64::of_maria(value).map(|number| number != 0)
    }
}

impl Column for Vec<u8> {
    fn of_maria(value: &Value) -> Option<Vec<u8>> {
        match value {
            Value::Bytes(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }
}

impl Column for [u8; 20] {
    fn of_maria(value: &Value) -> Option<[u8; 20]> {
        match value {
            Value::Bytes(bytes) => bytes.as_slice().try_into().ok(),
            _ => None,
        }
    }
}

impl Column for String {
    fn of_maria(value: &Value) -> Option<String> {
        String::from_utf8(Vec::of_maria(value)?).ok()
    }
}

impl<T: Column> Column for Option<T> {
    fn of_maria(value: &Value) -> Option<Option<T>> {
        match value {
            Value::NULL => Some(None),
            value => T::of_maria(value).map(Some),
        }
    }
}
