//! Kinds of values, by their numbers in a file.

/// A string.
pub const STRING: u8 = 0;
/// A list of strings.
pub(crate) const LIST: u8 = 1;
/// A set of strings.
pub(crate) const SET: u8 = 2;
/// A sorted set, with its scores as text.
pub(crate) const SORTED_SET_TEXT: u8 = 3;
/// A hash of strings.
pub(crate) const HASH: u8 = 4;
/// A sorted set, with its scores as numbers.
pub(crate) const SORTED_SET: u8 = 5;
/// A list in a ziplist.
pub(crate) const LIST_ZIPLIST: u8 = 10;
/// A set of integers.
pub(crate) const SET_INTSET: u8 = 11;
/// A sorted set in a ziplist.
pub(crate) const SORTED_SET_ZIPLIST: u8 = 12;
/// A hash in a ziplist.
pub(crate) const HASH_ZIPLIST: u8 = 13;
/// A list of ziplists.
pub(crate) const LIST_QUICKLIST_1: u8 = 14;
/// A stream.
pub(crate) const STREAM_1: u8 = 15;
/// A hash in a listpack.
pub(crate) const HASH_LISTPACK: u8 = 16;
/// A sorted set in a listpack.
pub(crate) const SORTED_SET_LISTPACK: u8 = 17;
/// A list of listpacks, and of single large elements.
pub(crate) const LIST_QUICKLIST_2: u8 = 18;
/// A stream, with what was ever added to it.
pub(crate) const STREAM_2: u8 = 19;
/// A set in a listpack.
pub(crate) const SET_LISTPACK: u8 = 20;
/// A stream, with when its consumers were active.
pub(crate) const STREAM_3: u8 = 21;
/// A value of a module, whose length nothing tells.
pub(crate) const MODULE: u8 = 6;
/// A value of a module, in parts that tell their lengths.
pub(crate) const MODULE_2: u8 = 7;
/// A hash in the format of Redis before 2.6.
pub(crate) const HASH_ZIPMAP: u8 = 9;
/// The first kind of a hash whose fields expire.
pub(crate) const EXPIRING_HASH_FIRST: u8 = 22;
/// The last one.
pub(crate) const EXPIRING_HASH_LAST: u8 = 25;
