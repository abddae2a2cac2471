//! The interposer: unmodified programs on ccPFS paths.
