//! The cluster of a walk: clients, servers, what is under way between them, and the commands of a script.

use crate::call::Call;
use crate::client::ClientNode;
use crate::log::Log;
use crate::net::{Link, Net};
use crate::operation::Operation;
use crate::parse::{self, Arguments};
use crate::server::ServerNode;
use crate::text::{self, Writer};
use crate::{places, show};
use ccpfs_cached_stripe as cached_stripe;
use ccpfs_shard as shard;
use ccpfs_types::{Layout, Policy};
use std::collections::BTreeMap;

/// Messages that one `settle` delivers: more means that it does not end.
const MESSAGES_MAX: usize = 10_000;

/// What clients and servers share: connections, output, time, and how files are cut.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) net: Net,
    pub(crate) log: Log,
    pub(crate) writer: Writer,
    pub(crate) layout: Layout,
    pub(crate) shards: usize,
    /// Time since the walk began.
    pub(crate) now_ns: u64,
    /// Time of the clock that files are stamped with.
    pub(crate) wall_ns: i64,
}

impl Context {
    /// The shard that has a stripe.
    pub(crate) const fn shard_of(&self, stripe: usize) -> usize {
        stripe % self.shards
    }

    /// The stripes that a shard has.
    pub(crate) fn stripes_of(&self, shard: usize) -> Vec<usize> {
        (0..self.layout.stripe_count() as usize).filter(|stripe| self.shard_of(*stripe) == shard).collect()
    }
}

/// A cluster in the middle of a walk.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) cx: Context,
    clients: Vec<ClientNode>,
    servers: Vec<ServerNode>,
    policy: Policy,
    locks_max: usize,
    put_off_max: usize,
    /// How many operations of each kind have begun.
    begun: BTreeMap<char, u32>,
}

impl Cluster {
    /// A cluster as `cluster policy=seqdlm stripes=1 clients=2` describes it.
    pub(crate) fn new(words: &[&str]) -> Result<Cluster, String> {
        let mut arguments = Arguments::new(words)?;
        let policy_name = arguments.text("policy", "seqdlm");
        let policy: Policy = policy_name.parse().map_err(|error| format!("{error}"))?;
        let stripes = u32::try_from(arguments.number("stripes", 1)?).map_err(|_| "too many stripes")?;
        let stripe_bytes = arguments.number("stripe-size", 1 << 20)?;
        let layout = Layout::new(stripes, stripe_bytes).ok_or("stripe sizes are multiples of 4K")?;
        let shards = arguments.index("servers", 1)?;
        let clients = arguments.number("clients", 2)?;
        let settings = shard::Settings {
            policy,
            epoch: text::FIRST_EPOCH,
            revoke_timeout_ns: arguments.number("revoke-timeout-s", 8)? * 1_000_000_000,
            entries_max: arguments.index("entries-max", 1 << 18)?,
            operations_max: shard::OPERATIONS_MAX,
        };
        let locks_max = arguments.index("locks-max", 8192)?;
        let put_off_max = arguments.index("put-off-max", cached_stripe::PUT_OFF_MAX)?;
        let places = arguments.text("files", "no") == "yes";
        arguments.all_known()?;
        if shards == 0 || clients == 0 || locks_max == 0 {
            return Err(String::from("a cluster has servers and clients, and clients may hold locks"));
        }
        let cx = Context {
            net: Net::default(),
            log: Log::new(places),
            writer: Writer { stripes },
            layout,
            shards,
            now_ns: 0,
            wall_ns: 1,
        };
        Ok(Cluster {
            cx,
            clients: (1..=clients).map(|number| ClientNode::new(number, stripes, shards)).collect(),
            servers: (0..shards).map(|index| ServerNode::new(index, settings)).collect(),
            policy,
            locks_max,
            put_off_max,
            begun: BTreeMap::new(),
        })
    }

    /// Carries out one command.
    pub(crate) fn command(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            ["settle"] | ["deliver", "all"] => self.settle(),
            ["deliver", link, rest @ ..] => self.deliver(link, rest),
            ["repeat", link, channel] => {
                let link = self.link(link, channel)?;
                if self.cx.net.repeat(link) {
                    Ok(())
                } else {
                    Err(String::from("nothing was delivered there"))
                }
            }
            ["swap", link, channel] => {
                let link = self.link(link, channel)?;
                if self.cx.net.swap(link) {
                    Ok(())
                } else {
                    Err(String::from("fewer than two are under way there"))
                }
            }
            ["wait", time] => self.wait(parse::seconds(time)?),
            ["show", rest @ ..] => self.show(rest),
            [who, rest @ ..] => match parse::node(who)? {
                parse::Node::Client(number) => {
                    let at = self.client(number)?;
                    self.client_command(at, rest)
                }
                parse::Node::Server(index) => {
                    self.server(index)?;
                    self.server_command(index, rest)
                }
            },
            [] => Err(String::from("no command")),
        }
    }

    fn client(&self, number: u64) -> Result<usize, String> {
        let at = self.clients.iter().position(|client| client.number == number);
        at.ok_or(format!("there is no c{number}"))
    }

    fn server(&self, index: usize) -> Result<usize, String> {
        if index < self.servers.len() { Ok(index) } else { Err(format!("there is no s{index}")) }
    }

    fn client_command(&mut self, at: usize, words: &[&str]) -> Result<(), String> {
        if self.clients[at].crashed {
            return Err(format!("{} has crashed", self.clients[at].name()));
        }
        match words {
            ["resume", name] => self.resume(at, name),
            ["flush"] => {
                for stripe in 0..self.clients[at].stripes.len() {
                    while self.clients[at].take(stripe, false, &mut self.cx) {}
                }
                Ok(())
            }
            ["flusher", "stops"] => {
                self.clients[at].paused = true;
                Ok(())
            }
            ["flusher", "goes", "on"] => {
                self.clients[at].go_on_flushing(&mut self.cx);
                Ok(())
            }
            ["shrink", count] => {
                let count = parse::index(count)?;
                self.each_stripe(at, &cached_stripe::Input::Shrink { count });
                Ok(())
            }
            ["tick"] => {
                self.each_stripe(at, &cached_stripe::Input::Tick);
                Ok(())
            }
            ["crashes"] => {
                self.clients[at].crashed = true;
                Ok(())
            }
            ["loses", server] => {
                let parse::Node::Server(index) = parse::node(server)? else {
                    return Err(String::from("a client loses a server"));
                };
                let index = self.server(index)?;
                self.clients[at].lose(index, &mut self.cx);
                Ok(())
            }
            [call @ .., "pause"] => self.begin(at, parse::call(call)?, true),
            call => self.begin(at, parse::call(call)?, false),
        }
    }

    fn each_stripe(&mut self, at: usize, input: &cached_stripe::Input) {
        for stripe in 0..self.clients[at].stripes.len() {
            self.clients[at].step(stripe, input.clone(), &mut self.cx);
        }
    }

    fn begin(&mut self, at: usize, call: Call, paused: bool) -> Result<(), String> {
        self.connect(at);
        self.cx.wall_ns += 1;
        let count = self.begun.entry(call.letter()).or_insert(0);
        *count += 1;
        let (name, number) = (format!("{}{count}", call.letter()), *count);
        let operation = Operation::new(name.clone(), number, call, paused, &self.cx);
        let node = &mut self.clients[at];
        let kept = |(extent, writes): (ccpfs_types::Extent, bool)| {
            let against = |other: &Operation| {
                other.keeps().is_some_and(|(bytes, other)| bytes.overlaps(extent) && (writes || other))
            };
            node.operations.iter().find(|other| against(other)).map(|other| other.name.clone())
        };
        if let Some(other) = operation.keeps().and_then(kept) {
            return Err(format!("{other} keeps other threads of its client from these bytes"));
        }
        self.cx.log.say(call.place(), format!("{} {name}: {}", node.name(), call.text()));
        self.cx.log.deeper();
        node.operations.push(operation);
        node.advance(&mut self.cx);
        self.cx.log.back();
        Ok(())
    }

    fn resume(&mut self, at: usize, name: &str) -> Result<(), String> {
        let node = &mut self.clients[at];
        let paused = node.operations.iter_mut().find(|operation| operation.name == name);
        paused.ok_or(format!("there is no {name} under way"))?.paused = false;
        self.cx.log.say(places::NOWHERE, format!("{} {name} goes on", node.name()));
        self.cx.log.deeper();
        node.advance(&mut self.cx);
        self.cx.log.back();
        Ok(())
    }

    /// Opens the sessions that a client lacks.
    fn connect(&mut self, at: usize) {
        let node = &mut self.clients[at];
        for server in &mut self.servers {
            if node.sessions[server.index].is_some() {
                continue;
            }
            let id = node.id(server.index);
            if id.0 >= text::LIFE {
                let line = format!("{} comes back to s{} as {}", node.name(), server.index, text::client(id));
                self.cx.log.say(places::SESSION, line);
            }
            server.join(id, &mut self.cx);
            node.sessions[server.index] = Some(server.settings.epoch);
        }
        for stripe in 0..node.stripes.len() {
            let epoch = node.sessions[self.cx.shard_of(stripe)].unwrap_or(text::FIRST_EPOCH);
            let locks = ccpfs_dlm::client::Settings {
                policy: self.policy,
                locks_max: self.locks_max,
                age_ticks_max: 1,
            };
            let settings = cached_stripe::Settings { locks, put_off_max: self.put_off_max, epoch };
            node.begin(stripe, settings, &mut self.cx);
        }
    }

    fn server_command(&mut self, index: usize, words: &[&str]) -> Result<(), String> {
        let server = &mut self.servers[index];
        match words {
            ["evicts", who] => {
                let parse::Node::Client(number) = parse::node(who)? else {
                    return Err(String::from("a server evicts a client"));
                };
                let lives = self.clients[self.client(number)?].all_ids(index);
                let server = &mut self.servers[index];
                let client = lives.into_iter().find(|life| server.hears(*life));
                let client = client.ok_or(format!("s{index} has no connections of {who}"))?;
                let line = format!("s{index} finds the connections of {} lost", text::client(client));
                self.cx.log.say(places::CLIENTS, line);
                server.part(client, &mut self.cx);
                server.end_turn(&mut self.cx);
                Ok(())
            }
            ["restarts"] => {
                server.restart();
                self.cx.net.lose(|link| link.shard == index);
                let line = format!("s{index} begins life {}", self.servers[index].settings.epoch);
                self.cx.log.say(places::NOWHERE, line);
                Ok(())
            }
            ["device", "holds"] => {
                server.held = true;
                Ok(())
            }
            ["device", "goes", "on"] => {
                server.held = false;
                while server.next_task(None, &mut self.cx) {}
                server.end_turn(&mut self.cx);
                Ok(())
            }
            ["device", rest @ ..] => self.device_command(index, rest),
            _ => Err(format!("a server does not know '{}'", words.join(" "))),
        }
    }

    fn device_command(&mut self, index: usize, words: &[&str]) -> Result<(), String> {
        let server = &mut self.servers[index];
        let (which, failure) = match words {
            ["does", which] => (which, None),
            ["fails", which, error] => {
                (which, Some(text::errno_named(error).ok_or(format!("{error} is no error"))?))
            }
            _ => return Err(format!("a device does not know '{}'", words.join(" "))),
        };
        let number: u64 = which.parse().map_err(|_| format!("'{which}' is no task"))?;
        let place = server.task_place(number).ok_or(format!("there is no task {number}"))?;
        server.do_task(place, failure, &mut self.cx);
        server.end_turn(&mut self.cx);
        Ok(())
    }

    /// Delivers everything until nothing is under way, in the order in which it was sent.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..MESSAGES_MAX {
            match self.cx.net.oldest() {
                Some(link) => self.deliver_one(link),
                None => return Ok(()),
            }
        }
        Err(String::from("this conversation does not end"))
    }

    /// The connection of a client's present life.
    fn link(&self, way: &str, channel: &str) -> Result<Link, String> {
        let (number, shard, to_server) = parse::link(way)?;
        let client = self.clients[self.client(number)?].id(self.server(shard)?);
        Ok(Link { client, shard, channel: parse::channel(channel)?, to_server })
    }

    /// `deliver c1->s0 callback`: the first message of a connection; with `all` every message that is there.
    fn deliver(&mut self, link: &str, rest: &[&str]) -> Result<(), String> {
        let (number, index, to_server) = parse::link(link)?;
        let (channel, all) = match rest {
            [channel] => (parse::channel(channel)?, false),
            [channel, "all"] => (parse::channel(channel)?, true),
            _ => return Err(String::from("which connection: control, callback or bulk")),
        };
        let wanted = |link: &Link| {
            link.client.0 % text::LIFE == number
                && link.shard == index
                && link.channel == channel
                && link.to_server == to_server
        };
        let mut count = 0;
        while let Some(link) = self.cx.net.waiting(wanted).first().copied() {
            self.deliver_one(link);
            count += 1;
            if !all {
                break;
            }
        }
        if count == 0 { Err(String::from("nothing is under way there")) } else { Ok(()) }
    }

    fn deliver_one(&mut self, link: Link) {
        let Some(packet) = self.cx.net.take(link) else { return };
        if link.to_server {
            let server = &mut self.servers[link.shard];
            server.receive(link, packet, &mut self.cx);
            server.end_turn(&mut self.cx);
            return;
        }
        let number = link.client.0 % text::LIFE;
        if let Some(client) = self.clients.iter_mut().find(|client| client.number == number) {
            client.receive(link, packet, &mut self.cx);
        }
    }

    /// Lets time pass; shards look at their clocks whenever they want to.
    fn wait(&mut self, seconds: u64) -> Result<(), String> {
        let end = self.cx.now_ns + seconds * 1_000_000_000;
        loop {
            let looks = self.servers.iter().filter_map(|server| server.shard.next_look_ns());
            let Some(next) = looks.min().filter(|next| *next <= end) else { break };
            self.cx.now_ns = self.cx.now_ns.max(next);
            let now = self.cx.now_ns;
            for server in &mut self.servers {
                if server.shard.next_look_ns().is_some_and(|look| look <= now) {
                    server.clock(&mut self.cx);
                }
            }
        }
        self.cx.now_ns = end;
        Ok(())
    }

    fn show(&mut self, words: &[&str]) -> Result<(), String> {
        if words == ["net"] {
            show::net(&mut self.cx);
            return Ok(());
        }
        let [what, who] = words else { return Err(String::from("show what of whom?")) };
        match (*what, parse::node(who)?) {
            ("locks", parse::Node::Server(at)) => show::locks(&self.servers[self.server(at)?], &mut self.cx),
            ("extents", parse::Node::Server(at)) => {
                show::extents(&self.servers[self.server(at)?], &mut self.cx)
            }
            ("device", parse::Node::Server(at)) => {
                show::device(&self.servers[self.server(at)?], &mut self.cx)
            }
            ("cache", parse::Node::Client(number)) => {
                show::cache(&self.clients[self.client(number)?], &mut self.cx);
            }
            (what, _) => return Err(format!("there is no '{what}' to be shown of {who}")),
        }
        Ok(())
    }
}
