//! Round trips of random values, and random bytes that must do no harm.

#![forbid(unsafe_code)]

use proptest::collection::vec;
use proptest::prelude::*;
use zodium_pickle::{
    Construction, Global, Limits, Object, Value, class_of_record, decode, decode_record, encode,
    references_of_record,
};

fn leaf() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![
        Just(Value::None),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i128>().prop_map(Value::from),
        vec(any::<u8>(), 0..300).prop_map(|b| Value::from_twos_complement(&b).into_owned()),
        (-1e300..1e300).prop_map(Value::Float),
        vec(any::<u8>(), 0..300).prop_map(Value::from),
        ".{0,80}".prop_map(Value::from),
        ("[a-zA-Z0-9_.]{0,20}", "[a-zA-Z0-9_]{0,10}")
            .prop_filter_map("newline", |(m, n)| Global::new(m, n).map(Value::Global)),
    ]
}

fn value() -> impl Strategy<Value = Value<'static>> {
    leaf().prop_recursive(5, 60, 8, |inner| {
        let pairs = || vec((inner.clone(), inner.clone()), 0..5);
        let construction = prop_oneof![Just(Construction::Call), Just(Construction::New)];
        let object = (
            construction,
            inner.clone(),
            inner.clone(),
            vec(inner.clone(), 0..3),
            pairs(),
            proptest::option::of(inner.clone()),
        );
        let object =
            object.prop_map(|(construction, callable, arguments, items, entries, state)| {
                Value::Object(Box::new(Object {
                    construction,
                    callable,
                    arguments,
                    items,
                    entries,
                    state,
                }))
            });
        prop_oneof![
            vec(inner.clone(), 0..8).prop_map(Value::List),
            vec(inner.clone(), 0..8).prop_map(Value::Tuple),
            pairs().prop_map(Value::Dict),
            object,
            inner.prop_map(|id| Value::Persistent(Box::new(id))),
        ]
    })
}

fn encoded(value: &Value<'_>) -> Vec<u8> {
    let mut pickle = Vec::new();
    encode(value, &mut pickle);
    pickle
}

/// Decodes bytes in every way; they must not panic.
fn read(bytes: &[u8]) {
    for limits in [Limits::PLAIN, Limits::OBJECTS] {
        let _ = decode(bytes, &limits);
        let _ = decode_record(bytes, &limits);
    }
    let _ = class_of_record(bytes);
    let _ = references_of_record(bytes, &mut |_| ());
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded_again(value in value()) {
        let pickle = encoded(&value);
        prop_assert_eq!(decode(&pickle, &Limits::OBJECTS), Ok((value.clone(), pickle.len())));
        prop_assert_eq!(value.clone().into_owned(), value);
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..200)) {
        read(&bytes);
    }

    #[test]
    fn random_opcodes_do_not_panic(
        codes in proptest::sample::subsequence(
            b"(.012FIJKLMNPQRSTUVXabcd}eghiljoprqt)suGBC\x80\x81\x82\x83\x85\x86\x87\x88\x89\x8a\
              \x8c\x8f\x90\x91\x92\x93\x94\x95\n\0\x01\x02]]((NN".to_vec(), 20).prop_shuffle(),
        repeats in 1..20_usize,
    ) {
        read(&codes.repeat(repeats));
    }

    #[test]
    fn damaged_pickles_do_not_panic(
        value in value(),
        damage in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut pickle = encoded(&value);
        for (index, byte) in damage {
            let index = index.index(pickle.len());
            pickle[index] = byte;
        }
        read(&pickle);
        read(&pickle.repeat(2));
    }
}
