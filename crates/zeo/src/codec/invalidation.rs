//! Invalidation messages, encoded once for every encoding and sent to many connections.

use bytes::BytesMut;
use zodium_types::{Oid, Tid};

use super::writer::{Flag, write_message};
use super::{CodecError, Encoding, MessageId};

/// Appends the frame that invalidates `oids`, which transaction `tid` has changed.
pub fn encode_invalidation(
    encoding: Encoding,
    out: &mut BytesMut,
    tid: Tid,
    oids: &[Oid],
) -> Result<(), CodecError> {
    out.reserve(80 + 10 * oids.len());
    let id = MessageId::Number(0);
    write_message(encoding, out, &id, Flag::Oneway, "invalidateTransaction", |out| {
        out.open_tuple(2);
        out.tid(tid);
        out.oids(oids)?;
        out.close_tuple(2);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use zodium_pickle::Value;

    use super::super::{encode_oneway, test_frame};
    use super::*;

    const TID: Tid = Tid(0x040d_2966_6566_0688);
    const OID: Oid = Oid(0x0102_0304_0506_0708);

    // `ZEO.asyncio.marshal` 6.2.
    #[test]
    fn invalidations_are_byte_identical_to_those_of_the_stock_server() {
        let one = [OID];
        let three = [OID, Oid(2), OID];
        for (encoding, oids, golden) in [
            (
                Encoding::Msgpack,
                &one[..],
                "9400c3b5696e76616c69646174655472616e73616374696f6e92c408040d29666566068891c4080102\
                 030405060708",
            ),
            (
                Encoding::Pickle,
                &one,
                "8003284b00885815000000696e76616c69646174655472616e73616374696f6e4308040d2966656606\
                 885d430801020304050607086186742e",
            ),
            (
                Encoding::Msgpack,
                &three,
                "9400c3b5696e76616c69646174655472616e73616374696f6e92c408040d29666566068893c4080102\
                 030405060708c4080000000000000002c4080102030405060708",
            ),
            (
                Encoding::Pickle,
                &three,
                "8003284b00885815000000696e76616c69646174655472616e73616374696f6e4308040d2966656606\
                 885d284308010203040506070843080000000000000002430801020304050607086586742e",
            ),
        ] {
            let mut out = BytesMut::new();
            encode_invalidation(encoding, &mut out, TID, oids).unwrap();
            assert_eq!(out, test_frame(golden));
        }
    }

    #[test]
    fn any_number_of_oids_is_written_as_a_list_of_values_would_be() {
        for encoding in [Encoding::Pickle, Encoding::Msgpack] {
            for count in [0, 1, 2, 15, 16, 999, 1000, 1001, 2000, 70_000] {
                let oids: Vec<Oid> = (0..count).map(Oid).collect();
                let values = Value::list(oids.iter().map(|oid| Value::from(*oid)));
                let arguments = Value::tuple([TID.into(), values]);
                let (mut wanted, mut out) = (BytesMut::new(), BytesMut::new());
                encode_oneway(encoding, &mut wanted, "invalidateTransaction", &arguments).unwrap();
                encode_invalidation(encoding, &mut out, TID, &oids).unwrap();
                assert_eq!(out, wanted, "{count}");
            }
        }
    }
}
