//! The ccPFS server: lock service and data service.
