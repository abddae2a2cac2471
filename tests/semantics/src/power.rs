//! Servers in the process of the test, on devices that can lose power or be full.

use ccpfs_config::ServerConfig;
use ccpfs_device::{CrashDevice, Device, DeviceError, FailPoint, FaultyDevice, Map, ObjectName, Operation};
use ccpfs_server::{RunningServer, ShardStorage, start_on};
use ccpfs_types::Extent;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Servers whose devices are in memory and lose on a power cut what was not synced.
pub struct Power {
    nodes: Vec<Node>,
    swallows_syncs: Arc<AtomicBool>,
}

/// A server machine.
struct Node {
    config: ServerConfig,
    device: Arc<FaultyDevice<CrashDevice>>,
    socket: Arc<RwLock<bool>>,
    running: Option<RunningServer>,
    lives: u64,
    swallows_syncs: Arc<AtomicBool>,
}

/// A device during one life of its machine: when the power is gone nothing reaches it.
struct Life {
    device: Arc<FaultyDevice<CrashDevice>>,
    /// Whether there is power.
    socket: Arc<RwLock<bool>>,
    /// Whether a sync does nothing and says that it did.
    swallows_syncs: Arc<AtomicBool>,
}

impl Power {
    /// Starts the servers of the configuration file.
    pub(crate) fn start(config: &Path, servers: u32) -> Power {
        let mut power = Power { nodes: Vec::new(), swallows_syncs: Arc::default() };
        for index in 0..servers {
            let config = ServerConfig::load(Some(config), index).expect("the configuration is ours");
            let device = Arc::new(FaultyDevice::new(CrashDevice::new()));
            let (socket, swallows_syncs) = (Arc::default(), power.swallows_syncs.clone());
            let mut node = Node { config, device, socket, running: None, lives: 0, swallows_syncs };
            node.start();
            power.nodes.push(node);
        }
        power
    }

    /// All server machines lose power and start again.
    pub fn cut(&mut self) {
        for node in &mut self.nodes {
            node.cut();
        }
        for node in &mut self.nodes {
            node.start();
        }
    }

    /// From now on so many more bytes fit onto each device.
    pub fn limit(&self, bytes: u64) {
        for node in &self.nodes {
            node.device.faults().set(FailPoint::NoSpaceAfter { bytes });
        }
    }

    /// From now on the devices say of each sync that it is done, and do nothing: a broken world, in which tests of what a power
    /// cut keeps must fail.
    pub fn swallow_syncs(&self) {
        self.swallows_syncs.store(true, Ordering::SeqCst);
    }

    /// There is space again.
    pub fn unlimit(&self) {
        for node in &self.nodes {
            node.device.faults().clear();
        }
    }
}

impl Node {
    fn start(&mut self) {
        self.lives += 1;
        self.socket = Arc::new(RwLock::new(true));
        let (device, socket) = (self.device.clone(), self.socket.clone());
        let device = Arc::new(Life { device, socket, swallows_syncs: self.swallows_syncs.clone() });
        let storage = vec![ShardStorage { device, epoch: self.lives }];
        self.running = Some(start_on(self.config.clone(), storage).expect("a server starts"));
    }

    fn cut(&mut self) {
        {
            let mut powered = self.socket.write().unwrap_or_else(PoisonError::into_inner);
            *powered = false;
            self.device.inner().crash();
        }
        if let Some(server) = self.running.take() {
            server.shutdown();
            // It cannot end well: nothing that it wants to keep reaches its device.
            let _ = server.wait();
        }
    }
}

impl Life {
    fn synced(
        &self,
        work: impl FnOnce(&FaultyDevice<CrashDevice>) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let swallowed = self.swallows_syncs.load(Ordering::SeqCst);
        self.powered(Operation::Sync, |device| if swallowed { Ok(()) } else { work(device) })
    }

    fn powered<T>(
        &self,
        operation: Operation,
        work: impl FnOnce(&FaultyDevice<CrashDevice>) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let powered = self.socket.read().unwrap_or_else(PoisonError::into_inner);
        if *powered {
            work(&self.device)
        } else {
            Err(DeviceError { operation, object: None, errno: libc::EIO })
        }
    }
}

impl Device for Life {
    fn write(&self, object: ObjectName, pieces: &[(u64, &[u8])]) -> Result<(), DeviceError> {
        self.powered(Operation::Write, |device| device.write(object, pieces))
    }

    fn read(&self, object: ObjectName, offset: u64, buffer: &mut [u8]) -> Result<usize, DeviceError> {
        self.powered(Operation::Read, |device| device.read(object, offset, buffer))
    }

    fn punch(&self, object: ObjectName, extent: Extent) -> Result<(), DeviceError> {
        self.powered(Operation::Punch, |device| device.punch(object, extent))
    }

    fn map(&self, object: ObjectName, extent: Extent, extents_max: usize) -> Result<Map, DeviceError> {
        self.powered(Operation::Map, |device| device.map(object, extent, extents_max))
    }

    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), DeviceError> {
        self.powered(Operation::Truncate, |device| device.truncate(object, length))
    }

    fn length(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        self.powered(Operation::Status, |device| device.length(object))
    }

    fn modified_ns(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        self.powered(Operation::Status, |device| device.modified_ns(object))
    }

    fn sync(&self, object: ObjectName) -> Result<(), DeviceError> {
        self.synced(|device| device.sync(object))
    }

    fn remove(&self, object: ObjectName) -> Result<(), DeviceError> {
        self.powered(Operation::Remove, |device| device.remove(object))
    }

    fn sync_all(&self) -> Result<(), DeviceError> {
        self.synced(Device::sync_all)
    }
}
