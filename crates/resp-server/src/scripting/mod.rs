//! Scripts in Lua: `EVAL` and its kin.
//!
//! Key decision: a script runs on the worker that has read the command. It begins under the stripes
//! of the keys that it names, locks others when it comes to them, and unlocks none before its end.
//! So it is seen as a whole, as a transaction is. Each worker has a Lua state of its own; the
//! sources are shared.

mod answer;
mod arguments;
mod bits;
mod commands;
mod engine;
mod errors;
mod host;
mod json;
mod messagepack;
mod packed;
mod result;
mod room;
mod running;
mod shebang;
mod sources;

pub(crate) use engine::{Wish, check, run};
pub(crate) use shebang::is_readonly;
pub(crate) use sources::{Digest, Script, Scripts};
