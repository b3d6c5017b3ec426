//! `[monitor]`: metrics, health and the status page over HTTP.

use zodium_types::Address;

use super::kinds::Location;

settings! {
    /// Metrics, health and the status page over HTTP.
    ///
    /// The default has no address, as it is required: readers begin with it.
    pub struct MonitorOptions {
        /// Serve metrics, health and a status page over HTTP on HOST:PORT, or PORT of 127.0.0.1
        address: Address = Address::Tcp { host: String::new(), port: 0 }, {
            Location;
            key: "address", is_required: true, option: "monitor", value: "ADDRESS",
            env: "ZODIUM_MONITOR"
        }
    }
}
