//! How texts, bytes, ids and times are written in the output of the tools.

mod ids;
mod quote;
mod repr;
mod value;

pub use ids::{id_repr, time_of};
pub use quote::{quote, unquote};
pub use repr::{bytes_repr, float_repr, printable, str_repr, utf8_repr};
pub use value::value_repr;
