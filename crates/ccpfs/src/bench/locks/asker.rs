//! A client that only asks for locks: connections to every server, and the protocols of paper 001 over them.

use crate::bench::locks_rate::{introduce, receive, receive_ready, send, wait_ready};
use crate::failure::Failure;
use crate::sys;
use ccpfs_sim::figures::taking::{Protocol, Request, Round, Taking};
use ccpfs_transport::{Address, Connection};
use ccpfs_types::{ClientId, FileId, LockId, LockMode, LockState, Part, RequestId, ResourceId, Terms};
use ccpfs_wire::{Channel, LockRef, Message, Status};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Requests that are under way at each server.
const UNDER_WAY_MAX: usize = 256;
/// Locks that one message releases.
const RELEASES_MAX: usize = 1024;

/// Most locks that are asked for ahead, as in the product's client.
const AHEAD_MAX: usize = 16;

/// EAGAIN of Linux: somebody else has it.
const EAGAIN: i32 = 11;

/// One client.
pub(super) struct Asker {
    file: FileId,
    control: Vec<Arc<dyn Connection>>,
    callback: Vec<Arc<dyn Connection>>,
    requests: Vec<Request>,
    held: Vec<Option<LockId>>,
    /// By number of the request, locks that were asked for ahead of their turn. They are nobody's: who wants them gets them.
    ahead: BTreeMap<usize, Ahead>,
    /// By server, locks that were wanted back before they were known here.
    wanted: BTreeSet<(usize, LockId)>,
    /// Number of the next question, and of the request that had the first number of this turn.
    next: u64,
    /// Messages that asked for locks.
    pub(super) asked: u64,
}

/// A lock that was asked for ahead of its turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ahead {
    Asked,
    Kept(LockId),
}

/// What came of one request.
enum Answer {
    Granted(LockId),
    InTheWay,
}

impl Asker {
    /// Connects to all servers. Clients with the same `file` compete.
    pub(super) fn connect(addresses: &[Address], number: u32, file: u64) -> Result<Asker, Failure> {
        let drawn = sys::monotonic_ns().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let client = ClientId(drawn ^ u64::from(number) << 40);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&file.to_le_bytes());
        id[8] = 1;
        let links = |channel: Channel| {
            addresses.iter().map(|address| introduce(address, client, channel)).collect::<Result<Vec<_>, _>>()
        };
        Ok(Asker {
            file: FileId(id),
            control: links(Channel::Control)?,
            callback: links(Channel::Callback)?,
            requests: Vec::new(),
            held: Vec::new(),
            ahead: BTreeMap::new(),
            wanted: BTreeSet::new(),
            next: 0,
            asked: 0,
        })
    }

    fn resource(&self, number: usize) -> ResourceId {
        ResourceId { file: self.file, stripe: self.requests[number].stripe }
    }

    fn server(&self, number: usize) -> usize {
        usize::try_from(self.requests[number].stripe).expect("32 bits fit")
    }

    /// Takes all locks.
    pub(super) fn acquire(&mut self, requests: Vec<Request>, protocol: Protocol) -> Result<(), Failure> {
        self.held = vec![None; requests.len()];
        self.wanted.clear();
        self.requests = requests;
        let mut taking = Taking::new(protocol, self.requests.len());
        while let Some(round) = taking.round() {
            self.drain()?;
            let missing = match round {
                Round::Try { from } => {
                    let missing = self.try_from(from)?;
                    self.release_from(missing)?;
                    missing
                }
                Round::Wait { number } => {
                    let known = self.ahead.contains_key(&number);
                    if !known {
                        self.ask(&[number], false)?;
                        self.ahead.insert(number, Ahead::Asked);
                    }
                    if protocol == Protocol::AltTry {
                        self.ask_ahead(number + 1)?;
                    }
                    self.wait_for(number)?;
                    number + 1
                }
            };
            taking.settle(missing);
            if sys::interrupted() {
                return Err(Failure::interrupted());
            }
        }
        Ok(())
    }

    /// Asks for all from `from` on without waiting for others; answers the first that somebody else has.
    fn try_from(&mut self, from: usize) -> Result<usize, Failure> {
        let asked = |(number, ahead): (&usize, &Ahead)| (*ahead == Ahead::Asked).then_some(*number);
        let mut missing = self.ahead.iter().filter_map(asked).min().unwrap_or(self.requests.len());
        let mut queues: Vec<VecDeque<usize>> = vec![VecDeque::new(); self.control.len()];
        for number in (from..missing).filter(|number| !self.ahead.contains_key(number)) {
            queues[self.server(number)].push_back(number);
        }
        while queues.iter().any(|queue| !queue.is_empty()) {
            let mut under_way = vec![0; queues.len()];
            for (server, queue) in queues.iter_mut().enumerate() {
                let batch: Vec<usize> = queue.drain(..queue.len().min(UNDER_WAY_MAX)).collect();
                under_way[server] = batch.len();
                self.ask(&batch, true)?;
            }
            for (server, count) in under_way.into_iter().enumerate() {
                for (number, answer) in self.answers(server, count)? {
                    match answer {
                        Answer::Granted(lock) => self.held[number] = Some(lock),
                        Answer::InTheWay => missing = missing.min(number),
                    }
                }
            }
            queues.iter_mut().for_each(|queue| queue.retain(|number| *number < missing));
        }
        // Those before it are held from here on; those behind it stay nobody's.
        for number in from..missing {
            match self.ahead.remove(&number) {
                Some(Ahead::Kept(lock)) => self.held[number] = Some(lock),
                Some(Ahead::Asked) => return Err(Failure::new("what is under way was taken for granted")),
                None => {}
            }
        }
        Ok(missing)
    }

    /// Asks for those from `from` on that are the only ones on their servers, so that they come when their turn does.
    fn ask_ahead(&mut self, from: usize) -> Result<(), Failure> {
        let alone = |number: &usize| self.requests[*number].part == Part::Only;
        let numbers: Vec<usize> = (from..self.requests.len()).filter(alone).take(AHEAD_MAX).collect();
        for number in numbers {
            if !self.ahead.contains_key(&number) {
                self.ask(&[number], false)?;
                self.ahead.insert(number, Ahead::Asked);
            }
        }
        Ok(())
    }

    /// Waits until a lock that was asked for is here, and holds it; gives others meanwhile what is nobody's.
    fn wait_for(&mut self, number: usize) -> Result<(), Failure> {
        loop {
            match self.ahead.get(&number).copied() {
                Some(Ahead::Kept(lock)) => {
                    self.ahead.remove(&number);
                    self.held[number] = Some(lock);
                    return Ok(());
                }
                Some(Ahead::Asked) => wait_ready(self.control.iter().chain(&self.callback))?,
                // Wanted back before it could be used.
                None => {
                    self.ask(&[number], false)?;
                    self.ahead.insert(number, Ahead::Asked);
                }
            }
            for server in 0..self.control.len() {
                for message in receive_ready(&self.control[server].clone())? {
                    match self.answer(server, message, Some(number))? {
                        None => {}
                        Some((other, _)) => {
                            return Err(Failure::new(format!(
                                "an answer to request {other}, which nobody made"
                            )));
                        }
                    }
                }
            }
            // Whoever holds in order keeps it; so this comes after the grants.
            if !matches!(self.ahead.get(&number), Some(Ahead::Kept(_))) {
                self.drain()?;
            }
        }
    }

    /// What an answer says to a request that is not ahead of its turn, by its number. A lock that is is kept, unless somebody wants it
    /// already; that of request `now` is kept in any case.
    fn answer(
        &mut self,
        server: usize,
        message: Message,
        now: Option<usize>,
    ) -> Result<Option<(usize, Answer)>, Failure> {
        let (request, answer) = if let Message::Grant { request, granted, .. } = message {
            let number = usize::try_from(request.0).expect("it was a number of ours");
            if self.ahead.get(&number) == Some(&Ahead::Asked) {
                let wanted = self.wanted.remove(&(server, granted.lock));
                if now != Some(number) && (wanted || granted.state == LockState::Canceling) {
                    self.ahead.remove(&number);
                    self.give_back(server, granted.lock)?;
                } else {
                    self.ahead.insert(number, Ahead::Kept(granted.lock));
                }
                return Ok(None);
            }
            (request, Answer::Granted(granted.lock))
        } else if let Message::Denied { request, status: Status::Errno(EAGAIN), .. } = message {
            (request, Answer::InTheWay)
        } else {
            return Err(Failure::new(format!("no answer to a request for a lock: {message:?}")));
        };
        Ok(Some((usize::try_from(request.0).expect("it was a number of ours"), answer)))
    }

    /// Gives back a lock that was got ahead, and goes on.
    fn give_back(&self, server: usize, lock: LockId) -> Result<(), Failure> {
        let stripe = u32::try_from(server).expect("servers are few");
        let resource = ResourceId { file: self.file, stripe };
        send(&self.callback[server], &[Message::Release { locks: vec![LockRef { resource, lock }] }])
    }

    /// Sends requests to one server.
    fn ask(&mut self, numbers: &[usize], try_only: bool) -> Result<(), Failure> {
        let Some(first) = numbers.first() else { return Ok(()) };
        let message = |number: &usize| {
            let request = &self.requests[*number];
            Message::Enqueue {
                request: RequestId(u64::try_from(*number).expect("below 2^64")),
                resource: self.resource(*number),
                mode: LockMode::Pw,
                required: request.region.clone(),
                desired: request.region.clone(),
                terms: Terms { try_only, part: request.part, ..Terms::WAIT },
            }
        };
        let messages: Vec<Message> = numbers.iter().map(message).collect();
        self.asked += u64::try_from(messages.len()).expect("below 2^64");
        send(&self.control[self.server(*first)], &messages)
    }

    /// Waits for so many answers of one server.
    fn answers(&mut self, server: usize, count: usize) -> Result<Vec<(usize, Answer)>, Failure> {
        let mut answers = Vec::with_capacity(count);
        while answers.len() < count {
            for message in receive(&self.control[server].clone())? {
                answers.extend(self.answer(server, message, None)?);
            }
        }
        Ok(answers)
    }

    /// Takes in what servers want back. What is held is given back when all is, and not before; what is nobody's at once.
    fn drain(&mut self) -> Result<(), Failure> {
        for server in 0..self.callback.len() {
            for message in receive_ready(&self.callback[server].clone())? {
                self.want_back(server, &message)?;
            }
        }
        Ok(())
    }

    fn want_back(&mut self, server: usize, message: &Message) -> Result<(), Failure> {
        let Message::Revoke { lock, .. } = message else { return Ok(()) };
        let kept = |(number, ahead): (&usize, &Ahead)| {
            (*ahead == Ahead::Kept(*lock) && self.server(*number) == server).then_some(*number)
        };
        match self.ahead.iter().find_map(kept) {
            Some(number) => {
                self.ahead.remove(&number);
                self.give_back(server, *lock)?;
            }
            // Held in order, or its grant has not been read yet.
            None => {
                self.wanted.insert((server, *lock));
            }
        }
        Ok(())
    }

    /// Releases what is held from number `from` on, and waits until servers have taken it back.
    pub(super) fn release_from(&mut self, from: usize) -> Result<(), Failure> {
        let mut locks: Vec<Vec<LockRef>> = vec![Vec::new(); self.callback.len()];
        for number in from..self.requests.len() {
            if let Some(lock) = self.held[number].take() {
                locks[self.server(number)].push(LockRef { resource: self.resource(number), lock });
            }
        }
        self.next += 1;
        let question = RequestId(self.next);
        let asked: Vec<usize> = (0..locks.len()).filter(|server| !locks[*server].is_empty()).collect();
        for server in &asked {
            let mut chunks = locks[*server].chunks(RELEASES_MAX).peekable();
            while let Some(chunk) = chunks.next() {
                let mut messages = vec![Message::Release { locks: chunk.to_vec() }];
                if chunks.peek().is_none() {
                    messages.push(Message::Ping { request: question });
                }
                send(&self.callback[*server], &messages)?;
            }
        }
        for server in asked {
            let mut answered = false;
            while !answered {
                for message in receive(&self.callback[server].clone())? {
                    answered |= message == Message::Pong { request: question };
                    self.want_back(server, &message)?;
                }
            }
        }
        Ok(())
    }

    /// Releases everything.
    pub(super) fn release(&mut self) -> Result<(), Failure> {
        self.release_from(0)
    }
}
