//! Masters that meet each other.

use std::collections::BTreeMap;
use std::time::Duration;

use zodium_neo::{Address, ConnectionId, LinkTask, Packet, Scan, Scanner};
use zodium_neo_master::{Master, Output, Settings};

use crate::support::{address, settings};

/// Masters that can all reach each other.
struct Net {
    masters: BTreeMap<Address, Master>,
    /// Both ends of each connection.
    ends: BTreeMap<(Address, ConnectionId), (Address, ConnectionId)>,
    now: Duration,
}

impl Net {
    fn new(ports: &[u16]) -> Net {
        let now = Duration::from_secs(1_700_000_000);
        let mut net = Net { masters: BTreeMap::new(), ends: BTreeMap::new(), now };
        for port in ports {
            net.start(*port, ports);
        }
        net
    }

    fn start(&mut self, port: u16, ports: &[u16]) {
        let masters = ports.iter().map(|port| address(*port)).collect();
        let mut master = Master::new(Settings { masters, ..settings(port) });
        self.now += Duration::from_millis(10);
        master.set_time(self.now);
        master.start();
        self.masters.insert(address(port), master);
    }

    /// A master ends.
    fn kill(&mut self, port: u16) {
        self.masters.remove(&address(port));
        let lost: Vec<_> = self.ends.iter().filter(|(_, (at, _))| *at == address(port)).collect();
        let lost: Vec<_> = lost.into_iter().map(|(end, _)| end.clone()).collect();
        for end in lost {
            self.close(&end);
        }
    }

    fn close(&mut self, end: &(Address, ConnectionId)) {
        let other = self.ends.remove(end);
        for (at, connection) in other.into_iter().chain([end.clone()]) {
            self.ends.remove(&(at.clone(), connection));
            if let Some(master) = self.masters.get_mut(&at) {
                master.closed(connection);
            }
        }
    }

    /// Carries messages until nothing but attempts to dial absent masters happens.
    fn run(&mut self) {
        for _ in 0..200 {
            let addresses: Vec<_> = self.masters.keys().cloned().collect();
            for at in addresses {
                self.now += Duration::from_millis(1);
                let Some(master) = self.masters.get_mut(&at) else { continue };
                master.set_time(self.now);
                for output in master.take_outputs() {
                    self.apply(&at, output);
                }
            }
        }
    }

    fn apply(&mut self, at: &Address, output: Output) {
        match output {
            Output::Link(LinkTask::Dial { connection, address, .. }) => {
                let Some(other) = self.masters.get_mut(&address) else {
                    return self.close(&(at.clone(), connection));
                };
                let accepted = other.accepted(at.to_string());
                self.ends.insert((at.clone(), connection), (address.clone(), accepted));
                self.ends.insert((address, accepted), (at.clone(), connection));
                if let Some(master) = self.masters.get_mut(at) {
                    master.connected(connection);
                }
            }
            Output::Link(LinkTask::Send { connection, packet }) => {
                let Some((to, other)) = self.ends.get(&(at.clone(), connection)).cloned() else {
                    return;
                };
                let Ok(Scan::Complete(frame)) = Scanner::default().scan(&packet) else { panic!() };
                if let Some(master) = self.masters.get_mut(&to) {
                    master.received(other, Packet::decode(frame).unwrap());
                }
            }
            Output::Link(LinkTask::Close { connection }) => self.close(&(at.clone(), connection)),
            Output::Exit => panic!("no master ends"),
            Output::Wake { .. } => {}
        }
    }

    /// The port of the primary master that each one knows.
    fn primaries(&mut self) -> Vec<u16> {
        let known = self.masters.iter_mut().map(|(at, master)| {
            let status = master.status();
            let primary = status.primary.map(|known| known.rsplit(':').next().unwrap().to_owned());
            if status.is_primary {
                at.port
            } else {
                primary.map_or(0, |port| port.parse().unwrap())
            }
        });
        known.collect()
    }
}

#[test]
fn the_earliest_master_is_primary_and_another_one_takes_over() {
    for ports in [[101, 102, 103], [103, 101, 102], [102, 103, 101]] {
        let mut net = Net::new(&ports);
        net.run();
        let first = ports[0];
        assert_eq!(net.primaries(), [first; 3], "{ports:?}");
        net.kill(first);
        net.run();
        let primaries = net.primaries();
        assert!(primaries[0] != first && primaries[0] == primaries[1], "{primaries:?}");
        // One that comes back does not win against one that is primary.
        net.start(first, &ports);
        net.run();
        assert_eq!(net.primaries(), [primaries[0]; 3], "{ports:?}");
    }
}

#[test]
fn ids_of_masters_differ() {
    let mut net = Net::new(&[101, 102, 103]);
    net.run();
    let mut ids: Vec<_> = net.masters.values_mut().map(|master| master.status().node).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}
