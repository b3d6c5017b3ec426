//! Decodes pickles, within limits; there is a fast path for plain data.

use crate::machine::Machine;
use crate::plain::decode_plain;
use crate::purpose::Purpose;
use crate::{PickleError, Value};

/// Limits of what a pickle may contain.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most nested containers; never more than 1000.
    pub nesting: usize,
    /// Most values, counting each copy of a memoized one. A value takes some 60 bytes.
    pub nodes: usize,
    /// The classes, instances and persistent references that are allowed.
    pub objects: Objects,
}

/// Which classes, instances and persistent references a pickle may contain.
#[derive(Clone, Copy, Debug)]
pub enum Objects {
    /// None at all.
    Refused,
    /// These `(module, name)`s and their instances, and no persistent references.
    Only(&'static [(&'static str, &'static str)]),
    /// Any, all as data.
    Allowed,
}

impl Limits {
    /// A million plain values.
    pub const PLAIN: Limits = Limits { nesting: 100, nodes: 1 << 20, objects: Objects::Refused };

    /// A million values of any kind.
    pub const OBJECTS: Limits = Limits { nesting: 200, nodes: 1 << 20, objects: Objects::Allowed };
}

/// Decodes the pickle at the start of `bytes`; returns its value and its length in bytes.
///
/// Time and memory are bounded by the length of `bytes` and by `limits`, whatever lengths the
/// pickle declares.
pub fn decode<'a>(bytes: &'a [u8], limits: &Limits) -> Result<(Value<'a>, usize), PickleError> {
    if let Some(decoded) = decode_plain(bytes, limits) {
        return Ok(decoded);
    }
    decode_fully(bytes, limits)
}

/// Decodes any pickle, without the fast path.
fn decode_fully<'a>(bytes: &'a [u8], limits: &Limits) -> Result<(Value<'a>, usize), PickleError> {
    let mut machine = Machine::new(bytes, limits, Purpose::Plain);
    let value = machine.value()?;
    Ok((value, machine.position()))
}

/// Decodes the extension of a transaction, as ZODB on Python 3 reads one.
///
/// A `str` of Python 2 is text if it is ASCII, and bytes if it is not. The calls of
/// `_codecs.encode` and `bytes`, by which Python 3 writes bytes in protocols 0 to 2, are bytes.
pub fn decode_extension<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Value<'a>, PickleError> {
    Machine::new(bytes, limits, Purpose::Extension).value()
}

/// Decodes a data record: the pickles of its class metadata and of its state.
///
/// They cannot be decoded separately, because the second one may use the first one's memo. The
/// result can be encoded again without loss. So a record is refused where values would lose
/// information: if it refers twice to one list, dict or instance, or contains a `str` of Python 2.
pub fn decode_record<'a>(
    record: &'a [u8],
    limits: &Limits,
) -> Result<(Value<'a>, Value<'a>), PickleError> {
    let mut machine = Machine::new(record, limits, Purpose::Exact);
    let metadata = machine.value()?;
    Ok((metadata, machine.value()?))
}

/// Decodes a data record to be looked at: as [`decode_record`], but also records whose values lose
/// information. An object that two others share is in both of them. One that is within itself ends
/// there with an [object that stands for it](crate::Object::cycle_levels). A text with surrogates
/// is the call of `codecs.decode` that makes it.
pub fn decode_record_to_show<'a>(
    record: &'a [u8],
    limits: &Limits,
) -> Result<(Value<'a>, Value<'a>), PickleError> {
    if is_compressed(record) {
        return Err(PickleError::Compressed);
    }
    let mut machine = Machine::new(record, limits, Purpose::Show);
    let metadata = machine.value()?;
    Ok((metadata, machine.value()?))
}

/// Whether an application's zc.zlibstorage has compressed the data of a record. They begin with the
/// operation that ends a pickle, as no pickle does.
#[must_use]
pub fn is_compressed(data: &[u8]) -> bool {
    data.starts_with(b".z")
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::machine::NESTING_MAX;
    use crate::{Construction, Object, test_bytes};

    fn plain(pickle: &[u8]) -> Result<Value<'_>, PickleError> {
        decode(pickle, &Limits::PLAIN).map(|(value, _)| value)
    }

    fn object(pickle: &[u8]) -> Object<'_> {
        match decode(pickle, &Limits::OBJECTS) {
            Ok((Value::Object(object), length)) if length == pickle.len() => *object,
            other => panic!("{other:?}"),
        }
    }

    fn sample() -> Value<'static> {
        let shared = Value::list([1.into(), 2.into()]);
        Value::dict([
            ("n", Value::None),
            ("t", true.into()),
            ("f", (-2.5).into()),
            (
                "i",
                Value::list([
                    0.into(),
                    255.into(),
                    65_535.into(),
                    (-1).into(),
                    (1_i64 << 31).into(),
                    u64::MAX.into(),
                ]),
            ),
            ("s", "h\u{e9}\u{20ac}\u{1f600}\n\\".into()),
            (
                "tup",
                Value::tuple([
                    1.into(),
                    Value::tuple([]),
                    Value::tuple([2.into(), 3.into()]),
                    Value::tuple(["a".into()]),
                ]),
            ),
            ("l", Value::list([shared.clone(), shared])),
            ("d", Value::Dict(Vec::new())),
        ])
    }

    // `{"u": "joe", "n": "caf\xe9", "q": "joe"}` of Python 2; the last entry as in protocol 0.
    #[test]
    fn text_of_python_2_in_an_extension_is_text_if_it_is_ascii() {
        let pickle =
            b"\x80\x02}(U\x01uU\x03joeU\x01nT\x04\0\0\0caf\xe9S'q'\nS'joe'\nC\x01bC\x01bu.";
        let dict = |entries: [(Value<'static>, Value<'static>); 4]| Value::Dict(entries.into());
        let python3 = dict([
            ("u".into(), "joe".into()),
            ("n".into(), b"caf\xe9".into()),
            ("q".into(), "joe".into()),
            (b"b".into(), b"b".into()),
        ]);
        assert_eq!(decode_extension(pickle, &Limits::PLAIN), Ok(python3));
        let as_bytes = dict([
            (b"u".into(), b"joe".into()),
            (b"n".into(), b"caf\xe9".into()),
            (b"q".into(), b"joe".into()),
            (b"b".into(), b"b".into()),
        ]);
        assert_eq!(plain(pickle), Ok(as_bytes), "elsewhere it is bytes");
    }

    // `pickle.dumps({"t": b"\0\xff", "e": b""}, protocol)` of CPython 3.11, without a memo.
    #[test]
    fn calls_that_make_bytes_in_an_extension_are_bytes() {
        let pickles: [&[u8]; 2] = [
            b"(dVt\nc_codecs\nencode\n(V\\u0000\xff\nVlatin1\ntRsVe\nc__builtin__\nbytes\n(tRs.",
            b"\x80\x02}(X\x01\0\0\0tc_codecs\nencode\nX\x03\0\0\0\0\xc3\xbfX\x06\0\0\0latin1\x86R\
              X\x01\0\0\0ec__builtin__\nbytes\n)Ru.",
        ];
        for pickle in pickles {
            let expected = Value::dict([("t", b"\0\xff".into()), ("e", b"".into())]);
            assert_eq!(decode_extension(pickle, &Limits::OBJECTS), Ok(expected));
            assert!(!decode(pickle, &Limits::OBJECTS).unwrap().0.is_plain(), "elsewhere a call");
        }
        for other in [
            // A character beyond Latin-1, another encoding, another function.
            &b"c_codecs\nencode\nX\x02\0\0\0\xc4\x80X\x06\0\0\0latin1\x86R."[..],
            b"c_codecs\nencode\nX\x01\0\0\0aX\x05\0\0\0utf-8\x86R.",
            b"c_codecs\ndecode\nX\x01\0\0\0aX\x06\0\0\0latin1\x86R.",
        ] {
            assert!(!decode_extension(other, &Limits::OBJECTS).unwrap().is_plain());
        }
    }

    // `pickle.dumps(sample, protocol)` of CPython 3.11; the two items of "l" are one list.
    #[test]
    fn every_protocol_of_cpython_gives_the_same_value() {
        let goldens = [
            "286470300a566e0a70310a4e7356740a70320a4930310a7356660a70330a462d322e350a7356690a70340a\
             286c70350a49300a61493235350a614936353533350a61492d310a614c323134373438333634384c0a614c\
             31383434363734343037333730393535313631354c0a617356730a70360a5668e95c75323061635c553030\
             3031663630305c75303030615c75303035630a70370a73567475700a70380a2849310a28742849320a4933\
             0a7470390a2856610a7031300a747031310a747031320a73566c0a7031330a286c7031340a286c7031350a\
             49310a6149320a61616731350a617356640a7031360a28647031370a732e",
            "7d71002858010000006e71014e58010000007471024930310a580100000066710347c00400000000000058\
             010000006971045d7105284b004bff4dffff4affffffff4c323134373438333634384c0a4c313834343637\
             34343037333730393535313631354c0a655801000000737106580c00000068c3a9e282acf09f98800a5c71\
             0758030000007475707108284b0129284b024b0374710928580100000061710a74710b74710c5801000000\
             6c710d5d710e285d710f284b014b0265680f6558010000006471107d7111752e",
            "80037d71002858010000006e71014e580100000074710288580100000066710347c0040000000000005801\
             0000006971045d7105284b004bff4dffff4affffffff8a0500000080008a09ffffffffffffffff00655801\
             000000737106580c00000068c3a9e282acf09f98800a5c710758030000007475707108284b01294b024b03\
             867109580100000061710a85710b74710c58010000006c710d5d710e285d710f284b014b0265680f655801\
             0000006471107d7111752e",
            "80049585000000000000007d94288c016e944e8c017494888c01669447c0040000000000008c0169945d94\
             284b004bff4dffff4affffffff8a0500000080008a09ffffffffffffffff00658c0173948c0c68c3a9e282\
             acf09f98800a5c948c0374757094284b01294b024b0386948c016194859474948c016c945d94285d94284b\
             014b0265680f658c0164947d94752e",
        ];
        for golden in goldens {
            let pickle = test_bytes(golden);
            assert_eq!(decode(&pickle, &Limits::PLAIN), Ok((sample(), pickle.len())));
        }
    }

    proptest::proptest! {
        // These codes are on the fast path, so complete pickles are frequent.
        #[test]
        fn the_short_cut_gives_what_the_full_machine_gives(
            codes in proptest::collection::vec(
                proptest::sample::select(&b"((((NNNN]]}))ttttaessu\x85\x86\x87K\x01C\0\x88"[..]),
                0..25,
            ),
            nesting in 1..8_usize,
            nodes in 1..12_usize,
        ) {
            let pickle = [&codes[..], b"."].concat();
            let limits = Limits { nesting, nodes, ..Limits::PLAIN };
            if let Some(decoded) = decode_plain(&pickle, &limits) {
                proptest::prop_assert_eq!(decode_fully(&pickle, &limits), Ok(decoded));
            }
        }
    }

    #[test]
    fn bytes_are_bytes_in_every_form() {
        for pickle in [
            &b"\x80\x03C\x02ab."[..],
            b"\x80\x03B\x02\0\0\0ab.",
            b"U\x02ab.",
            b"T\x02\0\0\0ab.",
            b"S'ab'\np0\n.",
            b"S'\\x61b'\n.",
            b"\x8e\x02\0\0\0\0\0\0\0ab.",
        ] {
            assert_eq!(plain(pickle), Ok(Value::from(b"ab")), "{pickle:?}");
        }
    }

    #[test]
    fn bytes_and_text_borrow_from_the_pickle() {
        let pickle = b"\x80\x03C\x02abX\x02\0\0\0cd\x86.";
        match plain(pickle) {
            Ok(Value::Tuple(items)) => assert!(matches!(
                items[..],
                [Value::Bytes(Cow::Borrowed(b"ab")), Value::Str(Cow::Borrowed("cd"))]
            )),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_record_is_shown_also_where_it_is_no_tree() {
        // A list that is there twice, and a text of Python 2.
        let record = b"cm\nC\n.(]q\x05h\x05U\x01at.";
        assert!(decode_record(record, &Limits::OBJECTS).is_err());
        let (class, state) = decode_record_to_show(record, &Limits::OBJECTS).unwrap();
        assert_eq!(class.as_global().unwrap().to_string(), "m.C");
        let empty = || Value::List(Vec::new());
        assert_eq!(state, Value::tuple([empty(), empty(), Value::from(b"a")]));
        let compressed = decode_record_to_show(b".zx\x9c", &Limits::OBJECTS);
        assert_eq!(compressed, Err(PickleError::Compressed));
    }

    #[test]
    fn an_object_within_itself_is_shown_once() {
        // A list with itself, a dict with it, and itself once more.
        let record = b"cm\nC\n.]q\x05(h\x05}X\x01\0\0\0ah\x05sh\x05e.";
        let (_, state) = decode_record_to_show(record, &Limits::OBJECTS).unwrap();
        let Value::List(items) = state else { panic!("{state:?}") };
        let levels = |value: &Value<'_>| value.as_object().and_then(Object::cycle_levels);
        assert_eq!([levels(&items[0]), levels(&items[2])], [Some(0); 2], "{items:?}");
        assert_eq!(items[1].entry("a").map(levels), Some(Some(1)), "{items:?}");
        assert_ne!(items[0], *items[1].entry("a").unwrap());
        // An instance whose state has it, and which two lists share.
        let record = b"cm\nC\n.cm\nD\n)\x81q\x01}X\x01\0\0\0ah\x01sb]h\x01a\x86.";
        let (_, state) = decode_record_to_show(record, &Limits::OBJECTS).unwrap();
        let shared = state.as_sequence().unwrap();
        assert_eq!(shared[1], Value::list([shared[0].clone()]));
        let state = shared[0].as_object().unwrap().state.as_ref().unwrap();
        assert_eq!(state.entry("a").map(levels), Some(Some(1)));
        assert!(decode_record(record, &Limits::OBJECTS).is_err());
    }

    #[test]
    fn a_text_with_surrogates_is_shown_as_the_call_that_makes_it() {
        let record = b"cm\nC\n.X\x05\0\0\0a\xed\xa0\x80b.";
        let (_, state) = decode_record_to_show(record, &Limits::OBJECTS).unwrap();
        let lines = b"cm\nC\n.Va\\ud800b\n.";
        assert_eq!(decode_record_to_show(lines, &Limits::OBJECTS).unwrap().1, state);
        let call = state.as_object().unwrap();
        assert_eq!(call.class().map(ToString::to_string).as_deref(), Some("codecs.decode"));
        let arguments = ["utf-8".into(), "surrogatepass".into()];
        let bytes = Value::from(b"a\xed\xa0\x80b");
        assert_eq!(call.arguments, Value::tuple([bytes].into_iter().chain(arguments)));
        assert!(decode_record(record, &Limits::OBJECTS).is_err());
        let other = b"cm\nC\n.X\x05\0\0\0a\xed\xa0\xffb.";
        assert!(decode_record_to_show(other, &Limits::OBJECTS).is_err());
    }

    #[test]
    fn what_follows_the_pickle_is_not_read() {
        assert_eq!(decode(b"K\x01.rest", &Limits::PLAIN), Ok((1.into(), 3)));
    }

    #[test]
    fn stack_juggling_is_followed() {
        for (pickle, value) in [
            (&b"K\x01K\x020."[..], Value::from(1)),
            (b"K\x01(K\x02K\x031.", 1.into()),
            (b"K\x01(0.", 1.into()),
            (b"K\x012\x86.", Value::tuple([1.into(), 1.into()])),
            (b"(K\x01K\x02l.", Value::list([1.into(), 2.into()])),
            (b"(X\x01\0\0\0aK\x02d.", Value::dict([("a", 2.into())])),
        ] {
            assert_eq!(plain(pickle), Ok(value));
        }
    }

    #[test]
    fn every_prefix_of_a_pickle_is_an_error() {
        let pickle = b"\x80\x03}q\0(X\x01\0\0\0aq\x01K\x01X\x01\0\0\0bq\x02]q\x03(h\x01Neu.";
        assert!(plain(pickle).is_ok());
        for length in 0..pickle.len() {
            let result = plain(&pickle[..length]);
            assert!(matches!(result, Err(PickleError::Truncated { .. })), "{length}: {result:?}");
        }
    }

    #[test]
    fn operations_without_their_operands_are_errors() {
        for pickle in [
            &b"."[..],
            b"0.",
            b"1.",
            b"2.",
            b"a.",
            b"Na.",
            b"NNa.",
            b"e.",
            b"(e.",
            b"N(Ne.",
            b"t.",
            b"\x85.",
            b"N\x86.",
            b"(.",
            b"N(.",
            b"s.",
            b"}Ns.",
            b"NNNs.",
            b"}(Nu.",
            b"(Nd.",
            b"u.",
            b"h\0.",
            b"Nq",
            b"q\0.",
            b"(q\0.",
            b"\x94.",
            b"R.",
            b"NR.",
            b"b.",
            b"NNb.",
            b"\x81.",
            b"Q.",
            b"(o.",
            b"o.",
            b"im\nn\n.",
            b"\x93.",
            b"NN\x93.",
            b"\x90.",
            b"N(\x90.",
            b"\x91.",
            b"\xff.",
            b"\x80\x05N.",
            b"\x82\x01.",
            b"p-1\n.",
            b"Ix\n.",
            b"Fx\n.",
            b"Sx\n.",
            b"X\x01\0\0\0\xff.",
            b"c\xff\nn\n.",
            b"",
        ] {
            let result = decode(pickle, &Limits::OBJECTS);
            assert!(result.is_err(), "{pickle:?}: {result:?}");
        }
    }

    #[test]
    fn deep_nesting_is_refused_whichever_way_it_is_made() {
        let depth = 10_000;
        let many = |bytes: &[u8]| bytes.repeat(depth);
        for pickle in [
            [many(b"("), many(b"t"), b".".to_vec()].concat(),
            [b")".to_vec(), many(b"\x85"), b".".to_vec()].concat(),
            [many(b"]"), b"a".repeat(depth - 1), b".".to_vec()].concat(),
            [b"]".to_vec(), many(b"q\0]h\0a"), b".".to_vec()].concat(),
            [many(b"}N"), b"N".to_vec(), many(b"s"), b".".to_vec()].concat(),
        ] {
            for nesting in [100, 1000, usize::MAX] {
                let limits = Limits { nesting, ..Limits::OBJECTS };
                let limit = nesting.min(NESTING_MAX);
                assert_eq!(decode(&pickle, &limits), Err(PickleError::TooDeep { limit }));
            }
        }
    }

    #[test]
    fn nesting_up_to_the_limit_is_read() {
        let nested = |depth| [b"N".to_vec(), b"\x85".repeat(depth), b".".to_vec()].concat();
        let limits = Limits { nesting: 50, ..Limits::PLAIN };
        assert!(decode(&nested(50), &limits).is_ok());
        assert_eq!(decode(&nested(51), &limits), Err(PickleError::TooDeep { limit: 50 }));
    }

    #[test]
    fn a_value_that_contains_itself_is_refused() {
        for pickle in [&b"\x80\x03]q\0h\0a."[..], b"\x80\x03]q\0h\0\x85q\x01a0h\x01."] {
            assert_eq!(plain(pickle), Err(PickleError::TooDeep { limit: 100 }));
        }
    }

    #[test]
    fn a_memo_bomb_is_refused_by_the_number_of_copies() {
        // Each list contains the previous one twice: 2^60 lists in 500 bytes.
        let mut pickle = b"]q\0".to_vec();
        for number in 0..60_u8 {
            pickle.extend([b']', b'q', number + 1, b'(', b'h', number, b'h', number, b'e']);
        }
        pickle.push(b'.');
        assert_eq!(plain(&pickle), Err(PickleError::TooManyNodes { limit: 1 << 20 }));
    }

    #[test]
    fn a_memo_bomb_of_one_long_string_is_refused() {
        let string = "\\n".repeat(1 << 20);
        let pickle = [format!("(S'{string}'\np0\n").into(), b"g0\n".repeat(10_000), b"t.".to_vec()];
        let result = plain(&pickle.concat()).map(drop);
        assert_eq!(result, Err(PickleError::TooManyNodes { limit: 1 << 20 }));
    }

    #[test]
    fn the_number_of_values_is_limited_exactly() {
        let limits = Limits { nodes: 11, ..Limits::PLAIN };
        let tuple = |n| [b"(".to_vec(), b"N".repeat(n), b"t.".to_vec()].concat();
        assert!(decode(&tuple(10), &limits).is_ok());
        assert_eq!(decode(&tuple(11), &limits), Err(PickleError::TooManyNodes { limit: 11 }));
    }

    #[test]
    fn values_are_counted_before_there_is_room_for_them() {
        let limits = Limits { nodes: 200, ..Limits::PLAIN };
        let (numbers, entries) = (b"2".repeat(118), b"N2".repeat(59));
        let list = [b"]q\x00(h\x00N", &numbers[..], b"e."].concat();
        let dict = [b"}q\x00(Nh\x00", &entries[..], b"u."].concat();
        for pickle in [list, dict] {
            // Each level of the nesting would need room for all values.
            assert_eq!(decode(&pickle, &limits), Err(PickleError::TooManyNodes { limit: 200 }));
        }
    }

    #[test]
    fn plain_data_names_the_class_it_refuses() {
        let refused =
            |name: &str, offset| Err(PickleError::ObjectRefused { name: name.to_owned(), offset });
        assert_eq!(plain(b"\x80\x03cos\nsystem\nX\x02\0\0\0ls\x85R."), refused("os.system", 2));
        assert_eq!(plain(b"(ios\nsystem\n."), refused("os.system", 1));
        assert_eq!(plain(b"\x8c\x02os\x8c\x06system\x93."), refused("os.system", 12));
        assert_eq!(plain(b"C\x01aQ."), refused("a persistent reference", 3));
        assert_eq!(plain(b"Pabc\n."), refused("a persistent reference", 0));
        assert_eq!(plain(b"\x8f."), refused("builtins.set", 0));
    }

    #[test]
    fn only_the_named_classes_are_let_through() {
        let limits = Limits { objects: Objects::Only(&[("m", "Good")]), ..Limits::PLAIN };
        assert!(decode(b"cm\nGood\n)\x81}b.", &limits).is_ok());
        assert!(decode(b"(cm\nGood\no}b.", &limits).is_ok());
        assert!(decode(b"cm\nBad\n)\x81}b.", &limits).is_err());
        assert!(decode(b"C\x01aQ.", &limits).is_err());
    }

    #[test]
    fn instances_become_descriptions() {
        let pickle = b"\x80\x03cdatetime\ndate\nq\0C\x04\x07\xe8\x01\x02q\x01\x85q\x02Rq\x03.";
        let date = object(pickle);
        assert_eq!(date.class().map(ToString::to_string).as_deref(), Some("datetime.date"));
        assert_eq!(date.construction, Construction::Call);
        assert_eq!(date.arguments, Value::tuple([b"\x07\xe8\x01\x02".into()]));

        let deque = object(b"\x80\x03ccollections\ndeque\nq\0)Rq\x01(K\x01K\x02e.");
        assert_eq!(deque.items, [1.into(), 2.into()]);
        let dict = object(b"\x80\x02ccollections\nOrderedDict\nq\0)Rq\x01X\x01\0\0\0aq\x02K\x01s.");
        assert_eq!(dict.entries, [("a".into(), 1.into())]);
        let new = object(b"\x80\x02cm\nC\n)\x81}X\x01\0\0\0aK\x01sb.");
        assert_eq!(new.construction, Construction::New);
        assert_eq!(new.state, Some(Value::dict([("a", 1.into())])));
    }

    #[test]
    fn a_set_of_protocol_4_is_that_of_protocol_3() {
        let old = object(b"\x80\x03cbuiltins\nfrozenset\nq\0]q\x01K\x01a\x85q\x02Rq\x03.");
        assert_eq!(object(b"\x80\x04(K\x01\x91\x94."), old);
        assert_eq!(object(b"\x80\x04\x8f\x94(K\x01\x90.").items, [1.into()]);
    }

    #[test]
    fn the_state_of_a_record_may_fetch_what_its_metadata_memoized() {
        let record =
            b"\x80\x03cm\nC\nq\0.\x80\x03}q\x01X\x01\0\0\0aC\x08\0\0\0\0\0\0\0\x01h\0\x86Qs.";
        let (class, state) = decode_record(record, &Limits::OBJECTS).unwrap();
        let reference = Value::tuple([b"\0\0\0\0\0\0\0\x01".into(), class]);
        assert_eq!(state.entry("a"), Some(&Value::Persistent(Box::new(reference))));
    }

    #[test]
    fn a_record_whose_values_do_not_tell_all_is_refused() {
        let read = |state: &[u8]| {
            decode_record(&[b"cm\nC\nq\0.", state].concat(), &Limits::OBJECTS).map(drop)
        };
        let inexact = |what| Err(PickleError::Inexact { what });
        for state in
            [&b"]q\x01h\x01\x86."[..], b"}q\x01\x85q\x02h\x02\x86.", b"h\0)\x81q\x01h\x01\x86."]
        {
            assert_eq!(read(state), inexact("an object that two others share"), "{state:?}");
        }
        for state in [&b"U\x01a."[..], b"T\x01\0\0\0a.", b"S'a'\n."] {
            assert_eq!(read(state), inexact("str of Python 2"), "{state:?}");
        }
        // Text, tuples and ids of persistent references have no identity that could be lost.
        for state in
            [&b"X\x01\0\0\0aq\x01h\x01\x86."[..], b"N\x85q\x01h\x01\x86.", b"]q\x01Qh\x01Q\x86."]
        {
            assert_eq!(read(state), Ok(()), "{state:?}");
        }
    }
}
