//! Connections that other nodes make.

use std::rc::Rc;

use tracing::warn;
use zodium_net::Listener;

use crate::links::Links;

impl Links {
    pub(crate) async fn accept(self: Rc<Links>, listener: Listener) {
        loop {
            let (incoming, peer) = listener.accept().await;
            let (links, limits) = (Rc::clone(&self), self.limits.clone());
            tokio::task::spawn_local(async move {
                if let Err(error) = links.host.run_incoming(incoming, &peer, limits).await {
                    warn!(peer, %error, "cannot serve a connection");
                }
            });
        }
    }
}
