//! Connections that other nodes make.

use std::rc::Rc;

use tracing::warn;
use zodium_net::Listener;

use crate::driver::Driver;

impl Driver {
    pub(crate) async fn accept(self: Rc<Driver>, listener: Listener) {
        loop {
            let (incoming, peer) = listener.accept().await;
            let (driver, limits) = (Rc::clone(&self), self.limits.clone());
            tokio::task::spawn_local(async move {
                if let Err(error) = driver.host.run_incoming(incoming, &peer, limits).await {
                    warn!(peer, %error, "cannot serve a connection");
                }
            });
        }
    }
}
