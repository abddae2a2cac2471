//! The C interface of ccPFS.
