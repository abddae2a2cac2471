//! ccPFS port: device.
