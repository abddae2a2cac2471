//! ccPFS port: transport.
