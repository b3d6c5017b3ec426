//! Calls with arguments that their methods do not take.

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::InProcess;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

#[test]
fn a_call_with_arguments_too_few_or_too_many_or_of_another_kind_is_a_type_error() {
    for encoding in [Encoding::Pickle, Encoding::Msgpack] {
        let server = must(InProcess::start(encoding, None));
        let mut client = must(Client::register(server.socket()));
        let refusal = Answer::Error("builtins.TypeError".to_owned());
        let (oid, tid) = (|| Oid(1).into(), || Tid(1).into());
        assert_eq!(must(client.ask("getTid", [])), refusal);
        assert_eq!(must(client.ask("getTid", [oid(), oid()])), refusal);
        assert_eq!(must(client.ask("getTid", [b"short".into()])), refusal);
        assert_eq!(must(client.ask("loadSerial", [oid()])), refusal);
        assert_eq!(must(client.ask("loadSerial", [oid(), Value::None])), refusal);
        assert_eq!(must(client.ask("loadBefore", [oid(), 1.into()])), refusal);
        assert_eq!(must(client.ask("ping", [Value::None])), refusal);
        assert_eq!(must(client.ask("history", [oid(), "many".into()])), refusal);
        assert_eq!(must(client.ask("iterator_start", [Value::None, "last".into()])), refusal);
        assert_eq!(must(client.ask("iterator_gc", [1.into()])), refusal);
        assert_eq!(must(client.ask("set_client_label", [1.into()])), refusal);
        // The connection is still of use.
        assert_eq!(must(client.ask("ping", [])), Answer::Value(Value::None));
        must(client.begin(1));
        for store in
            [[oid(), tid(), Value::None, 1.into()], [oid(), tid(), "text".into(), 1.into()]]
        {
            must(client.tell("storea", store));
        }
        assert_eq!(must(client.ask("vote", [1.into()])), refusal);
        must(server.close());
    }
}
