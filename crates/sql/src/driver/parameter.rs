//! The parameters of a statement.

use mysql::Value;
use rusqlite::ToSql;

/// A value that a statement is given.
pub(crate) trait Parameter: ToSql {
    /// The value as MariaDB's driver takes it.
    fn to_maria(&self) -> Value;
}

/// The parameters of one run of a statement.
pub(crate) trait Params {
    /// Calls `run` with a list of them.
    fn with<T>(self, run: impl FnOnce(&[&dyn Parameter]) -> T) -> T;
}

/// Parameters of different types.
macro_rules! params {
    ($($parameter:expr),* $(,)?) => {
        &[$(&$parameter as &dyn $crate::driver::Parameter),*] as &[&dyn $crate::driver::Parameter]
    };
}
pub(crate) use params;

impl Params for &[&dyn Parameter] {
    fn with<T>(self, run: impl FnOnce(&[&dyn Parameter]) -> T) -> T {
        run(self)
    }
}

impl Params for [&dyn Parameter; 0] {
    fn with<T>(self, run: impl FnOnce(&[&dyn Parameter]) -> T) -> T {
        run(&[])
    }
}

macro_rules! arrays {
    ($($length:literal)*) => {$(
        impl<P: Parameter> Params for [P; $length] {
            fn with<T>(self, run: impl FnOnce(&[&dyn Parameter]) -> T) -> T {
                run(&self.each_ref().map(|parameter| parameter as &dyn Parameter))
            }
        }
    )*};
}
arrays!(1 2 3);

macro_rules! signed {
    ($($number:ty)*) => {$(
        impl Parameter for $number {
            fn to_maria(&self) -> Value {
                Value::Int(i64::from(*self))
            }
        }
    )*};
}
signed!(i64 i32 u32 u8 bool);

impl Parameter for str {
    fn to_maria(&self) -> Value {
        Value::Bytes(self.as_bytes().to_vec())
    }
}

impl Parameter for String {
    fn to_maria(&self) -> Value {
        self.as_str().to_maria()
    }
}

impl Parameter for Vec<u8> {
    fn to_maria(&self) -> Value {
        Value::Bytes(self.clone())
    }
}

impl Parameter for [u8; 20] {
    fn to_maria(&self) -> Value {
        Value::Bytes(self.to_vec())
    }
}

impl<P: Parameter> Parameter for Option<P> {
    fn to_maria(&self) -> Value {
        self.as_ref().map_or(Value::NULL, Parameter::to_maria)
    }
}

impl<P: Parameter + ?Sized> Parameter for &P {
    fn to_maria(&self) -> Value {
        (**self).to_maria()
    }
}
