//! The start of a client's session: handshake, registration, and missed invalidations.

use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::RemoteError;
use zodium_zeo::codec::frame::encode_frame;

use super::{Client, Outcome, Session, Surroundings, encoding};
use crate::server::STORAGE_NAME;

impl Client {
    pub(super) fn greet(&mut self, payload: &[u8], with: &mut Surroundings<'_>) -> Outcome {
        if payload != with.plan.encoding.announcement() {
            return Err(format!("the server announces {payload:?}"));
        }
        encode_frame(&mut self.output, payload).map_err(encoding)?;
        let id = self.next_id();
        self.session = Session::Registering { floor: *with.known };
        self.request(id, "register", &Value::tuple([STORAGE_NAME.into(), false.into()]), with)
    }

    pub(super) fn registered(
        &mut self,
        floor: Tid,
        result: Result<Value<'_>, RemoteError<'_>>,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        let tid = result.map_err(|error| format!("cannot register: {error:?}"))?;
        let tid = tid.as_tid().ok_or("register() gives no tid")?;
        if tid < floor {
            return Err(format!("register() gives {tid}, but {floor} was known before"));
        }
        let since = std::mem::replace(&mut self.told, tid);
        self.hear(tid, with);
        if self.cache.is_empty() || since == tid {
            self.session = Session::Ready;
            return Ok(());
        }
        let id = self.next_id();
        self.session = Session::Verifying { id, since };
        self.request(id, "getInvalidations", &Value::tuple([since.into()]), with)
    }

    pub(super) fn verified(
        &mut self,
        since: Tid,
        result: Result<Value<'_>, RemoteError<'_>>,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        self.session = Session::Ready;
        let result = match result {
            Ok(result) => result,
            Err(_) if with.plan.faults > 0 => Value::None,
            Err(error) => return Err(format!("getInvalidations() fails: {error:?}")),
        };
        let Some([tid, oids]) = result.as_sequence() else {
            self.cache.clear();
            return if result.is_none() { Ok(()) } else { Err(format!("odd: {result:?}")) };
        };
        let tid = tid.as_tid().ok_or("getInvalidations() without a tid")?;
        if tid != self.told {
            return Err(format!("getInvalidations() is up to {tid}, told {}", self.told));
        }
        let oids: Vec<Oid> =
            oids.as_sequence().unwrap_or_default().iter().filter_map(Value::as_oid).collect();
        let changed = with.history.between(since, tid).iter().flat_map(|c| &c.oids);
        if let Some(missing) = changed.clone().find(|oid| !oids.contains(oid)) {
            return Err(format!("getInvalidations({since}) up to {tid} lacks object {missing}"));
        }
        for oid in oids {
            self.cache.remove(&oid);
        }
        Ok(())
    }
}
