//! What goes wrong in a world, and how it is put right again.

use super::{Standing, World, index, number};
use crate::engine::{ClientEvent, Event, Who};
use crate::history::FaultKind;
use crate::node::client::Client;
use crate::workload::plan::FaultPlan;
use crate::workload::{Thread, Workload};
use ccpfs_wire::Channel;

impl<W: Workload> World<W> {
    pub(super) fn strike(&mut self, kind: FaultPlan) {
        self.engine.note(Who::World, || format!("fault: {kind:?}"));
        let now = self.engine.now_ns();
        let servers = self.engine.config.sizes.servers;
        let kind = kind.within(self.engine.config.sizes.clients);
        match kind {
            FaultPlan::Cut { client, target, channel } => self.cut(client, target, channel),
            FaultPlan::Partition { client, server, for_ns } => {
                self.disturbed(client);
                self.engine.net.partition(number(client), number(server % servers), now + for_ns);
            }
            FaultPlan::FreezeClient { client, for_ns } => {
                self.disturbed(client);
                let client = &mut self.clients[index(client)];
                client.frozen_until_ns = client.frozen_until_ns.max(now + for_ns);
            }
            FaultPlan::FreezeServer { server, for_ns } => {
                for shard in self.shards_of(server) {
                    self.engine.fault(FaultKind::ServerDisturbed { server: number(shard as u64) });
                    let shard = &mut self.shards[shard];
                    shard.frozen_until_ns = shard.frozen_until_ns.max(now + for_ns);
                }
            }
            FaultPlan::CrashClient { client, for_ns } => {
                let node = &mut self.clients[index(client)];
                if node.up {
                    self.engine.fault(FaultKind::ClientCrashed { node: node.process });
                    node.crash(&mut self.engine);
                    self.engine.clock.at(now + for_ns, Event::ClientBack { node: number(client) });
                }
            }
            FaultPlan::KillServer { server, for_ns } => self.kill_server(server, for_ns, false),
            FaultPlan::LosePower { server, for_ns } => self.kill_server(server, for_ns, true),
            FaultPlan::DeviceErrors { per_mille, for_ns } => {
                self.engine.fault(FaultKind::DevicesFailed);
                self.engine.device_errors_per_mille = per_mille;
                self.engine.clock.at(now + for_ns, Event::DeviceHeals);
            }
            FaultPlan::Leave { client } => {
                let client = &mut self.clients[index(client)];
                if client.up && client.frozen_until_ns <= now {
                    client.leave(&mut self.engine);
                }
            }
            FaultPlan::Shrink { client } => {
                let client = &mut self.clients[index(client)];
                if client.up && client.frozen_until_ns <= now {
                    client.shrink(&mut self.engine);
                    client.wake(&mut self.engine);
                }
            }
            FaultPlan::Reclaim { client } => {
                let client = &mut self.clients[index(client)];
                if client.up && client.frozen_until_ns <= now {
                    client.reclaim(&mut self.engine);
                    client.wake(&mut self.engine);
                }
            }
        }
    }

    fn disturbed(&mut self, client: u64) {
        let node = self.clients[index(client)].process;
        self.engine.fault(FaultKind::Disturbed { node });
    }

    /// The shards of a server.
    fn shards_of(&self, server: u64) -> std::ops::Range<usize> {
        let per = index(self.engine.config.sizes.shards);
        let server = index(server % self.engine.config.sizes.servers);
        server * per..(server + 1) * per
    }

    fn cut(&mut self, client: u64, target: u64, channel: u64) {
        let channel = match channel {
            0 => Channel::Control,
            1 => Channel::Callback,
            _ => Channel::Bulk,
        };
        let target = index(target) % self.shards.len();
        let slot = &self.clients[index(client)].sessions[target];
        let Some(session) = slot.session.as_ref().filter(|session| session.is_ready()) else { return };
        let connection = session.connection(channel);
        self.disturbed(client);
        self.engine.net.lose(connection);
        for up in [true, false] {
            let after = self.engine.jitter(self.engine.config.net.latency_ns * 20);
            self.engine.clock.at(self.engine.now_ns() + after, Event::Broken { connection, up });
        }
    }

    fn kill_server(&mut self, server: u64, for_ns: u64, power: bool) {
        let server = server % self.engine.config.sizes.servers;
        let shards = self.shards_of(server);
        if self.shards[shards.start].machine.is_none() {
            return;
        }
        for shard in shards {
            let server = number(shard as u64);
            let kind = if power {
                FaultKind::ServerLostPower { server }
            } else {
                FaultKind::ServerKilled { server }
            };
            self.engine.fault(kind);
            let shard = &mut self.shards[shard];
            shard.crash(&mut self.engine);
            if power {
                shard.disk.crash();
            } else {
                shard.disk.abandon();
            }
        }
        let server = number(server);
        self.engine.clock.at(self.engine.now_ns() + for_ns, Event::ServerBack { server });
    }

    pub(super) fn server_back(&mut self, server: u32) {
        for shard in self.shards_of(u64::from(server)) {
            self.engine.fault(FaultKind::ServerRestarted { server: number(shard as u64) });
            self.shards[shard].start(&self.engine);
            self.shards[shard].frozen_until_ns = 0;
            if self.engine.observer.is_some() {
                self.shards[shard].observe_return(&mut self.engine);
            }
        }
    }

    pub(super) fn client_back(&mut self, node: u32) {
        let life = self.clients[node as usize].life;
        let threads = number(self.engine.config.sizes.threads);
        self.clients[node as usize] = Client::new(&mut self.engine, node, life, threads);
        let now = self.engine.now_ns();
        for thread in 0..threads {
            if self.standings[self.index(Thread { client: node, thread })] == Standing::Busy {
                self.engine.client_event(now, node, life, ClientEvent::Next { thread });
            }
        }
    }

    /// No more faults and no more luck: what is planned later does not happen, and what was delayed at random no longer is.
    pub fn calm(&mut self) {
        self.engine.note(Who::World, || String::from("calm"));
        self.engine.stormy = false;
        self.engine.net.calm();
        self.engine.device_errors_per_mille = 0;
    }
}
