//! Servers and clients in one process, over loopback, for the tests of holds and of maps.

#![allow(dead_code, reason = "each test file uses its part")]

use ccpfs_client::{Client, ClientConfig, File, OpenOptions};
use ccpfs_server::{RunningServer, ServerConfig};
use ccpfs_transport::Address;
use ccpfs_types::{Extent, Layout};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

static CLUSTERS: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Cluster {
    directory: tempfile::TempDir,
    addresses: Vec<Address>,
    servers: Vec<RunningServer>,
}

impl Cluster {
    pub(crate) fn start(servers: u32) -> Cluster {
        Cluster::start_with(servers, |_| {})
    }

    pub(crate) fn start_with(servers: u32, change: impl Fn(&mut ServerConfig)) -> Cluster {
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let name = std::process::id();
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("ns")).unwrap();
        let addresses: Vec<Address> =
            (0..servers).map(|i| format!("loopback:small-{name}-{number}-{i}").parse().unwrap()).collect();
        let start = |(index, address): (usize, &Address)| {
            let data = directory.path().join(format!("data-{index}"));
            let mut config = ServerConfig::with_defaults(address.clone(), &data);
            config.server_count = servers;
            config.index = u32::try_from(index).unwrap();
            change(&mut config);
            ccpfs_server::start(config).unwrap()
        };
        let servers = addresses.iter().enumerate().map(start).collect();
        Cluster { directory, addresses, servers }
    }

    pub(crate) fn stop_servers(&mut self) {
        for server in self.servers.drain(..) {
            server.shutdown();
            server.wait().unwrap();
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("ns").join(name)
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(|_| {})
    }

    pub(crate) fn client_with(&self, change: impl FnOnce(&mut ClientConfig)) -> Client {
        let mut config =
            ClientConfig::with_defaults(&self.directory.path().join("ns"), self.addresses.clone());
        config.cache_bytes = 64 << 20;
        config.dirty_bytes_max = 32 << 20;
        config.dirty_bytes_min = 8 << 20;
        config.connect_timeout_ms = 1000;
        change(&mut config);
        Client::start(config).unwrap()
    }

    pub(crate) fn open(&self, client: &Client, name: &str, stripes: u32) -> File {
        let options = OpenOptions {
            read: true,
            write: true,
            create: true,
            layout: Layout::new(stripes, 64 << 10),
            ..OpenOptions::default()
        };
        client.open(&self.path(name), &options).unwrap()
    }
}

pub(crate) fn extent(start: u64, end: u64) -> Extent {
    Extent::new(start, end).unwrap()
}

pub(crate) fn read(file: &File, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; length];
    let got = file.read_at(&mut buffer, offset).unwrap();
    buffer.truncate(got);
    buffer
}
