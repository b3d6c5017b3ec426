//! Commands and options that no other test asks for, with the answers of Valkey 8.

use super::served;

/// Requests, each with its answer on the next line.
const EXCHANGES: &str = r##"
SET s hello
    +OK
SET n 10
    +OK
RPUSH l a b c a b c
    :6
HSET h f1 v1 f2 v2
    :2
SADD set a b
    :2
SADD ints 1 2 3
    :3
ZADD z 1 a 2 b 3 c 3 d
    :4
ZADD same 0 a 0 b 0 c 0 d
    :4
XADD x 1-1 f v
    $3 1-1
XADD x 2-1 f v g w
    $3 2-1
EXPIRETIME s
    :-1
EXPIRETIME none
    :-2
PEXPIREAT s 4102444800123
    :1
EXPIRETIME s
    :4102444800
PEXPIRETIME s
    :4102444800123
PEXPIREAT s 9223372036854775807
    :1
PEXPIREAT s abc
    -ERR value is not an integer or out of range
EXPIRE s 9223372036854775807
    -ERR invalid expire time in 'expire' command
EXPIRE s 100 NX XX
    -ERR NX and XX, GT or LT options at the same time are not compatible
EXPIRE s 100 GT LT
    -ERR GT and LT options at the same time are not compatible
EXPIRE s 100 FOO
    -ERR Unsupported option FOO
PERSIST s
    :1
PERSIST s
    :0
PTTL s
    :-1
PTTL none
    :-2
SUBSTR s 1 3
    $3 ell
SUBSTR s x 1
    -ERR value is not an integer or out of range
GETRANGE s -100 100
    $5 hello
GETRANGE s 3 1
    $0
GETRANGE s -9223372036854775808 -1
    $5 hello
GETRANGE s 0 9223372036854775808
    -ERR value is not an integer or out of range
GETRANGE l 0 1
    -WRONGTYPE Operation against a key holding the wrong kind of value
SETRANGE none 5 ""
    :0
SETRANGE s 9223372036854775807 a
    -ERR string exceeds maximum allowed size (proto-max-bulk-len)
SETRANGE s -1 a
    -ERR offset is out of range
STRLEN s
    :5
STRLEN l
    -WRONGTYPE Operation against a key holding the wrong kind of value
GETDEL none
    $-1
GETEX s EX 0
    -ERR invalid expire time in 'getex' command
GETEX s KEEPTTL
    -ERR syntax error
SETEX s -1 v
    -ERR invalid expire time in 'setex' command
PSETEX s 0 v
    -ERR invalid expire time in 'psetex' command
DECRBY n -9223372036854775808
    -ERR decrement would overflow
INCRBYFLOAT n inf
    -ERR increment would produce NaN or Infinity
INCRBYFLOAT n nan
    -ERR value is not a valid float
GETBIT s 1
    :1
GETBIT s -1
    -ERR bit offset is not an integer or out of range
GETBIT none 5
    :0
BITFIELD_RO s GET u8 0 GET i8 8
    *2 :104 :101
BITFIELD_RO s SET u8 0 1
    -ERR BITFIELD_RO only supports the GET subcommand
BITFIELD_RO none GET u8 0
    *1 :0
LCS s s LEN IDX
    -ERR If you want both the length and indexes, please just use IDX.
LCS s none
    $0
LCS s l
    -ERR The specified keys must contain string values
MSET a
    -ERR wrong number of arguments for 'mset' command
HKEYS h
    *2 $2 f1 $2 f2
HKEYS s
    -WRONGTYPE Operation against a key holding the wrong kind of value
HVALS h
    *2 $2 v1 $2 v2
HVALS none
    *0
HGET h f1
    $2 v1
HGET s f1
    -WRONGTYPE Operation against a key holding the wrong kind of value
HLEN none
    :0
HEXISTS h f1
    :1
HEXISTS none f1
    :0
HMGET h f1 none f1
    *3 $2 v1 $-1 $2 v1
HMGET none a b
    *2 $-1 $-1
HSTRLEN h f1
    :2
HSTRLEN h none
    :0
HINCRBY h f1 1
    -ERR hash value is not an integer
HINCRBYFLOAT h f1 1
    -ERR hash value is not a float
HMSET h a
    -ERR wrong number of arguments for 'hmset' command
HSET h a
    -ERR wrong number of arguments for 'hset' command
HRANDFIELD h 1 WITHVALUES FOO
    -ERR syntax error
HSCAN h 0 COUNT 0
    -ERR syntax error
SSCAN set 0 NOVALUES
    -ERR NOVALUES option can only be used in HSCAN
SCAN 0 NOVALUES
    -ERR NOVALUES option can only be used in HSCAN
LINDEX l -1
    $1 c
LINDEX l 100
    $-1
LINDEX l x
    -ERR value is not an integer or out of range
LPOS l a RANK 2
    :3
LPOS l a RANK -9223372036854775808
    -ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807
LPOS l a COUNT 0
    *2 :0 :3
LPOS l a COUNT x
    -ERR COUNT can't be negative
LPOS l c MAXLEN 1
    $-1
LPOS l a MAXLEN x
    -ERR MAXLEN can't be negative
LPOS none a COUNT 1
    *0
LINSERT l FOO a x
    -ERR syntax error
LINSERT l BEFORE z x
    :-1
LINSERT none BEFORE a x
    :0
LSET l 100 x
    -ERR index out of range
LMPOP 1 l LEFT COUNT 0
    -ERR count should be greater than 0
LMPOP 1 l LEFT COUNT 1 COUNT 1
    -ERR syntax error
RPUSHX none a
    :0
BLPOP l inf
    -ERR timeout is out of range
BLPOP l nan
    -ERR timeout is not a float or out of range
BLPOP none 99999999999999999999
    -ERR timeout is out of range
SDIFF set none
    *2 $1 a $1 b
SDIFF none s
    -WRONGTYPE Operation against a key holding the wrong kind of value
SINTER set none
    *0
SINTER set s
    -WRONGTYPE Operation against a key holding the wrong kind of value
SUNION none set
    *2 $1 a $1 b
SINTERCARD 2 set set LIMIT 1
    :1
SINTERCARD 2 set set LIMIT -1
    -ERR LIMIT can't be negative
SINTERCARD 3 set set
    -ERR Number of keys can't be greater than number of args
SINTERCARD 0 set
    -ERR numkeys should be greater than 0
SISMEMBER set a
    :1
SISMEMBER s a
    -WRONGTYPE Operation against a key holding the wrong kind of value
SMISMEMBER set a z a
    *3 :1 :0 :1
SMISMEMBER none a b
    *2 :0 :0
SCARD s
    -WRONGTYPE Operation against a key holding the wrong kind of value
SMOVE set none z
    :0
SMOVE set s a
    -WRONGTYPE Operation against a key holding the wrong kind of value
SPOP set -1
    -ERR value is out of range, must be positive
ZCARD none
    :0
ZCOUNT z (1 3
    :3
ZCOUNT z x 1
    -ERR min or max is not a float
ZCOUNT z "( 0x1" 1e400
    :3
ZCOUNT z (-0x1p99999 (0x1p-99999
    :0
ZCOUNT z (1e-400 "1 "
    -ERR min or max is not a float
ZLEXCOUNT same [b (d
    :2
ZLEXCOUNT same a b
    -ERR min or max not valid string range item
ZDIFF 2 z none
    *4 $1 a $1 b $1 c $1 d
ZDIFF 2 z same WITHSCORES
    *0
ZDIFF 0 z
    -ERR at least 1 input key is needed for 'zdiff' command
ZDIFF 1 z WEIGHTS 1
    -ERR syntax error
ZINTERCARD 2 z same LIMIT 2
    :2
ZINTERCARD 2 z same LIMIT x
    -ERR LIMIT can't be negative
ZMSCORE z a none b
    *3 $1 1 $-1 $1 2
ZMSCORE none a
    *1 $-1
ZRANK z b WITHSCORE
    *2 :1 $1 2
ZRANK z a FOO
    -ERR syntax error
ZRANK z a WITHSCORE FOO
    -ERR wrong number of arguments for 'zrank' command
ZREVRANK z none WITHSCORE
    *-1
ZREVRANK z a
    :3
ZRANGE z 0 1 REV REV
    -ERR syntax error
ZRANGE z 1 3 BYSCORE BYSCORE
    -ERR syntax error
ZRANGE z 0 1 LIMIT 0 1
    -ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX
ZRANGE z 0 1 LIMIT 5 -1
    *2 $1 a $1 b
ZRANGE z 0 1 LIMIT 0 -2
    -ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX
ZRANGESTORE d z 0 1 LIMIT 5 -1
    :2
ZRANGESTORE d z (x y BYSCORE WITHSCORES
    -ERR syntax error
ZRANGESTORE d z - + BYLEX WITHSCORES
    -ERR syntax error
ZADD hex 0x10 a -0x1.8p1 b
    :2
ZADD hex 0x a
    -ERR value is not a valid float
ZINCRBY hex 0x.8 a
    $4 16.5
ZRANGEBYSCORE hex (-0x3 0x20 WITHSCORES
    *2 $1 a $4 16.5
ZUNIONSTORE d 1 hex WEIGHTS 0x2
    :2
ZSCORE d b
    $2 -6
HINCRBYFLOAT hf f 0x10
    $2 16
ZRANGEBYSCORE z (1 (3 WITHSCORES
    *2 $1 b $1 2
ZRANGEBYSCORE z 1 3 LIMIT 0 -1
    *4 $1 a $1 b $1 c $1 d
ZRANGEBYSCORE z 1 3 LIMIT 1
    -ERR syntax error
ZRANGEBYSCORE z x 3 FOO
    -ERR syntax error
ZRANGEBYSCORE z 1 3 REV
    -ERR syntax error
ZREVRANGEBYSCORE z 3 2 WITHSCORES
    *6 $1 d $1 3 $1 c $1 3 $1 b $1 2
ZREVRANGEBYSCORE z +inf -inf LIMIT 1 2
    *2 $1 c $1 b
ZREVRANGE z 0 1 WITHSCORES
    *4 $1 d $1 3 $1 c $1 3
ZREVRANGE z 0 1 WITHSCORES LIMIT 0 1
    -ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX
ZRANGEBYLEX same [b + LIMIT 0 1
    *1 $1 b
ZRANGEBYLEX same - + WITHSCORES
    -ERR syntax error, WITHSCORES not supported in combination with BYLEX
ZREVRANGEBYLEX same (d [b
    *2 $1 c $1 b
ZREVRANGEBYLEX same - +
    *0
ZREVRANGEBYLEX same + - LIMIT 1 2
    *2 $1 c $1 b
ZREVRANGEBYLEX same x -
    -ERR min or max not valid string range item
ZPOPMIN z -1
    -ERR value is out of range, must be positive
ZADD z NX GT 1 a
    -ERR GT, LT, and/or NX options at the same time are not compatible
ZADD z XX INCR 1 none
    $-1
ZINCRBY z nan a
    -ERR value is not a valid float
XRANGE x - + COUNT 1
    *1 *2 $3 1-1 *2 $1 f $1 v
XRANGE x (1-1 +
    *1 *2 $3 2-1 *4 $1 f $1 v $1 g $1 w
XRANGE x (18446744073709551615-18446744073709551615 +
    -ERR invalid start ID for the interval
XREVRANGE x + - COUNT 1
    *1 *2 $3 2-1 *4 $1 f $1 v $1 g $1 w
XREVRANGE x abc -
    -ERR Invalid stream ID specified as stream command argument
XGROUP CREATE x g 0
    +OK
XGROUP CREATECONSUMER x g c
    :1
XINFO CONSUMERS x none
    -NOGROUP No such consumer group 'none' for key name 'x'
XINFO CONSUMERS none g
    -ERR no such key
XSETID x 1-1
    -ERR The ID specified in XSETID is smaller than the target stream top item
XSETID x 3-1 ENTRIESADDED 1 MAXDELETEDID 1-1
    -ERR The entries_added specified in XSETID is smaller than the target stream length
XADD x 0-0 f v
    -ERR The ID specified in XADD must be greater than 0-0
XADD x MAXLEN = 10 LIMIT 5 9-9 f v
    -ERR syntax error, LIMIT cannot be used without the special ~ option
XCLAIM x g c 0 1-1 LASTID abc
    -ERR Invalid stream ID specified as stream command argument
XAUTOCLAIM x g c 0 0 COUNT 0
    -ERR COUNT must be > 0
XTRIM x NOMKSTREAM MAXLEN 5
    -ERR syntax error
TOUCH s s none
    :2
SORT_RO ints DESC LIMIT 0 2
    *2 $1 3 $1 2
SORT_RO ints STORE d
    -ERR syntax error
SORT_RO l
    -ERR One or more scores can't be converted into double
OBJECT REFCOUNT s
    :1
OBJECT FREQ none
    $-1
MEMORY USAGE none
    $-1
MEMORY USAGE s SAMPLES -1
    -ERR syntax error
COPY s s
    -ERR source and destination objects are the same
MOVE s 0
    -ERR source and destination objects are the same
SELECT 16
    -ERR DB index is out of range
EVALSHA_RO e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0
    -NOSCRIPT No matching script.
EVAL "#!foo\nreturn 1" 0
    -ERR Unexpected engine in script shebang: #!foo
SCRIPT LOAD "return 2"
    $40 7f923f79fe76194c868d7e1d0820de36700eb649
SCRIPT SHOW 7f923f79fe76194c868d7e1d0820de36700eb649
    $8 return 2
SCRIPT SHOW foo
    -NOSCRIPT No matching script.
ACL WHOAMI
    $7 default
ROLE
    *3 $6 master :0 *0
READWRITE
    +OK
ECHO hi
    $2 hi
LATENCY LATEST
    *0
LATENCY RESET a b
    :0
LATENCY GRAPH nosuch
    -ERR No samples available for event 'nosuch'
COMMAND DOCS nosuch
    *0
COMMAND LIST FILTERBY PATTERN hgetal*
    *1 $7 hgetall
CLIENT NO-EVICT on
    +OK
CLIENT NO-EVICT maybe
    -ERR syntax error
CLIENT NO-TOUCH ON
    +OK
CLIENT NO-TOUCH off
    +OK
CLIENT GETREDIR
    :-1
CLIENT TRACKINGINFO
    *6 $5 flags *1 $3 off $8 redirect :-1 $8 prefixes *0
CLIENT SETINFO LIB-NAME "a b"
    -ERR LIB-NAME cannot contain spaces, newlines or special characters.
CONFIG SET timeout 1 port
    -ERR syntax error
PUBSUB NUMPAT
    :0
PUBSUB NUMSUB a b
    *4 $1 a :0 $1 b :0
PUBSUB CHANNELS a b
    -ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.
UNWATCH
    +OK
WAIT 0 x
    -ERR timeout is not an integer or out of range
WAIT 0 -1
    -ERR timeout is negative
RESTORE r 0 x FREQ 256
    -ERR Invalid FREQ value, must be >= 0 and <= 255
FLUSHDB FOO
    -ERR syntax error
EVAL_RO "return redis.call('get', KEYS[1])" 1 s
    $5 hello
FLUSHALL
    +OK
RANDOMKEY
    $-1
"##;

#[test]
fn seldom_commands_are_answered_as_by_the_stock_server() {
    served(|running| async move {
        let mut peer = running.connect();
        let mut others = Vec::new();
        let mut lines = EXCHANGES.lines().map(str::trim_start).skip(1);
        while let (Some(request), Some(answer)) = (lines.next(), lines.next()) {
            let given = peer.ask(request).await;
            if given != answer {
                others.push((request, given, answer));
            }
        }
        assert!(others.is_empty(), "{others:#?}");
    });
}
