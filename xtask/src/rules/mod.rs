//! The rules, one a file: each a function from what there is to what is wrong with it.

pub(crate) mod circles;
pub(crate) mod dependencies;
pub(crate) mod documents;
pub(crate) mod header;
pub(crate) mod layout;
pub(crate) mod leftovers;
pub(crate) mod length;
pub(crate) mod named_tests;
pub(crate) mod places;
pub(crate) mod prose;
pub(crate) mod rooms;
pub(crate) mod spread;
pub(crate) mod unsafe_code;
mod word;
