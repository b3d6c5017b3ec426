//! The table of commands. Arity, flags, keys, and what `COMMAND` answers come from it.

use super::Keys::{
    All, Counted, CountedOfAll, FirstAndCounted, FirstOfAll, None, Range, Streams, Watched,
};
use super::Run::{Connection, Data};
use super::flags::{
    ADMIN, ALLOW_BUSY, BLOCKING, CONTROL, DENY_OOM, FAST, LOADING, MOVABLE_KEYS, NO_AUTH, NO_MULTI,
    NO_SCRIPT, PUBSUB, READONLY, READS, SKIP_MONITOR, STALE, SUBSCRIBED, WRITE,
};
use super::{
    Awaits, Keys, Run, algebra, bit_fields, bits, config, connection, counters, diagnostics,
    dumping, expiring, hashes, info, introspection, keys, lcs, list_moves, lists, publishing,
    ranges, scans, score_algebra, scripts, serving, sets, sort, sorted_sets, stream_claims,
    stream_groups, stream_info, stream_reads, streams, strings, substrings, tracking, tying,
};
use crate::{durability, pausing, transaction, zexec};

// Flags that come together.
const READS_FAST: u32 = READONLY | FAST;
const WRITES_FAST: u32 = WRITE | FAST;
const ADDS: u32 = WRITE | DENY_OOM;
const ADDS_FAST: u32 = ADDS | FAST;
const WAITS: u32 = WRITE | BLOCKING;
const ALWAYS: u32 = LOADING | STALE;
const ALWAYS_FAST: u32 = ALWAYS | FAST;
const CONNECTS: u32 = ALWAYS | NO_SCRIPT;
const CONNECTS_FAST: u32 = CONNECTS | FAST;
const OPERATES: u32 = CONNECTS | ADMIN;
const PUBLISHES: u32 = ALWAYS | PUBSUB;
const SUBSCRIBES: u32 = CONNECTS | PUBSUB | SUBSCRIBED;

const SCRIPTS: u32 = NO_SCRIPT | SKIP_MONITOR | STALE | MOVABLE_KEYS;

// Places of keys that come often.
const FIRST: Keys = Range(1, 1, 1);
const SECOND: Keys = Range(2, 2, 1);
const FIRST_TWO: Keys = Range(1, 2, 1);
const ALL_WORDS: Keys = Range(1, -1, 1);
const ALL_BUT_LAST: Keys = Range(1, -2, 1);

/// All commands, by their groups in the documentation.
pub(super) static GROUPS: [(&str, &[Row]); 15] = [
    ("string", STRINGS),
    ("bitmap", BITMAPS),
    ("generic", GENERIC),
    ("hash", HASHES),
    ("list", LISTS),
    ("set", SETS),
    ("sorted-set", SORTED_SETS),
    ("stream", STREAMS),
    ("transactions", TRANSACTIONS),
    ("pubsub", PUBLISHING),
    ("connection", CONNECTIONS),
    ("server", SERVER),
    ("scripting", SCRIPTING),
    ("cluster", CLUSTER),
    ("zodb", OF_STORAGES),
];

/// A row of the table, from which a [`super::Command`] is made.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) arity: i32,
    pub(super) flags: u32,
    pub(super) keys: Keys,
    pub(super) run: Run,
    pub(super) awaits: Awaits,
    pub(super) subcommands: &'static [Row],
}

/// A command: its name, the number of its arguments, its flags, its keys, and its function.
const fn row(name: &'static str, arity: i32, flags: u32, keys: Keys, run: Run) -> Row {
    Row { name, arity, flags, keys, run, awaits: Awaits::Any, subcommands: &[] }
}

impl Row {
    /// The same, which waits for something.
    const fn awaiting(self, awaits: Awaits) -> Row {
        Row { awaits, ..self }
    }

    /// The same, with subcommands.
    const fn with(self, subcommands: &'static [Row]) -> Row {
        Row { subcommands, ..self }
    }
}

const STRINGS: &[Row] = &[
    row("get", 2, READS_FAST, FIRST, Data(strings::get)),
    row("set", -3, ADDS | READS, FIRST, Data(strings::set)),
    row("setnx", 3, ADDS_FAST, FIRST, Data(strings::setnx)),
    row("setex", 4, ADDS, FIRST, Data(strings::setex)),
    row("psetex", 4, ADDS, FIRST, Data(strings::psetex)),
    row("getset", 3, ADDS_FAST | READS, FIRST, Data(strings::getset)),
    row("getdel", 2, WRITES_FAST | READS, FIRST, Data(strings::getdel)),
    row("getex", -2, WRITES_FAST | READS, FIRST, Data(strings::getex)),
    row("mget", -2, READS_FAST, ALL_WORDS, Data(strings::mget)),
    row("mset", -3, ADDS, Range(1, -1, 2), Data(strings::mset)),
    row("msetnx", -3, ADDS, Range(1, -1, 2), Data(strings::msetnx)),
    row("incr", 2, ADDS_FAST, FIRST, Data(counters::incr)),
    row("decr", 2, ADDS_FAST, FIRST, Data(counters::decr)),
    row("incrby", 3, ADDS_FAST, FIRST, Data(counters::incrby)),
    row("decrby", 3, ADDS_FAST, FIRST, Data(counters::decrby)),
    row("incrbyfloat", 3, ADDS_FAST, FIRST, Data(counters::incrbyfloat)),
    row("append", 3, ADDS_FAST, FIRST, Data(substrings::append)),
    row("strlen", 2, READS_FAST, FIRST, Data(substrings::strlen)),
    row("getrange", 4, READONLY, FIRST, Data(substrings::getrange)),
    row("substr", 4, READONLY, FIRST, Data(substrings::getrange)),
    row("setrange", 4, ADDS, FIRST, Data(substrings::setrange)),
    row("lcs", -3, READONLY, FIRST_TWO, Data(lcs::lcs)),
];

const BITMAPS: &[Row] = &[
    row("setbit", 4, ADDS, FIRST, Data(bits::setbit)),
    row("getbit", 3, READS_FAST, FIRST, Data(bits::getbit)),
    row("bitcount", -2, READONLY, FIRST, Data(bits::bitcount)),
    row("bitpos", -3, READONLY, FIRST, Data(bits::bitpos)),
    row("bitop", -4, ADDS, Range(2, -1, 1), Data(bits::bitop)),
    row("bitfield", -2, ADDS, FIRST, Data(bit_fields::bitfield)),
    row("bitfield_ro", -2, READS_FAST, FIRST, Data(bit_fields::bitfield_ro)),
];

const GENERIC: &[Row] = &[
    row("del", -2, WRITE, ALL_WORDS, Data(keys::del)),
    row("unlink", -2, WRITES_FAST, ALL_WORDS, Data(keys::del)),
    row("exists", -2, READS_FAST, ALL_WORDS, Data(keys::exists)),
    row("type", 2, READS_FAST, FIRST, Data(keys::type_of)),
    row("touch", -2, READS_FAST, ALL_WORDS, Data(keys::touch)),
    row("copy", -3, ADDS | READS, FIRST_TWO, Data(keys::copy)),
    row("dump", 2, READONLY, FIRST, Data(dumping::dump)),
    row("restore", -4, ADDS, FIRST, Data(dumping::restore)),
    row("move", 3, WRITES_FAST, FIRST, Data(keys::move_to)),
    row("rename", 3, WRITE, FIRST_TWO, Data(keys::rename)),
    row("renamenx", 3, WRITES_FAST, FIRST_TWO, Data(keys::renamenx)),
    row("randomkey", 1, READONLY, All, Data(keys::randomkey)),
    row("keys", 2, READONLY, All, Data(keys::keys)),
    row("scan", -2, READONLY, All, Data(scans::scan)),
    row("object", -2, 0, None, Data(keys::object_help)).with(OF_OBJECT),
    row("expire", -3, WRITES_FAST, FIRST, Data(expiring::expire)),
    row("pexpire", -3, WRITES_FAST, FIRST, Data(expiring::pexpire)),
    row("expireat", -3, WRITES_FAST, FIRST, Data(expiring::expireat)),
    row("pexpireat", -3, WRITES_FAST, FIRST, Data(expiring::pexpireat)),
    row("ttl", 2, READS_FAST, FIRST, Data(expiring::ttl)),
    row("pttl", 2, READS_FAST, FIRST, Data(expiring::pttl)),
    row("expiretime", 2, READS_FAST, FIRST, Data(expiring::expiretime)),
    row("pexpiretime", 2, READS_FAST, FIRST, Data(expiring::pexpiretime)),
    row("persist", 2, WRITES_FAST, FIRST, Data(expiring::persist)),
    row("sort", -2, ADDS | READS | MOVABLE_KEYS, FirstOfAll, Data(sort::sort)),
    row("sort_ro", -2, READONLY | MOVABLE_KEYS, FirstOfAll, Data(sort::sort_ro)),
    row("wait", 3, BLOCKING, None, Data(serving::wait)),
];

const HASHES: &[Row] = &[
    row("hset", -4, ADDS_FAST, FIRST, Data(hashes::hset)),
    row("hmset", -4, ADDS_FAST, FIRST, Data(hashes::hmset)),
    row("hsetnx", 4, ADDS_FAST, FIRST, Data(hashes::hsetnx)),
    row("hget", 3, READS_FAST, FIRST, Data(hashes::hget)),
    row("hmget", -3, READS_FAST, FIRST, Data(hashes::hmget)),
    row("hdel", -3, WRITES_FAST, FIRST, Data(hashes::hdel)),
    row("hlen", 2, READS_FAST, FIRST, Data(hashes::hlen)),
    row("hexists", 3, READS_FAST, FIRST, Data(hashes::hexists)),
    row("hstrlen", 3, READS_FAST, FIRST, Data(hashes::hstrlen)),
    row("hgetall", 2, READONLY, FIRST, Data(hashes::hgetall)),
    row("hkeys", 2, READONLY, FIRST, Data(hashes::hkeys)),
    row("hvals", 2, READONLY, FIRST, Data(hashes::hvals)),
    row("hincrby", 4, ADDS_FAST, FIRST, Data(hashes::hincrby)),
    row("hincrbyfloat", 4, ADDS_FAST, FIRST, Data(hashes::hincrbyfloat)),
    row("hrandfield", -2, READONLY, FIRST, Data(hashes::hrandfield)),
    row("hscan", -3, READONLY, FIRST, Data(scans::hscan)),
];

const LISTS: &[Row] = &[
    row("lpush", -3, ADDS_FAST, FIRST, Data(lists::lpush)),
    row("rpush", -3, ADDS_FAST, FIRST, Data(lists::rpush)),
    row("lpushx", -3, ADDS_FAST, FIRST, Data(lists::lpushx)),
    row("rpushx", -3, ADDS_FAST, FIRST, Data(lists::rpushx)),
    row("lpop", -2, WRITES_FAST, FIRST, Data(lists::lpop)),
    row("rpop", -2, WRITES_FAST, FIRST, Data(lists::rpop)),
    row("llen", 2, READS_FAST, FIRST, Data(lists::llen)),
    row("lrange", 4, READONLY, FIRST, Data(lists::lrange)),
    row("lindex", 3, READONLY, FIRST, Data(lists::lindex)),
    row("lset", 4, ADDS, FIRST, Data(lists::lset)),
    row("ltrim", 4, WRITE, FIRST, Data(lists::ltrim)),
    row("linsert", 5, ADDS, FIRST, Data(lists::linsert)),
    row("lrem", 4, WRITE, FIRST, Data(lists::lrem)),
    row("lpos", -3, READONLY, FIRST, Data(lists::lpos)),
    row("lmove", 5, ADDS, FIRST_TWO, Data(list_moves::lmove)),
    row("rpoplpush", 3, ADDS, FIRST_TWO, Data(list_moves::rpoplpush)),
    row("lmpop", -4, WRITE | MOVABLE_KEYS, Counted(1), Data(list_moves::lmpop)),
    row("blpop", -3, WAITS, ALL_BUT_LAST, Data(list_moves::blpop)).awaiting(Awaits::List),
    row("brpop", -3, WAITS, ALL_BUT_LAST, Data(list_moves::brpop)).awaiting(Awaits::List),
    row("blmove", 6, ADDS | BLOCKING, FIRST_TWO, Data(list_moves::blmove))
        .awaiting(Awaits::SourceList),
    row("brpoplpush", 4, ADDS | BLOCKING, FIRST_TWO, Data(list_moves::brpoplpush))
        .awaiting(Awaits::SourceList),
    row("blmpop", -5, WAITS | MOVABLE_KEYS, Counted(2), Data(list_moves::blmpop))
        .awaiting(Awaits::List),
];

const SETS: &[Row] = &[
    row("sadd", -3, ADDS_FAST, FIRST, Data(sets::sadd)),
    row("srem", -3, WRITES_FAST, FIRST, Data(sets::srem)),
    row("scard", 2, READS_FAST, FIRST, Data(sets::scard)),
    row("sismember", 3, READS_FAST, FIRST, Data(sets::sismember)),
    row("smismember", -3, READS_FAST, FIRST, Data(sets::smismember)),
    row("smembers", 2, READONLY, FIRST, Data(sets::smembers)),
    row("smove", 4, WRITES_FAST, FIRST_TWO, Data(sets::smove)),
    row("srandmember", -2, READONLY, FIRST, Data(sets::srandmember)),
    row("spop", -2, WRITES_FAST, FIRST, Data(sets::spop)),
    row("sinter", -2, READONLY, ALL_WORDS, Data(algebra::sinter)),
    row("sunion", -2, READONLY, ALL_WORDS, Data(algebra::sunion)),
    row("sdiff", -2, READONLY, ALL_WORDS, Data(algebra::sdiff)),
    row("sinterstore", -3, ADDS, ALL_WORDS, Data(algebra::sinterstore)),
    row("sunionstore", -3, ADDS, ALL_WORDS, Data(algebra::sunionstore)),
    row("sdiffstore", -3, ADDS, ALL_WORDS, Data(algebra::sdiffstore)),
    row("sintercard", -3, READONLY | MOVABLE_KEYS, Counted(1), Data(algebra::sintercard)),
    row("sscan", -3, READONLY, FIRST, Data(scans::sscan)),
];

const SORTED_SETS: &[Row] = &[
    row("zadd", -4, ADDS_FAST, FIRST, Data(sorted_sets::zadd)),
    row("zincrby", 4, ADDS_FAST, FIRST, Data(sorted_sets::zincrby)),
    row("zrem", -3, WRITES_FAST, FIRST, Data(sorted_sets::zrem)),
    row("zcard", 2, READS_FAST, FIRST, Data(sorted_sets::zcard)),
    row("zscore", 3, READS_FAST, FIRST, Data(sorted_sets::zscore)),
    row("zmscore", -3, READS_FAST, FIRST, Data(sorted_sets::zmscore)),
    row("zrank", -3, READS_FAST, FIRST, Data(sorted_sets::zrank)),
    row("zrevrank", -3, READS_FAST, FIRST, Data(sorted_sets::zrevrank)),
    row("zrandmember", -2, READONLY, FIRST, Data(sorted_sets::zrandmember)),
    row("zpopmin", -2, WRITES_FAST, FIRST, Data(sorted_sets::zpopmin)),
    row("zpopmax", -2, WRITES_FAST, FIRST, Data(sorted_sets::zpopmax)),
    row("bzpopmin", -3, WRITES_FAST | BLOCKING, ALL_BUT_LAST, Data(sorted_sets::bzpopmin))
        .awaiting(Awaits::SortedSet),
    row("bzpopmax", -3, WRITES_FAST | BLOCKING, ALL_BUT_LAST, Data(sorted_sets::bzpopmax))
        .awaiting(Awaits::SortedSet),
    row("zmpop", -4, WRITE | MOVABLE_KEYS, Counted(1), Data(sorted_sets::zmpop)),
    row("bzmpop", -5, WAITS | MOVABLE_KEYS, Counted(2), Data(sorted_sets::bzmpop))
        .awaiting(Awaits::SortedSet),
    row("zrange", -4, READONLY, FIRST, Data(ranges::zrange)),
    row("zrangestore", -5, ADDS, FIRST_TWO, Data(ranges::zrangestore)),
    row("zrevrange", -4, READONLY, FIRST, Data(ranges::zrevrange)),
    row("zrangebyscore", -4, READONLY, FIRST, Data(ranges::zrangebyscore)),
    row("zrevrangebyscore", -4, READONLY, FIRST, Data(ranges::zrevrangebyscore)),
    row("zrangebylex", -4, READONLY, FIRST, Data(ranges::zrangebylex)),
    row("zrevrangebylex", -4, READONLY, FIRST, Data(ranges::zrevrangebylex)),
    row("zcount", 4, READS_FAST, FIRST, Data(ranges::zcount)),
    row("zlexcount", 4, READS_FAST, FIRST, Data(ranges::zlexcount)),
    row("zremrangebyscore", 4, WRITE, FIRST, Data(ranges::zremrangebyscore)),
    row("zremrangebylex", 4, WRITE, FIRST, Data(ranges::zremrangebylex)),
    row("zremrangebyrank", 4, WRITE, FIRST, Data(ranges::zremrangebyrank)),
    row("zunion", -3, READONLY | MOVABLE_KEYS, Counted(1), Data(score_algebra::zunion)),
    row("zinter", -3, READONLY | MOVABLE_KEYS, Counted(1), Data(score_algebra::zinter)),
    row("zdiff", -3, READONLY | MOVABLE_KEYS, Counted(1), Data(score_algebra::zdiff)),
    row("zunionstore", -4, ADDS | MOVABLE_KEYS, FirstAndCounted, Data(score_algebra::zunionstore)),
    row("zinterstore", -4, ADDS | MOVABLE_KEYS, FirstAndCounted, Data(score_algebra::zinterstore)),
    row("zdiffstore", -4, ADDS | MOVABLE_KEYS, FirstAndCounted, Data(score_algebra::zdiffstore)),
    row("zintercard", -3, READONLY | MOVABLE_KEYS, Counted(1), Data(score_algebra::zintercard)),
    row("zscan", -3, READONLY, FIRST, Data(scans::zscan)),
];

const STREAMS: &[Row] = &[
    row("xadd", -5, ADDS_FAST, FIRST, Data(streams::xadd)),
    row("xlen", 2, READS_FAST, FIRST, Data(streams::xlen)),
    row("xrange", -4, READONLY, FIRST, Data(streams::xrange)),
    row("xrevrange", -4, READONLY, FIRST, Data(streams::xrevrange)),
    row("xdel", -3, WRITES_FAST, FIRST, Data(streams::xdel)),
    row("xtrim", -4, WRITE, FIRST, Data(streams::xtrim)),
    row("xsetid", -3, ADDS_FAST, FIRST, Data(streams::xsetid)),
    row("xread", -4, BLOCKING | READONLY | MOVABLE_KEYS, Streams(1), Data(stream_reads::xread))
        .awaiting(Awaits::Stream),
    row("xreadgroup", -7, WAITS | MOVABLE_KEYS, Streams(4), Data(stream_reads::xreadgroup)),
    row("xgroup", -2, 0, None, Data(stream_groups::xgroup_help)).with(OF_XGROUP),
    row("xack", -4, WRITES_FAST, FIRST, Data(stream_groups::xack)),
    row("xpending", -3, READONLY, FIRST, Data(stream_groups::xpending)),
    row("xclaim", -6, WRITES_FAST, FIRST, Data(stream_claims::xclaim)),
    row("xautoclaim", -6, WRITES_FAST, FIRST, Data(stream_claims::xautoclaim)),
    row("xinfo", -2, 0, None, Data(stream_info::xinfo_help)).with(OF_XINFO),
];

const TRANSACTIONS: &[Row] = &[
    row("multi", 1, CONNECTS_FAST | NO_MULTI | CONTROL, None, Connection(transaction::multi)),
    row("exec", 1, CONNECTS | CONTROL, None, Connection(transaction::exec)),
    row("discard", 1, CONNECTS_FAST | CONTROL, None, Connection(transaction::discard)),
    row("watch", -2, CONNECTS_FAST | NO_MULTI | CONTROL, ALL_WORDS, Data(transaction::watch)),
    row("unwatch", 1, CONNECTS_FAST, Watched, Data(transaction::unwatch)),
];

const PUBLISHING: &[Row] = &[
    row("subscribe", -2, SUBSCRIBES, None, Connection(publishing::subscribe)),
    row("unsubscribe", -1, SUBSCRIBES, None, Connection(publishing::unsubscribe)),
    row("psubscribe", -2, SUBSCRIBES, None, Connection(publishing::psubscribe)),
    row("punsubscribe", -1, SUBSCRIBES, None, Connection(publishing::punsubscribe)),
    row("publish", 3, PUBLISHES | FAST, None, Data(publishing::publish)),
    row("pubsub", -2, 0, None, Data(publishing::pubsub_help)).with(OF_PUBSUB),
];

const CONNECTIONS: &[Row] = &[
    row("ping", -1, FAST | SUBSCRIBED, None, Data(connection::ping)),
    row("echo", 2, ALWAYS_FAST, None, Data(connection::echo)),
    row("select", 2, ALWAYS_FAST, None, Data(connection::select)),
    row(
        "quit",
        -1,
        CONNECTS_FAST | NO_AUTH | CONTROL | SUBSCRIBED,
        None,
        Connection(connection::quit),
    ),
    row(
        "reset",
        1,
        CONNECTS_FAST | NO_AUTH | CONTROL | SUBSCRIBED,
        None,
        Connection(connection::reset),
    ),
    row("hello", -1, CONNECTS_FAST | NO_AUTH, None, Data(connection::hello)),
    row("auth", -2, CONNECTS_FAST | NO_AUTH, None, Data(connection::auth)),
    row("client", -2, 0, None, Data(connection::client_help)).with(OF_CLIENT),
];

const SERVER: &[Row] = &[
    row("info", -1, ALWAYS, All, Data(info::info)),
    row("dbsize", 1, READS_FAST, All, Data(serving::dbsize)),
    row("flushdb", -1, WRITE, All, Data(serving::flushdb)),
    row("flushall", -1, WRITE, All, Data(serving::flushall)),
    row("swapdb", 3, WRITES_FAST, All, Data(serving::swapdb)),
    row("save", 1, ADMIN | NO_SCRIPT | NO_MULTI, None, Connection(durability::save)),
    row("bgsave", -1, ADMIN | NO_SCRIPT, None, Connection(durability::bgsave)),
    row("bgrewriteaof", 1, ADMIN | NO_SCRIPT, None, Connection(durability::bgrewriteaof)),
    row("lastsave", 1, ALWAYS_FAST, None, Data(durability::lastsave)),
    row("time", 1, ALWAYS_FAST, None, Data(serving::time)),
    row("role", 1, CONNECTS_FAST, None, Data(serving::role)),
    row("shutdown", -1, OPERATES | NO_MULTI | ALLOW_BUSY, None, Data(serving::shutdown)),
    row("monitor", 1, OPERATES | NO_MULTI, None, Connection(connection::monitor)),
    row("config", -2, 0, None, Data(config::config_help)).with(OF_CONFIG),
    row("command", -1, ALWAYS, None, Data(introspection::command)).with(OF_COMMAND),
    row("memory", -2, 0, None, Data(keys::memory_help)).with(OF_MEMORY),
    row("slowlog", -2, 0, None, Data(diagnostics::slowlog_help)).with(OF_SLOWLOG),
    row("latency", -2, 0, None, Data(diagnostics::latency_help)).with(OF_LATENCY),
    row("module", -2, 0, None, Data(diagnostics::module_help)).with(OF_MODULE),
    row("acl", -2, 0, None, Data(serving::acl_whoami)).with(OF_ACL),
];

const SCRIPTING: &[Row] = &[
    row("eval", -3, SCRIPTS, CountedOfAll(2), Data(scripts::eval)),
    row("evalsha", -3, SCRIPTS, CountedOfAll(2), Data(scripts::evalsha)),
    row("eval_ro", -3, SCRIPTS | READONLY, CountedOfAll(2), Data(scripts::eval_ro)),
    row("evalsha_ro", -3, SCRIPTS | READONLY, CountedOfAll(2), Data(scripts::evalsha_ro)),
    row("script", -2, 0, None, Data(scripts::script_help)).with(OF_SCRIPT),
    row("function", -2, 0, None, Data(serving::function_help)).with(OF_FUNCTION),
];

const CLUSTER: &[Row] = &[
    row("cluster", -2, 0, None, Data(serving::cluster)),
    row("readonly", 1, ALWAYS_FAST, None, Data(serving::readonly)),
    row("readwrite", 1, ALWAYS_FAST, None, Data(serving::readonly)),
];

const OF_STORAGES: &[Row] = &[
    row("ztie", -3, WRITES_FAST, FIRST, Data(tying::ztie)),
    row("zexec", 2, CONNECTS | SKIP_MONITOR | CONTROL, None, Connection(zexec::zexec)),
    row("zdiscard", 2, WRITES_FAST, None, Data(zexec::zdiscard)),
    row("zstate", 2, READS_FAST, None, Data(zexec::zstate)),
    row("ztid", -1, READS_FAST, None, Data(tying::ztid)),
];

const OF_OBJECT: &[Row] = &[
    row("encoding", 3, READONLY, SECOND, Data(keys::object_encoding)),
    row("freq", 3, READONLY, SECOND, Data(keys::object_freq)),
    row("idletime", 3, READONLY, SECOND, Data(keys::object_idletime)),
    row("refcount", 3, READONLY, SECOND, Data(keys::object_refcount)),
    row("help", 2, ALWAYS, None, Data(keys::object_help)),
];

const OF_XGROUP: &[Row] = &[
    row("create", -5, ADDS, SECOND, Data(stream_groups::create)),
    row("createconsumer", 5, ADDS, SECOND, Data(stream_groups::create_consumer)),
    row("delconsumer", 5, WRITE, SECOND, Data(stream_groups::delete_consumer)),
    row("destroy", 4, WRITE, SECOND, Data(stream_groups::destroy)),
    row("setid", -5, WRITE, SECOND, Data(stream_groups::set_id)),
    row("help", 2, ALWAYS, None, Data(stream_groups::xgroup_help)),
];

const OF_XINFO: &[Row] = &[
    row("stream", -3, READONLY, SECOND, Data(stream_info::stream)),
    row("groups", 3, READONLY, SECOND, Data(stream_info::groups)),
    row("consumers", 4, READONLY, SECOND, Data(stream_info::consumers)),
    row("help", 2, ALWAYS, None, Data(stream_info::xinfo_help)),
];

const OF_PUBSUB: &[Row] = &[
    row("channels", -2, PUBLISHES, None, Data(publishing::pubsub_channels)),
    row("numsub", -2, PUBLISHES, None, Data(publishing::pubsub_numsub)),
    row("numpat", 2, PUBLISHES, None, Data(publishing::pubsub_numpat)),
    row("help", 2, ALWAYS, None, Data(publishing::pubsub_help)),
];

const OF_CLIENT: &[Row] = &[
    row("id", 2, CONNECTS, None, Data(connection::client_id)),
    row("getname", 2, CONNECTS, None, Data(connection::client_getname)),
    row("setname", 3, CONNECTS, None, Data(connection::client_setname)),
    row("setinfo", 4, CONNECTS, None, Data(connection::client_setinfo)),
    row("info", 2, CONNECTS, None, Data(connection::client_info)),
    row("list", -2, OPERATES, None, Data(connection::client_list)),
    row("kill", -3, OPERATES, None, Data(connection::client_kill)),
    row("reply", 3, CONNECTS, None, Connection(connection::client_reply)),
    row("no-evict", 3, OPERATES, None, Data(connection::client_no_evict)),
    row("no-touch", 3, CONNECTS, None, Data(connection::client_no_touch)),
    row("pause", -3, OPERATES, None, Data(pausing::client_pause)),
    row("unblock", -3, OPERATES, None, Data(connection::client_unblock)),
    row("unpause", 2, OPERATES, None, Data(pausing::client_unpause)),
    row("tracking", -3, CONNECTS, None, Connection(tracking::client_tracking)),
    row("caching", 3, CONNECTS, None, Connection(tracking::client_caching)),
    row("getredir", 2, CONNECTS, None, Connection(tracking::client_getredir)),
    row("trackinginfo", 2, CONNECTS, None, Connection(tracking::client_trackinginfo)),
    row("help", 2, ALWAYS, None, Data(connection::client_help)),
];

const OF_CONFIG: &[Row] = &[
    row("get", -3, OPERATES, None, Data(config::config_get)),
    row("set", -4, OPERATES, None, Data(config::config_set)),
    row("resetstat", 2, OPERATES, None, Data(config::config_resetstat)),
    row("rewrite", 2, OPERATES, None, Data(config::config_rewrite)),
    row("help", 2, ALWAYS, None, Data(config::config_help)),
];

const OF_COMMAND: &[Row] = &[
    row("count", 2, ALWAYS, None, Data(introspection::command_count)),
    row("info", -2, ALWAYS, None, Data(introspection::command_info)),
    row("list", -2, ALWAYS, None, Data(introspection::command_list)),
    row("docs", -2, ALWAYS, None, Data(introspection::command_docs)),
    row("getkeys", -3, ALWAYS, None, Data(introspection::command_getkeys)),
    row("help", 2, ALWAYS, None, Data(introspection::command_help)),
];

const OF_SLOWLOG: &[Row] = &[
    row("get", -2, ALWAYS | ADMIN, None, Data(diagnostics::slowlog_get)),
    row("len", 2, ALWAYS | ADMIN, None, Data(diagnostics::zero)),
    row("reset", 2, ALWAYS | ADMIN, None, Data(diagnostics::ok)),
    row("help", 2, ALWAYS, None, Data(diagnostics::slowlog_help)),
];

const OF_LATENCY: &[Row] = &[
    row("graph", 3, OPERATES, None, Data(diagnostics::latency_graph)),
    row("history", 3, OPERATES, None, Data(diagnostics::empty)),
    row("latest", 2, OPERATES, None, Data(diagnostics::empty)),
    row("reset", -2, OPERATES, None, Data(diagnostics::zero)),
    row("help", 2, ALWAYS, None, Data(diagnostics::latency_help)),
];

const OF_MODULE: &[Row] = &[
    row("list", 2, ADMIN | NO_SCRIPT, None, Data(diagnostics::empty)),
    row("help", 2, ALWAYS, None, Data(diagnostics::module_help)),
];

const OF_MEMORY: &[Row] = &[
    row("usage", -3, READONLY, SECOND, Data(keys::memory_usage)),
    row("help", 2, ALWAYS, None, Data(keys::memory_help)),
];

const OF_ACL: &[Row] = &[row("whoami", 2, CONNECTS, None, Data(serving::acl_whoami))];

const OF_SCRIPT: &[Row] = &[
    row("load", 3, NO_SCRIPT | STALE, None, Data(scripts::script_load)),
    row("exists", -3, NO_SCRIPT, None, Data(scripts::script_exists)),
    row("flush", -2, NO_SCRIPT, None, Data(scripts::script_flush)),
    row("kill", 2, NO_SCRIPT | ALLOW_BUSY, None, Data(scripts::script_kill)),
    row("show", 3, NO_SCRIPT, None, Data(scripts::script_show)),
    row("help", 2, ALWAYS, None, Data(scripts::script_help)),
];

const OF_FUNCTION: &[Row] = &[
    row("flush", -2, WRITE | NO_SCRIPT, None, Data(serving::function_flush)),
    row("help", 2, ALWAYS, None, Data(serving::function_help)),
];
