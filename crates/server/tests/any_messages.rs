//! Well-formed messages in any order, with any contents: whatever clients say, the server goes on serving the others.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use ccpfs_region::Region;
use ccpfs_types::{Extent, LockId, LockMode, RequestId, ResourceId, Sn, Terms};
use ccpfs_wire::{LockRef, Message, Status, WritePiece};
use support::{Client, config, extent, resource, serve};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    fn mode(&mut self) -> LockMode {
        self.pick(&LockMode::ALL)
    }

    fn number(&mut self) -> u64 {
        match self.below(10) {
            0 => u64::MAX - self.below(3),
            1 => (1 << 63) - 2 + self.below(4),
            _ => self.below(60),
        }
    }

    fn extent(&mut self) -> Extent {
        let (a, b) = (self.number(), self.number());
        Extent::new(a.min(b), a.max(b)).unwrap_or(Extent::WHOLE)
    }

    /// A number near those that are given out in the first life of a server.
    fn sn(&mut self) -> Sn {
        match self.below(8) {
            0 => Sn(self.number()),
            _ => Sn((1 << 40) + self.below(60)),
        }
    }

    fn lock(&mut self) -> LockId {
        LockId(self.below(300))
    }

    fn request(&mut self) -> RequestId {
        RequestId(self.below(1000))
    }

    fn control(&mut self, ids: &[ResourceId]) -> Message {
        let (request, resource) = (self.request(), self.pick(ids));
        let (required, desired) = (Region::from(self.extent()), Region::from(self.extent()));
        let resources = vec![resource; usize::try_from(self.below(4)).unwrap()];
        let length = self.number();
        match self.below(400) {
            0 => Message::Destroy { request, resources },
            1..20 => Message::Sync { request, resources },
            20..60 => Message::Truncate { request, resource, length, sn: self.sn() },
            60..65 => Message::Punch { request, resource, extent: self.extent(), sn: self.sn() },
            65..70 => {
                Message::List { request, after: Some(resource).filter(|_| self.below(2) == 0), count_max: 3 }
            }
            70..80 => Message::Map { request, resource, extent: self.extent() },
            80..120 => Message::Read { request, resource, extent: self.extent() },
            120..150 => Message::Glimpse { request, resource },
            150 => Message::Status { request },
            151 => Message::Ping { request },
            _ => {
                let (mode, try_only) = (self.mode(), self.below(3) == 0);
                let terms = Terms { try_only, ..Terms::WAIT };
                Message::Enqueue { request, resource, mode, required, desired, terms }
            }
        }
    }

    fn callback(&mut self, ids: &[ResourceId]) -> Message {
        let (resource, lock) = (self.pick(ids), self.lock());
        match self.below(6) {
            0 => Message::RevokeAck { resource, lock, mode: self.mode() },
            1 => Message::Convert { resource, lock, mode: self.mode() },
            2 => {
                let end = self.number();
                Message::GlimpseTell { glimpse: self.below(50), resource, end, modified_ns: -1 }
            }
            _ => {
                let first = self.lock().0;
                let locks = (first..first + 9).map(|lock| LockRef { resource, lock: LockId(lock) }).collect();
                Message::Release { locks }
            }
        }
    }

    fn bulk(&mut self, ids: &[ResourceId]) -> (Message, Vec<u8>) {
        let mut pieces = Vec::new();
        let mut bytes = 0;
        for _ in 0..self.below(6) {
            let start = self.number().min(u64::MAX - 40);
            let length = 1 + self.below(30);
            bytes += length;
            let piece =
                WritePiece { resource: self.pick(ids), extent: extent(start, start + length), sn: self.sn() };
            pieces.push(piece);
        }
        let releases = vec![LockRef { resource: self.pick(ids), lock: self.lock() }];
        let message =
            Message::Write { request: self.request(), urgent: self.below(2) == 0, pieces, releases };
        (message, vec![7; usize::try_from(bytes).unwrap()])
    }
}

/// Sends messages at random over a client's three connections; answers are read at the end.
fn babble(client: &Client, random: &mut Random, ids: &[ResourceId]) {
    for _ in 0..120 {
        let sent = match random.below(4) {
            0 => client.callback.try_send(&random.callback(ids), &[]),
            1 => {
                let (message, bulk) = random.bulk(ids);
                client.bulk.try_send(&message, &bulk)
            }
            _ => client.control.try_send(&random.control(ids), &[]),
        };
        if sent.is_err() {
            return;
        }
    }
    // Everything has been taken in when these come back, unless others had this client evicted.
    for line in [&client.control, &client.callback, &client.bulk] {
        let last = Message::Ping { request: RequestId(u64::MAX) };
        if line.try_send(&last, &[]).is_err() {
            return;
        }
        loop {
            match line.try_receive() {
                Ok((Message::Pong { request: RequestId(u64::MAX) }, _)) => break,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}

#[test]
fn whatever_clients_say_the_server_goes_on_serving_the_others() {
    for (round, policy) in
        ["seqdlm", "basic", "lustre", "seqdlm-page", "seqdlm-no-upgrading"].iter().enumerate()
    {
        let mut config = config();
        config.policy = policy.parse().unwrap();
        config.extent_entries_max = 8;
        config.revoke_timeout_ms = 1000;
        let server = serve(config);
        let address = &server.addresses()[0];
        let mine = resource();
        let good = Client::connect(address);
        let lock = good.lock(mine, LockMode::Pw, Extent::WHOLE);
        for wave in 0..8 {
            let ids: Vec<ResourceId> = (0..3).map(|_| resource()).collect();
            std::thread::scope(|scope| {
                for speaker in 0..3 {
                    let seed = (round as u64) << 16 | wave << 8 | speaker;
                    let ids = &ids;
                    scope.spawn(move || babble(&Client::connect(address), &mut Random(seed), ids));
                }
            });
        }
        assert_eq!(good.flush(mine, 0, b"still here", lock.sn), Status::Ok);
        assert_eq!(good.read(mine, extent(0, 100)).1, b"still here");
        assert!(good.status("grants") > 10 && good.status("writes") > 100, "they were understood");
        server.shutdown();
        server.wait().unwrap();
    }
}
